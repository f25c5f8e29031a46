//! A counter that restarts with each period.

use super::{Quota, SET_BACK_MS_MAX};

/// The count of the latest period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// The start of the period, in milliseconds since the epoch: a multiple of its length.
    pub(super) start_ms: u64,
    pub(super) count: u64,
}

impl Window {
    pub(super) fn advance(&mut self, quota: &Quota, now_ms: u64) {
        let start_ms = quota.period_start_ms(now_ms);
        let is_set_back =
            self.start_ms > now_ms && self.start_ms <= now_ms.saturating_add(SET_BACK_MS_MAX);
        if self.start_ms != start_ms && !is_set_back {
            *self = Self { start_ms, count: 0 };
        }
    }

    pub(super) fn wait_ms(&self, quota: &Quota, cost: u32, now_ms: u64) -> u64 {
        if self.count.saturating_add(u64::from(cost)) <= u64::from(quota.rate()) {
            return 0;
        }
        self.end_ms(quota).saturating_sub(now_ms)
    }

    pub(super) fn add(&mut self, cost: u32) {
        self.count = self.count.saturating_add(u64::from(cost));
    }

    pub(super) fn take_back(&mut self, cost: u32, mark: u64) {
        if mark == self.start_ms {
            self.count = self.count.saturating_sub(u64::from(cost));
        }
    }

    pub(super) fn idle_at_ms(&self, quota: &Quota) -> u64 {
        match self.count {
            0 => self.start_ms,
            _ => self.end_ms(quota),
        }
    }

    fn end_ms(&self, quota: &Quota) -> u64 {
        self.start_ms.saturating_add(quota.per_ms())
    }
}
