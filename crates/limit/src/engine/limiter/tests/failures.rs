//! Redis is slow, unavailable, or returns invalid replies.

use super::super::*;
use super::host::{CallOutcome, Host, RedisConnectivity};

const REDIS: &str = r#""redis": {}, "breaker": { "min_requests": 4, "window_ms": 1000, "open_ms": 500, "probes": 1 }"#;

const FAILURES: [CallOutcome; 4] = [
    CallOutcome::Lost,
    CallOutcome::Garbled,
    CallOutcome::TimedOut,
    CallOutcome::Refused,
];

fn host(on_store_error: &str) -> Host {
    let rule = format!(
        r#"{{ "name": "r", "key": ["user"], "store": "redis", "on_store_error": "{on_store_error}",
        "limit": {{ "rate": 2, "per": "1h" }} }}"#
    );
    Host::new(&[&rule], REDIS)
}

/// A request whose call has this outcome.
fn fail(host: &mut Host, user: &str, fate: CallOutcome) -> StreamId {
    let stream = host.request(user);
    host.turn();
    assert!(host.is_waiting(stream));
    host.end_call(0, fate);
    stream
}

#[test]
fn rule_sets_the_fallback_for_redis_failures() {
    for fate in FAILURES {
        let mut open = host("open");
        let stream = fail(&mut open, "alice", fate);
        assert!(open.is_passed(stream), "{fate:?}");
        let counts = ["store_error", "fallback", "allowed"].map(|subject| open.count(subject, "r"));
        assert_eq!(counts, [1, 1, 1], "{fate:?}");
        let mut closed = host("closed");
        let stream = fail(&mut closed, "alice", fate);
        assert_eq!(closed.answer(stream).status, 503);
        assert_eq!(closed.header(stream, "retry-after").as_deref(), Some("1"));
        let mut local = host("local");
        let streams = [(); 3].map(|()| fail(&mut local, "alice", fate));
        assert_eq!(
            streams.map(|stream| local.is_passed(stream)),
            [true, true, false]
        );
        assert_eq!(local.answer(streams[2]).status, 429);
        assert!(open.is_at_rest() && closed.is_at_rest() && local.is_at_rest());
    }
}

#[test]
fn refusal_of_redis_is_counted_logged_and_opens_the_breaker() {
    let mut host = host("open");
    for _ in 0..4 {
        let stream = host.request("alice");
        host.turn();
        let (batch, _) = host.calls.remove(0).unwrap();
        host.reply(batch, Ok(b"-OOM command not allowed\r\n".into()));
        assert!(host.is_passed(stream));
    }
    assert_eq!(
        host.metric("weir_ratelimit_redis_refused_total.reason.oom"),
        4
    );
    assert!(host.has_logged("Redis refuses \"limit\" on cluster \"weir_redis\""));
    assert_eq!(
        host.metric("weir_ratelimit_redis_breaker_total.state.open"),
        1
    );
}

#[test]
fn unreachable_redis_does_not_delay_a_request() {
    let mut host = host("local");
    host.connectivity = RedisConnectivity::Down;
    let stream = host.request("alice");
    host.turn();
    host.turn();
    assert!(host.is_passed(stream));
    assert!(host.is_at_rest());
}

#[test]
fn request_past_its_deadline_proceeds_without_redis() {
    let mut host = Host::new(
        &[
            r#"{ "name": "r", "store": "redis", "on_store_error": "open", "limit": { "rate": 1, "per": "1h" } }"#,
        ],
        r#""redis": { "deadline_ms": 20, "batches_max": 1 }"#,
    );
    let sent = host.request("alice");
    host.turn();
    let waits = host.request("bob");
    host.now_ms += 19;
    host.tick();
    assert!(host.is_waiting(waits));
    host.now_ms += 1;
    host.tick();
    assert!(host.is_passed(waits));
    assert!(host.is_waiting(sent), "the host ends its call");
    host.end_call(0, CallOutcome::TimedOut);
    assert!(host.is_passed(sent));
}

#[test]
fn open_breaker_stops_calls_and_one_request_probes_later() {
    let mut host = host("local");
    for n in 0..4 {
        fail(&mut host, &format!("user-{n}"), CallOutcome::TimedOut);
    }
    assert_eq!(
        host.metric("weir_ratelimit_redis_breaker_total.state.open"),
        1
    );
    for n in 0..50 {
        let stream = host.request(&format!("other-{n}"));
        assert!(host.is_passed(stream), "at once");
    }
    assert!(host.calls.is_empty());
    host.now_ms += 600;
    let probe = host.request("probe");
    assert!(host.is_waiting(probe));
    let meanwhile = host.request("meanwhile");
    assert!(host.is_passed(meanwhile));
    host.settle();
    assert!(host.is_passed(probe));
    let later = host.request("later");
    assert!(host.is_waiting(later), "it is closed again");
}

#[test]
fn request_without_redis_rules_does_not_probe_redis() {
    let here = r#"{ "name": "here", "limit": { "rate": 99, "per": "1h" } }"#;
    let there = r#"{ "name": "there", "store": "redis", "match": { "headers": [{ "name": "x-user-id" }] },
        "limit": { "rate": 99, "per": "1h" } }"#;
    let fields = format!(r#"{REDIS}, "headers": {{ "on_allowed": true }}"#);
    let mut host = Host::new(&[here, there], &fields);
    for _ in 0..4 {
        fail(&mut host, "alice", CallOutcome::TimedOut);
    }
    host.now_ms += 600;
    let other = host.request_with(&[]);
    assert!(host.is_passed(other));
    let probe = host.request("alice");
    assert!(host.is_waiting(probe), "the one probe was left to it");
}

#[test]
fn full_pump_falls_back_immediately() {
    let rule = r#"{ "name": "r", "store": "redis", "key": ["user"], "limit": { "rate": 1, "per": "1h" } }"#;
    let mut host = Host::new(
        &[rule],
        r#""redis": { "waiting_max": 2, "batches_max": 1 }"#,
    );
    let streams = [(); 10].map(|()| host.request("alice"));
    let waiting = streams.iter().filter(|stream| host.is_waiting(**stream));
    assert_eq!(waiting.count(), 2);
    assert_eq!(host.count("fallback", "r"), 8);
    assert_eq!(host.count("store_error", "r"), 0);
}

#[test]
fn closed_rule_returns_local_charges_when_redis_fails() {
    let here = r#"{ "name": "here", "limit": { "rate": 1, "per": "1h" } }"#;
    let there = r#"{ "name": "there", "store": "redis", "on_store_error": "closed", "limit": { "rate": 9, "per": "1h" } }"#;
    let mut host = Host::new(&[here, there], r#""redis": {}"#);
    for fate in FAILURES {
        let stream = fail(&mut host, "alice", fate);
        assert_eq!(host.answer(stream).status, 503);
    }
    assert_eq!(host.passed("alice", 2), 1);
}

#[test]
fn shadow_rule_is_checked_locally_while_redis_fails() {
    let rule = r#"{ "name": "r", "store": "redis", "mode": "shadow", "limit": { "rate": 1, "per": "1h" } }"#;
    let mut host = Host::new(&[rule], r#""redis": {}"#);
    for _ in 0..3 {
        let stream = fail(&mut host, "alice", CallOutcome::TimedOut);
        assert!(host.is_passed(stream));
    }
    let counts = ["allowed", "shadow_limited", "fallback"].map(|subject| host.count(subject, "r"));
    assert_eq!(counts, [1, 2, 3]);
}

#[test]
fn log_reports_silent_redis_and_its_return_once() {
    let mut host = host("open");
    let warnings = |host: &Host| {
        let mut log = host.log.iter();
        log.by_ref()
            .filter(|(level, _)| *level == Level::Warn)
            .count()
    };
    fail(&mut host, "alice", CallOutcome::TimedOut);
    fail(&mut host, "alice", CallOutcome::TimedOut);
    assert_eq!(warnings(&host), 1, "{:?}", host.log);
    assert!(
        host.has_logged("decided without Redis: outcome unknown: timeout waiting for the reply")
    );
    fail(&mut host, "bob", CallOutcome::Answered);
    host.settle();
    assert!(host.has_logged("Redis answers again"));
    fail(&mut host, "bob", CallOutcome::Lost);
    assert_eq!(warnings(&host), 2);
}

#[test]
fn limiter_without_rules_logs_it_at_the_first_request() {
    let mut idle = Host::new(&[], "");
    idle.request("alice");
    idle.request("alice");
    assert_eq!(idle.log.len(), 1);
    assert!(idle.has_logged("no rules, so nothing is limited"));
    let mut reloads = Host::new(&[], r#""redis": {}, "reload": true"#);
    reloads.request("alice");
    assert!(!reloads.has_logged("there are no rules"));
}
