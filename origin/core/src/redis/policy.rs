//! Checks Redis' configuration at startup and once per minute.
//!
//! Stock, claims and links in Redis are state, not a cache. With any `maxmemory-policy` except `noeviction`, a full
//! Redis deletes some keys, which makes the rest inconsistent. SQL repairs much of that, but a Redis that refuses
//! writes is better.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

use super::Redis;
use crate::background::Interval;

/// Interval between two checks; settings may change while Redis runs.
const PERIOD: Duration = Duration::from_secs(60);

/// Memory usage, in percent of `maxmemory`, from which Redis counts as nearly full.
const FULL_PERCENT: u64 = 90;

/// Logs problems of Redis every minute until they are fixed. Ends at `stop`.
pub async fn watch(redis: Redis, stop: CancellationToken) {
    let mut interval = Interval::every(PERIOD, "checking the settings of Redis", stop);
    while interval.next().await {
        // `check_write` logs refusals itself.
        let written = redis.check_write().await;
        let info = redis.send(&::redis::cmd("INFO")).await;
        if let Ok(info) = &info {
            for node in nodes(info) {
                log_policy(&node, written.is_ok());
            }
        }
        interval.ended(&info);
    }
}

fn log_policy(info: &str, takes_writes: bool) {
    if let Some(policy) = evicting(info) {
        error!(
            policy,
            "Redis has a maxmemory and may evict data of sales and links: set maxmemory-policy to noeviction"
        );
    }
    if is_replica(info) && takes_writes {
        error!(
            "Redis is a writable replica and loses writes at its next synchronization: point WEIR_REDIS_URL at the primary"
        );
    }
    if let Some(percent) = full_percent(info).filter(|percent| *percent >= FULL_PERCENT) {
        warn!(
            percent,
            "Redis is nearly full and will refuse writes: free memory or raise maxmemory"
        );
    }
}

/// The reply of each node.
fn nodes(info: &::redis::Value) -> Vec<String> {
    match info {
        ::redis::Value::BulkString(text) => vec![String::from_utf8_lossy(text).into_owned()],
        ::redis::Value::SimpleString(text) => vec![text.clone()],
        ::redis::Value::VerbatimString { text, .. } => vec![text.clone()],
        ::redis::Value::Array(values) => values.iter().flat_map(nodes).collect(),
        ::redis::Value::Map(all) => all.iter().flat_map(|(_, info)| nodes(info)).collect(),
        _ => Vec::new(),
    }
}

/// The field `name` in a reply of `INFO`.
pub fn info_field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = info.lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    Some(value.trim())
}

fn number(info: &str, name: &str) -> Option<u64> {
    info_field(info, name)?.parse().ok()
}

/// The eviction policy of a server; `None` if it never evicts.
fn evicting(info: &str) -> Option<&str> {
    let policy = info_field(info, "maxmemory_policy")?;
    let is_bounded = number(info, "maxmemory")? > 0;
    (is_bounded && policy != "noeviction").then_some(policy)
}

fn is_replica(info: &str) -> bool {
    info_field(info, "role") == Some("slave")
}

/// Memory usage in percent; `None` if memory is not limited.
fn full_percent(info: &str) -> Option<u64> {
    let max = number(info, "maxmemory")?;
    let used = number(info, "used_memory")?;
    used.saturating_mul(100).checked_div(max)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(used: u64, max: u64, policy: &str, role: &str) -> String {
        format!(
            "used_memory:{used}\r\nmaxmemory:{max}\r\nmaxmemory_policy:{policy}\r\nrole:{role}\r\n"
        )
    }

    #[test]
    fn only_a_bounded_redis_with_another_policy_evicts() {
        let policy = |max, policy| evicting(&info(9, max, policy, "master")).map(str::to_owned);
        assert_eq!(policy(0, "allkeys-lru"), None);
        assert_eq!(policy(1_000, "noeviction"), None);
        assert_eq!(policy(1_000, "allkeys-lru").as_deref(), Some("allkeys-lru"));
        assert_eq!(evicting(""), None);
    }

    #[test]
    fn redis_role_and_memory_are_parsed() {
        let replica = info(95, 100, "noeviction", "slave");
        assert!(is_replica(&replica) && !is_replica(&info(1, 0, "noeviction", "master")));
        assert_eq!(full_percent(&replica), Some(95));
        assert_eq!(full_percent(&info(95, 0, "noeviction", "master")), None);
    }

    #[test]
    fn info_of_each_cluster_node_is_parsed() {
        let text = |text: &str| ::redis::Value::BulkString(text.into());
        let name = ::redis::Value::SimpleString("node".into());
        let map = vec![(name.clone(), text("a")), (name, text("b"))];
        assert_eq!(nodes(&::redis::Value::Map(map)), ["a", "b"]);
        assert_eq!(nodes(&text("a")), ["a"]);
        assert_eq!(nodes(&::redis::Value::Nil), [""; 0]);
    }
}
