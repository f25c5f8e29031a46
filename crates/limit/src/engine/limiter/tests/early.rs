//! Decisions before the HTTP stack equal the engine's decisions on the same requests, and count once.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use proptest::prelude::*;
use proptest::sample::{Index, select, subsequence};

use super::super::*;
use super::host::{CallOutcome, Host, SECRET};

const HOUR_OF_TWO: &str =
    r#"{ "name": "r", "key": ["user"], "limit": { "rate": 2, "per": "1h" } }"#;

/// Rules that each need a header of the same name, except `all`.
const RULES: [&str; 9] = [
    r#"{ "name": "all", "limit": { "rate": 12, "per": "10s" }, "algorithm": "fixed_window" }"#,
    r#"{ "name": "a", "match": { "headers": [{ "name": "a" }] }, "key": ["user"], "limit": { "rate": 2, "per": "5s" } }"#,
    r#"{ "name": "b", "match": { "headers": [{ "name": "b" }] }, "key": ["user"], "limit": { "rate": 3, "per": "5s" },
        "algorithm": "sliding_window", "deny": [["eve"]] }"#,
    r#"{ "name": "flight", "match": { "headers": [{ "name": "flight" }] }, "limit": { "rate": 2, "per": "1m" },
        "algorithm": "concurrency" }"#,
    r#"{ "name": "trial", "match": { "headers": [{ "name": "trial" }] }, "mode": "shadow", "key": ["user"],
        "limit": { "rate": 1, "per": "5s" }, "deny": [["bob"]] }"#,
    r#"{ "name": "there", "match": { "headers": [{ "name": "there" }] }, "store": "redis", "key": ["user"],
        "limit": { "rate": 2, "per": "5s" }, "on_store_error": "local" }"#,
    r#"{ "name": "closed", "match": { "headers": [{ "name": "closed" }] }, "store": "redis",
        "limit": { "rate": 3, "per": "5s" }, "on_store_error": "closed" }"#,
    r#"{ "name": "leased", "match": { "headers": [{ "name": "leased" }] }, "store": "redis",
        "lease": { "max": 4, "lasts": "2s" }, "limit": { "rate": 8, "per": "10s" } }"#,
    r#"{ "name": "far", "match": { "headers": [{ "name": "far" }] }, "store": "redis", "mode": "shadow",
        "limit": { "rate": 2, "per": "5s" } }"#,
];

const FIELDS: [&str; 3] = [
    r#""redis": {}, "report": true, "breaker": { "min_requests": 4, "window_ms": 1000, "open_ms": 500, "probes": 1 }"#,
    r#""redis": {}, "headers": { "on_allowed": true, "legacy": true }"#,
    r#""redis": {}, "debug": { "secret": { "env": "SECRET" } },
        "answer": { "status": 403, "content_type": "text/plain", "body": "no" }"#,
];

const HEADERS: [(&str, &str); 11] = [
    ("a", ""),
    ("b", ""),
    ("flight", ""),
    ("trial", ""),
    ("there", ""),
    ("closed", ""),
    ("leased", ""),
    ("far", ""),
    ("accept", "text/html"),
    ("content-type", "application/grpc"),
    ("x-weir-debug", SECRET),
];

#[derive(Clone, Debug)]
enum Step {
    Request(&'static str, Vec<(&'static str, &'static str)>),
    Turn,
    Tick,
    EndCall(Index, CallOutcome),
    Respond(Index),
    Close(Index),
    Wait(u64),
}

fn any_step() -> impl Strategy<Value = Step> {
    let user = select(&["alice", "bob", "eve"][..]);
    let headers = subsequence(&HEADERS[..], 0..4);
    let fates = [
        CallOutcome::Answered,
        CallOutcome::Answered,
        CallOutcome::Answered,
        CallOutcome::Answered,
        CallOutcome::Lost,
        CallOutcome::TimedOut,
        CallOutcome::Refused,
    ];
    let end = (any::<Index>(), select(fates.to_vec()));
    prop_oneof![
        30 => (user, headers).prop_map(|(user, headers)| Step::Request(user, headers)),
        10 => Just(Step::Turn),
        3 => Just(Step::Tick),
        10 => end.prop_map(|(index, fate)| Step::EndCall(index, fate)),
        3 => any::<Index>().prop_map(Step::Respond),
        3 => any::<Index>().prop_map(Step::Close),
        4 => (1..3_000_u64).prop_map(Step::Wait),
    ]
}

fn run(host: &mut Host, step: &Step) {
    let stream = |host: &Host, index: &Index| {
        let count = host.streams.len();
        (count > 0).then(|| *host.streams.keys().nth(index.index(count)).unwrap())
    };
    match step {
        Step::Request(user, headers) => {
            host.request_with(&[&[("x-user-id", *user)], headers.as_slice()].concat());
        }
        Step::Turn => host.turn(),
        Step::Tick => host.tick(),
        Step::EndCall(index, fate) if !host.calls.is_empty() => {
            let at = index.index(host.calls.len());
            // Reports are no script of the limiter.
            let is_report = host.calls[at].1.windows(5).any(|it| it == b"tally");
            host.end_call(
                at,
                if is_report {
                    CallOutcome::TimedOut
                } else {
                    *fate
                },
            );
        }
        Step::EndCall(..) => {}
        Step::Respond(index) => {
            stream(host, index)
                .into_iter()
                .for_each(|it| host.respond(it));
        }
        Step::Close(index) => stream(host, index)
            .into_iter()
            .for_each(|it| host.close(it)),
        Step::Wait(ms) => host.now_ms += ms,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any sequence has the same answers, counters, calls and later behaviour.
    #[test]
    fn early_decisions_change_nothing(
        rules in subsequence(&RULES[..], 1..=RULES.len()),
        fields in select(&FIELDS[..]),
        steps in prop::collection::vec(any_step(), 1..80),
    ) {
        let mut early = Host::new(&rules, fields);
        early.is_early = true;
        let mut usual = Host::new(&rules, fields);
        for step in &steps {
            run(&mut early, step);
            run(&mut usual, step);
            prop_assert_eq!(&early.streams, &usual.streams, "{:?}", step);
            prop_assert_eq!(early.metrics(), usual.metrics(), "{:?}", step);
            prop_assert_eq!(&early.calls, &usual.calls, "{:?}", step);
            prop_assert_eq!(&early.log, &usual.log);
            prop_assert_eq!(early.redis.charged, usual.redis.charged);
        }
    }
}

#[test]
fn local_refusal_is_answered_early() {
    let mut host = Host::new(&[HOUR_OF_TWO], "");
    host.is_early = true;
    assert_eq!(host.passed("alice", 9), 2);
    assert_eq!(host.early_answers, 7);
    assert_eq!(host.count("limited", "r"), 7);
    assert_eq!(host.passed("bob", 1), 1);
}

#[test]
fn cached_refusal_of_redis_is_answered_early() {
    let rule = HOUR_OF_TWO.replace(r#""key""#, r#""store": "redis", "key""#);
    let mut host = Host::new(&[&rule], r#""redis": {}"#);
    host.is_early = true;
    assert_eq!(host.passed("alice", 9), 2);
    assert_eq!(host.early_answers, 6, "Redis refused the third one");
    assert_eq!(host.count("limited", "r"), 7);
}

/// The local rule is charged first, which may evict another key.
#[test]
fn refusal_of_redis_behind_a_local_rule_is_not_answered_early() {
    let there = HOUR_OF_TWO.replace(r#""r", "key""#, r#""there", "store": "redis", "key""#);
    let here = r#"{ "name": "here", "limit": { "rate": 9, "per": "1h" } }"#;
    let mut host = Host::new(&[here, &there], r#""redis": {}"#);
    host.is_early = true;
    assert_eq!(host.passed("alice", 9), 2);
    assert_eq!(host.early_answers, 0);
}

#[test]
fn request_that_a_slice_pays_for_is_not_refused_early() {
    let rule = r#"{ "name": "r", "store": "redis", "lease": { "max": 4, "lasts": "1h" },
        "limit": { "rate": 6, "per": "1d" } }"#;
    let mut host = Host::new(&[rule], r#""redis": {}"#);
    host.is_early = true;
    assert_eq!(host.passed("alice", 3), 3);
    // The first one takes the rest of the limit, as a slice, so Redis refuses the second one.
    let [first, second] = [(); 2].map(|()| host.request("alice"));
    host.settle();
    assert!(host.is_passed(first) && !host.is_passed(second));
    assert_eq!(host.passed("alice", 9), 2);
    assert_eq!(host.early_answers, 7);
}

#[test]
fn denied_key_is_answered_early() {
    let rule = HOUR_OF_TWO.replace(r#""key""#, r#""deny": [["eve"]], "key""#);
    let mut host = Host::new(&[&rule], "");
    host.is_early = true;
    host.ask("alice");
    let denied = host.ask("eve");
    assert_eq!(host.answer(denied).status, 403);
    assert_eq!((host.early_answers, host.count("denied", "r")), (1, 1));
}

#[test]
fn request_that_matches_no_rule_is_not_concerned() {
    let rule = HOUR_OF_TWO.replace(
        r#""key""#,
        r#""match": { "headers": [{ "name": "a" }] }, "key""#,
    );
    let mut host = Host::new(&[&rule], "");
    let decision = |host: &mut Host| host.decide_early(&[("x-user-id", "alice")], true);
    let first = decision(&mut host);
    assert!(matches!(first, EarlyDecision::Undecided), "{first:?}");
    host.ask("alice");
    let later = decision(&mut host);
    assert!(matches!(later, EarlyDecision::NotConcerned), "{later:?}");
}

/// A later filter sets the user, so the key is unknown. After a 400, Envoy closes the connection.
#[test]
fn untrusted_user_or_status_400_prevents_early_decisions() {
    for (fields, trusts_user, is_answered) in [
        ("", true, true),
        ("", false, false),
        (
            r#""answer": { "status": 400, "content_type": "a/b", "body": "" }"#,
            true,
            false,
        ),
    ] {
        let mut host = Host::new(&[HOUR_OF_TWO], fields);
        host.passed("alice", 3);
        let decision = host.decide_early(&[("x-user-id", "alice")], trusts_user);
        let is_it = matches!(decision, EarlyDecision::Answer(_));
        assert_eq!(is_it, is_answered, "{fields} {trusts_user}");
    }
}

#[test]
fn early_decision_charges_no_rule() {
    let mut host = Host::new(&[HOUR_OF_TWO], "");
    host.ask("bob");
    for _ in 0..9 {
        let decision = host.decide_early(&[("x-user-id", "alice")], true);
        assert!(matches!(decision, EarlyDecision::Undecided));
    }
    assert_eq!(host.passed("alice", 9), 2);
    let counts: &BTreeMap<_, _> = host.metrics();
    assert_eq!(counts["weir_ratelimit_allowed_total.rule.r"], 3);
}
