//! Each mistake in Redis by itself.

use super::{environment, found, origin, redis, shipped, words};
use crate::facts::{OriginFacts, RedisFacts};
use crate::{Severity, Subject, examine};

fn with(edit: impl FnOnce(&mut RedisFacts)) -> Vec<&'static str> {
    let mut facts = redis();
    edit(&mut facts);
    words(&found(
        shipped("weir.yaml"),
        &origin(),
        &facts,
        &environment(),
    ))
}

#[test]
fn redis_itself() {
    assert_eq!(
        with(|redis| redis.away = Some("refused".into())),
        ["redis-away"]
    );
    let lru = |redis: &mut RedisFacts| redis.maxmemory_policy = Some("allkeys-lru".into());
    assert_eq!(with(lru), ["redis-evicts"]);
    // Without a maxmemory nothing is dropped.
    assert_eq!(
        with(|redis| {
            lru(redis);
            redis.maxmemory = Some(0);
        }),
        [""; 0]
    );
    assert_eq!(
        with(|redis| redis.zset_max_listpack_entries = Some(128)),
        ["redis-listpack"]
    );
    assert_eq!(with(|redis| redis.clock_ahead_ms = Some(2_000)), ["clock"]);
    assert_eq!(with(|redis| redis.clock_ahead_ms = Some(-2_000)), ["clock"]);
    // The question took longer than the difference.
    assert_eq!(
        with(|redis| {
            redis.clock_ahead_ms = Some(2_000);
            redis.clock_uncertain_ms = 1_600;
        }),
        [""; 0]
    );
    assert_eq!(with(|redis| redis.is_cluster = Some(true)), ["topology"]);
    // Hosted ones do not tell.
    assert_eq!(with(|redis| *redis = RedisFacts::default()), [""; 0]);
}

#[test]
fn short_lists_matter_to_histories_alone() {
    let mut facts = redis();
    facts.zset_max_listpack_entries = Some(128);
    let facts = [facts];
    let words = |has_history: bool| {
        let origin = OriginFacts {
            has_history,
            ..OriginFacts::default()
        };
        let subject = Subject {
            origin: Some(&origin),
            redis: &facts,
            ..Subject::default()
        };
        words(&examine(&subject))
    };
    assert_eq!(words(true), ["redis-listpack"]);
    assert_eq!(words(false), [""; 0]);
}

#[test]
fn errors_come_before_warnings() {
    let mut facts = redis();
    facts.zset_max_listpack_entries = Some(128);
    facts.clock_ahead_ms = Some(9_999);
    let findings = found(shipped("weir.yaml"), &origin(), &facts, &environment());
    assert_eq!(words(&findings), ["clock", "redis-listpack"]);
    assert_eq!(findings[0].severity, Severity::Error);
    assert!(
        findings[0]
            .to_string()
            .starts_with("error: Redis at 127.0.0.1:6379: its clock is 9999 ms ahead")
    );
}
