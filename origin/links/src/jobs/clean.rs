//! Deletes ended links from the cold store, so that their numbers can be reused.
//!
//! It scans by end time, one time slice per step, so each step reads few and only new rows. A link that is still in
//! Redis is alive, even if the cold store shows an earlier end: gateways renew links in Redis, and the cold store
//! receives clicks later.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::info;
use weir_link::spelling::CodeOptions;

use super::publish::Publisher;
use crate::domains::SharedDomains;
use crate::metrics::LinkMetrics;
use crate::numbers::{Allocator, Clock};
use crate::records::{Life, LinkRecords};
use crate::store::{EndedLink, LinkStore};
use weir_origin_core::background::Interval;
use weir_origin_core::unavailable::Unavailable;

/// The pause between two runs.
const PERIOD: Duration = Duration::from_secs(60);

/// Number of links in one step: creations wait for at most one step.
const BATCH: usize = 500;

/// The pause between two steps.
const PAUSE: Duration = Duration::from_millis(10);

/// Result of one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CleanSummary {
    /// Number of links deleted.
    pub removed: u64,
    /// Number of links that are still in Redis and got a later end.
    pub alive: u64,
}

/// Deletes ended links. Cloning is cheap.
#[derive(Clone)]
pub struct Cleaner {
    pub(crate) store: LinkStore,
    pub(crate) records: LinkRecords,
    pub(crate) publisher: Publisher,
    pub(crate) allocator: Allocator,
    pub(crate) domains: SharedDomains,
    pub(crate) metrics: LinkMetrics,
    pub(crate) quarantine_ms: u64,
    pub(crate) clock: Clock,
}

impl Cleaner {
    /// Deletes links that ended before the cooldown.
    ///
    /// # Errors
    /// If the cold store or Redis is unavailable; then nothing more is deleted.
    pub async fn clean(&self) -> Result<CleanSummary, Unavailable> {
        let before_ms = (self.clock)().saturating_sub(self.quarantine_ms);
        let (mut from_ms, mut cleaned) = (0, CleanSummary::default());
        loop {
            let ended = self.store.ends().ended(from_ms, before_ms, BATCH).await?;
            let Some(last) = ended.last() else {
                return Ok(cleaned);
            };
            from_ms = last.expires_at_ms;
            let count = ended.len();
            self.clean_batch(ended, &mut cleaned).await?;
            if count < BATCH {
                return Ok(cleaned);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn clean_batch(
        &self,
        ended: Vec<EndedLink>,
        cleaned: &mut CleanSummary,
    ) -> Result<(), Unavailable> {
        let ids: Vec<_> = ended.iter().map(|ended| &ended.id).collect();
        let lives = self.records.remaining_lives(&ids).await?;
        let (mut missing, mut alive) = (Vec::new(), Vec::new());
        for (ended, life) in ended.into_iter().zip(lives) {
            match life {
                Life::Gone => missing.push(ended),
                // Redis does not have the deletion yet. Gateways may cache the link until the cooldown is over.
                _ if ended.is_deleted => drop(self.records.forget(&ended.id).await?),
                Life::Ms(ms) => {
                    let until_ms = (self.clock)().saturating_add(ms);
                    alive.push((ended, until_ms));
                }
                Life::Ever => {
                    // It was written to Redis as permanent and has an end now: write it again, like an edit.
                    self.publisher.publish(&ended.id).await?;
                }
            }
        }
        self.free_numbers(&missing).await?;
        self.store.ends().prolong(&alive).await?;
        let removed = self.store.ends().remove(&missing).await?;
        self.metrics.cleaned(removed, alive.len() as u64);
        cleaned.removed += removed;
        cleaned.alive += alive.len() as u64;
        Ok(())
    }

    /// Makes the numbers of custom codes available again. This runs before the links are deleted. If the origin crashes
    /// in between, the next run repeats it, and a segment with an existing link is not reserved.
    async fn free_numbers(&self, links: &[EndedLink]) -> Result<(), Unavailable> {
        let existing = self.domains.get();
        let customs: Vec<_> = links
            .iter()
            .filter_map(|ended| {
                let domain = existing.domains.by_id(ended.id.domain.as_str());
                let codes = domain.map_or_else(CodeOptions::default, |domain| domain.codes);
                let (length, index) = self.allocator.index(codes, &ended.id.code)?;
                Some((length, index, &ended.id.domain))
            })
            .collect();
        Ok(self.store.segments().remove_customs(&customs).await?)
    }

    /// Runs once per minute, until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        let mut interval = Interval::every(PERIOD, "removing expired links", stop).delayed();
        while interval.next().await {
            let outcome = self.clean().await;
            interval.ended(&outcome);
            if let Ok(CleanSummary { removed, alive }) = outcome
                && removed > 0
            {
                info!(removed, alive, "removed expired links");
            }
        }
    }
}
