//! What the fast path counts. Workers add, and the main thread reports once a second.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use weir_engine::Answer;

/// The upper bounds of the latency buckets, in nanoseconds and as Prometheus writes them in seconds.
pub const BOUNDS: [(u64, &str); 12] = [
    (2_000, "0.000002"),
    (5_000, "0.000005"),
    (10_000, "0.00001"),
    (20_000, "0.00002"),
    (50_000, "0.00005"),
    (100_000, "0.0001"),
    (200_000, "0.0002"),
    (500_000, "0.0005"),
    (1_000_000, "0.001"),
    (10_000_000, "0.01"),
    (100_000_000, "0.1"),
    (u64::MAX, "+Inf"),
];

/// Answers by their details.
type ByDetails = Vec<(Cow<'static, str>, u64)>;

/// Requests at the fast path of one filter.
#[derive(Debug, Default)]
pub struct FastPathCounts {
    /// Requests that continued to the HTTP stack, counted at the first filter of `ask`.
    passed: AtomicU64,
    /// Answers of this filter's engine, by [`Answer::details`]: an engine has few.
    answers: Mutex<ByDetails>,
    /// Answers by latency; each is in one bucket.
    latencies: [AtomicU64; BOUNDS.len()],
    /// Lines that the access log could not take.
    log_lines_dropped: AtomicU64,
}

/// Counts since the last collection.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Requests that continued to the HTTP stack.
    pub passed: u64,
    /// Answers by their details.
    pub answers: ByDetails,
    /// Answers within each bound of [`BOUNDS`].
    pub within: [u64; BOUNDS.len()],
    /// Lines that the access log could not take.
    pub log_lines_dropped: u64,
}

impl FastPathCounts {
    /// Counts a request that continued to the HTTP stack.
    pub fn passed(&self) {
        self.passed.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an answer, `took` after the request's last bytes arrived.
    pub fn answered(&self, answer: &Answer, took: Duration) {
        let took_ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let mut buckets = self.latencies.iter().zip(BOUNDS);
        if let Some((bucket, _)) = buckets.find(|(_, (max_ns, _))| took_ns <= *max_ns) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        match answers
            .iter_mut()
            .find(|(known, _)| *known == answer.details)
        {
            Some((_, count)) => *count += 1,
            None => answers.push((answer.details.clone(), 1)),
        }
    }

    /// Counts a line that the access log could not take.
    pub fn log_line_dropped(&self) {
        self.log_lines_dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes the counts since the last call.
    pub fn collect(&self) -> Collected {
        let take = |count: &AtomicU64| count.swap(0, Ordering::Relaxed);
        let mut sum = 0;
        let within = std::array::from_fn(|at| {
            sum += self.latencies.get(at).map_or(0, take);
            sum
        });
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        Collected {
            passed: take(&self.passed),
            answers: std::mem::take(&mut *answers),
            within,
            log_lines_dropped: take(&self.log_lines_dropped),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_counted_by_details_and_latency() {
        let counts = FastPathCounts::default();
        let mut answer = Answer::new(409, &[("content-type", "text/plain")], "");
        answer.details = "weir_sold_out".into();
        counts.answered(&answer, Duration::from_micros(3));
        counts.answered(&answer, Duration::from_micros(5));
        counts.answered(&answer, Duration::from_secs(1));
        counts.passed();
        counts.log_line_dropped();
        let collected = counts.collect();
        assert_eq!(collected.answers, [("weir_sold_out".into(), 3)]);
        assert_eq!((collected.passed, collected.log_lines_dropped), (1, 1));
        assert_eq!(collected.within, [0, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3]);
        assert_eq!(counts.collect(), Collected::default());
    }
}
