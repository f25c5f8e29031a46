//! The order in which numbers become codes.
//!
//! Numbers are handed out one after the other, so codes in that order could be walked: who has one knows
//! the next. A [`Scramble`] is a permutation of `0..n` under a secret: numbers stay distinct, so codes
//! need no check for collisions, and who does not know the secret cannot tell the next one.
//!
//! How: see [`weir_base::permutation`].

use alloc::string::String;

use super::code::{Code, Length};
use weir_base::key::{KeyError, Purpose, SigningKey};
use weir_base::permutation::Permutation;

/// A keyed permutation of every range `0..n`, `n` up to 2^62.
#[derive(Clone, Debug)]
pub struct Scramble {
    permutation: Permutation,
}

/// How numbers become codes: as they are, or scrambled.
#[derive(Clone, Debug, Default)]
pub struct Numbering {
    scramble: Option<Scramble>,
}

impl Scramble {
    /// The permutations under `secret`.
    ///
    /// # Errors
    /// When the secret is shorter than [`weir_base::key::KEY_LEN_MIN`] bytes.
    pub fn new(secret: &[u8]) -> Result<Self, KeyError> {
        let key = SigningKey::new("link", secret)?;
        let permutation = Permutation::new(key, Purpose::LinkScramble);
        Ok(Self { permutation })
    }

    /// Where `index` of `0..range` goes; `None` if it is not in it, or the range is too large.
    pub fn scramble(&self, range: u64, index: u64) -> Option<u64> {
        self.permutation.forward(range, index)
    }

    /// Which index of `0..range` went to `number`: takes [`Scramble::scramble`] back.
    pub fn unscramble(&self, range: u64, number: u64) -> Option<u64> {
        self.permutation.back(range, number)
    }
}

impl Numbering {
    /// Codes in the order of their numbers.
    pub fn plain() -> Self {
        Self::default()
    }

    /// Codes in an order that only the secret tells. It must stay for as long as codes made with it are in
    /// use: another secret gives numbers that are new codes that are not.
    pub fn scrambled(scramble: Scramble) -> Self {
        let scramble = Some(scramble);
        Self { scramble }
    }

    /// The code of the `index`-th number of `0..range`; `None` if it is not in the range, or the range is
    /// beyond the length's capacity.
    pub fn code(&self, length: Length, range: u64, index: u64) -> Option<Code> {
        let number = match &self.scramble {
            Some(scramble) => scramble.scramble(range, index)?,
            None => (index < range).then_some(index)?,
        };
        Code::generated(length, number)
    }

    /// Which index of `0..range` has this code; `None` if none has: it is not of this length, or beyond
    /// the range.
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

    /// Tells one numbering from another without telling the secret.
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

    /// Every number is met once, and comes back.
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
    fn the_largest_range_is_permuted_and_larger_ones_are_refused() {
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
        fn every_number_of_every_length_comes_back(digits in 5..=8_u8, number in any::<u64>()) {
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

    /// The next code cannot be told from this one: differences of neighbours all differ, and the order is
    /// not kept. A weak round function, or too few rounds, fails it.
    #[test]
    fn neighbours_do_not_stay_neighbours() {
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
    fn another_secret_or_range_is_another_permutation() {
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
