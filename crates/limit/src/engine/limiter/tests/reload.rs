//! Rules change while requests arrive.

use alloc::rc::Rc;
use alloc::string::String;

use super::super::*;
use super::host::{CallOutcome, Host, RedisConnectivity};

fn rules(rate: u32) -> String {
    format!(
        r#"{{ "rules": [{{ "name": "r", "key": ["user"], "limit": {{ "rate": {rate}, "per": "1h" }} }}] }}"#
    )
}

fn host() -> Host {
    let rule = r#"{ "name": "r", "key": ["user"], "limit": { "rate": 3, "per": "1h" } }"#;
    Host::new(&[rule], r#""redis": {}, "reload": true"#)
}

/// Sets the document for the next poll.
fn publish(host: &mut Host, document: Option<&str>) {
    host.redis.document = document.map(|json| json.into());
    host.now_ms += 250;
    host.tick();
    assert_eq!(host.calls.len(), 1, "one poll");
    host.settle();
}

#[test]
fn new_rules_apply_to_next_request_and_usage_is_kept() {
    let mut host = host();
    assert_eq!(host.passed("alice", 5), 3);
    publish(&mut host, Some(&rules(5)));
    assert_eq!(host.passed("alice", 5), 2, "five, of which three are used");
    assert_eq!(host.metric("weir_ratelimit_rules_loaded_total"), 1);
    assert!(host.has_logged("1 rules loaded from Redis"));
}

#[test]
fn invalid_rules_are_rejected_and_the_last_valid_ones_stay() {
    let mut host = host();
    for (index, bad) in [
        "",
        "nonsense",
        r#"{"rules":[{"name":"r"}]}"#,
        r#"{"rules":[{"name":"r","limit":{"rate":0,"per":"1h"}}]}"#,
    ]
    .into_iter()
    .enumerate()
    {
        publish(&mut host, Some(bad));
        publish(&mut host, Some(bad));
        assert_eq!(host.passed(&format!("user{index}"), 5), 3, "{bad}");
        let refused = host.metric("weir_ratelimit_rules_refused_total");
        assert_eq!(refused, index as u64 + 1, "each document once");
    }
    assert!(host.has_logged("rules[0].limit.rate"));
    publish(&mut host, Some(&rules(4)));
    assert_eq!(host.passed("alice", 5), 4, "a good one comes after all");
}

#[test]
fn lost_rules_document_keeps_the_current_rules() {
    let mut host = host();
    publish(&mut host, None);
    assert!(host.log.is_empty(), "there never was one");
    publish(&mut host, Some(&rules(1)));
    publish(&mut host, None);
    assert!(host.has_logged("no rules in Redis"));
    assert_eq!(host.passed("dave", 5), 1);
    publish(&mut host, Some(&rules(1)));
    assert_eq!(host.metric("weir_ratelimit_rules_loaded_total"), 2);
}

#[test]
fn failed_polls_keep_the_rules_and_log_once() {
    let mut host = host();
    host.passed("alice", 1);
    for (route, fate) in [
        (RedisConnectivity::Open, CallOutcome::TimedOut),
        (RedisConnectivity::Open, CallOutcome::Garbled),
        (RedisConnectivity::Down, CallOutcome::Answered),
    ] {
        host.connectivity = route;
        host.now_ms += 500;
        host.tick();
        host.end_call(0, fate);
    }
    assert_eq!(host.metric("weir_ratelimit_polls_failed_total"), 3);
    assert_eq!(host.log.len(), 1);
    assert_eq!(host.passed("bob", 5), 3);
    host.connectivity = RedisConnectivity::Open;
    publish(&mut host, None);
    assert!(host.has_logged("rules can be read again"));
}

#[test]
fn idle_worker_polls_less_often_and_logs_nothing() {
    let mut host = host();
    host.connectivity = RedisConnectivity::Down;
    for _ in 0..20 {
        host.now_ms += 40_000;
        host.tick();
    }
    assert!(host.log.is_empty());
    assert_eq!(host.metric("weir_ratelimit_polls_failed_total"), 0);
    assert_eq!(host.limiter.tick_ms(), Some(30_000));
    host.connectivity = RedisConnectivity::Open;
    host.ask("alice");
    let tick_ms = host.limiter.tick_ms().unwrap();
    assert!(
        tick_ms <= 10,
        "it watches over deadlines, and polls: {tick_ms}"
    );
}

#[test]
fn first_request_of_a_worker_loads_the_rules_immediately() {
    let mut host = host();
    host.connectivity = RedisConnectivity::Down;
    for _ in 0..20 {
        host.now_ms += 40_000;
        host.tick();
    }
    host.connectivity = RedisConnectivity::Open;
    host.redis.document = Some(rules(5).into());
    host.ask("alice");
    assert_eq!(host.metric("weir_ratelimit_rules_loaded_total"), 1);
}

#[test]
fn waiting_request_is_decided_by_the_rules_at_its_arrival() {
    let old = r#"{ "name": "r", "store": "redis", "algorithm": "concurrency", "limit": { "rate": 1, "per": "1h" } }"#;
    let mut host = Host::new(&[old], r#""redis": {}, "reload": true"#);
    host.redis.load_scripts();
    let stream = host.request("alice");
    host.redis.document = Some(rules(1).into());
    host.settle();
    host.now_ms += 250;
    host.tick();
    host.settle();
    assert!(host.is_passed(stream));
    assert_eq!(host.redis.in_flight(), 1);
    host.close(stream);
    host.settle();
    assert_eq!(host.redis.in_flight(), 0, "the old rule's charge goes back");
}

#[test]
fn rules_in_redis_must_fit_the_configuration() {
    let mut host = Host::with_data(r#"{"redis":{},"reload":true}"#, Rc::default());
    host.ask("any");
    publish(&mut host, Some(&rules(1)));
    assert!(host.has_logged("rules[0].key"), "there is no user_header");
    assert_eq!(host.passed("any", 9), 9);
}
