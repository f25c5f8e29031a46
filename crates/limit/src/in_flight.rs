//! How many requests are under way.
//!
//! A gateway that dies never says that its requests have ended. So they are counted by the period
//! in which they began, and those of the period before last no longer count.

use super::{Quota, SET_BACK_MS_MAX};

/// Requests under way, by when they began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InFlight {
    /// When the latest period began, in milliseconds since the epoch: a multiple of the period.
    pub(super) start_ms: u64,
    /// Those that began in it.
    pub(super) latest: u64,
    /// Those that began in the one before.
    pub(super) before: u64,
}

/// When one of those under way ends, nobody knows: this is when to ask again.
const RETRY_MS: u64 = 1_000;

impl InFlight {
    pub(super) fn advance(&mut self, quota: &Quota, now_ms: u64) {
        let start_ms = quota.period_start_ms(now_ms);
        let is_set_back =
            self.start_ms > now_ms && self.start_ms <= now_ms.saturating_add(SET_BACK_MS_MAX);
        if self.start_ms == start_ms || is_set_back {
            return;
        }
        let is_next = self.start_ms.checked_add(quota.per_ms()) == Some(start_ms);
        *self = Self {
            start_ms,
            latest: 0,
            before: if is_next { self.latest } else { 0 },
        };
    }

    pub(super) fn wait_ms(&self, quota: &Quota, cost: u32) -> u64 {
        match self.used().saturating_add(u64::from(cost)) <= u64::from(quota.rate()) {
            true => 0,
            false => RETRY_MS,
        }
    }

    pub(super) fn used(&self) -> u64 {
        self.latest.saturating_add(self.before)
    }

    pub(super) fn add(&mut self, cost: u32) {
        self.latest = self.latest.saturating_add(u64::from(cost));
    }

    pub(super) fn take_back(&mut self, quota: &Quota, cost: u32, mark: u64) {
        let count = if mark == self.start_ms {
            &mut self.latest
        } else if mark.checked_add(quota.per_ms()) == Some(self.start_ms) {
            &mut self.before
        } else {
            return;
        };
        *count = count.saturating_sub(u64::from(cost));
    }

    pub(super) fn idle_at_ms(&self, quota: &Quota) -> u64 {
        match self.used() {
            0 => self.start_ms,
            _ => self.start_ms.saturating_add(2 * quota.per_ms()),
        }
    }
}
