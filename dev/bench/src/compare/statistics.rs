//! Medians, and ratios of values measured in the same round.

use serde::{Deserialize, Serialize};

/// The minimum, median and maximum of some numbers.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Spread {
    pub(super) min: f64,
    pub(super) median: f64,
    pub(super) max: f64,
}

impl Spread {
    /// The spread of `values`; `None` if empty. The median of an even number of values is the mean of the middle two.
    pub(super) fn from_values(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let upper = *values.get(values.len() / 2)?;
        let lower = *values.get((values.len() - 1) / 2)?;
        Some(Self {
            min: *values.first()?,
            median: f64::midpoint(lower, upper),
            max: *values.last()?,
        })
    }

    /// The spread of per-round ratios. Rounds that only one side has are ignored.
    pub(super) fn of_ratios(of: &[f64], to: &[f64]) -> Option<Self> {
        Self::from_values(of.iter().zip(to).map(|(of, to)| of / to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_is_the_middle_value() {
        assert_eq!(Spread::from_values([]), None);
        let odd = Spread::from_values([3.0, 1.0, 2.0]).unwrap();
        assert_eq!((odd.min, odd.median, odd.max), (1.0, 2.0, 3.0));
        assert_eq!(
            Spread::from_values([4.0, 1.0, 2.0, 3.0]).unwrap().median,
            2.5
        );
    }

    /// The median of ratios, not the ratio of medians: a slow round affects both sides.
    #[test]
    fn rounds_are_compared_pairwise() {
        let ratios = Spread::of_ratios(&[80.0, 30.0, 152.0], &[100.0, 50.0, 200.0]).unwrap();
        assert_eq!((ratios.min, ratios.median, ratios.max), (0.6, 0.76, 0.8));
        assert_eq!(Spread::of_ratios(&[1.0], &[]), None);
    }
}
