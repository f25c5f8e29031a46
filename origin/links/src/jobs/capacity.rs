//! Measures how many numbers are left for each code length, and for how many days they last.
//!
//! A number counts as used while its link could be alive without a visit. Links that are visited, or have a longer
//! life, keep their numbers longer. Their segments are skipped in the next cycle, and skipped numbers also count as
//! used.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use weir_link::code::Length;
use weir_link::segment::{NumberUse, Segment};

use crate::domains::SharedDomains;
use crate::metrics::LinkMetrics;
use crate::numbers::{Allocator, Clock};
use crate::store::LinkStore;
use weir_origin_core::background::Interval;
use weir_origin_core::sql::SqlError;

/// The pause between two measurements.
const PERIOD: Duration = Duration::from_secs(60);

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// Measures the remaining numbers. Cloning is cheap.
#[derive(Clone)]
pub struct CapacityGauge {
    pub(crate) store: LinkStore,
    pub(crate) allocator: Allocator,
    pub(crate) domains: SharedDomains,
    pub(crate) metrics: LinkMetrics,
    pub(crate) quarantine_ms: u64,
    pub(crate) clock: Clock,
}

impl CapacityGauge {
    /// Sets the gauges of every length.
    ///
    /// # Errors
    /// If a SQL call fails; the gauges stay unchanged.
    pub async fn measure(&self) -> Result<(), SqlError> {
        for length in Length::ALL {
            let usage = self.usage(length).await?;
            let plan = self.allocator.plan(length);
            let (remaining, days) = (plan.numbers_left(&usage), plan.days_left(&usage));
            self.metrics.numbers_left(length, remaining, days);
        }
        Ok(())
    }

    async fn usage(&self, length: Length) -> Result<NumberUse, SqlError> {
        let life_ms = self.domains.get().domains.longest_life_ms(length);
        // A number is reused only after the cooldown.
        let life_ms = life_ms.map(|ms| ms.saturating_add(self.quarantine_ms));
        let mut usage = NumberUse {
            life_ms,
            in_life: 0,
            in_day: 0,
        };
        if let Some(last) = self.store.segments().last_segment(length).await? {
            usage.in_life = self.passed_since(life_ms, &last).await?;
            usage.in_day = self.passed_since(Some(DAY_MS), &last).await?;
        }
        Ok(usage)
    }

    /// How many numbers the counter has passed in the last `ago_ms` milliseconds; `None`: ever.
    async fn passed_since(&self, ago_ms: Option<u64>, last: &Segment) -> Result<u64, SqlError> {
        let since_ms = ago_ms.map_or(0, |ago_ms| (self.clock)().saturating_sub(ago_ms));
        let segments = self.store.segments();
        let first = segments.first_segment_since(last.length, since_ms).await?;
        let plan = self.allocator.plan(last.length);
        Ok(first.map_or(0, |first| plan.numbers_between(&first, last)))
    }

    /// Measures once a minute, until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        let mut interval = Interval::every(PERIOD, "counting free link numbers", stop);
        while interval.next().await {
            let outcome = self.measure().await;
            interval.ended(&outcome);
        }
    }
}
