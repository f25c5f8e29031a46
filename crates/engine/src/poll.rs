//! Schedules reads of documents from Redis.

use crate::effect::BatchId;

/// The first interval between polls in milliseconds, which doubles until a poll finds data. So an engine is ready soon
/// after Redis, without busy polling during an outage.
const FIRST_POLL_MS: u64 = 50;

/// The maximum interval while an engine has found no data and received no request that concerns it.
const IDLE_POLL_MS: u64 = 30_000;

/// The maximum interval between ticks of an active engine, which bounds the delay after a lost wake-up.
const TICK_MS_MAX: u64 = 500;

/// The maximum time that a tick may precede its poll.
const EARLY_MS_MAX: u64 = 20;

/// Determines when polls are due, and recognises their calls.
#[derive(Debug)]
pub struct Schedule {
    interval_ms: u64,
    backoff_ms: u64,
    backoff_max_ms: u64,
    due_ms: u64,
    has_reached: bool,
    under_way: Option<BatchId>,
    is_failing: bool,
}

impl Schedule {
    /// Polls every `interval_ms` after the first success. Until then, polls back off.
    pub fn new(interval_ms: u64) -> Self {
        Self {
            interval_ms,
            backoff_ms: FIRST_POLL_MS.min(interval_ms),
            backoff_max_ms: interval_ms.max(IDLE_POLL_MS),
            due_ms: 0,
            has_reached: false,
            under_way: None,
            is_failing: false,
        }
    }

    /// Makes a poll due soon, at the first request, if Redis has not been read yet.
    pub fn poll_soon(&mut self) {
        self.backoff_max_ms = self.interval_ms;
        if !self.has_reached {
            self.backoff_ms = FIRST_POLL_MS.min(self.interval_ms);
            self.due_ms = 0;
        }
    }

    /// Makes the next poll due at once, because the last one was incomplete.
    pub fn again(&mut self) {
        self.due_ms = 0;
    }

    /// Sets the interval between polls. It counts from the last poll.
    pub fn set_interval(&mut self, interval_ms: u64) {
        if self.has_reached && interval_ms != self.interval_ms {
            let earlier_ms = self.interval_ms.saturating_sub(interval_ms);
            self.due_ms = self.due_ms.saturating_sub(earlier_ms);
            self.backoff_ms = interval_ms;
            self.backoff_max_ms = interval_ms;
        }
        self.interval_ms = interval_ms;
    }

    /// The interval between ticks in milliseconds.
    pub fn tick_ms(&self) -> u64 {
        let is_idle = self.backoff_max_ms > self.interval_ms;
        let max_ms = if is_idle { IDLE_POLL_MS } else { TICK_MS_MAX };
        self.backoff_ms.min(max_ms)
    }

    /// Whether a poll is due and none is pending. If the caller does not send it, the next one is due an interval
    /// later.
    pub fn is_due(&mut self, now_ms: u64) -> bool {
        // A clock that was set back must not delay polls.
        let is_due = now_ms >= self.due_ms || self.due_ms - now_ms > self.backoff_max_ms;
        if self.under_way.is_some() || !is_due {
            return false;
        }
        // Ticks have the same interval, so a tick that comes slightly early must not miss its poll.
        self.due_ms = now_ms + self.backoff_ms - (self.backoff_ms / 8).min(EARLY_MS_MAX);
        self.backoff_ms = (self.backoff_ms * 2).min(self.backoff_max_ms);
        true
    }

    /// Records that the poll was sent as the call `batch`.
    pub fn sent(&mut self, batch: BatchId) {
        self.under_way = Some(batch);
    }

    /// Whether `batch`, which has ended, was the poll.
    pub fn completed(&mut self, batch: BatchId) -> bool {
        self.under_way.take_if(|sent| *sent == batch).is_some()
    }

    /// Records a reply. Returns whether the previous poll failed, which the engine logs.
    pub fn succeeded(&mut self) -> bool {
        self.has_reached = true;
        self.backoff_ms = self.interval_ms;
        self.backoff_max_ms = self.interval_ms;
        core::mem::take(&mut self.is_failing)
    }

    /// Records a failed poll. Returns whether it is the first in a row, which the engine logs.
    pub fn failed(&mut self) -> bool {
        !core::mem::replace(&mut self.is_failing, true)
    }

    /// Whether Redis has ever replied to a poll.
    pub fn has_reached(&self) -> bool {
        self.has_reached
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn polls(schedule: &mut Schedule, times_ms: core::ops::Range<u64>) -> Vec<u64> {
        let is_due = |now_ms: &u64| schedule.is_due(*now_ms);
        times_ms.step_by(50).filter(is_due).collect()
    }

    #[test]
    fn polls_are_frequent_at_first_and_then_at_the_interval() {
        let mut schedule = Schedule::new(500);
        schedule.poll_soon();
        assert_eq!(
            polls(&mut schedule, 1_000..3_500),
            [1_000, 1_050, 1_150, 1_350, 1_750, 2_250, 2_750, 3_250]
        );
        schedule.succeeded();
        assert_eq!(polls(&mut schedule, 3_750..5_000), [3_750, 4_250, 4_750]);
    }

    #[test]
    fn unused_engine_polls_slowly_until_first_request() {
        let mut schedule = Schedule::new(500);
        let idle = polls(&mut schedule, 0..600_000);
        assert_eq!(
            idle.last_chunk::<2>().map(|[a, b]| b - a),
            Some(IDLE_POLL_MS)
        );
        assert_eq!(schedule.tick_ms(), IDLE_POLL_MS);
        schedule.poll_soon();
        assert_eq!(schedule.tick_ms(), FIRST_POLL_MS);
        assert_eq!(polls(&mut schedule, 600_000..600_100), [600_000, 600_050]);
    }

    #[test]
    fn first_redis_contact_is_recorded_and_unchanged_by_requests() {
        let mut schedule = Schedule::new(500);
        assert!(!schedule.has_reached());
        schedule.failed();
        assert!(!schedule.has_reached());
        assert!(schedule.is_due(1_000));
        schedule.succeeded();
        assert!(schedule.has_reached());
        assert!(schedule.is_due(1_100));
        schedule.poll_soon();
        assert!(!schedule.is_due(1_200), "it is known already");
        assert_eq!(schedule.tick_ms(), 500);
    }

    #[test]
    fn ticks_are_at_most_500_ms_apart_under_traffic() {
        let mut schedule = Schedule::new(60_000);
        schedule.succeeded();
        assert_eq!(schedule.tick_ms(), TICK_MS_MAX);
        assert_eq!(Schedule::new(10).tick_ms(), 10);
    }

    #[test]
    fn clock_more_than_one_interval_behind_triggers_a_poll() {
        let mut schedule = Schedule::new(800);
        schedule.succeeded();
        assert!(schedule.is_due(100_000));
        // Due at 100,780: 800 later, minus the 20 that a tick may be early.
        for (now_ms, is_due) in [(100_779, false), (99_980, false), (99_979, true)] {
            assert_eq!(schedule.is_due(now_ms), is_due, "{now_ms}");
        }
    }

    #[test]
    fn tick_is_early_by_at_most_an_eighth_interval_or_20_ms() {
        for (interval_ms, early_ms) in [(7, 0), (40, 5), (160, 20), (400, 20)] {
            let mut schedule = Schedule::new(interval_ms);
            schedule.succeeded();
            assert!(schedule.is_due(1_000));
            let due_ms = 1_000 + interval_ms - early_ms;
            assert!(!schedule.is_due(due_ms - 1), "{interval_ms}");
            assert!(schedule.is_due(due_ms), "{interval_ms}");
        }
    }

    #[test]
    fn polls_run_one_at_a_time_and_continue_with_clock_set_back() {
        let mut schedule = Schedule::new(500);
        assert!(schedule.is_due(1_000_000));
        schedule.sent(BatchId(7));
        assert!(!schedule.is_due(2_000_000), "one is under way");
        assert!(!schedule.completed(BatchId(8)));
        assert!(schedule.completed(BatchId(7)));
        assert!(!schedule.completed(BatchId(7)));
        assert!(schedule.is_due(1_000));
    }

    #[test]
    fn poll_with_more_to_read_is_repeated_at_once() {
        let mut schedule = Schedule::new(250);
        assert!(schedule.is_due(1_000));
        schedule.succeeded();
        assert!(schedule.is_due(1_050));
        assert!(!schedule.is_due(1_100));
        schedule.again();
        assert!(schedule.is_due(1_100));
        assert!(!schedule.is_due(1_329));
        assert!(schedule.is_due(1_330), "a tick may be early");
    }

    #[test]
    fn shorter_interval_applies_from_the_last_poll() {
        let mut schedule = Schedule::new(250);
        assert!(schedule.is_due(1_000));
        schedule.succeeded();
        assert!(schedule.is_due(2_000));
        schedule.set_interval(50);
        assert_eq!(schedule.tick_ms(), 50);
        assert!(!schedule.is_due(2_020));
        assert_eq!(polls(&mut schedule, 2_050..2_200), [2_050, 2_100, 2_150]);
        schedule.set_interval(250);
        assert_eq!(polls(&mut schedule, 2_200..2_600), [2_200, 2_450]);
    }

    #[test]
    fn only_first_poll_failure_and_recovery_are_logged() {
        let mut schedule = Schedule::new(250);
        assert!(!schedule.succeeded(), "it never failed");
        assert!(schedule.failed());
        assert!(!schedule.failed());
        assert!(schedule.succeeded());
        assert!(!schedule.succeeded());
    }
}
