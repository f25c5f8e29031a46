//! Keyed permutations of ranges of numbers.
//!
//! A [`Permutation`] maps `0..n` to itself under a secret: numbers stay distinct, and the next one is unpredictable
//! without the secret.
//!
//! It is a Feistel network (Luby and Rackoff, *How to construct pseudorandom permutations from pseudorandom functions*,
//! 1988) over the smallest even number of bits that hold `n`. It uses cycle walking (Black and Rogaway, *Ciphers with
//! arbitrary finite domains*, 2002, section 3): a result of `n` or more is permuted again until it is below `n`, fewer
//! than 4 times on average. The round function is truncated HMAC-SHA256. It has 10 rounds like FF1 (NIST SP 800-38G),
//! the standard for the same task over digits.

use crate::key::{Purpose, SigningKey};

/// The number of rounds of FF1.
const ROUNDS: u8 = 10;

/// A keyed permutation of every range `0..n`, `n` up to 2^62.
#[derive(Clone, Debug)]
pub struct Permutation {
    key: SigningKey,
    purpose: Purpose,
}

impl Permutation {
    /// The permutations under `key`, for one purpose.
    pub fn new(key: SigningKey, purpose: Purpose) -> Self {
        Self { key, purpose }
    }

    /// The key.
    pub fn key(&self) -> &SigningKey {
        &self.key
    }

    /// The image of `index` in `0..range`; `None` if `index` is outside, or the range is larger than 2^62.
    pub fn forward(&self, range: u64, index: u64) -> Option<u64> {
        self.walk(range, index, |network, value| network.forward(value))
    }

    /// The inverse of [`Permutation::forward`].
    pub fn back(&self, range: u64, number: u64) -> Option<u64> {
        self.walk(range, number, |network, value| network.back(value))
    }

    /// Terminates: a permutation returns to its start, which is below `range`.
    fn walk(&self, range: u64, start: u64, step: impl Fn(&Network<'_>, u64) -> u64) -> Option<u64> {
        if start >= range || range > 1 << 62 {
            return None;
        }
        let network = Network::new(self, range);
        let mut value = step(&network, start);
        while value >= range {
            value = step(&network, value);
        }
        Some(value)
    }
}

/// A Feistel network over two halves of `half_bits`.
struct Network<'a> {
    of: &'a Permutation,
    range: u64,
    half_bits: u32,
}

impl<'a> Network<'a> {
    fn new(of: &'a Permutation, range: u64) -> Self {
        // The bits of the greatest value; at least one bit in each half.
        let bits = u64::BITS.saturating_sub(range.saturating_sub(1).leading_zeros());
        let half_bits = bits.div_ceil(2).max(1);
        Self {
            of,
            range,
            half_bits,
        }
    }

    fn mask(&self) -> u64 {
        (1 << self.half_bits) - 1
    }

    fn forward(&self, value: u64) -> u64 {
        let (mut left, mut right) = (value >> self.half_bits, value & self.mask());
        for round in 0..ROUNDS {
            (left, right) = (right, left ^ self.round(round, right));
        }
        left << self.half_bits | right
    }

    fn back(&self, value: u64) -> u64 {
        let (mut left, mut right) = (value >> self.half_bits, value & self.mask());
        for round in (0..ROUNDS).rev() {
            (left, right) = (right ^ self.round(round, left), left);
        }
        left << self.half_bits | right
    }

    /// A pseudorandom half that depends on the key, the range, the round and the other half.
    fn round(&self, round: u8, half: u64) -> u64 {
        let mut message = [0; 17];
        let parts = self.range.to_le_bytes().into_iter();
        let parts = parts.chain([round]).chain(half.to_le_bytes());
        for (to, byte) in message.iter_mut().zip(parts) {
            *to = byte;
        }
        let tag = self.of.key.tag(self.of.purpose, &message);
        let [a, b, c, d, e, f, g, h, ..] = tag;
        u64::from_le_bytes([a, b, c, d, e, f, g, h]) & self.mask()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    fn permutation(byte: u8, purpose: Purpose) -> Permutation {
        Permutation::new(SigningKey::new("p", &[byte; 32]).unwrap(), purpose)
    }

    #[test]
    fn every_small_range_is_permuted_whole() {
        let permutation = permutation(7, Purpose::RoomDraw);
        for range in (1..=40).chain([255, 256, 257, 1_000]) {
            let mut is_met = vec![false; usize::try_from(range).unwrap()];
            for index in 0..range {
                let number = permutation.forward(range, index).unwrap();
                let met = &mut is_met[usize::try_from(number).unwrap()];
                assert!(!*met, "{number} of {range} twice");
                *met = true;
                assert_eq!(permutation.back(range, number), Some(index));
            }
        }
        assert_eq!(permutation.forward(0, 0), None);
    }

    #[test]
    fn each_purpose_has_different_permutations() {
        let of = |purpose| permutation(1, purpose).forward(1 << 40, 12_345);
        assert_ne!(of(Purpose::RoomDraw), of(Purpose::LinkScramble));
    }

    proptest! {
        #[test]
        fn permutation_inverts_every_number(range in 1..1_u64 << 62, number: u64) {
            let permutation = permutation(3, Purpose::RoomDraw);
            let index = number % range;
            let there = permutation.forward(range, index).unwrap();
            prop_assert!(there < range);
            prop_assert_eq!(permutation.back(range, there), Some(index));
        }
    }
}
