//! How fast the queue moves, and the expected wait.

use alloc::collections::VecDeque;

/// Length of the measured past, in milliseconds.
const WINDOW_MS: u64 = 60_000;

/// Minimum interval between samples, in milliseconds. It bounds their number.
const SAMPLE_MS: u64 = 1_000;

/// Minimum length of the measured past for an estimate, in milliseconds.
const PAST_MS_MIN: u64 = 5_000;

/// How far the queue had been called over the last minute.
#[derive(Clone, Debug, Default)]
pub struct Pace {
    samples: VecDeque<(u64, u64)>,
}

impl Pace {
    /// Records that the queue had been called up to `head` at `now_ms`.
    pub fn note(&mut self, now_ms: u64, head: u64) {
        match self.samples.back() {
            // A clock that was set back, or a restarted queue, makes earlier samples meaningless.
            Some((at_ms, before)) if now_ms < *at_ms || head < *before => self.samples.clear(),
            Some((at_ms, _)) if now_ms - at_ms < SAMPLE_MS => return,
            _ => {}
        }
        self.samples.push_back((now_ms, head));
        while let Some((at_ms, _)) = self.samples.front()
            && now_ms - at_ms > WINDOW_MS
        {
            self.samples.pop_front();
        }
    }

    /// The expected time for `ahead` entries, in milliseconds: at the measured rate, or else at the configured one, in
    /// entries per minute. `None` without either.
    pub fn wait_ms(&self, ahead: u64, per_minute: u64) -> Option<u64> {
        let (elapsed_ms, called) = self.measured().unwrap_or((60_000, per_minute));
        let wait_ms = u128::from(ahead) * u128::from(elapsed_ms);
        let wait_ms = wait_ms.checked_div(u128::from(called))?;
        u64::try_from(wait_ms).ok()
    }

    fn measured(&self) -> Option<(u64, u64)> {
        let ((from_ms, from), (to_ms, to)) = (self.samples.front()?, self.samples.back()?);
        let (elapsed_ms, called) = (to_ms - from_ms, to.saturating_sub(*from));
        (elapsed_ms >= PAST_MS_MIN && called > 0).then_some((elapsed_ms, called))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_is_estimated_from_the_pace_of_the_last_minute() {
        let mut pace = Pace::default();
        assert_eq!(pace.wait_ms(100, 0), None);
        assert_eq!(pace.wait_ms(100, 60), Some(100_000), "as it is set");
        for second in 0..200 {
            // Two per second, and then ten.
            let head = if second < 100 {
                2 * second
            } else {
                200 + 10 * (second - 100)
            };
            pace.note(1_000_000 + second * 1_000, head);
        }
        assert_eq!(pace.wait_ms(100, 60), Some(10_000));
        assert!(pace.samples.len() <= 61);
    }

    #[test]
    fn stalled_pace_or_changed_clock_gives_no_estimate() {
        let mut pace = Pace::default();
        for second in 0..30 {
            pace.note(1_000_000 + second * 1_000, 7);
        }
        assert_eq!(pace.wait_ms(10, 0), None);
        pace.note(500_000, 8);
        assert_eq!(pace.samples.len(), 1);
        pace.note(500_100, 9);
        assert_eq!(pace.samples.len(), 1, "samples are a second apart");
        assert_eq!(pace.wait_ms(u64::MAX, 1), None);
    }
}
