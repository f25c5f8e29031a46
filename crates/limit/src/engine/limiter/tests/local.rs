//! Local rules and client headers.

use alloc::rc::Rc;
use alloc::string::String;

use weir_base::shared_data::LocalData;
use weir_engine::event::PlainRequest;

use super::super::*;
use super::host::{Host, NOW_MS, SECRET, State};

const PER_USER: &str = r#"{ "name": "per-user", "key": ["user"], "limit": { "rate": 2, "per": "1h" }, "algorithm": "fixed_window" }"#;

#[test]
fn request_refused_by_one_rule_is_charged_to_none() {
    let all = r#"{ "name": "all", "limit": { "rate": 1, "per": "1m", "burst": 5 } }"#;
    let mut host = Host::new(&[all, PER_USER], "");
    assert_eq!(host.passed("alice", 20), 2);
    assert_eq!(host.passed("bob", 20), 2);
    assert_eq!(host.passed("carol", 20), 1, "5 - 2 - 2");
    assert_eq!(host.count("allowed", "all"), 5);
    assert_eq!(host.count("limited", "per-user"), 18 + 18);
    assert!(host.is_at_rest());
}

#[test]
fn each_matching_rule_charges_the_full_request_cost() {
    for store in ["local", "redis"] {
        let rule = format!(
            r#"{{ "name": "r", "store": "{store}", "cost": 2, "limit": {{ "rate": 5, "per": "1h" }} }}"#
        );
        let mut host = Host::new(&[&rule], r#""redis": {}"#);
        assert_eq!(host.passed("alice", 5), 2, "{store}");
    }
}

#[test]
fn workers_that_share_data_share_limits() {
    let data = Rc::new(LocalData::default());
    let json = format!(r#"{{"user_header":"x-user-id","rules":[{PER_USER}]}}"#);
    let mut hosts = [(); 2].map(|()| Host::with_data(&json, Rc::clone(&data)));
    let passed = hosts.each_mut().map(|host| host.passed("alice", 1));
    assert_eq!(passed, [1, 1]);
    assert_eq!(hosts.map(|mut host| host.passed("alice", 1)), [0, 0]);
}

#[test]
fn refusal_reports_remaining_quota_and_retry_time_per_policy() {
    let all = r#"{ "name": "all", "limit": { "rate": 100, "per": "1m", "burst": 10 } }"#;
    let mut host = Host::new(&[all, PER_USER], r#""headers": { "legacy": true }"#);
    assert_eq!(host.passed("alice", 2), 2);
    let refused = host.ask("alice");
    let header = |name| host.header(refused, name).unwrap();
    assert_eq!(host.answer(refused).status, 429);
    let policy = r#""all";q=10;w=6, "per-user";q=2;w=3600"#;
    assert_eq!(header("ratelimit-policy"), policy);
    assert_eq!(header("ratelimit"), r#""all";r=8, "per-user";r=0;t=2800"#);
    assert_eq!(header("retry-after"), "2800");
    assert_eq!(header("x-ratelimit-limit"), "2");
    assert_eq!(header("x-ratelimit-remaining"), "0");
    let body = core::str::from_utf8(&host.answer(refused).body).unwrap();
    let violated = r#""violated-policies":["per-user"],"#;
    assert!(body.contains(violated), "{body}");
}

#[test]
fn passed_responses_carry_limit_headers_when_configured() {
    let mut host = Host::new(&[PER_USER], r#""headers": { "on_allowed": true }"#);
    let stream = host.ask("alice");
    assert_eq!(host.limiter.streams.len(), 1, "its response is to come");
    let reply = host.response_header(stream, "ratelimit");
    assert_eq!(reply.as_deref(), Some(r#""per-user";r=1;t=2800"#));
    assert!(host.is_at_rest(), "nothing is left to do");
    let other = host.ask("alice");
    host.close(other);
    assert!(host.is_at_rest(), "there was no response");
}

#[test]
fn legacy_headers_report_first_rule_when_remaining_is_equal() {
    let first = r#"{ "name": "first", "limit": { "rate": 2, "per": "1h" } }"#;
    let second = r#"{ "name": "second", "cost": 4, "limit": { "rate": 5, "per": "1h" } }"#;
    let fields = r#""headers": { "on_allowed": true, "legacy": true }"#;
    let mut host = Host::new(&[first, second], fields);
    let stream = host.ask("alice");
    let reply = |name| host.response_header(stream, name).unwrap();
    let names = ["x-ratelimit-remaining", "x-ratelimit-limit"];
    assert_eq!(names.map(reply), ["1", "2"]);
}

#[test]
fn refused_grpc_client_gets_a_grpc_status() {
    let mut host = Host::new(&[PER_USER], "");
    host.passed("alice", 2);
    let grpc = [
        ("x-user-id", "alice"),
        ("content-type", "application/grpc+proto"),
    ];
    let refused = host.request_with(&grpc);
    let answer = host.answer(refused);
    assert_eq!((answer.status, answer.grpc_status), (200, Some(8)));
    assert_eq!(host.header(refused, "retry-after").as_deref(), Some("2800"));
}

#[test]
fn denied_key_is_refused_without_retry_after() {
    let rule = r#"{ "name": "r", "key": ["user"], "limit": { "rate": 9, "per": "1h" }, "deny": [["bad"]] }"#;
    let mut host = Host::new(&[rule], "");
    let denied = host.ask("bad");
    assert_eq!(host.answer(denied).status, 403);
    assert_eq!(host.header(denied, "retry-after"), None);
    assert_eq!(host.count("denied", "r"), 1);
}

#[test]
fn shadow_rule_refuses_no_request_and_is_counted() {
    let shadow = PER_USER.replace("{ \"name\"", "{ \"mode\": \"shadow\", \"name\"");
    let debug = r#""debug": { "secret": { "env": "SECRET" } }"#;
    let mut host = Host::new(&[&shadow], debug);
    assert_eq!(host.passed("alice", 5), 5);
    assert_eq!(host.count("allowed", "per-user"), 2);
    assert_eq!(host.count("shadow_limited", "per-user"), 3);
    let mut reply = |user, secret| {
        let stream = host.request_with(&[("x-user-id", user), ("x-weir-debug", secret)]);
        host.response_header(stream, "x-weir-ratelimit-shadow")
    };
    assert_eq!(reply("alice", SECRET).as_deref(), Some("per-user"));
    assert_eq!(reply("bob", SECRET).as_deref(), Some("none"));
    assert_eq!(reply("alice", "0123456789abcdeF"), None);
}

/// Hosts that must define metrics at startup use it to prepare for later rules.
#[test]
fn example_metrics_match_the_metrics_of_any_rule() {
    let names = |metrics: &Metrics| metrics.counters().map(String::from).collect::<Vec<_>>();
    let example = names(&crate::engine::metrics_of_any_rule());
    let rule = r#"{ "name": "any", "limit": { "rate": 1, "per": "1h" } }"#;
    let mut all = names(Host::new(&[rule], "").limiter.metrics());
    all.retain(|name| name.ends_with(".rule.any"));
    assert_eq!(example, all);
    assert!(!all.is_empty());
}

/// The host's work for nearly every request.
#[test]
fn single_local_rule_request_has_one_effect_and_none_at_end() {
    let mut host = Host::new(&[PER_USER], "");
    let stream = host.ask("alice");
    assert!(matches!(host.streams[&stream], State::Passed(_)));
    assert!(host.limiter.streams.is_empty());
    let mut effects = Effects::new();
    let request = PlainRequest {
        now_ms: NOW_MS,
        ..PlainRequest::default()
    };
    let event = Event::Request {
        stream: 99,
        request: &request,
    };
    host.limiter.handle(event, &mut effects);
    assert_eq!(
        effects.as_slice(),
        [Effect::Continue {
            stream: 99,
            is_over: true
        }]
    );
    let end = EndWithoutClock;
    let event = Event::Closed {
        stream: 99,
        end: &end,
    };
    host.limiter.handle(event, &mut effects);
    assert_eq!(effects.as_slice().len(), 1);
    assert_eq!(host.limiter.tick_ms(), None);
}

struct EndWithoutClock;

impl weir_engine::StreamEnd for EndWithoutClock {
    fn response_status(&self) -> Option<u16> {
        panic!("nobody needs it")
    }

    fn now_ms(&self) -> u64 {
        panic!("nobody needs it")
    }
}
