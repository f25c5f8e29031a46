//! The states of several keys in one value of fixed length.

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use super::{Quota, State};
use weir_base::hash::seeded_hash;

/// The places in a slot. With 8, a slot of GCRA has 256 bytes: four cache lines, and cheap to copy.
pub const WAYS: usize = 8;

/// The length of a fingerprint in bytes.
const FINGERPRINT_LEN: usize = 8;

/// A key's hash. Keys with equal hashes share a limit: among a million keys, the probability of such a pair is one in
/// thirty million.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(u64);

impl Fingerprint {
    /// The hash of `key` under `seed`. All users of a table must have the same seed, which clients should not know.
    pub fn new(seed: u64, key: &[u8]) -> Self {
        // 0 marks a free place.
        Self(seeded_hash(seed, key).max(1))
    }

    #[cfg(test)]
    pub(super) fn of_bytes(bytes: [u8; FINGERPRINT_LEN]) -> Self {
        Self(u64::from_le_bytes(bytes))
    }

    /// The key's slot in a table of `slots` slots. 0 slots count as 1.
    pub fn slot(self, slots: u32) -> u32 {
        // The remainder is below `slots`, so it fits.
        (self.0 % u64::from(slots.max(1))) as u32
    }
}

impl fmt::LowerHex for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::LowerHex::fmt(&self.0, f)
    }
}

/// The encoded states of up to [`WAYS`] keys: each place has a fingerprint (0 if free) and a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    bytes: Vec<u8>,
}

impl Slot {
    /// The length of a slot in bytes.
    pub const fn len(quota: &Quota) -> usize {
        WAYS * place_len(quota)
    }

    /// Decodes a slot. Bytes of any other length, such as none, are an empty slot.
    pub fn read(bytes: Vec<u8>, quota: &Quota) -> Self {
        let is_whole = bytes.len() == Self::len(quota);
        Self {
            bytes: if is_whole {
                bytes
            } else {
                vec![0; Self::len(quota)]
            },
        }
    }

    /// The encoded slot.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The state of a key at `now_ms`.
    pub fn state(&self, quota: &Quota, fingerprint: Fingerprint, now_ms: u64) -> State {
        let mut places = self.bytes.chunks_exact(place_len(quota));
        match places.find(|place| fingerprint_of(place) == fingerprint.0) {
            Some(place) => state_of(place, quota, now_ms),
            None => State::new(quota, now_ms),
        }
    }

    /// Stores the state of a key: in its own place, else in a free one, else in the one that expires first. Returns
    /// whether it evicted a state that was still in use at `now_ms`.
    pub fn put(
        &mut self,
        quota: &Quota,
        fingerprint: Fingerprint,
        state: &State,
        now_ms: u64,
    ) -> bool {
        let mut places = self.bytes.chunks_exact(place_len(quota));
        let own = places.position(|place| fingerprint_of(place) == fingerprint.0);
        let (index, idle_at_ms) = match own {
            Some(index) => (index, 0),
            None => self.victim(quota, now_ms),
        };
        let mut places = self.bytes.chunks_exact_mut(place_len(quota));
        if let Some((name, rest)) = places.nth(index).and_then(<[u8]>::split_first_chunk_mut) {
            *name = fingerprint.0.to_le_bytes();
            state.encode(rest);
        }
        idle_at_ms > now_ms
    }

    /// The place to overwrite, and when its state expires. The state of another clock has expired.
    fn victim(&self, quota: &Quota, now_ms: u64) -> (usize, u64) {
        let places = self.bytes.chunks_exact(place_len(quota));
        let idle_at_ms = |place| match fingerprint_of(place) {
            0 => 0,
            _ => state_of(place, quota, now_ms).idle_at_ms(quota),
        };
        let ranked = places.map(idle_at_ms).enumerate();
        ranked.min_by_key(|(_, at_ms)| *at_ms).unwrap_or((0, 0))
    }
}

const fn place_len(quota: &Quota) -> usize {
    FINGERPRINT_LEN + quota.algorithm().state_len()
}

fn fingerprint_of(place: &[u8]) -> u64 {
    place.first_chunk().copied().map_or(0, u64::from_le_bytes)
}

fn state_of(place: &[u8], quota: &Quota, now_ms: u64) -> State {
    let state = place.get(FINGERPRINT_LEN..).unwrap_or_default();
    State::decode(state, quota, now_ms)
}
