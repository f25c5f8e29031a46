//! The order in which numbers become codes.
//!
//! Numbers are assigned in sequence, so consecutive codes would be guessable. A [`Scramble`] is a permutation of `0..n`
//! with a secret key. Numbers stay distinct, so codes need no collision check, and the next code is unpredictable
//! without the secret.
//!
//! For the algorithm, see [`weir_base::permutation`].

use alloc::string::String;

use super::code::{Code, Length};
use weir_base::key::{KeyError, Purpose, SigningKey};
use weir_base::permutation::Permutation;

/// A keyed permutation of every range `0..n`, `n` up to 2^62.
#[derive(Clone, Debug)]
pub struct Scramble {
    permutation: Permutation,
}

/// How numbers become codes: unchanged or scrambled.
#[derive(Clone, Debug, Default)]
pub struct Numbering {
    scramble: Option<Scramble>,
}

impl Scramble {
    /// The permutations with the key `secret`.
    ///
    /// # Errors
    /// If the secret is shorter than [`weir_base::key::KEY_LEN_MIN`] bytes.
    pub fn new(secret: &[u8]) -> Result<Self, KeyError> {
        let key = SigningKey::new("link", secret)?;
        let permutation = Permutation::new(key, Purpose::LinkScramble);
        Ok(Self { permutation })
    }

    /// Maps `index` of `0..range`; `None` if it is out of range, or if the range is too large.
    pub fn scramble(&self, range: u64, index: u64) -> Option<u64> {
        self.permutation.forward(range, index)
    }

    /// The index of `0..range` that maps to `number`: the inverse of [`Scramble::scramble`].
    pub fn unscramble(&self, range: u64, number: u64) -> Option<u64> {
        self.permutation.back(range, number)
    }
}

impl Numbering {
    /// Codes in the order of their numbers.
    pub fn plain() -> Self {
        Self::default()
    }

    /// Codes in a secret order. The secret must not change while its codes are in use: with another secret, new numbers
    /// map to codes that are taken.
    pub fn scrambled(scramble: Scramble) -> Self {
        let scramble = Some(scramble);
        Self { scramble }
    }

    /// The code of the `index`-th number of `0..range`; `None` if it is out of range, or if the range exceeds the
    /// length's capacity.
    pub fn code(&self, length: Length, range: u64, index: u64) -> Option<Code> {
        let number = match &self.scramble {
            Some(scramble) => scramble.scramble(range, index)?,
            None => (index < range).then_some(index)?,
        };
        Code::generated(length, number)
    }

    /// The index of `0..range` with this code; `None` if the code has another length or is out of range.
    pub fn index(&self, length: Length, range: u64, code: &Code) -> Option<u64> {
        let (of, number) = code.number()?;
        if of != length || number >= range {
            return None;
        }
        match &self.scramble {
            Some(scramble) => scramble.unscramble(range, number),
            None => Some(number),
        }
    }

    /// Identifies the numbering without revealing the secret.
    pub fn fingerprint(&self) -> String {
        let Some(Scramble { permutation }) = &self.scramble else {
            return "plain".into();
        };
        let tag = permutation.key().tag(Purpose::LinkScramble, b"fingerprint");
        hex::encode(tag.get(..8).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    fn scramble(byte: u8) -> Scramble {
        Scramble::new(&[byte; 32]).unwrap()
    }

    /// Each number occurs once, and the inverse restores it.
    fn check_whole(range: u64) {
        let scramble = scramble(7);
        let mut is_met = vec![false; usize::try_from(range).unwrap()];
        for index in 0..range {
            let number = scramble.scramble(range, index).unwrap();
            let met = &mut is_met[usize::try_from(number).unwrap()];
            assert!(!*met, "{number} of {range} twice");
            *met = true;
            assert_eq!(scramble.unscramble(range, number), Some(index));
        }
    }

    #[test]
    fn largest_range_is_permuted_and_larger_ones_are_refused() {
        let (scramble, largest) = (scramble(7), 1 << 62);
        let number = scramble.scramble(largest, largest - 1).unwrap();
        assert_eq!(scramble.unscramble(largest, number), Some(largest - 1));
        for range in [largest + 1, u64::MAX] {
            assert_eq!(scramble.scramble(range, 0), None);
        }
    }

    #[test]
    fn every_small_range_is_permuted_whole() {
        for range in (1..=66).chain([127, 128, 129, 255, 256, 257, 1_000, 62 * 62, 4_097]) {
            check_whole(range);
        }
        assert_eq!(scramble(7).scramble(0, 0), None);
        assert_eq!(scramble(7).scramble(10, 10), None);
        assert_eq!(scramble(7).unscramble(10, 10), None);
    }

    proptest! {
        #[test]
        fn scrambled_number_of_every_length_round_trips(digits in 5..=8_u8, number in any::<u64>()) {
            let length = Length::new(digits).unwrap();
            let (range, scramble) = (length.capacity(), scramble(3));
            let index = number % range;
            let there = scramble.scramble(range, index).unwrap();
            prop_assert!(there < range);
            prop_assert_eq!(scramble.unscramble(range, there), Some(index));
            let numbering = Numbering::scrambled(scramble);
            let code = numbering.code(length, range, index).unwrap();
            prop_assert_eq!(numbering.index(length, range, &code), Some(index));
        }
    }

    /// Consecutive codes are unrelated: differences between neighbours are all different, and the order is lost. A weak
    /// round function, or too few rounds, fails this test.
    #[test]
    fn adjacent_numbers_are_scattered() {
        let (range, scramble) = (Length::MIN.capacity(), scramble(1));
        let numbers: Vec<u64> = (0..2_000)
            .map(|n| scramble.scramble(range, n).unwrap())
            .collect();
        let steps: alloc::collections::BTreeSet<u64> = numbers
            .windows(2)
            .map(|pair| pair[1].wrapping_sub(pair[0]))
            .collect();
        assert_eq!(steps.len(), 1_999);
        let rising = numbers.windows(2).filter(|pair| pair[0] < pair[1]).count();
        assert!((800..=1_200).contains(&rising), "{rising}");
    }

    #[test]
    fn different_secret_or_range_gives_different_permutation() {
        let range = Length::MIN.capacity();
        let of = |byte: u8, range| scramble(byte).scramble(range, 12_345).unwrap();
        assert_ne!(of(1, range), of(2, range));
        assert_ne!(of(1, range), of(1, range - 1));
        let numbering = |byte| Numbering::scrambled(scramble(byte)).fingerprint();
        assert_ne!(numbering(1), numbering(2));
        assert_eq!(numbering(1), numbering(1));
        assert_eq!(Numbering::plain().fingerprint(), "plain");
    }

    #[test]
    fn plain_numbering_is_the_number_itself() {
        let plain = Numbering::plain();
        let code = plain.code(Length::MIN, 100, 62).unwrap();
        assert_eq!(code.as_str(), "00010");
        assert_eq!(plain.index(Length::MIN, 100, &code), Some(62));
        assert_eq!(plain.code(Length::MIN, 100, 100), None);
        let beyond = Code::new("zzzzz").unwrap();
        assert_eq!(plain.index(Length::MIN, 100, &beyond), None);
        assert_eq!(plain.index(Length::MAX, 100, &code), None);
    }
}
