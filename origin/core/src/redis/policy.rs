//! Whether Redis may throw away what it has acknowledged, to make room.
//!
//! Stock, claims and links in Redis are state, not a cache: with any `maxmemory-policy` but `noeviction` a Redis that runs
//! full drops some of it, and what is left makes no sense. SQL repairs much of that, but a Redis that refuses to write is
//! better.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::error;

use super::Redis;
use crate::background::Rounds;

/// How often it is looked at: settings change while Redis runs.
const PERIOD: Duration = Duration::from_secs(60);

/// Says in the log, as long as it is so, that Redis may evict. Ends with `stop`.
pub async fn watch(redis: Redis, stop: CancellationToken) {
    let mut rounds = Rounds::every(PERIOD, "looking at the settings of Redis", stop);
    while rounds.next().await {
        let info = redis.send(::redis::cmd("INFO").arg("memory")).await;
        if let Ok(info) = &info
            && let Some(policy) = evicting(info)
        {
            error!(
                policy,
                "Redis has a maxmemory and may evict what sales and links need: set maxmemory-policy to noeviction"
            );
        }
        rounds.ended(&info);
    }
}

/// The policy by which some server evicts, if one may. `info` is a text, or one for each node.
fn evicting(info: &::redis::Value) -> Option<String> {
    match info {
        ::redis::Value::BulkString(text) => policy_of(&String::from_utf8_lossy(text)),
        ::redis::Value::SimpleString(text) => policy_of(text),
        ::redis::Value::VerbatimString { text, .. } => policy_of(text),
        ::redis::Value::Array(values) => values.iter().find_map(evicting),
        ::redis::Value::Map(nodes) => nodes.iter().find_map(|(_, info)| evicting(info)),
        _ => None,
    }
}

/// The field `name` of what `INFO` says.
pub fn info_field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = info.lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    Some(value.trim())
}

fn policy_of(info: &str) -> Option<String> {
    let policy = info_field(info, "maxmemory_policy")?;
    let is_bounded = info_field(info, "maxmemory")? != "0";
    (is_bounded && policy != "noeviction").then(|| policy.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_bounded_redis_with_another_policy_evicts() {
        let info = |max: u64, policy: &str| {
            let text = format!("used_memory:9\r\nmaxmemory:{max}\r\nmaxmemory_policy:{policy}\r\n");
            ::redis::Value::BulkString(text.into_bytes())
        };
        assert_eq!(evicting(&info(0, "allkeys-lru")), None);
        assert_eq!(evicting(&info(1_000, "noeviction")), None);
        let lru = Some("allkeys-lru".to_owned());
        assert_eq!(evicting(&info(1_000, "allkeys-lru")), lru);
        let name = ::redis::Value::SimpleString("node".into());
        let nodes = vec![
            (name.clone(), info(1, "noeviction")),
            (name, info(1, "allkeys-lru")),
        ];
        assert_eq!(evicting(&::redis::Value::Map(nodes)), lru);
        assert_eq!(evicting(&::redis::Value::Nil), None);
    }
}
