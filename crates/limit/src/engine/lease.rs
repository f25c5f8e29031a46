//! Slices of limits that this worker has leased from Redis and spends locally.
//!
//! Redis charges a slice when it grants it, so every spent unit is counted. Unspent units expire with the slice. So a
//! slice grows only while the last one was used up early. It starts at one request and doubles each time up to the
//! rule's `max`; it halves when more than half of it has expired.
//!
//! **Accuracy:** a worker may spend a slice for `lasts` after the charge. So in any period, the excess over the limit
//! is at most the slices that were open when the period began: `max` for each worker of each gateway. With a fixed
//! window a slice ends with its window, and there is no excess apart from the clock difference between gateway and
//! Redis.

use alloc::collections::BTreeMap;

use crate::redis::keys::LimitKey;
use crate::rules;

/// The maximum number of keys with slices per worker. Further keys call Redis for each request.
const KEYS_MAX: usize = 4_096;

/// How long a pending request for a slice blocks others, in milliseconds: its answer may be lost.
const ASKED_MS_MAX: u64 = 1_000;

/// All slices of a worker.
#[derive(Debug, Default)]
pub struct Leases {
    slices: BTreeMap<LimitKey, Slice>,
}

#[derive(Debug)]
struct Slice {
    /// The remaining requests.
    remaining: u32,
    /// When it expires.
    dies_at_ms: u64,
    /// The size of the next slice, including the request itself.
    size: u32,
    /// When a pending slice was requested.
    asked_at_ms: Option<u64>,
}

impl Leases {
    /// Spends `cost` of a key's slice. Returns `false` if less remains.
    pub fn spend(&mut self, key: &LimitKey, cost: u32, now_ms: u64) -> bool {
        let Some(slice) = self.slices.get_mut(key) else {
            return false;
        };
        let rest = slice
            .remaining
            .checked_sub(cost)
            .filter(|_| now_ms < slice.dies_at_ms);
        slice.remaining = rest.unwrap_or(slice.remaining);
        rest.is_some()
    }

    /// Whether [`Leases::spend`] would succeed.
    pub fn covers(&self, key: &LimitKey, cost: u32, now_ms: u64) -> bool {
        let slice = self.slices.get(key);
        slice.is_some_and(|slice| cost <= slice.remaining && now_ms < slice.dies_at_ms)
    }

    /// Returns a spent cost to the slice, because another rule has refused the request.
    pub fn give_back(&mut self, key: &LimitKey, cost: u32) {
        if let Some(slice) = self.slices.get_mut(key) {
            slice.remaining = slice.remaining.saturating_add(cost);
        }
    }

    /// How much to request in addition to `cost` when a key's slice is used up. Only one request at a time leases a
    /// slice; concurrent ones pay only their own cost.
    pub fn extra(&mut self, key: &LimitKey, lease: rules::Lease, cost: u32, now_ms: u64) -> u32 {
        if !self.make_place(key, now_ms) {
            return 0;
        }
        let slice = self.slices.entry(key.clone()).or_insert(Slice {
            remaining: 0,
            dies_at_ms: now_ms,
            size: 1,
            asked_at_ms: None,
        });
        let is_asked = |at_ms: u64| now_ms.abs_diff(at_ms) < ASKED_MS_MAX;
        if slice.asked_at_ms.is_some_and(is_asked) {
            return 0;
        }
        slice.resize(lease, now_ms);
        slice.asked_at_ms = Some(now_ms);
        slice.size.saturating_sub(cost)
    }

    /// Adds a granted slice: `used` units were charged in addition to the request's cost, and expire after `lasts_ms`.
    pub fn granted(&mut self, key: &LimitKey, used: u32, lasts_ms: u64, now_ms: u64) {
        if let Some(slice) = self.slices.get_mut(key) {
            slice.asked_at_ms = None;
            if now_ms >= slice.dies_at_ms {
                slice.remaining = 0;
            }
            slice.remaining = slice.remaining.saturating_add(used);
            slice.dies_at_ms = now_ms.saturating_add(lasts_ms);
        }
    }

    /// Ends a failed request for a slice, so that another one may try.
    pub fn not_granted(&mut self, key: &LimitKey) {
        if let Some(slice) = self.slices.get_mut(key) {
            slice.asked_at_ms = None;
        }
    }

    /// Whether `key` may have a slice. Removes expired slices if the table is full.
    fn make_place(&mut self, key: &LimitKey, now_ms: u64) -> bool {
        if self.slices.len() >= KEYS_MAX && !self.slices.contains_key(key) {
            self.slices.retain(|_, slice| now_ms < slice.dies_at_ms);
        }
        self.slices.len() < KEYS_MAX || self.slices.contains_key(key)
    }
}

impl Slice {
    fn resize(&mut self, lease: rules::Lease, now_ms: u64) {
        if now_ms < self.dies_at_ms {
            self.size = self.size.saturating_mul(2).min(lease.max);
        } else if self.remaining > self.size / 2 || now_ms - self.dies_at_ms > lease.lasts_ms {
            self.size = (self.size / 2).max(1);
        }
        self.size = self.size.min(lease.max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const LEASE: rules::Lease = rules::Lease {
        max: 16,
        lasts_ms: 100,
    };

    fn key(n: u64) -> LimitKey {
        let mut hash = [0; 16];
        hash[..8].copy_from_slice(&n.to_le_bytes());
        LimitKey::new("t", "r", hash)
    }

    #[test]
    fn lease_grows_when_used_early_and_shrinks_otherwise() {
        let (mut leases, key) = (Leases::default(), key(1));
        let mut sizes = Vec::new();
        for now_ms in [0, 10, 20, 30, 40, 50] {
            assert!(!leases.spend(&key, 1, now_ms));
            let extra = leases.extra(&key, LEASE, 1, now_ms);
            sizes.push(extra + 1);
            leases.granted(&key, extra, LEASE.lasts_ms, now_ms);
            for _ in 0..extra {
                assert!(leases.spend(&key, 1, now_ms + 5));
            }
        }
        assert_eq!(sizes, [1, 2, 4, 8, 16, 16]);
        for (now_ms, size) in [(151, 16), (300, 8), (500, 4)] {
            assert!(!leases.spend(&key, 1, now_ms), "it has died");
            assert_eq!(leases.extra(&key, LEASE, 1, now_ms) + 1, size);
            leases.granted(&key, size - 1, LEASE.lasts_ms, now_ms);
        }
    }

    #[test]
    fn lease_shrinks_when_over_half_was_lost_or_unused() {
        let dies_at_ms = 1_000;
        for (rest, late_ms, expected) in [(8, 0, 16), (9, 0, 8), (0, 100, 16), (0, 101, 8)] {
            let mut slice = Slice {
                remaining: rest,
                dies_at_ms,
                size: 16,
                asked_at_ms: None,
            };
            slice.resize(LEASE, dies_at_ms + late_ms);
            assert_eq!(slice.size, expected, "{rest} left, {late_ms} ms late");
        }
    }

    #[test]
    fn slice_remainder_expires_with_the_slice() {
        let (mut leases, key) = (Leases::default(), key(1));
        leases.extra(&key, LEASE, 1, 0);
        leases.granted(&key, 5, 100, 0);
        assert!(leases.spend(&key, 2, 99));
        assert!(!leases.spend(&key, 4, 99), "three are left");
        leases.give_back(&key, 1);
        assert!(leases.spend(&key, 4, 99));
        leases.give_back(&key, 4);
        assert!(!leases.spend(&key, 1, 100));
        leases.granted(&key, 1, 100, 100);
        assert!(!leases.spend(&key, 2, 100), "those of before are lost");
    }

    #[test]
    fn only_one_slice_request_runs_at_a_time() {
        let (mut leases, key) = (Leases::default(), key(1));
        assert_eq!(
            leases.extra(&key, LEASE, 1, 0),
            0,
            "a key that is rare takes no more than it needs"
        );
        leases.granted(&key, 0, 100, 0);
        assert_eq!(leases.extra(&key, LEASE, 1, 1), 1);
        assert_eq!(leases.extra(&key, LEASE, 1, 1), 0, "another one has asked");
        leases.granted(&key, 1, 100, 2);
        assert!(leases.spend(&key, 1, 3));
        assert_eq!(leases.extra(&key, LEASE, 1, 4), 3);
        assert_eq!(leases.extra(&key, LEASE, 1, 4 + ASKED_MS_MAX - 1), 0);
        assert_ne!(
            leases.extra(&key, LEASE, 1, 4 + ASKED_MS_MAX),
            0,
            "the answer was lost"
        );
    }

    #[test]
    fn lost_reply_allows_a_new_call_without_extending_the_remainder() {
        let (mut leases, key) = (Leases::default(), key(1));
        leases.extra(&key, LEASE, 1, 0);
        leases.granted(&key, 3, 100, 0);
        assert_eq!(
            leases.extra(&key, LEASE, 5, 50),
            0,
            "five are more than two"
        );
        leases.not_granted(&key);
        assert!(leases.spend(&key, 1, 99));
        assert!(!leases.spend(&key, 1, 100));
        assert_eq!(leases.extra(&key, LEASE, 0, 100), 1, "one may ask again");
    }

    #[test]
    fn expired_lease_makes_room_for_another() {
        let mut leases = Leases::default();
        for n in 0..KEYS_MAX as u64 {
            leases.extra(&key(n), LEASE, 1, 0);
            let lasts_ms = if n == 0 { 100 } else { 200 };
            leases.granted(&key(n), 3, lasts_ms, 0);
        }
        let late = key(u64::MAX);
        leases.extra(&late, LEASE, 1, 99);
        assert_eq!(leases.slices.len(), KEYS_MAX);
        assert!(leases.slices.contains_key(&key(0)));
        leases.extra(&late, LEASE, 1, 100);
        assert_eq!(leases.slices.len(), KEYS_MAX);
        assert!(leases.slices.contains_key(&late));
        assert!(leases.spend(&key(1), 3, 100));
    }

    #[test]
    fn memory_is_bounded() {
        let mut leases = Leases::default();
        for n in 0..3 * KEYS_MAX as u64 {
            leases.extra(&key(n), LEASE, 1, 0);
        }
        assert_eq!(leases.slices.len(), KEYS_MAX);
        leases.extra(&key(u64::MAX), LEASE, 1, LEASE.lasts_ms);
        assert_eq!(leases.slices.len(), 1, "the dead have made place");
    }
}
