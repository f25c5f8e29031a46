//! Caches refusals of Redis for as long as they hold.
//!
//! Redis returns the waiting time with a refusal. Until then the result cannot change, because only time frees quota.
//! So a flooding client costs Redis one call per waiting time, not one per request. Concurrency limits are the
//! exception: their requests may end at any time, so the cache ignores them. The waiting time counts from the sending
//! of the call, which is before Redis runs it: so the cache never refuses a request that Redis would allow.

use alloc::collections::BTreeMap;

use crate::redis::keys::LimitKey;
use crate::redis::limit::LimitRequest;
use crate::{Algorithm, Check, Quota};

/// The maximum number of cached keys per worker. Further keys call Redis each time.
const KEYS_MAX: usize = 4_096;

/// The minimum interval between searches for expired entries, in milliseconds.
const SWEEP_MS: u64 = 100;

/// A worker's cached refusals.
#[derive(Debug, Default)]
pub struct RefusalCache {
    by_key: BTreeMap<LimitKey, CachedRefusal>,
    swept_at_ms: u64,
}

#[derive(Debug)]
struct CachedRefusal {
    quota: Quota,
    cost: u32,
    check: Check,
    since_ms: u64,
}

impl RefusalCache {
    /// Caches `check`, the answer to `limit`, which was sent at `since_ms`.
    pub fn note(&mut self, limit: &LimitRequest, check: Check, since_ms: u64) {
        if check.is_allowed() || limit.quota.algorithm() == Algorithm::Concurrency {
            return;
        }
        if self.by_key.len() >= KEYS_MAX && since_ms.abs_diff(self.swept_at_ms) >= SWEEP_MS {
            self.swept_at_ms = since_ms;
            self.by_key
                .retain(|_, existing| existing.check_at(since_ms).is_some());
        }
        if self.by_key.len() < KEYS_MAX || self.by_key.contains_key(&limit.key) {
            let existing = CachedRefusal {
                quota: limit.quota,
                cost: limit.cost,
                check,
                since_ms,
            };
            self.by_key.insert(limit.key.clone(), existing);
        }
    }

    /// Whether the cache is empty.
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// The answer that Redis would give, if cached: the same request was refused, and its waiting time has not passed.
    pub fn recall(
        &mut self,
        key: &LimitKey,
        quota: Quota,
        cost: u32,
        now_ms: u64,
    ) -> Option<Check> {
        let existing = self.by_key.get(key)?;
        let Some(check) = existing.check_at(now_ms) else {
            self.by_key.remove(key);
            return None;
        };
        // Another cost or limit has another waiting time.
        (existing.quota == quota && existing.cost == cost).then_some(check)
    }
}

impl CachedRefusal {
    /// `None` after the waiting time, or if the clock was set back.
    fn check_at(&self, now_ms: u64) -> Option<Check> {
        let passed_ms = now_ms.checked_sub(self.since_ms)?;
        let wait_ms = self.check.wait_ms.checked_sub(passed_ms)?;
        (wait_ms > 0).then_some(Check {
            wait_ms,
            reset_ms: self.check.reset_ms.saturating_sub(passed_ms),
            ..self.check
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_MS: u64 = 1_700_000_000_000;

    fn ask(n: u64, algorithm: Algorithm) -> LimitRequest {
        let mut hash = [0; 16];
        hash[..8].copy_from_slice(&n.to_le_bytes());
        LimitRequest {
            key: LimitKey::new("t", "r", hash),
            quota: Quota::new(algorithm, 10, 1_000, 10).unwrap(),
            cost: 1,
            extra: 0,
        }
    }

    fn check(wait_ms: u64) -> Check {
        Check {
            wait_ms,
            remaining: 0,
            reset_ms: wait_ms + 500,
            mark: 0,
        }
    }

    fn wait_ms(refusals: &mut RefusalCache, ask: &LimitRequest, now_ms: u64) -> Option<u64> {
        let check = refusals.recall(&ask.key, ask.quota, ask.cost, now_ms);
        check.map(|check| check.wait_ms)
    }

    #[test]
    fn refusal_is_cached_exactly_until_its_wait_is_over() {
        let (mut refusals, ask) = (RefusalCache::default(), ask(1, Algorithm::Gcra));
        refusals.note(&ask, check(100), NOW_MS);
        assert_eq!(wait_ms(&mut refusals, &ask, NOW_MS), Some(100));
        let later = refusals
            .recall(&ask.key, ask.quota, 1, NOW_MS + 99)
            .unwrap();
        assert_eq!((later.wait_ms, later.reset_ms), (1, 501));
        assert_eq!(wait_ms(&mut refusals, &ask, NOW_MS + 100), None);
        assert!(refusals.is_empty());
    }

    #[test]
    fn cached_refusal_covers_only_the_same_cost_and_limit() {
        let (mut refusals, one) = (RefusalCache::default(), ask(1, Algorithm::Gcra));
        refusals.note(&one, check(100), NOW_MS);
        assert_eq!(refusals.recall(&one.key, one.quota, 2, NOW_MS), None);
        let raised = Quota::new(Algorithm::Gcra, 20, 1_000, 20).unwrap();
        assert_eq!(refusals.recall(&one.key, raised, 1, NOW_MS), None);
        let passed = ask(2, Algorithm::Gcra);
        refusals.note(&passed, check(0), NOW_MS);
        assert_eq!(wait_ms(&mut refusals, &passed, NOW_MS), None);
    }

    #[test]
    fn concurrency_refusal_is_not_cached() {
        let (mut refusals, ask) = (RefusalCache::default(), ask(1, Algorithm::Concurrency));
        refusals.note(&ask, check(100), NOW_MS);
        assert!(refusals.is_empty());
    }

    #[test]
    fn clock_set_back_invalidates_the_cached_refusal() {
        let (mut refusals, ask) = (RefusalCache::default(), ask(1, Algorithm::Gcra));
        refusals.note(&ask, check(100), NOW_MS);
        assert_eq!(wait_ms(&mut refusals, &ask, NOW_MS - 1), None);
    }

    /// A search takes as long as thousands of requests.
    #[test]
    fn expired_refusals_are_swept_at_most_ten_times_a_second() {
        let mut refusals = RefusalCache::default();
        for n in 0..=KEYS_MAX as u64 {
            refusals.note(&ask(n, Algorithm::Gcra), check(50), NOW_MS);
        }
        let late = ask(u64::MAX, Algorithm::Gcra);
        refusals.note(&late, check(50), NOW_MS + SWEEP_MS - 1);
        assert_eq!(refusals.by_key.len(), KEYS_MAX);
        refusals.note(&late, check(50), NOW_MS + SWEEP_MS);
        assert_eq!(refusals.by_key.len(), 1);
    }

    #[test]
    fn refusal_cache_is_bounded_and_expired_entries_free_space() {
        let mut refusals = RefusalCache::default();
        for n in 0..2 * KEYS_MAX as u64 {
            refusals.note(&ask(n, Algorithm::Gcra), check(100), NOW_MS);
        }
        assert_eq!(refusals.by_key.len(), KEYS_MAX);
        let late = ask(u64::MAX, Algorithm::Gcra);
        refusals.note(&late, check(100), NOW_MS + SWEEP_MS);
        assert_eq!(refusals.by_key.len(), 1);
        assert!(wait_ms(&mut refusals, &late, NOW_MS + SWEEP_MS).is_some());
    }
}
