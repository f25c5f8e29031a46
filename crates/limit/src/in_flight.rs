//! Concurrent requests.
//!
//! A crashed gateway never reports the ends of its requests. So requests are counted by the period of their start, and
//! those from before the previous period no longer count.

use super::{Quota, SET_BACK_MS_MAX};

/// Concurrent requests by the period of their start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InFlight {
    /// The start of the latest period, in milliseconds since the epoch: a multiple of the period.
    pub(super) start_ms: u64,
    /// Requests from the latest period.
    pub(super) latest: u64,
    /// Requests from the previous period.
    pub(super) before: u64,
}

/// The suggested retry delay, because the end of a running request is unknown.
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
