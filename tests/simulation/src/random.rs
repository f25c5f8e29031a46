//! Random numbers from a seed.
//!
//! SplitMix64 (Steele, Lea, Flood, 2014), implemented here instead of using a crate: a printed seed must mean the same
//! schedule after every dependency update.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the simulation, and must stop it"
)]

/// A random stream determined by its seed.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    /// Stream number `stream` of `seed`. Every participant has its own stream, so that a schedule with one client or
    /// fault less stays nearly the same.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let mut rng = Self(seed ^ stream.wrapping_mul(0xd1b5_4a32_d192_ed03));
        rng.next();
        rng
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0 to below `end`; 0 if `end` is 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        match end {
            0 => 0,
            _ => self.next() % end,
        }
    }

    /// From `first` to `last`, both included.
    pub(crate) fn between(&mut self, first: u64, last: u64) -> u64 {
        first + self.below(last - first + 1)
    }

    /// True in `percent` of 100 cases.
    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of `choices`, which must not be empty. A repeated choice is more likely.
    pub(crate) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seed_always_gives_the_same_numbers() {
        let mut rng = Rng::new(7, 0);
        let first: Vec<u64> = (0..3).map(|_| rng.next()).collect();
        let mut again = Rng::new(7, 0);
        assert_eq!(first, [(); 3].map(|()| again.next()));
        assert_ne!(Rng::new(7, 1).next(), Rng::new(7, 0).next());
    }
}
