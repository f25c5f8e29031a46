//! Redis is slow, down, or returns garbage.

use std::time::Duration;

use weir_host_test::{Reply, Stream, Upstream};

use super::support::{Limiter, header, is_passed};

fn rule(on_store_error: &str) -> String {
    format!(
        r#"{{ "name": "r", "key": ["user"], "store": "redis", "on_store_error": "{on_store_error}",
        "limit": {{ "rate": 2, "per": "1h" }} }}"#
    )
}

const REDIS: &str = r#""redis": {}, "breaker": { "min_requests": 4, "window_ms": 1000, "open_ms": 500, "probes": 1 }"#;

fn limiter(on_store_error: &str) -> Limiter {
    Limiter::with(&[&rule(on_store_error)], REDIS)
}

/// Advances past the deadline of waiting requests.
fn wait(limiter: &Limiter) {
    limiter.host.run_until_idle();
    limiter.host.advance(Duration::from_millis(20));
    limiter.host.run_until_idle();
}

fn after_the_deadline(limiter: &Limiter, user: &str) -> Stream {
    let stream = limiter.ask(user);
    assert!(stream.is_paused());
    limiter.host.run_until_idle();
    limiter.host.advance(Duration::from_millis(19));
    assert!(stream.is_paused(), "the deadline is 20 ms");
    limiter.host.advance(Duration::from_millis(1));
    limiter.host.run_until_idle();
    stream
}

#[test]
fn rule_sets_the_fallback_for_a_redis_timeout() {
    let open = limiter("open");
    assert!(is_passed(&after_the_deadline(&open, "alice")));
    assert_eq!(
        (open.count("store_error", "r"), open.count("fallback", "r")),
        (1, 1)
    );
    let closed = limiter("closed");
    let refused = after_the_deadline(&closed, "alice");
    assert_eq!(refused.status(), Some(503));
    assert_eq!(header(&refused, "retry-after").as_deref(), Some("1"));
    let local = limiter("local");
    assert!(is_passed(&after_the_deadline(&local, "alice")));
    assert!(is_passed(&after_the_deadline(&local, "alice")));
    assert_eq!(after_the_deadline(&local, "alice").status(), Some(429));
}

#[test]
fn unreachable_redis_falls_back_before_the_deadline() {
    for upstream in [
        Upstream::unhealthy(),
        Upstream::replies([Reply::unreachable()]),
    ] {
        let limiter = limiter("local");
        limiter.host.set_cluster("weir_redis", upstream);
        let stream = limiter.ask("alice");
        limiter.host.run_until_idle();
        assert!(is_passed(&stream), "{:?}", stream.state());
    }
}

#[test]
fn malformed_replies_are_not_decisions() {
    for reply in [
        "",
        "+OK\r\n",
        "*0\r\n",
        "*5\r\n:0\r\n:1\r\n:0\r\n:0\r\n:-1\r\n",
        "-ERR no\r\n",
        "*1\r\n$",
    ] {
        let limiter = limiter("open");
        let stream = limiter.ask("alice");
        limiter.host.run_until_idle();
        let call = limiter.host.calls().pop().unwrap();
        limiter.host.answer(call.id, Reply::ok(reply));
        limiter.host.run_until_idle();
        assert!(is_passed(&stream), "{reply:?}");
        assert_eq!(limiter.count("store_error", "r"), 1, "{reply:?}");
    }
}

#[test]
fn failing_redis_is_skipped_until_it_recovers() {
    let limiter = limiter("local");
    for n in 0..4 {
        after_the_deadline(&limiter, &format!("user-{n}"));
    }
    assert_eq!(
        limiter.metric("weir_ratelimit_redis_breaker_total.state.open"),
        1
    );
    let before = limiter.host.calls().len();
    for n in 0..50 {
        let stream = limiter.ask(&format!("other-{n}"));
        assert!(is_passed(&stream), "at once");
    }
    assert_eq!(limiter.host.calls().len(), before, "nothing was asked");
    limiter.host.advance(Duration::from_millis(600));
    let probe = limiter.ask("probe");
    assert!(probe.is_paused(), "one tries it out");
    assert!(is_passed(&limiter.ask("meanwhile")));
    limiter.host.run_until_idle();
    let call = limiter.host.calls().pop().unwrap();
    limiter
        .host
        .answer(call.id, Reply::ok("*5\r\n:0\r\n:1\r\n:9\r\n:0\r\n:1\r\n"));
    limiter.host.run_until_idle();
    assert!(is_passed(&probe));
    assert!(limiter.ask("later").is_paused());
    wait(&limiter);
}

#[test]
fn local_charge_is_refunded_when_redis_refuses() {
    let here = r#"{ "name": "here", "limit": { "rate": 1, "per": "1h" } }"#;
    let limiter = Limiter::with(&[here, &rule("open")], REDIS);
    let answer = |reply: &str| {
        let stream = limiter.ask("alice");
        limiter.host.run_until_idle();
        let call = limiter.host.calls().pop().unwrap();
        limiter.host.answer(call.id, Reply::ok(reply));
        limiter.host.run_until_idle();
        stream
    };
    let refused = answer("*5\r\n:7000\r\n:0\r\n:9000\r\n:0\r\n:0\r\n");
    assert_eq!(header(&refused, "retry-after").as_deref(), Some("7"));
    limiter.host.advance(Duration::from_secs(7));
    assert!(
        is_passed(&answer("*5\r\n:0\r\n:1\r\n:9000\r\n:0\r\n:1\r\n")),
        "the one of the rule here was given back"
    );
    assert_eq!(
        limiter.ask("alice").status(),
        Some(429),
        "and is spent now, without a word to Redis"
    );
}

#[test]
fn client_that_leaves_during_a_redis_wait_is_dropped() {
    let limiter = limiter("open");
    let streams: Vec<Stream> = (0..100)
        .map(|n| limiter.ask(&format!("user-{n}")))
        .collect();
    streams.iter().for_each(Stream::disconnect);
    wait(&limiter);
    assert_eq!(
        limiter
            .host
            .open_contexts(weir_host_test::Thread::Worker(0)),
        0
    );
    limiter.host.assert_sound();
}

#[test]
fn full_pump_falls_back_immediately() {
    let limiter = Limiter::with(
        &[&rule("open")],
        r#""redis": { "waiting_max": 2, "batches_max": 1 }"#,
    );
    let streams: Vec<Stream> = (0..10).map(|n| limiter.ask(&format!("user-{n}"))).collect();
    assert_eq!(
        streams.iter().filter(|stream| stream.is_paused()).count(),
        2
    );
    assert_eq!(limiter.count("fallback", "r"), 8);
    wait(&limiter);
}
