//! A sliding window: a compact log of passed requests.
//!
//! Requests within a seventh of a period after the first of a line share that line, and all count until the last of
//! them is one period old. So there are never more than `rate` in any period, and no request counts for more than a
//! seventh of a period too long. Eight lines suffice: their first requests are a seventh of a period apart, and lines
//! older than a period are removed.
//!
//! Under overload, each line is one burst, so no request counts too long, and the full limit passes.

use super::{Quota, SET_BACK_MS_MAX};

/// The maximum number of lines.
pub(super) const LINES: usize = 8;

/// A line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// The time between its last request and the latest of all, in milliseconds.
    pub(super) back_ms: u32,
    /// The number of requests; 0 for an unused line.
    pub(super) count: u32,
}

/// The requests of the last period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Log {
    /// The time of the latest request, in milliseconds since the epoch.
    pub(super) latest_ms: u64,
    /// The time between the first request of the newest line and the latest request, in milliseconds.
    pub(super) width_ms: u64,
    /// The newest first.
    pub(super) lines: [Line; LINES],
}

impl Log {
    /// Removes lines that are older than a period.
    pub(super) fn advance(&mut self, quota: &Quota, now_ms: u64) {
        if self.latest_ms > now_ms.saturating_add(SET_BACK_MS_MAX) {
            *self = Self::default();
        }
        let latest_ms = self.latest_ms;
        let is_over = |line: &Line| line_end_ms(latest_ms, line, quota) <= now_ms;
        for line in self.lines.iter_mut().filter(|line| is_over(line)) {
            *line = Line::default();
        }
        if self.is_empty() {
            *self = Self::default();
        }
    }

    fn is_empty(&self) -> bool {
        self.lines.iter().all(|line| line.count == 0)
    }

    pub(super) fn used(&self) -> u64 {
        self.lines.iter().map(|line| u64::from(line.count)).sum()
    }

    pub(super) fn wait_ms(&self, quota: &Quota, cost: u32, now_ms: u64) -> u64 {
        let mut used = self.used().saturating_add(u64::from(cost));
        let mut wait_ms = 0;
        // Unused lines free no quota: the loop continues with the next one.
        for line in self.lines.iter().rev() {
            if used <= u64::from(quota.rate()) {
                break;
            }
            used = used.saturating_sub(u64::from(line.count));
            wait_ms = line_end_ms(self.latest_ms, line, quota).saturating_sub(now_ms);
        }
        wait_ms
    }

    /// The time until the oldest line expires.
    pub(super) fn reset_ms(&self, quota: &Quota, now_ms: u64) -> u64 {
        let oldest = self.lines.iter().rev().find(|line| line.count > 0);
        let end_ms = oldest.map_or(0, |line| line_end_ms(self.latest_ms, line, quota));
        end_ms.saturating_sub(now_ms)
    }

    pub(super) fn add(&mut self, quota: &Quota, cost: u32, now_ms: u64) {
        let now_ms = now_ms.max(self.latest_ms);
        let since_ms = now_ms - self.latest_ms;
        let is_old = since_ms.saturating_add(self.width_ms) >= quota.per_ms().div_ceil(7);
        if self.is_empty() || is_old {
            self.begin_line();
            self.width_ms = 0;
        } else {
            self.width_ms += since_ms;
        }
        for line in self.lines.iter_mut().skip(1).filter(|line| line.count > 0) {
            line.back_ms = line.back_ms.saturating_add(to_u32(since_ms));
        }
        self.latest_ms = now_ms;
        if let Some(newest) = self.lines.first_mut() {
            newest.count = newest.count.saturating_add(cost);
        }
    }

    /// Frees the newest line. If the oldest two must share one, which is possible after the period was extended, both
    /// count for as long as the younger.
    fn begin_line(&mut self) {
        let [.., younger, oldest] = &mut self.lines;
        younger.count = younger.count.saturating_add(oldest.count);
        self.lines.rotate_right(1);
        if let Some(newest) = self.lines.first_mut() {
            *newest = Line::default();
        }
    }

    /// Undoes the newest requests first.
    pub(super) fn take_back(&mut self, cost: u32) {
        let mut rest = cost;
        for line in &mut self.lines {
            let accepted = line.count.min(rest);
            line.count -= accepted;
            rest -= accepted;
        }
    }

    pub(super) fn idle_at_ms(&self, quota: &Quota) -> u64 {
        match self.is_empty() {
            true => 0,
            false => self.latest_ms.saturating_add(quota.per_ms()),
        }
    }
}

/// When a line expires.
fn line_end_ms(latest_ms: u64, line: &Line, quota: &Quota) -> u64 {
    latest_ms
        .saturating_sub(u64::from(line.back_ms))
        .saturating_add(quota.per_ms())
}

/// Values beyond 32 bits are older than a period anyway.
fn to_u32(ms: u64) -> u32 {
    u32::try_from(ms).unwrap_or(u32::MAX)
}
