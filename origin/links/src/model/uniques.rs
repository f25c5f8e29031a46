//! Counts unique visitors and addresses without storing them.
//!
//! Redis counts hashes in HyperLogLogs. Each UTC day has its own random hash key, which exists only in Redis, until
//! `KEPT_MS` after its day. Afterwards no hash can be traced to an address, not even by hashing all addresses, and
//! visitors cannot be tracked across days. Visitors of several days therefore add up: a visitor on two days counts
//! twice.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use redis::Value;
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use tokio::task::JoinSet;
use weir_link::click::Row;
use weir_link::code::LinkId;
use weir_link::redis::keys::{self, UniquesKeys};
use weir_link::redis::link_uniques::{self, ADDED_MAX, Expiries, UniqueCounts, UniqueHash};

use super::stats::{DAY_MS, HOUR_MS, Slot, Span, Uniques, UniquesBySlot};
use weir_origin_core::redis::{CallError, Redis};

/// How long Redis stores a count and its hash key after the hour or day, in milliseconds. Later clicks do not add to
/// visitors.
const KEPT_MS: u64 = 2 * DAY_MS;

/// Minimum lifetime of a count whose interval has already passed, in milliseconds.
const KEPT_LATE_MS: u64 = HOUR_MS;

/// Number of days whose keys are cached: today, yesterday, and some earlier days for late clicks.
const DAYS_MAX: usize = 8;

/// Maximum number of concurrent Redis calls.
const CALLS_AT_ONCE: usize = 32;

/// Length of a day's key, in bytes: the output length of HMAC-SHA256.
const KEY_LEN: usize = 32;

/// Counts visitors in Redis.
#[derive(Clone)]
pub struct UniqueCounter {
    redis: Redis,
    days: Arc<Mutex<BTreeMap<u64, hmac::Key>>>,
}

/// The visitors of a link, or of all links of a domain, within an hour.
#[derive(Default)]
struct HourlyVisitors {
    visitors: BTreeSet<UniqueHash>,
    addresses: BTreeSet<UniqueHash>,
}

impl UniqueCounter {
    /// Creates a counter on a Redis.
    pub fn new(redis: Redis) -> Self {
        let days = Arc::default();
        Self { redis, days }
    }

    /// Counts visitors, and returns the current counts of each affected hour and day. Idempotent.
    ///
    /// # Errors
    /// If Redis is unavailable; some visitors may be counted.
    pub async fn count(&self, rows: &[Row], now_ms: u64) -> Result<UniquesBySlot, CallError> {
        let mut tasks = JoinSet::new();
        let mut counts = UniquesBySlot::new();
        for ((link, hour), hourly_visitors) in self.hourly_visitors(rows, now_ms).await? {
            for (visitors, addresses) in hourly_visitors.chunks() {
                if tasks.len() >= CALLS_AT_ONCE
                    && let Some(counted) = tasks.join_next().await
                {
                    note(&mut counts, counted??);
                }
                tasks.spawn(
                    self.clone()
                        .add(link.clone(), hour, visitors, addresses, now_ms),
                );
            }
        }
        while let Some(counted) = tasks.join_next().await {
            note(&mut counts, counted??);
        }
        Ok(counts)
    }

    async fn hourly_visitors(
        &self,
        rows: &[Row],
        now_ms: u64,
    ) -> Result<BTreeMap<(LinkId, u64), HourlyVisitors>, CallError> {
        let mut hourly_visitors: BTreeMap<(LinkId, u64), HourlyVisitors> = BTreeMap::new();
        for row in rows {
            let key = self.key(row.minute_ms / DAY_MS, now_ms).await?;
            let hour = row.minute_ms / HOUR_MS;
            let all = LinkId::whole_domain(row.link.domain.clone());
            for link in [row.link.clone(), all] {
                let hourly_visitors = hourly_visitors.entry((link, hour)).or_default();
                hourly_visitors.visitors.insert(visitor(&key, row));
                let address = row.address.map(|address| hash(&key, b"a", address, &[]));
                hourly_visitors.addresses.extend(address);
            }
        }
        Ok(hourly_visitors)
    }

    async fn add(
        self,
        link: LinkId,
        hour: u64,
        visitors: Vec<UniqueHash>,
        addresses: Vec<UniqueHash>,
        now_ms: u64,
    ) -> Result<(LinkId, u64, UniqueCounts), CallError> {
        let keys = UniquesKeys::new(self.redis.prefix(), &link, hour);
        let expiries = Expiries {
            hour_ms: kept_until_ms(Span::Hour, hour * HOUR_MS, now_ms),
            day_ms: kept_until_ms(Span::Day, hour * HOUR_MS, now_ms),
        };
        let call = link_uniques::call(&keys, expiries, &visitors, &addresses);
        let counts = link_uniques::parse(&self.redis.run(&call).await?)?;
        Ok((link, hour, counts))
    }

    /// The hash key of a day. The first origin that needs it creates it; all origins share it.
    async fn key(&self, day: u64, now_ms: u64) -> Result<hmac::Key, CallError> {
        if let Some(key) = self.days().get(&day) {
            return Ok(key.clone());
        }
        let name = keys::link_uniques_secret(self.redis.prefix(), day);
        let life_ms = kept_until_ms(Span::Day, day * DAY_MS, now_ms).saturating_sub(now_ms);
        let mut set = redis::cmd("SET");
        set.arg(&name)
            .arg(&random()?)
            .arg("NX")
            .arg("PX")
            .arg(life_ms);
        self.redis.send(&set).await?;
        let Value::BulkString(bytes) = self.redis.send(redis::cmd("GET").arg(&name)).await? else {
            return Err(no_key("Redis has none"));
        };
        let key = hmac::Key::new(hmac::HMAC_SHA256, &bytes);
        let mut days = self.days();
        days.insert(day, key.clone());
        while days.len() > DAYS_MAX {
            days.pop_first();
        }
        Ok(key)
    }

    /// Each change is one step, so a panic elsewhere leaves the map consistent.
    fn days(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, hmac::Key>> {
        self.days.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HourlyVisitors {
    /// Splits the hashes into pieces that fit into one call.
    fn chunks(self) -> Vec<(Vec<UniqueHash>, Vec<UniqueHash>)> {
        let visitors: Vec<UniqueHash> = self.visitors.into_iter().collect();
        let addresses: Vec<UniqueHash> = self.addresses.into_iter().collect();
        let count = visitors.len().max(addresses.len()).div_ceil(ADDED_MAX);
        let chunk = |all: &[UniqueHash], n: usize| -> Vec<UniqueHash> {
            all.iter()
                .skip(n * ADDED_MAX)
                .take(ADDED_MAX)
                .copied()
                .collect()
        };
        (0..count)
            .map(|n| (chunk(&visitors, n), chunk(&addresses, n)))
            .collect()
    }
}

fn note(counts: &mut UniquesBySlot, (link, hour, counted): (LinkId, u64, UniqueCounts)) {
    let mut put = |span, visitors, addresses| {
        let slot = Slot::at(&link, span, hour * HOUR_MS);
        let existing = counts.entry(slot).or_default();
        *existing = existing.max(Uniques {
            visitors,
            addresses,
        });
    };
    put(Span::Hour, counted.hour_visitors, counted.hour_addresses);
    put(Span::Day, counted.day_visitors, counted.day_addresses);
}

fn kept_until_ms(span: Span, at_ms: u64, now_ms: u64) -> u64 {
    let end_ms = span.start_ms(at_ms) + span.len_ms();
    (end_ms + KEPT_MS).max(now_ms + KEPT_LATE_MS)
}

/// Hashes an address with a browser. Visitors without an address are distinguished by browser only.
fn visitor(key: &hmac::Key, row: &Row) -> UniqueHash {
    let agent = row.agent_hash.to_be_bytes();
    match row.address {
        Some(address) => hash(key, b"v", address, &agent),
        None => cut(&hmac::sign(key, &[b"n", agent.as_slice()].concat())),
    }
}

fn hash(key: &hmac::Key, kind: &[u8], address: IpAddr, more: &[u8]) -> UniqueHash {
    // A fixed length, so that different inputs never give the same bytes.
    let address = match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    cut(&hmac::sign(key, &[kind, &address.octets(), more].concat()))
}

fn cut(tag: &hmac::Tag) -> UniqueHash {
    let mut hash = UniqueHash::default();
    for (to, from) in hash.iter_mut().zip(tag.as_ref()) {
        *to = *from;
    }
    hash
}

fn random() -> Result<[u8; KEY_LEN], CallError> {
    let mut bytes = [0; KEY_LEN];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| no_key("no random numbers from the operating system"))?;
    Ok(bytes)
}

fn no_key(why: &'static str) -> CallError {
    CallError::unexpected("no key for hashing addresses", why.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visitor_hashes_differ_only_for_different_visitors() {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &[7; KEY_LEN]);
        let other = hmac::Key::new(hmac::HMAC_SHA256, &[8; KEY_LEN]);
        let [a, b, mapped] = ["203.0.113.7", "203.0.113.8", "::ffff:203.0.113.7"]
            .map(|text| text.parse::<IpAddr>().unwrap());
        let first = hash(&key, b"a", a, &[]);
        assert_eq!(first, hash(&key, b"a", mapped, &[]));
        for different in [
            hash(&key, b"a", b, &[]),
            hash(&key, b"v", a, &[]),
            hash(&key, b"a", a, &[0]),
            // The same address on another day.
            hash(&other, b"a", a, &[]),
        ] {
            assert_ne!(first, different);
        }
    }

    #[test]
    fn many_visitors_are_split_into_chunks_without_loss() {
        let number = |n: usize| {
            let mut hash = UniqueHash::default();
            hash[..8].copy_from_slice(&n.to_be_bytes());
            hash
        };
        let hourly_visitors = HourlyVisitors {
            visitors: (0..2 * ADDED_MAX + 1).map(number).collect(),
            addresses: (0..3).map(number).collect(),
        };
        let pieces = hourly_visitors.chunks();
        let sizes = pieces.iter().map(|(v, a)| (v.len(), a.len()));
        assert_eq!(
            sizes.collect::<Vec<_>>(),
            [(ADDED_MAX, 3), (ADDED_MAX, 0), (1, 0)]
        );
    }
}
