//! Rules in Redis.

use alloc::vec::Vec;

use proptest::prelude::*;
use proptest::sample::Index;

use super::super::*;
use super::host::{CallOutcome, Host};

#[test]
fn concurrently_waiting_requests_share_one_call() {
    let rule = r#"{ "name": "r", "store": "redis", "key": ["user"], "limit": { "rate": 50, "per": "1h" } }"#;
    let mut host = Host::new(&[rule], r#""redis": {}"#);
    host.redis.load_scripts();
    let streams: Vec<_> = (0..60).map(|_| host.request("alice")).collect();
    assert!(streams.iter().all(|stream| host.is_waiting(*stream)));
    host.settle();
    let passed = streams.iter().filter(|stream| host.is_passed(**stream));
    assert_eq!(passed.count(), 50);
    assert_eq!(host.redis.scripts_run, 1);
    let refused = *streams.last().unwrap();
    assert_eq!(host.header(refused, "retry-after").as_deref(), Some("72"));
    assert_eq!(host.count("allowed", "r"), 50);
    assert_eq!(host.metric("weir_ratelimit_redis_batches_total"), 1);
    assert_eq!(host.metric("weir_ratelimit_redis_requests_total"), 60);
    assert!(host.is_at_rest());
}

#[test]
fn script_missing_in_redis_is_sent_in_full() {
    let rule = r#"{ "name": "r", "store": "redis", "limit": { "rate": 1, "per": "1h" } }"#;
    let mut host = Host::new(&[rule], r#""redis": {}"#);
    assert_eq!(host.passed("any", 2), 1);
}

#[test]
fn grpc_client_refused_after_a_wait_gets_a_grpc_status() {
    let rule = r#"{ "name": "r", "store": "redis", "limit": { "rate": 1, "per": "1h" } }"#;
    let mut host = Host::new(&[rule], r#""redis": {}"#);
    host.passed("any", 1);
    let refused = host.request_with(&[("content-type", "application/grpc")]);
    host.settle();
    let answer = host.answer(refused);
    assert_eq!((answer.status, answer.grpc_status), (200, Some(8)));
}

#[test]
fn shadow_rule_counts_in_redis_and_refuses_no_request() {
    let rule = r#"{ "name": "r", "store": "redis", "mode": "shadow", "limit": { "rate": 5, "per": "1h" } }"#;
    let enforced = r#"{ "name": "e", "store": "redis", "limit": { "rate": 15, "per": "1h" } }"#;
    let mut host = Host::new(&[rule, enforced], r#""redis": {}"#);
    assert_eq!(host.passed("any", 20), 15);
    assert_eq!(host.count("allowed", "r"), 5);
    assert_eq!(host.count("shadow_limited", "r"), 15);
    assert_eq!(host.count("limited", "e"), 5);
}

#[test]
fn slices_save_calls_and_admit_no_more_than_the_limit() {
    let rule = r#"{ "name": "r", "store": "redis", "lease": { "max": 100, "lasts": "1m" },
        "algorithm": "fixed_window", "limit": { "rate": 1000, "per": "1d" } }"#;
    let mut host = Host::new(&[rule], r#""redis": {}"#);
    assert_eq!(host.passed("any", 2_000), 1_000);
    let calls = host.redis.scripts_run;
    assert!(calls <= 32, "{calls} calls");
    assert!(host.is_at_rest());
}

#[test]
fn next_request_retries_a_lease_that_was_refused() {
    let rule = r#"{ "name": "r", "store": "redis", "lease": { "max": 100, "lasts": "1m" },
        "limit": { "rate": 1000, "per": "1d" } }"#;
    let mut host = Host::new(&[rule], r#""redis": {}"#);
    host.redis.load_scripts();
    host.ask("any");
    host.request("any");
    host.end_call(0, CallOutcome::TimedOut);
    host.ask("any");
    let calls = host.redis.scripts_run;
    assert_eq!(host.passed("any", 3), 3);
    assert_eq!(host.redis.scripts_run, calls, "it brought three more");
}

#[test]
fn slice_of_a_fixed_window_ends_with_the_window() {
    let rule = r#"{ "name": "r", "store": "redis", "lease": { "max": 100, "lasts": "1m" },
        "algorithm": "fixed_window", "limit": { "rate": 1000, "per": "1m" } }"#;
    let mut host = Host::new(&[rule], r#""redis": {}"#);
    host.passed("any", 4);
    let calls = host.redis.scripts_run;
    let left_ms = 60_000 - host.now_ms % 60_000;
    host.now_ms += left_ms - 1;
    host.passed("any", 1);
    assert_eq!(host.redis.scripts_run, calls, "some of it is left");
    host.now_ms += 1;
    host.passed("any", 1);
    assert_eq!(host.redis.scripts_run, calls + 1);
}

#[test]
fn slice_is_not_spent_on_a_request_refused_by_another_rule() {
    let leased = r#"{ "name": "leased", "store": "redis", "lease": { "max": 8, "lasts": "1h" },
        "limit": { "rate": 8, "per": "1d" } }"#;
    let user = r#"{ "name": "user", "store": "redis", "key": ["user"], "limit": { "rate": 1, "per": "1d" } }"#;
    let mut host = Host::new(&[leased, user], r#""redis": {}"#);
    for n in 0..4 {
        assert_eq!(host.passed(&format!("user{n}"), 1), 1);
        assert_eq!(host.passed(&format!("user{n}"), 3), 0);
    }
    for n in 4..8 {
        assert_eq!(host.passed(&format!("user{n}"), 1), 1, "user{n}");
    }
    assert_eq!(host.passed("user8", 1), 0);
}

#[test]
fn refused_client_causes_no_redis_call_until_its_retry_time() {
    let rule = r#"{ "name": "r", "store": "redis", "key": ["user"], "limit": { "rate": 1, "per": "1h" } }"#;
    let mut host = Host::new(&[rule], r#""redis": {}"#);
    assert_eq!(host.passed("alice", 100), 1);
    assert_eq!(host.redis.scripts_run, 2, "one passed, one was refused");
    assert_eq!(host.count("limited", "r"), 99);
    host.now_ms += 3_600_000;
    assert_eq!(host.passed("alice", 100), 1);
    assert_eq!(host.redis.scripts_run, 4);
}

#[test]
fn local_charge_is_refunded_when_redis_refuses() {
    let here = r#"{ "name": "here", "limit": { "rate": 3, "per": "1h" } }"#;
    let there = r#"{ "name": "there", "store": "redis", "key": ["user"], "limit": { "rate": 1, "per": "1h" } }"#;
    let mut host = Host::new(&[here, there], r#""redis": {}"#);
    assert_eq!(host.passed("alice", 9), 1);
    assert_eq!(host.passed("bob", 9), 1);
    assert_eq!(host.passed("carol", 9), 1);
    assert_eq!(host.passed("dave", 9), 0);
}

#[test]
fn client_disconnect_before_the_call_charges_no_rule() {
    let here = r#"{ "name": "here", "limit": { "rate": 1, "per": "1h" } }"#;
    let there = r#"{ "name": "there", "store": "redis", "limit": { "rate": 1, "per": "1h" } }"#;
    let mut host = Host::new(&[here, there], r#""redis": {}"#);
    let stream = host.request("alice");
    host.close(stream);
    assert!(host.is_at_rest());
    host.settle();
    assert_eq!(host.redis.charged, 0);
    assert_eq!(host.passed("bob", 2), 1);
}

/// The rates of two rules.
#[derive(Clone, Copy, Debug)]
struct Rates {
    all_here: u32,
    user_here: u32,
    all_there: u32,
    user_there: u32,
}

#[derive(Clone, Debug)]
enum Step {
    Request(usize),
    Turn,
    EndCall(Index),
}

fn rates() -> impl Strategy<Value = Rates> {
    (1..12_u32, 1..6_u32, 1..12_u32, 1..6_u32).prop_map(|rates| Rates {
        all_here: rates.0,
        user_here: rates.1,
        all_there: rates.2,
        user_there: rates.3,
    })
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..USERS.len()).prop_map(Step::Request),
        2 => Just(Step::Turn),
        2 => any::<Index>().prop_map(Step::EndCall),
    ];
    prop::collection::vec(step, 1..60)
}

const USERS: [&str; 3] = ["alice", "bob", "carol"];

fn host_of(rates: Rates) -> Host {
    let rule = |name: &str, rate: u32, fields: &str| {
        format!(r#"{{ "name": "{name}", "limit": {{ "rate": {rate}, "per": "1d" }}{fields} }}"#)
    };
    let there = r#", "store": "redis""#;
    let window = r#", "store": "redis", "algorithm": "sliding_window", "key": ["user"]"#;
    let rules = [
        rule("all-here", rates.all_here, ""),
        rule("user-here", rates.user_here, r#", "key": ["user"]"#),
        rule("all-there", rates.all_there, there),
        rule("user-there", rates.user_there, window),
    ];
    let mut host = Host::new(
        &rules.each_ref().map(|rule| rule.as_str()),
        r#""redis": {}"#,
    );
    host.redis.load_scripts();
    host
}

proptest! {
    /// For every interleaving of requests and replies: in the end each rule is charged exactly for passed requests. So
    /// each rule's remaining quota is available.
    #[test]
    fn request_is_charged_to_all_its_rules_or_to_none(rates in rates(), steps in steps()) {
        let mut host = host_of(rates);
        let mut streams: Vec<(StreamId, usize)> = Vec::new();
        for step in steps {
            match step {
                Step::Request(user) => streams.push((host.request(USERS[user]), user)),
                Step::Turn => host.turn(),
                Step::EndCall(index) if !host.calls.is_empty() => {
                    let index = index.index(host.calls.len());
                    host.end_call(index, CallOutcome::Answered);
                }
                Step::EndCall(_) => {}
            }
        }
        host.settle();
        let mut passed = [0; USERS.len()];
        for (stream, user) in streams {
            prop_assert!(!host.is_waiting(stream));
            passed[user] += u32::from(host.is_passed(stream));
        }
        for (user, name) in USERS.into_iter().enumerate() {
            let all = passed.iter().sum::<u32>();
            let remaining = rates.all_here.min(rates.all_there).checked_sub(all);
            let left_of_user = rates.user_here.min(rates.user_there).checked_sub(passed[user]);
            let remaining = remaining.unwrap().min(left_of_user.unwrap());
            prop_assert_eq!(host.passed(name, 12) as u32, remaining, "{}", name);
            passed[user] += remaining;
        }
        prop_assert!(host.is_at_rest());
    }
}
