//! Vehicle fitment: client queries, filter configurations, and Redis replies.

use serde_json::Value as Json;
use weir_base::resp::{Value, decode};
use weir_fitment::check::{BODY_LEN_MAX, Browse, Check, CheckError, StoredAnswer};
use weir_fitment::engine::config::Config;
use weir_fitment::redis::{
    fit_add, fit_browse, fit_browse_fill, fit_drop, fit_put, fit_query, fit_route, fit_route_put,
    fit_vehicles, fit_vehicles_put, fit_verify,
};
use weir_fitment::{Plan, SKUS_MAX, VEHICLES_MAX};

use crate::config::{check_nothing_follows, check_refusal};

/// The body of a query. Checks that a parsed one is within its limits, and that the answer contains each pair.
pub fn fitment_check(data: &[u8]) {
    let check = match Check::read(data) {
        Ok(check) => check,
        Err(refusal) => return check_refused(&refusal),
    };
    assert!(data.len() <= BODY_LEN_MAX);
    let (vehicles, skus) = (check.vehicles.len(), check.skus.len());
    assert!((1..=VEHICLES_MAX).contains(&vehicles) && (1..=SKUS_MAX).contains(&skus));
    let (mut body, mut requested) = (Vec::new(), 0);
    let answer = |sku: usize, vehicle: usize| {
        requested += 1;
        StoredAnswer::Known((sku % 32) as u8).answer(vehicle)
    };
    check.write(answer, &mut body);
    assert_eq!(requested, vehicles * skus);
    let body: Json = serde_json::from_slice(&body).expect("the answer is JSON");
    let reply = |pointer: String| body.pointer(&pointer).and_then(Json::as_str);
    for (index, required) in check.skus.iter().enumerate() {
        assert_eq!(
            reply(format!("/skus/{index}/sku")),
            Some(required.sku.as_str())
        );
        for vehicle in 0..vehicles {
            let expected = StoredAnswer::Known((index % 32) as u8)
                .answer(vehicle)
                .label();
            let pointer = format!("/skus/{index}/answers/{vehicle}");
            assert_eq!(reply(pointer), Some(expected));
        }
    }
}

/// The query string of `GET /fitment/skus`. Checks that a parsed one equals the query that a client creates from the
/// answer.
pub fn fitment_browse(data: &[u8]) {
    let Ok(query) = std::str::from_utf8(data) else {
        return;
    };
    let browse = match Browse::read(query) {
        Ok(browse) => browse,
        Err(refusal) => return check_refused(&refusal),
    };
    let again = format!("vehicle={}&after={}", browse.vehicle, browse.after);
    assert_eq!(Browse::read(&again).as_ref(), Ok(&browse));
    let mut body = Vec::new();
    browse.write(["a\"b\\"], Some(browse.after), &mut body);
    let body: Json = serde_json::from_slice(&body).expect("the answer is JSON");
    assert_eq!(
        body.pointer("/skus/0").and_then(Json::as_str),
        Some("a\"b\\")
    );
}

/// The configuration of the filter. Checks that an accepted one is within its bounds, and that a refusal names the
/// field and the reason.
pub fn fitment_config(data: &[u8]) {
    let checked = weir_engine::config::parse::<Config>(data).and_then(Config::checked);
    let accepted = match checked {
        Ok(accepted) => accepted,
        Err(refusal) => return check_refusal(&refusal),
    };
    check_nothing_follows::<Config>(data);
    assert!(accepted.bridges().iter().all(|bridge| !bridge.is_empty()));
    assert_eq!(accepted.bridges().len(), accepted.clusters.len() + 1);
    assert!((50..=60_000).contains(&accepted.poll_interval_ms));
    assert!((1..=50_000_000).contains(&accepted.vehicles_max));
    assert!(accepted.places_max <= 10_000_000);
}

/// The parsers of all fitment scripts, on one reply. Checks that a reply for one number of SKUs is refused for any
/// other number.
pub fn fitment_replies(data: &[u8]) {
    let Ok((value, _)) = decode(data) else {
        return;
    };
    let count = match &value {
        Value::Array(values) => values.len(),
        _ => 0,
    };
    if let Ok(routes) = fit_route::parse(&value, count) {
        assert_eq!(routes.len(), count);
        assert!(fit_route::parse(&value, count + 1).is_err());
    }
    if let Ok(retained) = fit_verify::parse(&value, count / 2) {
        assert_eq!(retained.len() * 2, count);
    }
    let replies = std::slice::from_ref(&value);
    let skus = match &value {
        Value::Bulk(text) => text.len(),
        _ => 0,
    };
    for (plan, vehicles) in [(Plan::Directory, VEHICLES_MAX), (Plan::Bitmaps, 1)] {
        if let Ok(stored) = fit_query::parse(plan, replies, vehicles, skus) {
            assert_eq!(stored.len(), skus);
            assert!(fit_query::parse(plan, replies, vehicles, skus + 1).is_err());
        }
    }
    let _ = (
        fit_add::parse(&value),
        fit_browse::parse(&value),
        fit_browse_fill::parse(&value),
        fit_drop::parse(&value),
        fit_put::parse(&value),
        fit_route_put::parse(&value),
        fit_vehicles::parse(&value),
        fit_vehicles_put::parse(&value),
    );
}

fn check_refused(refusal: &CheckError) {
    assert!([400, 413, 422].contains(&refusal.status()));
    assert!(!refusal.code().is_empty() && !refusal.to_string().is_empty());
}
