//! Tests of the gate without WebAssembly and Envoy: events in, effects out.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)] // it is a test

mod bench;
#[path = "gate/challenge.rs"]
mod challenge;
#[path = "gate/early.rs"]
mod early;
#[path = "gate/held.rs"]
mod held;
#[path = "gate/quantity.rs"]
mod quantity;
#[path = "gate/report.rs"]
mod report;

use proptest::prelude::*;
use weir_base::headers;
use weir_base::key::SigningKey;
use weir_engine::Effect;

use bench::{Bench, NOW_MS, Outcome, Reply};

#[test]
fn granted_request_carries_signed_claim_and_verdict() {
    let mut bench = Bench::open();
    bench.buy(1, "alice");
    bench.run(Reply::Granted);
    let added = bench.added_headers(1);
    let names: Vec<&str> = added.iter().map(|(name, _)| *name).collect();
    assert_eq!(
        names,
        [headers::CLAIM, headers::CLAIM_SIGNATURE, headers::VERDICT]
    );
    assert!(added[0].1.contains("alice"), "{added:?}");
    assert_eq!(added[2].1, "granted");
    assert_eq!(bench.outcome(1), Some(Outcome::WentOn));
}

/// Refused at once, by Redis' reply, or at the checkout.
#[test]
fn refusal_uses_preferred_language_and_keeps_its_code() {
    let mut bench = Bench::with(
        r#", "checkout_routes": [{ "path": "/sales/{sale}/checkout" }], "status_routes": [{ "path": "/sales/{sale}" }],
            "token": { "keys": [{ "secret": { "env": "T" } }], "min_age_ms": 1, "max_age_ms": 9 }"#,
    );
    let reply = |bench: &Bench, stream| {
        let (_, body) = bench.answer(stream);
        let body: serde_json::Value = serde_json::from_str(&body).unwrap();
        let language = bench.answer_header(stream, "content-language");
        let error = body["error"].as_str().unwrap().to_owned();
        (
            error,
            body["message"].as_str().unwrap().to_owned(),
            language,
        )
    };
    let as_alice = |language| [("x-user-id", "alice"), ("accept-language", language)];
    let german = as_alice("de-AT,de;q=0.9,en;q=0.5");
    let chinese = as_alice("zh-CN");
    bench.request(1, "POST", "/sales/none/orders", &german);
    let (error, message, language) = reply(&bench, 1);
    assert_eq!(
        (error.as_str(), language.as_deref()),
        ("unknown_sale", Some("de"))
    );
    assert_eq!(message, "Diesen Verkauf gibt es nicht.");
    bench.request(2, "POST", "/sales/s/orders", &chinese);
    bench.run(Reply::CapReached);
    let (error, message, language) = reply(&bench, 2);
    assert_eq!(
        (error.as_str(), language.as_deref()),
        ("cap_reached", Some("zh"))
    );
    assert_eq!(message, "您已达到每人限购数量");
    bench.request(3, "POST", "/sales/none/checkout", &german);
    assert_eq!(reply(&bench, 3).1, "Diesen Verkauf gibt es nicht.");
    bench.request(4, "GET", "/sales/none", &chinese);
    assert_eq!(reply(&bench, 4).1, "该活动不存在");
    // The default language for all others.
    for (stream, language) in [(5, "fr"), (6, "en-GB"), (7, "")] {
        bench.request(stream, "POST", "/sales/none/orders", &as_alice(language));
        let (_, message, language) = reply(&bench, stream);
        assert_eq!(
            (message.as_str(), language),
            ("there is no such sale", None)
        );
    }
}

#[test]
fn request_on_another_route_claims_no_unit() {
    let mut bench = Bench::with_route("orders");
    bench.buy_by(1, "alice", Some("orders"));
    bench.run(Reply::Granted);
    let claims = |bench: &Bench, stream| {
        let added = bench.added_headers(stream);
        added.iter().any(|(name, _)| *name == headers::CLAIM)
    };
    assert!(claims(&bench, 1));
    let (calls, warnings, granted) = (bench.calls, bench.warnings, bench.granted);
    for (stream, route) in [(2, Some("shop")), (3, Some("")), (4, None)] {
        bench.buy_by(stream, "bob", route);
        assert_eq!(bench.outcome(stream), Some(Outcome::WentOn), "{route:?}");
        assert!(!claims(&bench, stream), "{route:?}");
    }
    assert_eq!(bench.calls, calls, "Redis was asked");
    assert_eq!(bench.counted("misrouted_total"), 3);
    assert_eq!(bench.warnings, warnings + 1, "it is told once");
    assert_eq!(bench.granted, granted);
}

#[test]
fn gateway_headers_of_clients_are_removed_before_adding() {
    let mut bench = Bench::open();
    let forged = [("x-user-id", "alice"), (headers::CLAIM, "forged")];
    bench.request(1, "POST", "/sales/s/orders", &forged);
    bench.run(Reply::Granted);
    let of_stream: Vec<&Effect> = bench.effects_of(1).collect();
    let first_added = of_stream
        .iter()
        .position(|effect| matches!(effect, Effect::AddRequestHeader { .. }));
    let last_removed = of_stream
        .iter()
        .rposition(|effect| matches!(effect, Effect::RemoveRequestHeader { .. }));
    assert!(
        last_removed.unwrap() < first_added.unwrap(),
        "{of_stream:?}"
    );

    bench.request(2, "GET", "/", &forged);
    let removed = |effect: &&Effect| matches!(effect, Effect::RemoveRequestHeader { .. });
    assert_eq!(
        bench.effects_of(2).filter(removed).count(),
        headers::GATEWAY_ONLY.len()
    );
    assert_eq!(bench.outcome(2), Some(Outcome::WentOn));
}

#[test]
fn refusal_is_answered_with_its_status_and_code() {
    for (reply, status, word) in [
        (Reply::Blocked, 403, "blocked"),
        (Reply::CapReached, 409, "cap_reached"),
        (Reply::Cold, 503, "unavailable"),
        (Reply::Damaged, 503, "unavailable"),
        (Reply::Lost, 503, "unavailable"),
    ] {
        let mut bench = Bench::open();
        bench.buy(1, "alice");
        bench.run(reply);
        let (response, body) = bench.answer(1);
        assert_eq!(response, status, "{body}");
        assert!(body.contains(word), "{body}");
    }
}

#[test]
fn rate_limited_user_causes_no_redis_call() {
    let mut bench =
        Bench::with(r#", "limits": { "user": { "rate": 1, "per": "1s", "burst": 1 } }"#);
    bench.buy(1, "alice");
    bench.run(Reply::Granted);
    let calls = bench.calls;
    bench.buy(2, "alice");
    bench.run(Reply::Granted);
    assert_eq!(bench.answer(2).0, 429);
    assert_eq!(bench.calls, calls);
}

#[test]
fn missing_or_duplicate_user_header_identifies_no_user() {
    let mut bench = Bench::with(PAYING);
    let users: [&[(&str, &str)]; 3] = [
        &[],
        &[("x-user-id", "alice"), ("x-user-id", "bob")],
        &[("x-user-id", "alice"), ("x-user-id", "alice")],
    ];
    for (stream, headers) in (1..).zip(users) {
        bench.request(stream, "POST", "/sales/s/orders", headers);
        let (status, body) = bench.answer(stream);
        assert_eq!(status, 401, "{body}");
        assert!(body.contains("invalid_user"), "{body}");
        bench.request(10 + stream, "GET", "/orders/s.0.1", headers);
        assert_eq!(bench.added_headers(10 + stream), []);
    }
}

/// An old reply of Redis may be outdated: units may have come back.
#[test]
fn gateway_without_recent_polls_reports_nothing_sold_out() {
    let mut bench = Bench::open();
    bench.sell_out();
    bench.buy(1, "alice");
    assert!(bench.answer(1).1.contains("sold_out"));
    bench.is_down = true;
    bench.advance(60_000);
    bench.buy(2, "bob");
    let (_, body) = bench.answer(2);
    assert!(body.contains("all_reserved"), "{body}");
}

#[test]
fn polls_are_frequent_until_an_empty_sale_is_sold_out() {
    const UNDECIDED_MS: u64 = 50;
    let mut bench = Bench::open();
    assert!(bench.tick_ms() > UNDECIDED_MS);
    bench.empty("reserved");
    assert_eq!(bench.tick_ms(), UNDECIDED_MS);
    bench.buy(1, "alice");
    assert_eq!(bench.answer(1).0, 409);
    assert!(bench.answer(1).1.contains("all_reserved"));
    bench.publish_band("none");
    bench.advance(UNDECIDED_MS);
    bench.run(Reply::Empty);
    bench.buy(2, "bob");
    assert!(bench.answer(2).1.contains("sold_out"));
    assert!(bench.tick_ms() > UNDECIDED_MS);
}

#[test]
fn regular_order_of_a_sale_item_is_sent_to_the_sale() {
    let routes = r#", "sku_routes": [{ "path": "/orders", "sku": { "query": "sku" } }]"#;
    let mut bench = Bench::with(routes);
    bench.catalogue = bench
        .catalogue
        .replace("\"state\"", "\"sku\":\"hat\",\"state\"");
    bench.advance(700);
    let user = [("x-user-id", "alice")];
    bench.request(1, "POST", "/orders?sku=shoes", &user);
    assert_eq!(bench.outcome(1), Some(Outcome::WentOn));
    bench.request(2, "POST", "/orders?sku=hat", &user);
    let (status, body) = bench.answer(2);
    assert_eq!(status, 409);
    assert!(
        body.contains(r#""error":"sku_in_sale""#)
            && body.ends_with(r#""sale":"s","orders":"/sales/s/orders"}"#),
        "{body}"
    );
    assert_eq!(bench.counted("requests_total.verdict.sku_in_sale"), 1);
    bench.request(3, "GET", "/orders?sku=hat", &user);
    assert_eq!(bench.outcome(3), Some(Outcome::WentOn));
}

/// Two seconds, or four polls if these take longer.
#[test]
fn poll_result_stays_valid_for_a_few_polls() {
    for (more, current_ms) in [("", 2_000), (r#", "poll_interval_ms": 700"#, 2_800)] {
        for (age_ms, word) in [(current_ms, "sold_out"), (current_ms + 1, "all_reserved")] {
            let mut bench = Bench::with(more);
            bench.sell_out();
            bench.advance(700);
            bench.is_down = true;
            bench.advance(age_ms);
            bench.buy(1, "alice");
            let (_, body) = bench.answer(1);
            assert!(body.contains(word), "{age_ms} {more}: {body}");
        }
    }
}

#[test]
fn concurrent_origin_requests_are_limited_by_the_cap() {
    let mut bench = Bench::with(r#", "overload": { "in_flight_max": 2 }"#);
    for stream in 1..4 {
        bench.buy(stream, &format!("user-{stream}"));
        bench.run(Reply::Granted);
    }
    assert_eq!(bench.outcome(1), Some(Outcome::WentOn));
    assert_eq!(bench.outcome(2), Some(Outcome::WentOn));
    let (status, body) = bench.answer(3);
    assert_eq!(status, 503);
    assert!(body.contains("overloaded"), "{body}");
    bench.close(1);
    bench.buy(4, "user-4");
    bench.run(Reply::Granted);
    assert_eq!(bench.outcome(4), Some(Outcome::WentOn));
}

#[test]
fn failing_redis_opens_the_redis_breaker() {
    let breaker = r#", "overload": { "redis_breaker":
        { "window_ms": 2000, "min_requests": 4, "failure_percent": 60, "open_ms": 300 } }"#;
    let mut bench = Bench::with(breaker);
    for stream in 0..4 {
        bench.buy(stream, &format!("user-{stream}"));
        bench.run(Reply::Lost);
        assert!(bench.answer(stream).1.contains("unavailable"));
    }
    let calls = bench.calls;
    bench.buy(4, "user-4");
    bench.send();
    let (status, body) = bench.answer(4);
    assert_eq!(status, 503);
    assert!(body.contains("overloaded"), "{body}");
    assert_eq!(bench.calls, calls);
}

#[test]
fn refusal_of_redis_is_counted_logged_and_opens_the_breaker() {
    let breaker = r#", "overload": { "redis_breaker":
        { "window_ms": 2000, "min_requests": 4, "failure_percent": 60, "open_ms": 300 } }"#;
    let mut bench = Bench::with(breaker);
    let warnings = bench.warnings;
    for stream in 0..4 {
        bench.buy(stream, &format!("user-{stream}"));
        bench.send();
        bench.refuse_oldest(
            "READONLY You can't write against a read only replica. \
             script: 9282fe9cd1ad17b421df71a1d74837df7d50241a, on @user_script:1.",
        );
        assert!(bench.answer(stream).1.contains("unavailable"));
    }
    assert_eq!(bench.counted("redis_refused_total.reason.readonly"), 4);
    assert_eq!(bench.counted("redis_failed_total.outcome.definite"), 4);
    assert_eq!(bench.warnings, warnings + 1, "once a minute");
    bench.buy(4, "user-4");
    bench.send();
    assert!(
        bench.answer(4).1.contains("overloaded"),
        "the breaker is open"
    );
    assert_eq!(bench.counted("redis_breaker_total.state.open"), 1);
}

#[test]
fn refused_poll_is_counted() {
    let mut bench = Bench::open();
    bench.buy(1, "alice");
    bench.run(Reply::Granted);
    bench.send_poll(700);
    bench.refuse_oldest("NOPERM No permissions to access a key");
    assert_eq!(bench.counted("redis_refused_total.reason.noperm"), 1);
    assert_eq!(bench.counted("polls_failed_total"), 1);
}

#[test]
fn user_at_the_cap_gets_the_existing_order() {
    let mut bench = Bench::open();
    bench.buy(1, "alice");
    bench.run(Reply::CapReached);
    let (_, body) = bench.answer(1);
    assert!(body.contains(r#""order":"s.0.7""#), "{body}");
    bench.buy(2, "bob");
    bench.run(Reply::Blocked);
    assert!(!bench.answer(2).1.contains("order\""));
}

#[test]
fn sale_in_static_page_mode_answers_with_the_page() {
    let mut bench = Bench::with(
        r#", "retry_after_s": 9, "static_page": { "status": 200, "content_type": "text/plain", "body": "soon" }"#,
    );
    let behind = r#""degrade":{"static_page":true},"state""#;
    bench.catalogue = bench.catalogue.replace("\"state\"", behind);
    bench.advance(300);
    bench.buy(1, "alice");
    assert_eq!(bench.answer(1), (200, "soon".into()));
    for (name, value) in [
        ("content-type", "text/plain"),
        ("cache-control", "no-store"),
        ("retry-after", "9"),
        (headers::VERDICT, "static_page"),
    ] {
        assert_eq!(bench.answer_header(1, name).as_deref(), Some(value));
    }
}

const CHECKOUT: &str = r#", "checkout_routes": [{ "path": "/sales/{sale}/checkout" }],
    "token": { "keys": [{ "secret": { "env": "S" } }], "min_age_ms": 2000, "max_age_ms": 5000 }"#;

/// A gate whose sale requires order tokens.
fn of_a_sale_with_tokens(more: &str) -> Bench {
    let mut bench = Bench::with(more);
    bench.catalogue = bench
        .catalogue
        .replace("\"state\"", "\"token\":true,\"state\"");
    bench.advance(300);
    bench
}

fn check_out(bench: &mut Bench, stream: u32, user: &str) -> serde_json::Value {
    let headers = [("x-user-id", user)];
    bench.request(stream, "POST", "/sales/s/checkout", &headers);
    serde_json::from_str(&bench.answer(stream).1).unwrap()
}

#[test]
fn checkout_returns_a_token_with_its_validity_period() {
    let mut bench = of_a_sale_with_tokens(CHECKOUT);
    let minted = check_out(&mut bench, 1, "alice");
    assert_eq!(bench.answer(1).0, 200);
    let verdict = bench.answer_header(1, headers::VERDICT);
    assert_eq!(verdict.as_deref(), Some("token_minted"));
    let now_ms = NOW_MS + 300;
    assert_eq!(minted["now_ms"], now_ms);
    assert_eq!(minted["usable_at_ms"], now_ms + 2_000);
    assert_eq!(minted["expires_at_ms"], now_ms + 5_000);
    assert_eq!(bench.counted("requests_total.verdict.token_minted"), 1);

    let token = minted["token"].as_str().unwrap();
    let order = |bench: &mut Bench, stream, user: &str| {
        let headers = [("x-user-id", user), (headers::ORDER_TOKEN, token)];
        bench.request(stream, "POST", "/sales/s/orders", &headers);
        bench.run(Reply::Granted);
        bench.outcome(stream).unwrap()
    };
    let refused_for = |bench: &mut Bench, stream, user, reason: &str| {
        assert_eq!(order(bench, stream, user), Outcome::Answered(403));
        let word = match reason {
            "too_young" => "token_too_young",
            _ => "invalid_token",
        };
        assert!(bench.answer(stream).1.contains(word));
        let counter = format!("tokens_refused_total.reason.{reason}");
        assert_eq!(bench.counted(&counter), 1, "{reason}");
    };
    refused_for(&mut bench, 2, "alice", "too_young");
    refused_for(&mut bench, 3, "bob", "foreign_user");
    bench.buy(4, "alice");
    assert_eq!(bench.answer(4).0, 403);
    assert_eq!(bench.counted("tokens_refused_total.reason.missing"), 1);
    bench.advance(2_000);
    assert_eq!(order(&mut bench, 5, "alice"), Outcome::WentOn);
    bench.advance(3_001);
    assert_eq!(order(&mut bench, 6, "alice"), Outcome::Answered(403));
}

#[test]
fn refused_user_gets_a_reason_and_no_token() {
    let mut bench = of_a_sale_with_tokens(CHECKOUT);
    let alice = ("x-user-id", "alice");
    let refused = [
        (None, "/sales/s/checkout", 401, "invalid_user"),
        (Some(alice), "/sales/x/checkout", 404, "unknown_sale"),
    ];
    for (stream, (user, path, status, word)) in (1..).zip(refused) {
        bench.request(stream, "POST", path, user.as_slice());
        let (reply, body) = bench.answer(stream);
        assert_eq!(reply, status, "{body}");
        assert!(body.contains(word), "{body}");
        assert_eq!(bench.counted(&format!("requests_total.verdict.{word}")), 1);
    }
    bench.catalogue = bench.catalogue.replace("\"open\"", "\"drain\"");
    bench.advance(300);
    assert_eq!(check_out(&mut bench, 3, "alice")["error"], "draining");
    assert_eq!(bench.counted("requests_total.verdict.token_minted"), 0);
}

#[test]
fn dry_run_gives_tokens_to_all_and_counts_decisions() {
    let limits =
        format!(r#"{CHECKOUT}, "limits": {{ "user": {{ "rate": 1, "per": "1s", "burst": 1 }} }}"#);
    let mut bench = of_a_sale_with_tokens(&limits);
    bench.catalogue = bench.catalogue.replace("\"open\"", "\"shadow\"");
    bench.advance(300);
    for stream in 1..3 {
        let minted = check_out(&mut bench, stream, "alice");
        assert!(minted["token"].is_string(), "{minted}");
    }
    for word in ["token_minted", "rate_limited"] {
        assert_eq!(bench.counted(&format!("shadow_total.verdict.{word}")), 1);
        assert_eq!(bench.counted(&format!("requests_total.verdict.{word}")), 0);
    }
}

#[test]
fn token_sale_without_keys_sells_nothing_and_logs_why() {
    let mut bench = of_a_sale_with_tokens("");
    assert_eq!(bench.warnings, 1);
    bench.buy(1, "alice");
    let (status, body) = bench.answer(1);
    assert_eq!(status, 503);
    assert!(body.contains("unavailable"), "{body}");
    assert_eq!(of_a_sale_with_tokens(CHECKOUT).warnings, 0);
    assert_eq!(Bench::open().warnings, 0, "it wants none");
}

/// The catalogue of an origin that accepts these keys.
fn knowing(keys: &[(&str, &str)]) -> String {
    let keys = keys
        .iter()
        .map(|(id, fingerprint)| serde_json::json!({ "id": id, "fingerprint": fingerprint }));
    let keys = serde_json::Value::from_iter(keys);
    bench::CATALOGUE.replacen('{', &format!(r#"{{"claim_keys":{keys},"#), 1)
}

#[test]
fn gate_with_key_unknown_to_origin_grants_nothing_and_logs_why() {
    let own = SigningKey::new("k1", bench::SECRET).unwrap().fingerprint();
    let strange = "0123456789abcdef";
    let mut bench = Bench::open();
    let mut stream = 0;
    let mut refuses = |keys: &[(&str, &str)], warnings: usize| {
        bench.catalogue = knowing(keys);
        bench.advance(700);
        let (calls, text) = (bench.calls, format!("{keys:?}"));
        assert_eq!(bench.warnings, warnings, "{text}");
        stream += 1;
        bench.buy(stream, &format!("u{stream}"));
        bench.run(Reply::Granted);
        if bench.outcome(stream) == Some(Outcome::WentOn) {
            return false;
        }
        let (status, body) = bench.answer(stream);
        assert_eq!(status, 503);
        assert!(body.contains("misconfigured"), "{body}");
        assert_eq!(bench.calls, calls, "Redis is not asked");
        true
    };
    assert!(!refuses(&[], 0), "an older origin");
    assert!(!refuses(&[("k1", &own)], 0));
    assert!(refuses(&[("k1", strange)], 1));
    assert!(refuses(&[("k2", &own)], 1), "said once");
    // During a rotation, the origin accepts both.
    assert!(!refuses(&[("k2", strange), ("k1", &own)], 1));
    assert!(refuses(&[("k2", strange)], 2));
}

const KEYED: [(&str, &str); 2] = [("x-user-id", "alice"), ("idempotency-key", "\"k-1\"")];

#[test]
fn ordered_attempt_passes_when_sale_is_sold_out_or_over() {
    let mut bench = Bench::open();
    bench.sell_out();
    bench.buy(1, "alice");
    assert_eq!(bench.answer(1).0, 409, "it costs Redis nothing");
    bench.request(2, "POST", "/sales/s/orders", &KEYED);
    bench.run(Reply::Ordered);
    assert_eq!(bench.outcome(2), Some(Outcome::WentOn));
    let added = bench.added_headers(2);
    assert!(added[0].1.starts_with("v1;s;0;7;1;"), "{added:?}");
    assert_eq!(added[2], (headers::VERDICT, "granted_again".into()));
    bench.close(2);
    assert!(bench.is_at_rest());

    bench.request(3, "POST", "/sales/s/orders", &KEYED);
    bench.run(Reply::Empty);
    assert!(bench.answer(3).1.contains("sold_out"));

    bench.catalogue = bench.catalogue.replace("9000000000000", "2");
    bench.advance(300);
    bench.buy(4, "alice");
    assert_eq!(bench.answer(4).0, 410);
    bench.request(5, "POST", "/sales/s/orders", &KEYED);
    bench.run(Reply::Ordered);
    assert_eq!(bench.outcome(5), Some(Outcome::WentOn));
    for (stream, reply) in [(6, Reply::Draining), (7, Reply::Cold), (8, Reply::Empty)] {
        bench.request(stream, "POST", "/sales/s/orders", &KEYED);
        bench.run(reply);
        assert_eq!(bench.answer(stream).0, 410, "{reply:?}");
    }
}

#[test]
fn second_attempt_waits_for_first_and_invalid_key_is_refused() {
    let mut bench = Bench::open();
    bench.request(1, "POST", "/sales/s/orders", &KEYED);
    bench.run(Reply::InProgress);
    let (status, body) = bench.answer(1);
    assert_eq!(status, 409);
    assert!(body.contains("in_progress"), "{body}");
    let calls = bench.calls;
    for key in ["", "a b", "a,b", &"k".repeat(129)] {
        let mut bench = Bench::open();
        let headers = [("x-user-id", "alice"), ("idempotency-key", key)];
        bench.request(2, "POST", "/sales/s/orders", &headers);
        let (status, body) = bench.answer(2);
        assert_eq!(status, 400, "{body}");
        assert!(body.contains("invalid_idempotency_key"), "{body}");
    }
    assert_eq!(bench.calls, calls, "it costs Redis nothing");
}

const NAT: &str = r#", "limits": { "user": { "rate": 1, "per": "1s", "burst": 3 },
    "address": { "rate": 1, "per": "1s", "burst": 10 } }"#;

#[test]
fn refused_user_does_not_exhaust_the_limit_of_their_address() {
    let mut bench = Bench::with(NAT);
    for stream in 0..200 {
        bench.buy(stream, "mallory");
        bench.run(Reply::CapReached);
    }
    for n in 0..7 {
        let stream = 1_000 + n;
        bench.buy(stream, &format!("neighbour-{n}"));
        bench.run(Reply::Granted);
        assert_eq!(bench.outcome(stream), Some(Outcome::WentOn), "{n}");
    }
    bench.buy(2_000, "one-too-many");
    assert_eq!(bench.answer(2_000).0, 429, "the address has a limit, too");
}

const PAYING: &str = r#", "identify_prefixes": ["/orders/"]"#;

#[test]
fn requests_answered_by_sql_have_their_own_rate_limit() {
    let mut bench = Bench::with(PAYING);
    let alice = [("x-user-id", "alice")];
    for stream in 0..20 {
        bench.request(stream, "POST", "/orders/s.0.1/pay", &alice);
        assert_eq!(bench.outcome(stream), Some(Outcome::WentOn));
        assert_eq!(bench.added_headers(stream)[0].0, headers::USER);
    }
    bench.request(20, "GET", "/orders/s.0.1", &alice);
    let (status, body) = bench.answer(20);
    assert_eq!(status, 429);
    assert!(body.contains("rate_limited"), "{body}");
    bench.request(21, "GET", "/orders/s.0.1", &[("x-user-id", "bob")]);
    assert_eq!(bench.outcome(21), Some(Outcome::WentOn));
    bench.request(22, "GET", "/elsewhere", &alice);
    assert_eq!(bench.outcome(22), Some(Outcome::WentOn));
    bench.buy(23, "alice");
    bench.run(Reply::Granted);
    assert_eq!(
        bench.outcome(23),
        Some(Outcome::WentOn),
        "buying is counted apart"
    );
    // Various users: the address limit applies.
    for stream in 100..2_079 {
        bench.request(stream, "GET", "/orders/s.0.1", &[]);
        assert_eq!(bench.outcome(stream), Some(Outcome::WentOn));
    }
    bench.request(3_000, "GET", "/orders/s.0.1", &[]);
    assert_eq!(bench.answer(3_000).0, 429);
    bench.request_from("192.0.2.2", 3_001, "GET", "/orders/s.0.1", &[]);
    assert_eq!(bench.outcome(3_001), Some(Outcome::WentOn));
}

proptest! {
    /// For every mix of users and addresses: refused requests charge no limit, so the number of passed ones is what
    /// both limits allow.
    #[test]
    fn rate_limit_charges_both_user_and_address_or_neither(
        requests in prop::collection::vec((0..4_usize, 0..2_usize), 0..80),
    ) {
        let mut bench = Bench::with(NAT);
        let (mut by_user, mut by_address) = ([0_u32; 4], [0_u32; 2]);
        for (n, (user, address)) in requests.into_iter().enumerate() {
            let stream = n as u32;
            let name = format!("user-{user}");
            let from = format!("192.0.2.{address}");
            let headers = [("x-user-id", name.as_str())];
            bench.request_from(&from, stream, "POST", "/sales/s/orders", &headers);
            bench.run(Reply::Granted);
            let may_pass = by_user[user] < 3 && by_address[address] < 10;
            let passed = bench.outcome(stream) == Some(Outcome::WentOn);
            prop_assert_eq!(passed, may_pass);
            by_user[user] += u32::from(passed);
            by_address[address] += u32::from(passed);
        }
    }
}

#[test]
fn claim_of_a_disconnected_client_is_released() {
    let mut bench = Bench::open();
    bench.buy(1, "alice");
    bench.send();
    bench.close(1);
    bench.run(Reply::Granted);
    assert_eq!(bench.outcome(1), None);
    assert_eq!(bench.handed_back, 1);
}

#[test]
fn undelivered_claim_is_released() {
    let mut bench = Bench::open();
    bench.buy(1, "alice");
    bench.disconnected.insert(1);
    bench.run(Reply::Granted);
    assert_eq!(bench.handed_back, 1);
    bench.close(1);
    bench.run(Reply::Granted);
    assert_eq!(bench.handed_back, 1, "once");
}

/// C1: an origin's HTTP server rejects a request that it cannot parse, and no handler receives the claim.
#[test]
fn claim_refused_by_the_origin_is_released() {
    let handed_back = |status| {
        let mut bench = Bench::open();
        bench.buy(1, "alice");
        bench.run(Reply::Granted);
        bench.close_with(1, status);
        bench.run(Reply::Granted);
        assert!(bench.is_at_rest());
        bench.handed_back
    };
    for refused in [400, 409, 413, 414, 431] {
        assert_eq!(handed_back(Some(refused)), 1, "{refused}");
    }
    // After a failure or a timeout, the request may have become an order.
    for unknown in [200, 201, 302, 408, 500, 502, 503, 504] {
        assert_eq!(handed_back(Some(unknown)), 0, "{unknown}");
    }
    assert_eq!(handed_back(None), 0, "the client has gone");
}

#[test]
fn query_is_removed_before_forwarding_to_the_origin() {
    let mut bench = Bench::open();
    let paths = [
        "/sales/s/orders?q=\"<>",
        "/sales/s/orders?",
        "/sales/s/orders",
    ];
    for (stream, path) in (1..).zip(paths) {
        let user = format!("user-{stream}");
        bench.request(stream, "POST", path, &[("x-user-id", user.as_str())]);
        bench.run(Reply::Granted);
        let mut effects = bench.effects_of(stream);
        let set = effects.find_map(|effect| match effect {
            Effect::SetPath { path, .. } => Some(path.as_str()),
            _ => None,
        });
        let expected = path.contains('?').then_some("/sales/s/orders");
        assert_eq!(set, expected, "{path}");
    }
}

#[test]
fn shadow_mode_forwards_every_request() {
    let mut bench = Bench::open();
    bench.catalogue = bench.catalogue.replace("\"open\"", "\"shadow\"");
    bench.advance(300);
    for (stream, reply) in [(1, Reply::Granted), (2, Reply::Blocked), (3, Reply::Lost)] {
        bench.buy(stream, "alice");
        bench.run(reply);
        assert_eq!(bench.outcome(stream), Some(Outcome::WentOn), "{reply:?}");
    }
    let added = |stream| bench.added_headers(stream);
    assert_eq!(added(1)[0].0, headers::CLAIM);
    assert_eq!(added(2), [(headers::SHADOW, "blocked".into())]);
    assert_eq!(added(3), [(headers::SHADOW, "unavailable".into())]);
}

#[test]
fn countdown_allows_cross_origin_reads_from_any_site() {
    let mut bench = Bench::with(r#", "status_routes": [{ "path": "/sales/{sale}" }]"#);
    bench.request(1, "GET", "/sales/s", &[]);
    let allowed = bench.answer_header(1, "access-control-allow-origin");
    assert_eq!(allowed.as_deref(), Some("*"));
    let (status, body) = bench.answer(1);
    assert_eq!(status, 200);
    assert!(body.contains(r#""state":"running""#), "{body}");
    bench.request(2, "GET", "/sales/x", &[]);
    assert_eq!(bench.answer(2).0, 404);
    assert_eq!(bench.counted("statuses_total"), 2);
}

#[test]
fn invalid_catalogue_keeps_the_last_valid_one() {
    let mut bench = Bench::open();
    bench.catalogue = "nonsense".into();
    bench.advance(300);
    bench.advance(300);
    bench.buy(1, "alice");
    bench.run(Reply::Granted);
    assert_eq!(bench.outcome(1), Some(Outcome::WentOn));
    assert_eq!(bench.warnings, 1, "the log says so once");
}

#[test]
fn origin_failures_open_the_breaker_and_release_grants() {
    let mut bench = Bench::open();
    let mut refused = 0;
    bench.buy(0, "u0");
    bench.run(Reply::Granted);
    for stream in 1..2_000 {
        // It requests its claim before the previous request fails.
        bench.buy(stream, &format!("u{stream}"));
        bench.send();
        match bench.outcome(stream - 1) {
            Some(Outcome::WentOn) => bench.close_with(stream - 1, Some(502)),
            Some(Outcome::Answered(503)) => refused += 1,
            other => panic!("{other:?}"),
        }
        bench.run(Reply::Granted);
    }
    assert!(refused > 0);
    assert!(
        bench.handed_back > 0,
        "the first that was refused had a claim"
    );
}

/// Without failures, the breaker records one status in eight; from the first failure on, each.
#[test]
fn origin_breaker_opens_when_half_of_its_requests_fail() {
    let mut bench = Bench::open();
    let mut failures = 0;
    for stream in 0..100 {
        bench.buy(stream, &format!("u{stream}"));
        bench.run(Reply::Granted);
        if bench.outcome(stream) != Some(Outcome::WentOn) {
            break;
        }
        let is_well = stream < 20;
        failures += u32::from(!is_well);
        bench.close_with(stream, Some(if is_well { 404 } else { 500 }));
    }
    assert_eq!(failures, 7 + 20);
    assert_eq!(bench.counted("origin_breaker_total.state.open"), 1);
}

/// A gate with a sale of two shards, and a user whose home shard is the first, which is empty.
fn of_two_shards(stocks: [i64; 2]) -> (Bench, String) {
    let mut bench = Bench::open();
    bench.catalogue = bench.catalogue.replace("\"shards\":1", "\"shards\":2");
    bench.advance(300);
    bench.stocks = stocks.into();
    let at_home = |user: &String| {
        let user = weir_base::id::UserId::new(user).unwrap();
        weir_sale::shard::home_shard(&user, 2) == 0
    };
    let user = (0..).map(|n| format!("user-{n}")).find(at_home).unwrap();
    (bench, user)
}

#[test]
fn empty_shard_borrows_a_unit_for_its_buyer() {
    let (mut bench, user) = of_two_shards([0, 9]);
    bench.buy(1, &user);
    bench.send();
    assert!(!bench.is_at_rest(), "it waits");
    bench.answer_oldest(Reply::Empty);
    bench.run(Reply::Granted);
    assert_eq!(bench.outcome(1), Some(Outcome::WentOn));
    assert_eq!(bench.deposits, 1);
    assert_eq!(bench.counted("rebalances_total.outcome.filled"), 1);
    assert_eq!(bench.counted("requests_total.verdict.granted"), 1);
}

/// Other requests may be faster each time.
#[test]
fn buyer_at_repeatedly_empty_shards_gets_all_reserved() {
    let (mut bench, user) = of_two_shards([0, 9]);
    bench.buy(1, &user);
    for _ in 0..100 {
        bench.send();
        bench.answer_oldest(Reply::Empty);
    }
    let (status, body) = bench.answer(1);
    assert_eq!(status, 409);
    assert!(body.contains("all_reserved"), "{body}");
    assert_eq!(
        bench.deposits,
        usize::from(weir_sale::admission::REBALANCES_MAX)
    );
}

#[test]
fn unknown_sale_is_forwarded_while_all_sales_are_in_shadow() {
    let mut bench = Bench::open();
    bench.request(1, "POST", "/sales/unknown/orders", &[]);
    assert_eq!(bench.answer(1).0, 404);
    bench.catalogue = bench
        .catalogue
        .replace("{\"sales\"", "{\"switch\":\"shadow\",\"sales\"");
    bench.advance(300);
    bench.request(2, "POST", "/sales/unknown/orders", &[]);
    assert_eq!(
        bench.added_headers(2),
        [(headers::SHADOW, "unknown_sale".into())]
    );
    assert_eq!(bench.outcome(2), Some(Outcome::WentOn));
    assert_eq!(bench.counted("shadow_total.verdict.unknown_sale"), 1);
    let forged = [(headers::CLAIM, "forged")];
    bench.request(3, "POST", "/sales/unknown/orders", &forged);
    for (stream, count) in [(2, 0), (3, headers::GATEWAY_ONLY.len())] {
        let removed = |effect: &&Effect| matches!(effect, Effect::RemoveRequestHeader { .. });
        assert_eq!(bench.effects_of(stream).filter(removed).count(), count);
    }
}

/// Envoy has a worker without requests, which would otherwise log warnings forever.
#[test]
fn idle_gate_polls_rarely_and_logs_nothing() {
    let mut bench = Bench::new();
    bench.is_down = true;
    for _ in 0..10 {
        bench.advance(60_000);
    }
    assert_eq!(bench.warnings, 0);
    assert!(bench.tick_ms() > 10_000);

    bench.request(1, "POST", "/sales/s/orders", &[("x-user-id", "alice")]);
    bench.is_down = false;
    bench.send();
    assert_eq!(bench.calls, 1, "the first request makes it look at once");
    let tick_ms = bench.tick_ms();
    assert!(
        tick_ms <= 63,
        "requests have deadlines of 250 ms: {tick_ms}"
    );
    bench.catalogue = "nonsense".into();
    bench.run(Reply::Granted);
    assert_eq!(bench.warnings, 1);
    assert_eq!(bench.counted("polls_failed_total"), 1);
}

#[test]
fn unsendable_poll_is_logged_when_requests_arrive() {
    let mut bench = Bench::open();
    bench.request(1, "GET", "/sales/s/orders", &[]);
    bench.buy(2, "alice");
    bench.is_down = true;
    bench.advance(1_000);
    bench.advance(1_000);
    assert_eq!(bench.warnings, 1);
}

/// It never left the gateway, so a retry is safe, and Redis is overloaded.
#[test]
fn request_past_its_deadline_before_sending_gets_overloaded() {
    let mut bench = Bench::open();
    // It waits for the previous call, which Redis does not answer.
    bench.buy(0, "bob");
    bench.send();
    bench.buy(1, "alice");
    bench.send();
    assert_eq!(bench.calls, 2, "a poll and a claim");
    bench.advance(10_000);
    let (status, body) = bench.answer(1);
    assert_eq!(status, 503);
    assert!(body.contains("overloaded"), "{body}");
    assert_eq!(bench.counted("redis_failed_total.outcome.definite"), 1);
}

#[test]
fn retryable_refusal_carries_retry_after() {
    let mut bench = Bench::with(
        r#", "retry_after_s": 7, "limits": { "user": { "rate": 1, "per": "10s", "burst": 1 } }"#,
    );
    let reply = |bench: &Bench, stream| bench.answer_header(stream, "retry-after");
    bench.buy(1, "alice");
    bench.run(Reply::Lost);
    assert_eq!(reply(&bench, 1).as_deref(), Some("7"));
    // Answers are cached; one with another waiting time is a different answer.
    for (stream, wait) in [(2, "10"), (3, "6"), (4, "2")] {
        bench.buy(stream, "alice");
        assert_eq!(bench.answer(stream).0, 429);
        assert_eq!(reply(&bench, stream).as_deref(), Some(wait));
        bench.advance(4_000);
    }
    bench.buy(5, "bob");
    bench.run(Reply::Blocked);
    assert_eq!(reply(&bench, 5), None, "it would be of no use");
}

#[derive(Clone, Debug)]
enum Step {
    Buy,
    Close(usize),
    Gone(usize),
    Send,
    Answer(Reply),
    Pass(u64),
    Down(bool),
}

fn any_step() -> impl Strategy<Value = Step> {
    let reply = prop_oneof![
        4 => Just(Reply::Granted),
        1 => Just(Reply::Blocked),
        1 => Just(Reply::Empty),
        1 => Just(Reply::Damaged),
        1 => Just(Reply::Lost),
    ];
    prop_oneof![
        8 => Just(Step::Buy),
        2 => (0..40_usize).prop_map(Step::Close),
        1 => (0..40_usize).prop_map(Step::Gone),
        3 => Just(Step::Send),
        5 => reply.prop_map(Step::Answer),
        2 => (0..400_u64).prop_map(Step::Pass),
        1 => any::<bool>().prop_map(Step::Down),
    ]
}

proptest! {
    /// In every order of events, every open stream is answered exactly once, and every granted claim is either
    /// forwarded or released. The gate tracks no ended stream.
    #[test]
    fn each_request_is_answered_once_and_no_claim_leaks(
        steps in prop::collection::vec(any_step(), 0..120),
        knows_its_sale in any::<bool>(),
    ) {
        let mut bench = if knows_its_sale { Bench::open() } else { Bench::new() };
        let mut streams = Vec::new();
        for step in steps {
            match step {
                Step::Buy => {
                    let stream = streams.len() as u32;
                    streams.push(stream);
                    bench.buy(stream, &format!("u{stream}"));
                }
                Step::Close(n) => if let Some(&stream) = streams.get(n) { bench.close(stream) },
                Step::Gone(n) => if let Some(&stream) = streams.get(n) { bench.leave(stream) },
                Step::Send => bench.send(),
                Step::Answer(reply) => bench.answer_oldest(reply),
                Step::Pass(ms) => bench.advance(ms),
                Step::Down(is_down) => bench.is_down = is_down,
            }
            prop_assert!(bench.most_answers_in_an_event <= weir_engine::pump::BATCH_MAX);
        }
        bench.is_down = false;
        for _ in 0..20 {
            bench.advance(NOW_MS % 7 + 300);
            bench.run(Reply::Granted);
        }
        for &stream in &streams {
            let has_outcome = bench.outcome(stream).is_some();
            prop_assert!(has_outcome || bench.is_closed_or_disconnected(stream), "{} never completes", stream);
            bench.close(stream);
        }
        bench.run(Reply::Granted);
        let handed_back = bench.counted_as_handed_back();
        prop_assert_eq!(bench.granted, bench.went_on + handed_back);
        prop_assert!(bench.is_at_rest());
    }
}
