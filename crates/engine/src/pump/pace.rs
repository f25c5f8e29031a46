//! How fast Redis answers, and so how long requests would wait.

/// After so many milliseconds of work what came before counts half.
const MEMORY_MS: u64 = 128;

/// Measures how many requests Redis answers while it has any.
#[derive(Debug, Default)]
pub(super) struct Pace {
    answered: u64,
    busy_ms: u64,
    /// When the last batch ended.
    ended_at_ms: u64,
}

impl Pace {
    /// A batch that was sent at `sent_at_ms` has ended, and of its requests so many were answered. Redis has worked on it since
    /// the one before it ended. One that was not full tells of a round trip, and not of what Redis can do.
    pub(super) fn ended(&mut self, answered: usize, is_full: bool, sent_at_ms: u64, now_ms: u64) {
        let begun_at_ms = sent_at_ms.max(self.ended_at_ms);
        self.ended_at_ms = now_ms;
        if !is_full {
            return;
        }
        self.answered += answered as u64;
        // A clock that was set back tells nothing.
        self.busy_ms += now_ms.saturating_sub(begun_at_ms);
        while self.busy_ms > MEMORY_MS {
            self.busy_ms /= 2;
            self.answered /= 2;
        }
    }

    /// Whether it was measured.
    pub(super) fn is_known(&self) -> bool {
        self.busy_ms > 0
    }

    /// How many requests Redis answers in that time, at most `max`.
    pub(super) fn in_ms(&self, time_ms: u64, max: usize) -> usize {
        let count = (time_ms * self.answered).checked_div(self.busy_ms);
        let count = count.and_then(|count| usize::try_from(count).ok());
        count.map_or(max, |count| count.min(max))
    }

    /// How long Redis takes for so many requests, in milliseconds; `None` until that was measured.
    pub(super) fn time_ms(&self, requests: usize) -> Option<u64> {
        if self.busy_ms == 0 {
            return (self.answered > 0).then_some(0);
        }
        let time_ms = (requests as u64 * self.busy_ms).checked_div(self.answered);
        Some(time_ms.unwrap_or(u64::MAX))
    }
}
