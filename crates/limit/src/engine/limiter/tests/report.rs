//! Reports for operators.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use weir_engine::redis::UnknownFailure;
use weir_scripts::tally::{SCRIPT, words};

use super::super::*;
use super::fake_redis::commands;
use super::host::{CallOutcome, Host};

const HOURLY: &str =
    r#"{ "name": "hourly", "key": ["user"], "limit": { "rate": 1, "per": "1h" } }"#;
const DENYING: &str = r#"{ "name": "denying", "key": ["user"], "deny": [["eve"]],
    "limit": { "rate": 9, "per": "1s" } }"#;
const SHADOW: &str = r#"{ "name": "shadow", "key": [{ "header": "x-api-key" }, "address"],
    "mode": "shadow", "store": "redis", "limit": { "rate": 1, "per": "1h" } }"#;

/// The counts that the next call adds: the words of each name, and the number.
fn reported_counts(host: &mut Host) -> Vec<(String, String)> {
    host.now_ms += 2_000;
    host.tick();
    let Some((batch, body)) = host.calls.pop_front() else {
        return vec![];
    };
    let text = |word: &Vec<u8>| String::from_utf8(word.clone()).unwrap();
    let call: Vec<String> = commands(&body).concat().iter().map(text).collect();
    let [eval, script, _, key, _, _, counts @ ..] = call.as_slice() else {
        panic!("{call:?}");
    };
    assert_eq!((eval.as_str(), script.as_str()), ("EVAL", SCRIPT.source));
    let minute = host.now_ms / 60_000;
    assert_eq!(*key, format!("weir:tally:limits:{minute}"));
    // A failed report is ignored.
    host.reply(batch, Err(UnknownFailure::Lost.into()));
    let pairs = counts.chunks_exact(2);
    let pairs = pairs.map(|pair| (words(&pair[0]).join(" | "), pair[1].clone()));
    pairs.collect()
}

fn expected(counts: &[(&str, u64)]) -> Vec<(String, String)> {
    let counts = counts.iter();
    counts
        .map(|(name, count)| ((*name).into(), format!("{count}")))
        .collect()
}

#[test]
fn report_shows_operators_the_refusing_rules_and_keys() {
    let mut host = Host::new(&[HOURLY, DENYING, SHADOW], r#""redis": {}, "report": true"#);
    host.ask("alice");
    assert_eq!(
        reported_counts(&mut host),
        expected(&[]),
        "nobody was refused"
    );
    for user in ["alice", "alice", "bob", "bob", "eve"] {
        let stream = host.request_with(&[("x-user-id", user), ("x-api-key", "secret")]);
        host.settle();
        host.close(stream);
    }
    assert_eq!(
        reported_counts(&mut host),
        expected(&[
            ("limited | hourly", 3),
            ("limited | hourly | alice", 2),
            ("limited | hourly | bob", 1),
            ("denied | denying", 1),
        ])
    );
    host.ask("carol");
    let stream = host.request_with(&[("x-user-id", "dave"), ("x-api-key", "secret")]);
    host.settle();
    assert!(host.is_passed(stream));
    assert_eq!(
        reported_counts(&mut host),
        expected(&[
            ("shadow_limited | shadow", 2),
            (
                "shadow_limited | shadow | header x-api-key #2bb80d53, 192.0.2.1",
                1
            ),
            ("shadow_limited | shadow | \u{2013}, 192.0.2.1", 1),
        ])
    );
    assert!(host.is_at_rest());
}

#[test]
fn shadow_denials_are_reported_per_rule() {
    let trial = DENYING.replace(r#""denying","#, r#""trial", "mode": "shadow","#);
    let mut host = Host::new(&[&trial], r#""redis": {}, "report": true"#);
    let stream = host.request("eve");
    assert!(host.is_passed(stream));
    assert_eq!(
        reported_counts(&mut host),
        expected(&[("shadow_limited | trial", 1)])
    );
}

#[test]
fn counts_are_reported_only_when_enabled() {
    let mut host = Host::new(&[HOURLY], r#""redis": {}"#);
    host.ask("alice");
    host.ask("alice");
    host.now_ms += 2_000;
    host.tick();
    assert!(host.calls.is_empty());
    host.end_call(0, CallOutcome::Answered);
}
