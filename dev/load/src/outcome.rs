//! What was measured.

use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use std::time::Duration;

/// The longest latency that is told apart, and the grain: three decimal digits.
const NANOSECONDS_MAX: u64 = 60_000_000_000;
const DIGITS: u8 = 3;

/// Latencies of the window.
#[derive(Debug, Clone)]
pub struct Latencies(Histogram<u64>);

impl Default for Latencies {
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(1, NANOSECONDS_MAX, DIGITS);
        Self(histogram.expect("the bounds are constants that hdrhistogram takes"))
    }
}

impl Latencies {
    pub(crate) fn record(&mut self, latency: Duration) {
        let nanoseconds = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.0.saturating_record(nanoseconds.max(1));
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The latency that so many in a hundred do not exceed, in milliseconds.
    pub fn percentile_ms(&self, percentile: f64) -> f64 {
        self.0.value_at_percentile(percentile) as f64 / 1e6
    }
}

/// What came of a plan.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Answers that came within the window.
    pub answers: u64,
    /// The window's length, as it was.
    pub window: Duration,
    /// All answers by status, those outside of the window too.
    pub statuses: BTreeMap<u16, u64>,
    /// Closed loop: of the answers of the window, from sending. Open loop: of the requests that were due
    /// in the window, from when they were due.
    pub latencies: Latencies,
    /// Open loop: requests due in the window that had no answer when the generator gave up. They count
    /// among the latencies with the time until then.
    pub unanswered: u64,
    /// Connections that the server closed, or that broke, and that were opened again.
    pub reconnects: u64,
    /// How much of the window the generator was on its core, from 0 to 1. Near 1, it is what limits.
    pub busy: f64,
}

impl Outcome {
    /// Answers a second.
    pub fn rate(&self) -> f64 {
        self.answers as f64 / self.window.as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_in_milliseconds_and_nothing_is_too_long() {
        let mut latencies = Latencies::default();
        for ms in 1..=100 {
            latencies.record(Duration::from_millis(ms));
        }
        assert!((latencies.percentile_ms(50.0) - 50.0).abs() < 0.1);
        assert!((latencies.percentile_ms(99.0) - 99.0).abs() < 0.1);
        latencies.record(Duration::from_secs(3_600));
        assert_eq!(latencies.count(), 101);
        assert!(latencies.percentile_ms(100.0) > 59_000.0);
    }
}
