//! Due times of requests in an open loop.

use std::time::{Duration, Instant};

/// Requests at equal intervals.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Schedule {
    start: Instant,
    interval_s: f64,
    /// The number of the next request.
    next: u64,
}

impl Schedule {
    pub(crate) fn new(start: Instant, per_second: f64) -> Self {
        Self {
            start,
            interval_s: 1.0 / per_second,
            next: 0,
        }
    }

    /// The due time of the next request. Calculated from the first one, so that errors do not accumulate.
    pub(crate) fn due(&self) -> Instant {
        self.start + Duration::from_secs_f64(self.next as f64 * self.interval_s)
    }

    /// Takes the next request if it is due, and returns its due time.
    pub(crate) fn take(&mut self, now: Instant) -> Option<Instant> {
        let due = self.due();
        (due <= now).then(|| {
            self.next += 1;
            due
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_requests_keep_their_due_times() {
        let start = Instant::now();
        let mut schedule = Schedule::new(start, 1_000.0);
        assert_eq!(schedule.take(start), Some(start));
        assert_eq!(schedule.take(start), None, "the second is due after 1 ms");
        let late = start + Duration::from_millis(10);
        let accepted: Vec<_> = std::iter::from_fn(|| schedule.take(late)).collect();
        assert_eq!(accepted.len(), 10);
        for (n, due) in accepted.iter().enumerate() {
            assert_eq!(*due, start + Duration::from_millis(n as u64 + 1));
        }
    }

    #[test]
    fn odd_rate_does_not_drift() {
        let start = Instant::now();
        let mut schedule = Schedule::new(start, 3_333.0);
        let end = start + Duration::from_secs(100);
        let accepted = std::iter::from_fn(|| schedule.take(end)).count();
        assert_eq!(accepted, 333_301, "both ends count");
    }
}
