//! Checks the settings of Redis, and its clock.

use weir_engine::config::Topology;

use super::Subject;
use crate::diagnostic::Diagnostic;
use crate::facts::{RedisFacts, RefusedQuery};
use crate::filters;

const TOPOLOGY: &str = "topology";

/// Lists of up to this many views stay in the compact encoding, which takes a fifth of the memory.
const LISTPACK_ENTRIES: u64 = 256;

/// A Redis that uses this share of `maxmemory` is nearly full.
const FULL_PERCENT: u64 = 90;

/// Maximum clock difference, in milliseconds. Tokens have a minimum age of a second; claims are held for 30 seconds.
const CLOCK_MS: i64 = 500;

pub(super) fn check(subject: &Subject<'_>, findings: &mut Vec<Diagnostic>) {
    for redis in subject.redis {
        let place = format!("Redis at {}", redis.address);
        if let Some(why) = &redis.away {
            findings.push(Diagnostic::error(
                "redis-away",
                place,
                format!("it does not answer: {why}"),
                "start it, or correct WEIR_REDIS_URL",
            ));
            continue;
        }
        findings.extend(forbidden(redis, &place));
        findings.extend(refuses(redis, &place));
        findings.extend(refused_queries(redis, &place));
        findings.extend(replica(redis, &place));
        findings.extend(nearly_full(redis, &place));
        findings.extend(evicts(redis, &place));
        findings.extend(listpack(subject, redis, &place));
        findings.extend(clock(redis, &place));
        // The bridge's upstream may already differ from the topology: that is the same mistake.
        if !findings.iter().any(|finding| finding.check == TOPOLOGY) {
            findings.extend(kind(subject, redis, &place));
        }
    }
}

/// One finding with every command that the user may not run.
fn forbidden(redis: &RedisFacts, place: &str) -> Option<Diagnostic> {
    (!redis.forbidden.is_empty()).then(|| {
        Diagnostic::error(
            "redis-acl",
            place,
            format!("its user may not run {}", redis.forbidden.join(", ")),
            "give the user the rules in docs/redis.md (ACL SETUSER)",
        )
    })
}

fn refuses(redis: &RedisFacts, place: &str) -> Option<Diagnostic> {
    let refused = redis.refused.as_ref()?;
    // The finding of `forbidden` names the commands already.
    let is_told = refused.is_permission && !redis.forbidden.is_empty();
    (!is_told).then(|| {
        Diagnostic::error(
            "redis-refuses",
            place,
            format!("it refuses a write: {}", refused.error),
            refused.remedy,
        )
    })
}

fn refused_queries(redis: &RedisFacts, place: &str) -> Vec<Diagnostic> {
    let finding = |query: &RefusedQuery| {
        let RefusedQuery {
            command,
            checks,
            error,
        } = query;
        Diagnostic::warning(
            "redis-check-refused",
            place,
            format!("{checks} not examined, because it refuses {command}: {error}"),
            format!("allow {command} for the user, or check by hand"),
        )
    };
    redis.refused_queries.iter().map(finding).collect()
}

/// A replica that refuses writes has the finding of `refuses` instead.
fn replica(redis: &RedisFacts, place: &str) -> Option<Diagnostic> {
    let is_lost = redis.is_replica? && redis.refused.is_none();
    is_lost.then(|| {
        Diagnostic::error(
            "redis-replica",
            place,
            "it is a writable replica: it loses writes at the next synchronization",
            "point the address at the primary",
        )
    })
}

fn nearly_full(redis: &RedisFacts, place: &str) -> Option<Diagnostic> {
    let (used, max) = (redis.used_memory?, redis.maxmemory.filter(|max| *max > 0)?);
    let percent = used.saturating_mul(100) / max;
    (percent >= FULL_PERCENT && redis.refused.is_none()).then(|| {
        Diagnostic::warning(
            "redis-full",
            place,
            format!("{percent} % of maxmemory is used: a full Redis refuses every order"),
            "free memory, or raise maxmemory",
        )
    })
}

fn evicts(redis: &RedisFacts, place: &str) -> Option<Diagnostic> {
    let policy = redis.maxmemory_policy.as_deref()?;
    let is_bounded = redis.maxmemory? > 0;
    (is_bounded && policy != "noeviction").then(|| {
        Diagnostic::error(
            "redis-evicts",
            place,
            format!("maxmemory is set with the policy {policy}: a full Redis evicts stock, claims and links"),
            "set maxmemory-policy noeviction",
        )
    })
}

fn listpack(subject: &Subject<'_>, redis: &RedisFacts, place: &str) -> Option<Diagnostic> {
    let entries = redis.zset_max_listpack_entries?;
    let is_wanted = subject.origin.is_some_and(|origin| origin.has_history);
    (is_wanted && entries < LISTPACK_ENTRIES).then(|| {
        Diagnostic::warning(
            "redis-listpack",
            place,
            format!("zset-max-listpack-entries is {entries}: browse histories take five times the memory"),
            format!("set zset-max-listpack-entries {LISTPACK_ENTRIES}"),
        )
    })
}

fn clock(redis: &RedisFacts, place: &str) -> Option<Diagnostic> {
    let ahead_ms = redis.clock_ahead_ms?;
    let is_off = ahead_ms.abs() > CLOCK_MS.saturating_add(redis.clock_uncertain_ms);
    let direction = if ahead_ms > 0 { "ahead of" } else { "behind" };
    is_off.then(|| {
        Diagnostic::error(
            "clock",
            place,
            format!("its clock is {} ms {direction} this machine's: sales start, tokens become valid and claims end at the wrong time", ahead_ms.abs()),
            "synchronize all machines with one time server (chrony, systemd-timesyncd)",
        )
    })
}

/// Compares the topology that Redis reports with the one that filters expect.
fn kind(subject: &Subject<'_>, redis: &RedisFacts, place: &str) -> Option<Diagnostic> {
    let is_cluster = redis.is_cluster?;
    let filters = filters::find_all(subject.envoy?);
    let expects_cluster = filters.iter().find_map(|filter| {
        let gate = filter.gate()?;
        Some(gate.redis.topology == Topology::Cluster)
    })?;
    let (is, expected) = match (is_cluster, expects_cluster) {
        (true, false) => ("a node of a Redis Cluster", "single"),
        (false, true) => ("not a node of a Redis Cluster", "cluster"),
        _ => return None,
    };
    Some(Diagnostic::error(
        TOPOLOGY,
        place,
        format!("it is {is}, but the gate's redis.topology is {expected}"),
        "set redis.topology to match Redis; for a Redis Cluster see envoy/snippets/redis-cluster.yaml",
    ))
}
