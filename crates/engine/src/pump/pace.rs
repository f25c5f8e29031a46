//! Measures how fast Redis replies, and estimates waiting times.

/// After this many busy milliseconds, the weight of older measurements is halved.
const MEMORY_MS: u64 = 128;

/// Measures how many requests Redis answers per busy millisecond.
#[derive(Debug, Default)]
pub(super) struct Pace {
    answered: u64,
    busy_ms: u64,
    /// When the last batch ended.
    ended_at_ms: u64,
}

impl Pace {
    /// Records the end of a batch that was sent at `sent_at_ms`, with `answered` replies. Redis was busy with it from
    /// the end of the previous batch. A partial batch would measure the round trip, not the capacity of Redis.
    pub(super) fn ended(&mut self, answered: usize, is_full: bool, sent_at_ms: u64, now_ms: u64) {
        let begun_at_ms = sent_at_ms.max(self.ended_at_ms);
        self.ended_at_ms = now_ms;
        if !is_full {
            return;
        }
        self.answered += answered as u64;
        // A clock that was set back adds no time.
        self.busy_ms += now_ms.saturating_sub(begun_at_ms);
        while self.busy_ms > MEMORY_MS {
            self.busy_ms /= 2;
            self.answered /= 2;
        }
    }

    /// Whether there is a measurement.
    pub(super) fn is_known(&self) -> bool {
        self.busy_ms > 0
    }

    /// The number of requests that Redis answers in `time_ms`, at most `max`; `max` without a measurement.
    pub(super) fn in_ms(&self, time_ms: u64, max: usize) -> usize {
        let count = (time_ms * self.answered).checked_div(self.busy_ms);
        let count = count.and_then(|count| usize::try_from(count).ok());
        count.map_or(max, |count| count.min(max))
    }

    /// The time in which Redis answers `requests`, in milliseconds; `None` without a measurement.
    pub(super) fn time_ms(&self, requests: usize) -> Option<u64> {
        if self.busy_ms == 0 {
            return (self.answered > 0).then_some(0);
        }
        let time_ms = (requests as u64 * self.busy_ms).checked_div(self.answered);
        Some(time_ms.unwrap_or(u64::MAX))
    }
}
