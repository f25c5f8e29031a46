//! Sampling of visitors. A visitor is permanently in or out, at every gateway.

use sha2::{Digest, Sha256};

/// A share of all visitors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate {
    /// In units of 2⁻⁶⁴; `None` means all.
    parts: Option<u64>,
}

impl Rate {
    /// All visitors.
    pub const ALL: Self = Self { parts: None };

    /// The rate `share`, 0 to 1. `None` if it is out of range.
    pub fn new(share: f64) -> Option<Self> {
        if !(0.0..=1.0).contains(&share) {
            return None;
        }
        // 2⁶⁴ itself does not fit, and means all.
        let is_all = share >= 1.0;
        let parts = (share * TWO_TO_64) as u64;
        Some(Self {
            parts: (!is_all).then_some(parts),
        })
    }

    /// Whether the sample of `key` contains `subject`. Raising the rate keeps earlier subjects in the sample. Other
    /// keys have other samples.
    pub fn keeps(self, key: &str, subject: &[u8]) -> bool {
        self.parts
            .is_none_or(|parts| position(key, subject) < parts)
    }
}

const TWO_TO_64: f64 = 18_446_744_073_709_551_616.0;

/// The position of a subject, uniformly distributed: the first 64 bits of SHA-256. It must never change, and must be
/// the same at every gateway. Finding an id with a wanted position takes trial and error.
fn position(key: &str, subject: &[u8]) -> u64 {
    let digest = Sha256::new()
        .chain_update("weir-sample\n")
        .chain_update(key)
        .chain_update("\n")
        .chain_update(subject)
        .finalize();
    digest.first_chunk().copied().map_or(0, u64::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use proptest::prelude::*;

    #[test]
    fn sampled_share_matches_the_configured_rate() {
        for share in [0.0, 0.01, 0.25, 0.5, 0.99, 1.0] {
            let rate = Rate::new(share).unwrap();
            let retained = (0..20_000).filter(|n| rate.keeps("web", format!("v{n}").as_bytes()));
            let part = retained.count() as f64 / 20_000.0;
            // Five standard deviations.
            let bound = 5.0 * (share * (1.0 - share) / 20_000.0).sqrt();
            assert!((part - share).abs() <= bound, "{share}: {part}");
        }
    }

    /// Samples depend on it: it may never change.
    #[test]
    fn sample_position_matches_fixed_values() {
        // printf 'weir-sample\nweb\nv1' | sha256sum
        assert_eq!(position("web", b"v1"), 0xdf43_50e5_104d_1587);
    }

    #[test]
    fn sample_rates_must_be_between_0_and_1() {
        for bad in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
            assert_eq!(Rate::new(bad), None);
        }
        assert_eq!(Rate::new(1.0), Some(Rate::ALL));
    }

    proptest! {
        #[test]
        fn sampled_visitor_stays_sampled_at_a_higher_rate(a in 0.0..=1.0, b in 0.0..=1.0, visitor: [u8; 8]) {
            let (less, more) = if a < b { (a, b) } else { (b, a) };
            let keeps = |share| Rate::new(share).unwrap().keeps("web", &visitor);
            prop_assert!(!keeps(less) || keeps(more));
            prop_assert!(keeps(1.0) && !keeps(0.0));
        }
    }
}
