//! Detects growth.
//!
//! Uses the Theil–Sen slope: the median of the slopes between all pairs of samples. A few outliers, such as samples
//! during a fault, do not affect it. (H. Theil, 1950; P. K. Sen, "Estimates of the regression coefficient based on
//! Kendall's tau", 1968.)

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the tests, and must stop them"
)]

/// The growth over all samples, relative to the median, above which it is a trend.
const SHARE_MAX: f64 = 0.10;

/// The change of a quantity over the samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Trend {
    /// The growth from the first sample to the last.
    pub(crate) growth: f64,
    /// The median.
    pub(crate) median: f64,
}

impl Trend {
    /// The trend of `samples` at equal intervals.
    pub(crate) fn of(samples: &[f64]) -> Self {
        let mut slopes = Vec::new();
        for (first, from) in samples.iter().enumerate() {
            for (second, to) in samples.iter().enumerate().skip(first + 1) {
                slopes.push((to - from) / (second - first) as f64);
            }
        }
        let distance = samples.len().saturating_sub(1) as f64;
        Self {
            growth: median(slopes) * distance,
            median: median(samples.to_vec()),
        }
    }

    /// Whether the quantity grows by more than a tenth, and by more than `grain`, below which changes are noise.
    pub(crate) fn grows(&self, grain: f64) -> bool {
        self.growth > grain && self.growth > self.median * SHARE_MAX
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        count if count % 2 == 1 => values[count / 2],
        count => f64::midpoint(values[count / 2 - 1], values[count / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leak_is_detected_as_a_trend() {
        let leak: Vec<f64> = (0..30).map(|minute| 50.0 + f64::from(minute)).collect();
        let trend = Trend::of(&leak);
        assert!((trend.growth - 29.0).abs() < 1e-9, "{trend:?}");
        assert!(trend.grows(5.0));
        assert!(!trend.grows(30.0), "below the grain");
    }

    #[test]
    fn noise_reverted_step_and_fall_are_not_a_trend() {
        let noise = |minute: u32| 50.0 + f64::from(minute % 3);
        let mut samples: Vec<f64> = (0..30).map(noise).collect();
        samples[29] = 500.0;
        samples[10] = 500.0;
        assert!(!Trend::of(&samples).grows(0.0));
        let fall: Vec<f64> = (0..30).map(|minute| 50.0 - f64::from(minute)).collect();
        assert!(!Trend::of(&fall).grows(0.0));
        assert!(!Trend::of(&[]).grows(0.0));
        assert!(!Trend::of(&[1.0]).grows(0.0));
    }
}
