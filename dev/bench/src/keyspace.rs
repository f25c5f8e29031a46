//! The contents of Redis: total memory, number of keys, and the largest keys.

use anyhow::{Context, Result};
use redis::aio::MultiplexedConnection;
use serde::Serialize;
use weir_sale::redis::keys::ShardKeys;
use weir_sale::shard::BUCKETS;

/// Keys per scan step, and commands per pipeline.
const STEP: usize = 1_000;

/// All keys of one Weir deployment.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Keyspace {
    pub(super) keys: u64,
    /// The total size of all keys, including values and overhead.
    pub(super) bytes: u64,
    pub(super) largest: Key,
}

/// One key and its value.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Key {
    pub(super) name: String,
    /// The result of MEMORY USAGE with all elements counted.
    pub(super) bytes: u64,
}

impl Keyspace {
    /// Measures every key with this `prefix`.
    pub(super) async fn scan(redis: &mut MultiplexedConnection, prefix: &str) -> Result<Self> {
        let mut found = Self::default();
        let mut cursor = 0_u64;
        loop {
            let mut scan = redis::cmd("SCAN");
            scan.arg(cursor).arg("MATCH").arg(format!("{prefix}:*"));
            scan.arg("COUNT").arg(STEP);
            let (next, names): (u64, Vec<String>) =
                scan.query_async(redis).await.context("SCAN")?;
            found.add(redis, names).await?;
            cursor = next;
            if cursor == 0 {
                return Ok(found);
            }
        }
    }

    async fn add(&mut self, redis: &mut MultiplexedConnection, names: Vec<String>) -> Result<()> {
        if names.is_empty() {
            return Ok(());
        }
        let mut usage = redis::pipe();
        for name in &names {
            // Counts all elements: samples would only estimate the size of a large value.
            let command = usage.cmd("MEMORY").arg("USAGE").arg(name);
            command.arg("SAMPLES").arg(0);
        }
        let sizes: Vec<Option<u64>> = usage.query_async(redis).await.context("MEMORY USAGE")?;
        for (name, size) in names.into_iter().zip(sizes) {
            // `None`: the key was deleted meanwhile.
            let Some(bytes) = size else { continue };
            self.keys += 1;
            self.bytes += bytes;
            if bytes > self.largest.bytes {
                self.largest = Key { name, bytes };
            }
        }
        Ok(())
    }
}

/// The number of users of one sale in Redis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct ListedUsers {
    pub(super) reserved: u64,
    pub(super) blocked: u64,
}

impl ListedUsers {
    /// Counts the members of all sets of the sale's `shards`.
    pub(super) async fn count(
        redis: &mut MultiplexedConnection,
        shards: &[ShardKeys],
    ) -> Result<Self> {
        Ok(Self {
            reserved: members(redis, shards, ShardKeys::reserved).await?,
            blocked: members(redis, shards, ShardKeys::blocked).await?,
        })
    }
}

async fn members(
    redis: &mut MultiplexedConnection,
    shards: &[ShardKeys],
    set: impl Fn(&ShardKeys, u32) -> Vec<u8>,
) -> Result<u64> {
    let mut count = 0;
    for keys in shards {
        let mut cards = redis::pipe();
        for bucket in 0..BUCKETS {
            cards.cmd("SCARD").arg(set(keys, bucket));
        }
        let cards: Vec<u64> = cards.query_async(redis).await.context("SCARD")?;
        count += cards.iter().sum::<u64>();
    }
    Ok(count)
}

/// The memory that Redis' allocator has allocated, in bytes: keys, values, and Redis' own needs.
pub(super) async fn used(redis: &mut MultiplexedConnection) -> Result<u64> {
    let mut info = redis::cmd("INFO");
    let info: String = info.arg("memory").query_async(redis).await?;
    used_in(&info).context("no used_memory in INFO")
}

fn used_in(info: &str) -> Option<u64> {
    let value = |line: &str| line.strip_prefix("used_memory:")?.trim().parse().ok();
    info.lines().find_map(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn used_memory_is_read_from_info() {
        let info = "# Memory\r\nused_memory:1048576\r\nused_memory_rss:2097152\r\n";
        assert_eq!(used_in(info), Some(1_048_576));
    }
}
