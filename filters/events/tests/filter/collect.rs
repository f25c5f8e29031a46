//! Requests with events.

use weir_event::stamps::Kind;
use weir_host_test::StreamState;

use super::support::{Gate, NOW_MS, PAGE, SECRET, stamps};

#[test]
fn events_are_forwarded_with_stamps_and_unchanged_body() {
    let gate = Gate::new();
    let request = gate
        .post(0)
        .header("cookie", "session=1")
        .header("authorization", "Bearer x")
        .header("x-weir-event-kind", "server")
        .header("x-weir-event-key", "erp")
        .header("x-weir-event-key", "again")
        .header("x-user-id", "alice");
    let stream = request.send();
    let stamped = stamps(&stream);
    assert_eq!(
        (stamped.key.as_str(), stamped.kind),
        ("shop-web", Kind::Browser)
    );
    assert_eq!(stamped.received_ms, NOW_MS);
    assert_eq!(stamped.address.unwrap().to_string(), "203.0.113.0/24");
    let went = stream.upstream_request();
    assert_eq!(went.body_text(), r#"{"type":"view"}"#);
    let text = |name| went.headers.text(name);
    assert_eq!(text("x-user-id"), Some("alice"));
    for removed in ["cookie", "authorization", "x-weir-write-key"] {
        assert_eq!(text(removed), None, "{removed}");
    }
    let keys = went
        .headers
        .iter()
        .filter(|(name, _)| *name == "x-weir-event-key");
    assert_eq!(keys.count(), 1);
    assert_eq!(gate.metric("requests_total.outcome.forwarded"), 1);
    assert_eq!(gate.metric("forged_total"), 1);
}

#[test]
fn server_key_is_read_from_the_environment() {
    let gate = Gate::new();
    let request = gate.post(0).without("x-weir-write-key");
    let stream = request.header("x-weir-write-key", SECRET).send();
    assert_eq!(stamps(&stream).key.as_str(), "erp");
    let stream = gate.post(0).without("x-weir-write-key").send();
    assert_eq!(stream.status(), Some(401));
}

#[test]
fn page_can_read_answers_of_origin_and_gateway() {
    let gate = Gate::new();
    let stream = gate.post(0).header("origin", PAGE).send();
    stream.respond(202, [("content-type", "application/json")], "{}");
    let StreamState::Responded(response) = stream.state() else {
        panic!("{:?}", stream.state())
    };
    assert_eq!(
        response.headers.text("access-control-allow-origin"),
        Some(PAGE)
    );
    let reply = gate
        .post(0)
        .header("origin", PAGE)
        .header("x-weir-consent", "none")
        .send()
        .reply()
        .unwrap();
    assert_eq!(reply.status, 202);
    assert_eq!(reply.header("access-control-allow-origin"), Some(PAGE));
    assert!(reply.body_text().contains(r#""dropped":true"#));
    let preflight = gate
        .host
        .request(0)
        .method("OPTIONS")
        .path("/events")
        .header("origin", PAGE)
        .header("access-control-request-method", "POST");
    let reply = preflight.send().reply().unwrap();
    assert_eq!((reply.status, reply.body.len()), (204, 0));
}

#[test]
fn event_limit_is_shared_by_all_workers() {
    let gate = Gate::new();
    let sent = (0..30).map(|n| gate.post(n % 2).header("x-weir-visitor", "v1").send());
    let (passed, refused): (Vec<_>, Vec<_>) = sent.partition(weir_host_test::Stream::is_continued);
    assert_eq!((passed.len(), refused.len()), (10, 20));
    let reply = refused[0].reply().unwrap();
    assert_eq!(reply.status, 429);
    assert_eq!(reply.header("retry-after"), Some("6"));
    assert!(reply.header("ratelimit").is_some());
}

#[test]
fn image_request_is_forwarded_without_its_key() {
    let gate = Gate::new();
    let path = "/events.gif?key=wk_shop_web&type=view&a.sku=a1";
    let stream = gate.host.request(0).path(path).send();
    let went = stream.upstream_request();
    assert_eq!(
        went.headers.text(":path"),
        Some("/events.gif?type=view&a.sku=a1")
    );
    assert_eq!(stamps(&stream).key.as_str(), "shop-web");
}
