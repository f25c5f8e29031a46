//! Views: which requests count, and how they reach the origin.

use weir_engine::{Engine, Level};
use weir_event::consent::Consent;
use weir_event::stamps::{Kind, Stamps};

use crate::host::{Host, NOW_MS, status, verdicts_response};

fn host() -> Host {
    with("")
}

fn with(outbox: &str) -> Host {
    Host::new(&format!(
        r#""observe":{{"key":"shop-web","routes":[{{"path":"/products/{{sku}}"}},{{"path":"/p/{{id}}/full","type":"open"}}],
        "outbox":{{{outbox}}}}}"#
    ))
}

fn observed(host: &mut Host, outcome: &str) -> u64 {
    host.count(&format!("weir_events_observed_total.outcome.{outcome}"))
}

fn views(host: &mut Host) -> [u64; 4] {
    ["accepted", "rejected", "refused", "dropped"]
        .map(|outcome| host.count(&format!("weir_events_views_total.outcome.{outcome}")))
}

#[test]
fn successful_page_response_is_recorded_as_a_view() {
    let mut host = host();
    let headers = [("x-user-id", "alice"), ("cookie", "a=b; weir_visitor=v1")];
    let stream = host.view("a%201", &headers);
    assert!(host.stream(stream).goes_on());
    assert_eq!(host.stream(stream).sent("cookie"), ["a=b; weir_visitor=v1"]);
    assert!(host.fetches.is_empty());
    host.end(stream, Some(200));
    host.advance(1_000);
    let (fetch, events) = host.batch();
    let [event] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!(event.event_type.as_str(), "view");
    assert_eq!(event.customer.as_ref().unwrap().as_str(), "alice");
    assert_eq!(event.visitor.as_ref().unwrap().as_str(), "v1");
    assert_eq!(event.at_ms, Some(NOW_MS));
    assert_eq!(event.attributes["sku"], "a 1");
    let header = |name| fetch.headers.iter().find(|(existing, _)| *existing == name);
    let stamps = Stamps::read(|name| header(name).map(|(_, value)| value.as_bytes())).unwrap();
    assert_eq!(
        (stamps.key.as_str(), stamps.kind),
        ("shop-web", Kind::Server)
    );
    assert_eq!((stamps.consent, stamps.address), (Consent::Full, None));
    assert_eq!(header(":path").unwrap().1, "/events");
    assert_eq!(&*fetch.cluster, "weir_origin");
    host.answer_fetch(verdicts_response(1, 0));
    assert_eq!(views(&mut host), [1, 0, 0, 0]);
    assert_eq!(observed(&mut host, "view"), 1);
}

#[test]
fn bots_prefetches_and_missing_consent_record_no_view() {
    let mut host = host();
    for (headers, outcome) in [
        (&[("user-agent", "Googlebot/2.1")][..], "bot"),
        (&[("sec-purpose", "prefetch;prerender")], "prefetch"),
        (&[("purpose", "prefetch")], "prefetch"),
        (&[("cookie", "weir_consent=none")], "dropped"),
        (&[("cookie", "weir_consent=whatever")], "dropped"),
        (
            &[("x-weir-consent", "none"), ("cookie", "weir_consent=full")],
            "dropped",
        ),
    ] {
        let before = observed(&mut host, outcome);
        host.viewed("a1", headers);
        assert_eq!(observed(&mut host, outcome), before + 1, "{headers:?}");
    }
    for path in ["a%ff", &"x".repeat(65)] {
        host.viewed(path, &[]);
    }
    assert_eq!(observed(&mut host, "malformed"), 2);
    for end in [Some(404), Some(500), Some(199), None] {
        let stream = host.view("a1", &[]);
        host.end(stream, end);
    }
    assert_eq!(observed(&mut host, "failed"), 4);
    for (method, path) in [
        ("HEAD", "/products/a1"),
        ("POST", "/products/a1"),
        ("GET", "/products/a1/b"),
        ("GET", "/"),
    ] {
        let stream = host.request(&[(":method", method), (":path", path)]);
        host.end(stream, Some(200));
    }
    assert_eq!(observed(&mut host, "view"), 0);
    host.advance(5_000);
    assert!(host.fetches.is_empty());
    assert_eq!(host.engine.tick_ms(), None);
    // Requests of apps count, and so do unmodified responses.
    host.viewed("a1", &[("user-agent", "okhttp/4")]);
    let stream = host.view("a1", &[]);
    host.end(stream, Some(304));
    assert_eq!(observed(&mut host, "view"), 2);
}

#[test]
fn limited_consent_anonymizes_views() {
    let mut host = host();
    let user = [("x-user-id", "alice"), ("x-weir-visitor", "v1")];
    for response in [
        ("sec-gpc", "1"),
        ("cookie", "weir_consent=anonymous"),
        ("x-weir-consent", "anonymous"),
    ] {
        host.viewed("a1", &[&user[..], &[response]].concat());
    }
    host.viewed("a1", &user);
    host.advance(1_000);
    let (_, events) = host.batch();
    let named: Vec<bool> = events
        .iter()
        .map(|event| event.customer.is_some() && event.visitor.is_some())
        .collect();
    assert_eq!(named, [false, false, false, true]);
    assert!(
        events[..3]
            .iter()
            .all(|event| event.customer.is_none() && event.visitor.is_none())
    );
}

#[test]
fn route_sets_the_event_type_and_attribute() {
    let mut host = host();
    let stream = host.request(&[(":method", "GET"), (":path", "/p/7/full?x=y")]);
    host.end(stream, Some(200));
    host.advance(1_000);
    let (_, events) = host.batch();
    assert_eq!(events[0].event_type.as_str(), "open");
    assert_eq!(events[0].attributes["id"], "7");
}

#[test]
fn views_are_batched_by_time_count_and_size() {
    let mut host = with(r#""flush_ms":500,"events_max":3"#);
    for n in 0..7 {
        host.viewed(&format!("s{n}"), &[]);
    }
    host.advance(1);
    assert_eq!(host.batch().1.len(), 3);
    host.answer_fetch(verdicts_response(3, 0));
    assert_eq!(host.batch().1.len(), 3);
    host.answer_fetch(verdicts_response(3, 0));
    assert!(host.fetches.is_empty(), "one view waits for its time");
    host.advance(500);
    let (_, events) = host.batch();
    assert_eq!(events[0].attributes["sku"], "s6");
    host.answer_fetch(verdicts_response(1, 0));
    let mut host = with(r#""bytes_max":32768,"events_max":1000"#);
    for _ in 0..999 {
        host.viewed(&"x".repeat(64), &[]);
    }
    host.advance(1_000);
    let (fetch, _) = host.batch();
    assert!(
        (32_000..=32_768).contains(&fetch.body.len()),
        "{}",
        fetch.body.len()
    );
}

/// A failed batch is sent again with the same bytes, so that the origin can detect duplicates.
#[test]
fn failed_view_batch_is_retried_before_other_views() {
    let mut host = host();
    host.viewed("a1", &[]);
    host.advance(1_000);
    let first = host.batch().0.body.clone();
    host.answer_fetch(None);
    host.viewed("a2", &[]);
    for (wait_ms, answer) in [
        (1_000, status(503, "")),
        (2_000, status(429, "")),
        (4_000, status(408, "")),
    ] {
        host.advance(wait_ms - 1);
        assert!(host.fetches.is_empty(), "{wait_ms}");
        host.advance(1);
        assert_eq!(host.batch().0.body, first);
        host.answer_fetch(answer);
    }
    assert_eq!(host.count("weir_events_batches_failed_total"), 4);
    host.advance(8_000);
    host.answer_fetch(verdicts_response(1, 0));
    assert_eq!(host.batch().1[0].attributes["sku"], "a2");
    host.answer_fetch(verdicts_response(1, 0));
    assert_eq!(views(&mut host), [2, 0, 0, 0]);
    let lines: Vec<Level> = host.log.iter().map(|(level, _)| *level).collect();
    assert_eq!(lines, [Level::Warn, Level::Info], "{:?}", host.log);
}

#[test]
fn view_retry_honours_the_retry_after_header() {
    let mut host = host();
    host.viewed("a1", &[]);
    host.advance(1_000);
    let mut busy = status(503, "").unwrap();
    busy.headers.push(("retry-after".into(), "7".into()));
    host.answer_fetch(Some(busy));
    host.advance(6_999);
    assert!(host.fetches.is_empty());
    host.advance(1);
    assert_eq!(host.fetches.len(), 1);
}

#[test]
fn events_refused_by_origin_are_counted_and_do_not_block_others() {
    let mut host = with(r#""events_max":2"#);
    for n in 0..4 {
        host.viewed(&format!("s{n}"), &[]);
    }
    host.advance(1_000);
    host.answer_fetch(status(404, "no such page"));
    host.answer_fetch(verdicts_response(0, 2));
    assert_eq!(views(&mut host), [0, 2, 2, 0]);
    assert!(host.has_logged("refused 2 views with status 404"));
    assert!(host.has_logged("rejects views: view is unknown"));
    // The server is not an origin of events.
    host.viewed("a", &[]);
    host.advance(1_000);
    host.answer_fetch(status(200, "<html>"));
    assert_eq!(views(&mut host), [0, 2, 3, 0]);
    // Even a response with more rejections than views.
    host.viewed("a", &[]);
    host.advance(1_000);
    host.answer_fetch(verdicts_response(0, 9));
    assert_eq!(views(&mut host), [0, 3, 3, 0]);
}

#[test]
fn outbox_is_bounded_and_overflow_counted_during_origin_outage() {
    let mut host = with(r#""events_max":10,"batches_max":3"#);
    host.viewed("first", &[]);
    host.advance(1_000);
    // The first batch stays in flight. Two more may wait, and one is open.
    for n in 0..1_000 {
        host.viewed(&format!("s{n}"), &[]);
    }
    assert_eq!(host.fetches.len(), 1);
    assert_eq!(views(&mut host), [0, 0, 0, 970]);
    assert_eq!(host.batch().1[0].attributes["sku"], "first");
    host.answer_fetch(verdicts_response(1, 0));
    let mut retained = Vec::new();
    for _ in 0..3 {
        let events = host.batch().1;
        retained.extend(
            events
                .iter()
                .map(|event| event.attributes["sku"].as_str().unwrap().to_owned()),
        );
        host.answer_fetch(verdicts_response(10, 0));
        host.advance(1_000);
    }
    let latest: Vec<String> = (970..1_000).map(|n| format!("s{n}")).collect();
    assert_eq!(retained, latest, "the latest are kept");
    assert_eq!(views(&mut host), [31, 0, 0, 970]);
}

#[test]
fn each_view_has_a_unique_id() {
    let mut host = host();
    for _ in 0..50 {
        host.viewed("a1", &[]);
    }
    host.advance(1_000);
    let (_, events) = host.batch();
    let ids: std::collections::BTreeSet<_> = events
        .iter()
        .map(|event| event.id.clone().unwrap())
        .collect();
    assert_eq!(ids.len(), 50);
}

#[test]
fn open_observed_requests_are_bounded() {
    let mut host = host();
    for _ in 0..10_010 {
        let stream = host.view("a1", &[]);
        assert!(host.stream(stream).goes_on());
    }
    assert_eq!(observed(&mut host, "overloaded"), 10);
}
