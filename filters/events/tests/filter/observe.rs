//! Views of observed routes.

use std::time::Duration;

use weir_event::stamps::{Kind, Stamps};
use weir_host_test::Reply;

use super::support::Gate;

#[test]
fn views_of_all_workers_reach_the_origin() {
    let gate = Gate::new();
    for n in 0..20 {
        gate.view(n % 2, &format!("s{n}"));
    }
    gate.host.advance(Duration::from_secs(2));
    let origin = gate.origin.borrow();
    assert_eq!(origin.calls.len(), 2, "a batch for each worker");
    let mut skus: Vec<String> = origin
        .views()
        .iter()
        .map(|view| view.attributes["sku"].as_str().unwrap().to_owned())
        .collect();
    skus.sort();
    let mut expected: Vec<String> = (0..20).map(|n| format!("s{n}")).collect();
    expected.sort();
    assert_eq!(skus, expected);
    let ids: std::collections::BTreeSet<_> =
        origin.views().iter().map(|view| view.id.clone()).collect();
    assert_eq!(ids.len(), 20, "no worker has another's ids");
    let call = &origin.calls[0];
    assert_eq!(call.headers.text(":method"), Some("POST"));
    let stamps = Stamps::read(|name| call.headers.text(name).map(str::as_bytes)).unwrap();
    assert_eq!(
        (stamps.key.as_str(), stamps.kind),
        ("shop-web", Kind::Server)
    );
    drop(origin);
    assert_eq!(gate.metric("views_total.outcome.accepted"), 20);
}

#[test]
fn dead_origin_loses_no_buffered_view_and_overflow_is_counted() {
    let gate = Gate::new();
    gate.origin.borrow_mut().reply = Some(Reply::unreachable());
    for n in 0..1_000 {
        gate.view(0, &format!("s{n}"));
    }
    gate.host.advance(Duration::from_secs(60));
    let dropped = gate.metric("views_total.outcome.dropped");
    assert!(gate.metric("batches_failed_total") >= 5);
    assert!(gate.host.logged("the origin does not accept views"));
    {
        let mut origin = gate.origin.borrow_mut();
        origin.reply = None;
        origin.calls.clear();
    }
    gate.host.advance(Duration::from_secs(60));
    let retained = gate.origin.borrow().views().len() as u64;
    assert_eq!(retained + dropped, 1_000);
    assert!(retained >= 400, "{retained}");
    assert_eq!(gate.metric("views_total.outcome.accepted"), retained);
    assert!(gate.host.logged("the origin accepts views again"));
}

#[test]
fn missing_or_failed_response_counts_no_view() {
    let gate = Gate::new();
    let request = gate.host.request(0).path("/products/a1");
    request.send().disconnect();
    let failed = gate.host.request(0).path("/products/a1").send();
    failed.respond(404, [("content-type", "text/html")], "no such product");
    failed.disconnect();
    gate.host.advance(Duration::from_secs(2));
    assert!(gate.origin.borrow().calls.is_empty());
    assert_eq!(gate.metric("observed_total.outcome.failed"), 2);
}
