//! Removes links that have ended from the cold store; then their numbers may be handed out again.
//!
//! It walks through the ends in order, a slice of time per step, so that each step sees new rows and few of them. A
//! link that Redis still has is alive, whatever the cold store says: gateways renew it there, and the cold store
//! hears of clicks later.

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

/// Links of one step: creations wait for one step at most.
const BATCH: usize = 500;

/// The pause between two steps.
const PAUSE: Duration = Duration::from_millis(10);

/// What one run did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CleanSummary {
    /// Links that were taken away.
    pub removed: u64,
    /// Links that Redis still has, and that got a later end.
    pub alive: u64,
}

/// Removes links that have ended. Cloning it is cheap.
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
    /// Takes away what ended before the quarantine.
    ///
    /// # Errors
    /// When the cold store or Redis does not answer: then nothing more is taken away.
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
        let (mut gone, mut alive) = (Vec::new(), Vec::new());
        for (ended, life) in ended.into_iter().zip(lives) {
            match life {
                Life::Gone => gone.push(ended),
                // Redis had not followed the deletion; gateways may have it until the quarantine is over.
                _ if ended.is_deleted => drop(self.records.forget(&ended.id).await?),
                Life::Ms(ms) => {
                    let until_ms = (self.clock)().saturating_add(ms);
                    alive.push((ended, until_ms));
                }
                Life::Ever => {
                    // It was written for ever, and has an end now: Redis follows an edit.
                    self.publisher.publish(&ended.id).await?;
                }
            }
        }
        self.free_numbers(&gone).await?;
        self.store.ends().prolong(&alive).await?;
        let removed = self.store.ends().remove(&gone).await?;
        self.metrics.cleaned(removed, alive.len() as u64);
        cleaned.removed += removed;
        cleaned.alive += alive.len() as u64;
        Ok(())
    }

    /// Lets the numbers of chosen codes be generated again. This comes before the links go: if the origin crashes in
    /// between, the next run repeats it, and a segment with a link in it is not handed out.
    async fn free_numbers(&self, gone: &[EndedLink]) -> Result<(), Unavailable> {
        let known = self.domains.get();
        let customs: Vec<_> = gone
            .iter()
            .filter_map(|ended| {
                let domain = known.domains.by_id(ended.id.domain.as_str());
                let codes = domain.map_or_else(CodeOptions::default, |domain| domain.codes);
                let (length, index) = self.allocator.index(codes, &ended.id.code)?;
                Some((length, index, &ended.id.domain))
            })
            .collect();
        Ok(self.store.segments().remove_customs(&customs).await?)
    }

    /// Cleans up now and then, until `stop`.
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
