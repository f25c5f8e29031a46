//! Concurrency charges are undone exactly once when requests end, in every order of events.

use alloc::rc::Rc;
use alloc::vec::Vec;

use proptest::prelude::*;
use proptest::sample::Index;
use weir_base::shared_data::LocalData;

use super::super::*;
use super::host::{CallOutcome, Host, RedisConnectivity};

const HERE: &str =
    r#"{ "name": "here", "algorithm": "concurrency", "limit": { "rate": 4, "per": "1d" } }"#;
const USER: &str = r#"{ "name": "user", "algorithm": "concurrency", "key": ["user"], "limit": { "rate": 2, "per": "1d" } }"#;
const THERE: &str = r#"{ "name": "there", "store": "redis", "algorithm": "concurrency", "key": ["user"],
    "on_store_error": "local", "limit": { "rate": 2, "per": "1d" } }"#;
const WATCHED: &str = r#"{ "name": "watched", "store": "redis", "mode": "shadow", "limit": { "rate": 3, "per": "1d" } }"#;

const HERE_MAX: usize = 4;

#[test]
fn request_counts_as_in_flight_until_it_ends() {
    let mut host = Host::new(&[HERE], "");
    let streams = [(); HERE_MAX].map(|()| host.ask("alice"));
    assert_eq!(host.passed("alice", 3), 0);
    host.close(streams[0]);
    assert_eq!(host.passed("alice", 3), 1);
    assert_eq!(host.limiter.open_streams(), HERE_MAX);
}

#[test]
fn request_allowed_by_redis_counts_until_it_ends() {
    let mut host = Host::new(&[THERE], r#""redis": {}"#);
    let streams = [(); 3].map(|()| host.ask("alice"));
    assert_eq!(
        streams.map(|stream| host.is_passed(stream)),
        [true, true, false]
    );
    host.close(streams[0]);
    host.close(streams[2]);
    host.settle();
    assert_eq!(host.redis.in_flight(), 1);
    assert_eq!(host.passed("alice", 3), 1);
}

/// Charges of dry-run rules are undone like those of enforced ones, and so are the charges of a refused request.
#[test]
fn watched_request_counts_until_it_ends() {
    const WATCHED_HERE: &str = r#"{ "name": "watched", "mode": "shadow", "algorithm": "concurrency",
        "limit": { "rate": 2, "per": "1d" } }"#;
    let mut host = Host::new(&[WATCHED_HERE], "");
    for _ in 0..5 {
        let streams = [(); 2].map(|()| host.ask("alice"));
        assert_eq!(host.count("shadow_limited", "watched"), 0);
        streams.into_iter().for_each(|stream| host.close(stream));
    }
    assert!(host.is_at_rest());
    const WATCHED_THERE: &str = r#"{ "name": "watched", "store": "redis", "mode": "shadow",
        "algorithm": "concurrency", "limit": { "rate": 9, "per": "1d" } }"#;
    let mut host = Host::new(&[WATCHED_THERE, THERE], r#""redis": {}"#);
    let streams = [(); 4].map(|()| host.ask("alice"));
    let passed = streams.map(|stream| host.is_passed(stream));
    assert_eq!(passed, [true, true, false, false]);
    host.settle();
    // Two requests in flight, counted by both rules.
    assert_eq!(host.redis.in_flight(), 4);
    streams.into_iter().for_each(|stream| host.close(stream));
    host.settle();
    assert_eq!(host.redis.in_flight(), 0);
    assert!(host.is_at_rest());
}

/// The request was not charged.
#[test]
fn watched_request_beyond_limit_returns_nothing() {
    for store in ["local", "redis"] {
        let watched = format!(
            r#"{{ "name": "watched", "store": "{store}", "mode": "shadow", "algorithm": "concurrency",
            "limit": {{ "rate": 2, "per": "1d" }} }}"#
        );
        let mut host = Host::new(&[&watched], r#""redis": {}"#);
        let streams = [(); 3].map(|()| host.ask("alice"));
        assert_eq!(host.count("shadow_limited", "watched"), 1);
        host.close(streams[2]);
        host.settle();
        host.ask("alice");
        let limited = host.count("shadow_limited", "watched");
        assert_eq!(limited, 2, "{store}: two are still under way");
    }
}

#[test]
fn unreportable_stream_stops_counting_and_its_end_has_no_effect() {
    let mut host = Host::new(&[HERE, THERE], r#""redis": {}"#);
    let stream = host.request("alice");
    host.closed.insert(stream);
    host.settle();
    assert!(host.is_waiting(stream), "it was told nothing");
    assert!(host.is_at_rest());
    assert_eq!(host.redis.in_flight(), 0);
    host.close(stream);
    host.settle();
    assert_eq!(host.passed("alice", 3), 2);
    assert_eq!(
        host.redis.in_flight(),
        2,
        "the same charge did not go back twice"
    );
}

#[test]
fn client_disconnect_during_redis_call_ends_its_count() {
    let mut host = Host::new(&[HERE, THERE], r#""redis": {}"#);
    let stream = host.request("alice");
    host.turn();
    assert_eq!(host.calls.len(), 1);
    host.close(stream);
    host.settle();
    assert_eq!(host.redis.in_flight(), 0);
    let streams = ["a", "a", "b", "b", "c"].map(|user| host.ask(user));
    let passed = streams.iter().filter(|stream| host.is_passed(**stream));
    assert_eq!(passed.count(), HERE_MAX, "nor does it here");
}

#[derive(Clone, Debug)]
enum Step {
    Request(usize),
    /// A response arrives.
    Respond(Index),
    /// A stream ends.
    Close(Index),
    /// The client disconnects. The engine receives this only with its next effect for the stream, or at the end.
    Vanish(Index),
    EndCall(Index, CallOutcome),
    Turn,
    Wait(u64),
    Way(RedisConnectivity),
}

const USERS: [&str; 3] = ["alice", "bob", "carol"];

fn fates() -> impl Strategy<Value = CallOutcome> {
    prop_oneof![
        6 => Just(CallOutcome::Answered),
        1 => Just(CallOutcome::Lost),
        1 => Just(CallOutcome::Garbled),
        1 => Just(CallOutcome::TimedOut),
        1 => Just(CallOutcome::Refused),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let route = prop_oneof![4 => Just(RedisConnectivity::Open), 1 => Just(RedisConnectivity::Closed), 1 => Just(RedisConnectivity::Down)];
    let step = prop_oneof![
        8 => (0..USERS.len()).prop_map(Step::Request),
        2 => any::<Index>().prop_map(Step::Respond),
        5 => any::<Index>().prop_map(Step::Close),
        2 => any::<Index>().prop_map(Step::Vanish),
        5 => (any::<Index>(), fates()).prop_map(|(index, fate)| Step::EndCall(index, fate)),
        4 => Just(Step::Turn),
        2 => (0..8_u64).prop_map(Step::Wait),
        1 => route.prop_map(Step::Way),
    ];
    prop::collection::vec(step, 1..120)
}

/// Limits here and in Redis, and a long deadline, so that waiting requests are sent. The breaker opens occasionally.
fn host_of(data: &Rc<LocalData>) -> Host {
    let rules = [HERE, USER, THERE, WATCHED].join(",");
    let json = format!(
        r#"{{ "user_header": "x-user-id", "rules": [{rules}], "redis": {{ "deadline_ms": 60000 }},
        "headers": {{ "on_allowed": true }},
        "breaker": {{ "min_requests": 5, "window_ms": 50, "open_ms": 5, "probes": 1 }} }}"#
    );
    let mut host = Host::with_data(&json, Rc::clone(data));
    host.redis.load_scripts();
    host
}

/// Runs one step. Closed streams take no further part.
fn take(host: &mut Host, streams: &mut Vec<StreamId>, step: Step) {
    let pick = |index: Index| (!streams.is_empty()).then(|| index.index(streams.len()));
    match step {
        Step::Request(user) => streams.push(host.request(USERS[user])),
        Step::Respond(index) => {
            if let Some(index) = pick(index) {
                host.respond(streams[index]);
            }
        }
        Step::Close(index) => {
            if let Some(index) = pick(index) {
                host.close(streams.swap_remove(index));
            }
        }
        Step::Vanish(index) => {
            if let Some(index) = pick(index) {
                host.closed.insert(streams[index]);
            }
        }
        Step::EndCall(index, fate) => {
            if !host.calls.is_empty() {
                host.end_call(index.index(host.calls.len()), fate);
            }
        }
        Step::Turn => host.turn(),
        Step::Wait(ms) => host.now_ms += ms,
        Step::Way(route) => host.connectivity = route,
    }
}

/// The number of requests in flight with connected clients.
fn passed(host: &Host, streams: &[StreamId]) -> usize {
    let is_there = |stream: &&StreamId| host.is_passed(**stream) && !host.closed.contains(stream);
    streams.iter().filter(is_there).count()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Requests, replies, failures, ends and silent disconnects, in any order.
    #[test]
    fn each_in_flight_charge_is_returned_once(steps in steps()) {
        let data = Rc::new(LocalData::default());
        let mut host = host_of(&data);
        let mut streams = Vec::new();
        for step in steps {
            take(&mut host, &mut streams, step);
            prop_assert!(passed(&host, &streams) <= HERE_MAX);
            prop_assert!(host.limiter.streams.len() <= streams.len());
        }
        host.connectivity = RedisConnectivity::Open;
        streams.into_iter().for_each(|stream| host.close(stream));
        host.settle();
        prop_assert!(host.is_at_rest(), "it remembers streams that have ended");
        // Charges that the engine or Redis never learned to undo count until their period ends.
        prop_assert_eq!(host.redis.in_flight(), host.orphans + host.retained);
        let json = format!(r#"{{ "user_header": "x-user-id", "rules": [{HERE},{USER}] }}"#);
        let mut other = Host::with_data(&json, data);
        other.now_ms = host.now_ms;
        let more = USERS.map(|user| other.passed(user, 9));
        prop_assert_eq!(more, [2, 2, 0], "nothing is in flight here");
    }
}
