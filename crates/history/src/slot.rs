//! Slots of a Redis Cluster. A script may use only keys of one slot, so data about a user outside the user's own keys
//! is in a key of the same slot.

use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

/// The number of slots, by the specification of Redis Cluster.
pub const SLOTS: u16 = 16_384;

/// The slot of a key whose hash tag is `tag`.
pub fn slot(tag: &[u8]) -> u16 {
    crc16(tag) % SLOTS
}

/// CRC-16/XMODEM, the hash of Redis Cluster.
fn crc16(bytes: &[u8]) -> u16 {
    const POLYNOMIAL: u16 = 0x1021;
    bytes.iter().fold(0, |crc, &byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
            let shifted = crc << 1;
            if crc & 0x8000 == 0 {
                shifted
            } else {
                shifted ^ POLYNOMIAL
            }
        })
    })
}

/// A hash tag for each slot: the smallest number whose digits hash to that slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tags(Vec<u32>);

impl Tags {
    /// Computes the tags. This takes some milliseconds: do it once per process.
    pub fn new() -> Self {
        let mut tags: Vec<Option<u32>> = vec![None; usize::from(SLOTS)];
        let mut remaining = tags.len();
        for number in 0..=u32::MAX {
            let place = tags.get_mut(usize::from(slot(number.to_string().as_bytes())));
            if let Some(tag @ None) = place {
                *tag = Some(number);
                remaining -= 1;
            }
            if remaining == 0 {
                break;
            }
        }
        Self(tags.into_iter().map(Option::unwrap_or_default).collect())
    }

    /// The tag of a slot.
    pub fn tag(&self, slot: u16) -> String {
        let tag = self.0.get(usize::from(slot % SLOTS));
        tag.copied().unwrap_or_default().to_string()
    }
}

impl Default for Tags {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_slots_match_the_redis_cluster_specification() {
        assert_eq!(crc16(b"123456789"), 0x31c3); // its test vector
        assert_eq!(slot(b"foo"), 12_182); // as `CLUSTER KEYSLOT foo` says
    }

    #[test]
    fn every_hash_slot_has_a_tag() {
        let tags = Tags::new();
        for number in 0..SLOTS {
            assert_eq!(slot(tags.tag(number).as_bytes()), number);
        }
    }
}
