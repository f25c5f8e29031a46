//! The generic cell rate algorithm as a leaky bucket.

use super::{Quota, SET_BACK_MS_MAX};

/// The level of the bucket: units consumed and not yet recovered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// The time of `ticks`, in milliseconds since the epoch.
    pub(super) at_ms: u64,
    /// The level in ticks of the rate; one request takes `per_ms` of them.
    pub(super) ticks: u64,
    /// The period of `ticks`, which may differ from the quota's current period.
    pub(super) per_ms: u64,
}

impl Backlog {
    pub(super) fn advance(&mut self, quota: &Quota, now_ms: u64) {
        if self.per_ms == 0 || self.at_ms > now_ms.saturating_add(SET_BACK_MS_MAX) {
            *self = Self::default();
        }
        if self.per_ms != quota.per_ms() {
            // Whole requests, so that no number in a script needs more than 53 bits.
            let requests = self.ticks.checked_div(self.per_ms).unwrap_or(0)
                + u64::from(self.ticks.checked_rem(self.per_ms).unwrap_or(0) > 0);
            self.ticks = requests.saturating_mul(quota.per_ms());
            self.per_ms = quota.per_ms();
        }
        let elapsed_ms = now_ms.saturating_sub(self.at_ms);
        let leaked = elapsed_ms.saturating_mul(u64::from(quota.rate()));
        self.ticks = self
            .ticks
            .saturating_sub(leaked)
            .min(quota.ticks(quota.burst()));
        self.at_ms = self.at_ms.max(now_ms);
    }

    pub(super) fn wait_ms(&self, quota: &Quota, cost: u32, now_ms: u64) -> u64 {
        let full = quota.ticks(quota.burst());
        match self
            .ticks
            .saturating_add(quota.ticks(cost))
            .checked_sub(full)
        {
            None | Some(0) => 0,
            Some(over) => over.div_ceil(u64::from(quota.rate())) + (self.at_ms - now_ms),
        }
    }

    pub(super) fn used(&self, quota: &Quota) -> u64 {
        self.ticks.div_ceil(quota.per_ms())
    }

    /// The time until one more request fits, if `used` requests are counted.
    pub(super) fn reset_ms(&self, quota: &Quota, used: u64, now_ms: u64) -> u64 {
        if used == 0 {
            return 0;
        }
        let others = (used - 1).wrapping_mul(quota.per_ms());
        let over = self.ticks.wrapping_sub(others);
        over.div_ceil(u64::from(quota.rate())) + (self.at_ms - now_ms)
    }

    pub(super) fn add(&mut self, quota: &Quota, cost: u32) {
        self.ticks = self.ticks.saturating_add(quota.ticks(cost));
    }

    pub(super) fn take_back(&mut self, quota: &Quota, cost: u32) {
        self.ticks = self.ticks.saturating_sub(quota.ticks(cost));
    }

    pub(super) fn idle_at_ms(&self, quota: &Quota) -> u64 {
        let rest_ms = self.ticks.div_ceil(u64::from(quota.rate()));
        self.at_ms.saturating_add(rest_ms)
    }
}
