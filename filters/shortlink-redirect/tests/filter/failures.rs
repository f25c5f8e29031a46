//! Redis outages, overload, and a VM that dies.

use std::time::Duration;

use weir_host_test::{Reply, Stream, Upstream};
use weir_link::record::Link;

use super::support::{CONFIG, DOMAINS, Gate, TARGET, header, link, location, status};

#[test]
fn cached_links_resolve_and_others_ask_origin_without_redis() {
    let gate = Gate::new();
    gate.put("s/hot", &link());
    gate.click("/hot");
    gate.set_redis(false);
    let cold = ("s/cold".into(), "https://cold.example/".into());
    let hot = ("s/hot".into(), TARGET.into());
    gate.origin.borrow_mut().links.extend([hot, cold]);
    for _ in 0..10 {
        gate.host.advance(Duration::from_secs(60));
        assert_eq!(gate.location("/hot"), TARGET, "after any time");
    }
    let cold = gate.request(0, "/cold").send();
    gate.host.advance(Duration::from_millis(100));
    assert_eq!(location(&cold), "https://cold.example/");
    // Also without the origin.
    gate.origin.borrow_mut().reply = Some(Reply::unreachable());
    assert_eq!(gate.location("/hot"), TARGET);
    assert_eq!(gate.location("/cold"), "https://cold.example/");
    let other = gate.request(0, "/other").send();
    gate.host.advance(Duration::from_millis(100));
    let retry_after = header(&other, "retry-after").unwrap();
    assert_eq!((status(&other), retry_after.as_str()), (503, "1"));
}

#[test]
fn silent_redis_opens_the_breaker_and_requests_do_not_wait() {
    let gate = Gate::with(
        r#"{ "redis": { "deadline_ms": 100 }, "breaker": { "min_requests": 5, "open_ms": 1000 },
        "origin": { "limit": { "rate": 1000, "per": "1s", "burst": 1000 } } }"#,
    );
    gate.set_redis(false);
    let ask = |code: &str| gate.request(0, &format!("/{code}")).send();
    let waiting: Vec<Stream> = (0..5).map(|n| ask(&format!("abc{n}"))).collect();
    gate.host.advance(Duration::from_millis(110));
    assert!(waiting.iter().all(|stream| status(stream) == 404));
    assert_eq!(gate.metric("redis_breaker_total.state.open"), 1);
    let stream = ask("abd");
    gate.host.run_until_idle();
    assert_eq!(status(&stream), 404, "without waiting");
    gate.set_redis(true);
    gate.put("s/back", &link());
    gate.host.advance(Duration::from_millis(1_000));
    for number in 0..10 {
        assert_eq!(status(&gate.click(&format!("/none{number}"))), 404);
    }
    assert_eq!(gate.location("/back"), TARGET);
    assert_eq!(gate.metric("redis_breaker_total.state.closed"), 1);
}

#[test]
fn click_limited_link_returns_503_without_redis_and_origin() {
    let gate = Gate::new();
    gate.put(
        "s/two",
        &Link {
            max_clicks: 2,
            ..link()
        },
    );
    assert_eq!(gate.location("/two"), TARGET);
    gate.set_redis(false);
    gate.origin.borrow_mut().reply = Some(Reply::unreachable());
    let stream = gate.request(0, "/two").send();
    gate.host.advance(Duration::from_millis(100));
    assert_eq!(status(&stream), 503);
}

#[test]
fn requests_beyond_the_waiting_limit_are_answered_immediately() {
    let gate = Gate::with(
        r#"{ "redis": { "deadline_ms": 1000, "waiting_max": 10, "batches_max": 1 },
        "origin": { "limit": { "rate": 1, "per": "1s", "burst": 3 }, "waiting_max": 2 } }"#,
    );
    gate.put("s/hot", &link());
    gate.click("/hot");
    gate.set_redis(false);
    let streams: Vec<Stream> = (0..20)
        .map(|n| gate.request(0, &format!("/code{n}")).send())
        .collect();
    let answered = |expected| {
        streams
            .iter()
            .filter(|stream| stream.status() == Some(expected))
            .count()
    };
    // One is in flight, ten wait for Redis, and two for the origin.
    assert_eq!((answered(503), answered(404)), (7, 0));
    assert_eq!(
        streams.iter().filter(|stream| stream.is_paused()).count(),
        13
    );
    assert_eq!(location(&gate.request(0, "/hot").send()), TARGET);
    gate.host.advance(Duration::from_secs(3));
    assert_eq!(answered(503) + answered(404), 20);
    // By then the origin's limit allows two more.
    assert_eq!((answered(404), gate.answered("overloaded")), (4, 16));
}

#[test]
fn missing_cluster_is_treated_as_a_redis_outage() {
    let gate = Gate::new();
    gate.put("s/hot", &link());
    gate.click("/hot");
    gate.host.set_cluster("weir_redis", Upstream::unhealthy());
    gate.host.advance(Duration::from_secs(1));
    assert_eq!(gate.location("/hot"), TARGET);
    assert_eq!(status(&gate.click("/abc")), 404);
    gate.host.remove_cluster("weir_redis");
    gate.host.advance(Duration::from_secs(1));
    assert_eq!(gate.location("/hot"), TARGET);
    assert!(gate.metric("polls_failed_total") > 0);
}

#[test]
fn vm_crash_loses_only_clicks_since_the_last_batch() {
    let gate = Gate::new();
    gate.put("s/abc", &link());
    for _ in 0..100 {
        gate.click("/abc");
    }
    gate.host.advance(Duration::from_secs(1));
    assert_eq!(gate.clicks(), 100);
    for _ in 0..30 {
        gate.click("/abc");
    }
    gate.host.trap_next("proxy_send_local_response");
    gate.request(0, "/abc").send();
    assert!(!gate.host.is_alive(0));
    // The next VM has no data, passes requests until it has polled, and then continues.
    gate.host.advance(Duration::from_secs(2));
    gate.click("/abc");
    gate.host.advance(Duration::from_secs(2));
    assert_eq!(gate.location("/abc"), TARGET);
    gate.host.advance(Duration::from_secs(2));
    let lost = 130 + 1 - gate.clicks();
    assert!(lost <= 30, "{lost}");
    let counters: std::collections::BTreeSet<u64> =
        gate.batches().iter().map(|(id, _)| id.counter).collect();
    assert_eq!(counters.len(), 2, "no two VMs count under one name");
}

#[test]
fn requests_pass_until_the_domains_are_loaded() {
    let gate = Gate::unaware(CONFIG);
    gate.set_redis(false);
    // It pauses briefly: Redis may answer at once.
    let first = gate.click("/abc");
    assert!(!first.is_continued());
    for _ in 0..5 {
        gate.host.advance(Duration::from_secs(1));
        assert!(first.is_continued());
        assert!(gate.click("/abc").is_continued());
    }
    gate.set_redis(true);
    gate.publish(DOMAINS);
    gate.host.advance(Duration::from_secs(2));
    assert_eq!(status(&gate.click("/abc")), 404);
}
