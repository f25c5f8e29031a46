//! The results of a run.

use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use std::time::Duration;

/// The longest recorded latency. The precision is three decimal digits.
const NANOSECONDS_MAX: u64 = 60_000_000_000;
const DIGITS: u8 = 3;

/// Latencies within the window.
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

    /// The number of recorded latencies.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The latency at this percentile, in milliseconds.
    pub fn percentile_ms(&self, percentile: f64) -> f64 {
        self.0.value_at_percentile(percentile) as f64 / 1e6
    }
}

/// The results of a run.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Responses received within the window.
    pub answers: u64,
    /// The actual length of the window.
    pub window: Duration,
    /// All responses by status, including those outside the window.
    pub statuses: BTreeMap<u16, u64>,
    /// Closed loop: latencies of responses in the window, measured from sending. Open loop: latencies of requests due
    /// in the window, measured from their due time.
    pub latencies: Latencies,
    /// Open loop: requests due in the window that were unanswered when the generator gave up. They count in the
    /// latencies with the time until then.
    pub unanswered: u64,
    /// Connections that the server closed or that broke, and that were reopened.
    pub reconnects: u64,
    /// The generator's CPU time as a share of the window, 0 to 1. Near 1, the generator is the bottleneck.
    pub busy: f64,
}

impl Outcome {
    /// Responses per second.
    pub fn rate(&self) -> f64 {
        self.answers as f64 / self.window.as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_in_milliseconds_and_long_latencies_count() {
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
