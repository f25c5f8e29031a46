//! Settings that operators change at run time: cold reads, the count cache, and the batch size of product lookups.
//!
//! SQL stores the switches. Each origin reads them every second; the origin that changes them applies them immediately.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Serialize;
use tokio_util::sync::CancellationToken;
use utoipa::ToSchema;

use super::History;
use super::config::Settings;
use super::model::switches::SwitchSettings;
use weir_origin_core::background::Interval;
use weir_origin_core::sql::SqlError;

/// Interval between reads of the switches.
const PERIOD: Duration = Duration::from_secs(1);

/// Maximum number of products per request.
pub const BATCH_MAX: usize = 10_000;

/// Effective switches of this origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = HistorySwitchesNow)]
pub struct EffectiveSwitches {
    /// Whether to complete lists from the cold store.
    cold_reads: bool,
    /// Whether to cache counts in Redis until a list changes.
    count_cache: bool,
    /// Products per request to the product service.
    products_batch: usize,
}

/// The switches in effect on one origin.
#[derive(Debug)]
pub(crate) struct Switches {
    cold_reads: AtomicBool,
    count_cache: AtomicBool,
}

impl Switches {
    pub(crate) fn from_settings(settings: &Settings) -> Self {
        Self {
            cold_reads: AtomicBool::new(settings.has_cold_reads),
            count_cache: AtomicBool::new(settings.has_count_cache),
        }
    }

    pub(crate) fn has_cold_reads(&self) -> bool {
        self.cold_reads.load(Ordering::Relaxed)
    }

    pub(crate) fn has_count_cache(&self) -> bool {
        self.count_cache.load(Ordering::Relaxed)
    }
}

impl History {
    /// Effective switches of this origin.
    pub fn switches(&self) -> EffectiveSwitches {
        EffectiveSwitches {
            cold_reads: self.0.switches.has_cold_reads(),
            count_cache: self.0.switches.has_count_cache(),
            products_batch: self.products().batch(),
        }
    }

    /// Changes the switches of all origins: of this one immediately, of the others within seconds.
    ///
    /// # Errors
    /// If a SQL call fails; then nothing changes.
    pub async fn switch(&self, switched: SwitchSettings) -> Result<(), SqlError> {
        self.store().switches().put(switched).await?;
        self.follow(switched);
        Ok(())
    }

    /// Reads and applies the switches.
    ///
    /// # Errors
    /// If a SQL call fails; then the switches stay unchanged.
    pub async fn follow_switches(&self) -> Result<(), SqlError> {
        self.follow(self.store().switches().read().await?);
        Ok(())
    }

    fn follow(&self, switched: SwitchSettings) {
        let (settings, switches) = (&self.0.settings, &self.0.switches);
        let cold_reads = switched.cold_reads.unwrap_or(settings.has_cold_reads);
        switches.cold_reads.store(cold_reads, Ordering::Relaxed);
        let count_cache = switched.count_cache.unwrap_or(settings.has_count_cache);
        switches.count_cache.store(count_cache, Ordering::Relaxed);
        self.products().set_batch(switched.products_batch);
    }

    pub(crate) async fn run_following_switches(self, stop: CancellationToken) {
        let mut interval = Interval::every(PERIOD, "reading the history switches", stop);
        while interval.next().await {
            let followed = self.follow_switches().await;
            interval.ended(&followed);
        }
    }
}
