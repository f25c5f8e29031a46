//! Archives ended sales: first in Redis, then in SQL.
//!
//! 1. SQL marks the sale as archived. From then on the catalogue omits it, so the reconciler does not write it to
//!    Redis. It accepts no orders and cannot be warmed.
//! 2. After [`ArchiveRules::settle_ms`], when all work on the sale has ended, its keys in Redis are deleted.
//! 3. In SQL, decided orders move to `orders_archive`. Then reservations, blocked users, buyers, idempotency keys and
//!    claim outcomes are deleted. Unpaid orders stay with this data until they are decided.
//!
//! SQL records each completed step. All steps can be repeated, so another origin can continue after a crash.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::info;
use weir_sale::site::first_shard;

use crate::ledger::Ledger;
use crate::store::{EndedSale, SaleStore};
use weir_origin_core::background::Interval;
use weir_origin_core::clock::now_ms;
use weir_origin_core::unavailable::Unavailable;

/// Interval between two rounds.
const PERIOD: Duration = Duration::from_secs(5);

/// Pause between two batches, so that orders of other sales are not delayed.
const BATCH_PAUSE: Duration = Duration::from_millis(20);

/// Maximum number of sales per round.
const SALES_MAX: usize = 100;

/// Maximum number of batches per sale and round, so that a large sale does not delay the others.
const BATCHES_MAX: usize = 200;

/// When data of ended sales is archived and deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArchiveRules {
    /// Time from the sale's end to archiving, in milliseconds; `None`: never.
    pub after_ms: Option<u64>,
    /// Time from archiving to the deletion of its Redis keys, in milliseconds; longer than any work on the sale takes.
    pub settle_ms: u64,
}

impl Default for ArchiveRules {
    /// One day, and one minute.
    fn default() -> Self {
        Self {
            after_ms: Some(24 * 60 * 60 * 1_000),
            settle_ms: 60_000,
        }
    }
}

/// Archives ended sales.
#[derive(Clone, Debug)]
pub struct Archiver {
    pub(crate) store: SaleStore,
    pub(crate) ledger: Ledger,
    pub(crate) rules: ArchiveRules,
}

/// Progress of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// More may be left to do at once.
    More,
    /// Nothing to do now.
    Wait,
    /// Completed.
    Done,
}

impl Archiver {
    /// Runs until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        let mut interval = Interval::every(PERIOD, "archiving ended sales", stop);
        while interval.next().await {
            let outcome = self.round().await;
            interval.ended(&outcome);
        }
    }

    /// Runs one round over all due sales.
    ///
    /// # Errors
    /// When SQL or Redis does not answer. The next round continues.
    pub async fn round(&self) -> Result<(), Unavailable> {
        let Some(after_ms) = self.rules.after_ms else {
            return Ok(());
        };
        let ended_by_ms = now_ms().saturating_sub(after_ms);
        for mut sale in self
            .store
            .archive()
            .due_to_archive(ended_by_ms, SALES_MAX)
            .await?
        {
            for _ in 0..BATCHES_MAX {
                if self.step(&mut sale).await? != Progress::More {
                    break;
                }
                tokio::time::sleep(BATCH_PAUSE).await;
            }
        }
        Ok(())
    }

    /// All shards that a sale has had in Redis here, under all fences of this site.
    async fn shards_here(&self, sale: &EndedSale) -> Result<Vec<u32>, Unavailable> {
        let Some(site) = self.store.site() else {
            return Ok((0..sale.shards).collect());
        };
        let fences = self.store.sites().fences().await?;
        let own = fences.iter().filter(|fence| fence.site == *site);
        let first = own.map(|fence| first_shard(fence.number));
        Ok(first.flat_map(|first| first..first + sale.shards).collect())
    }

    /// Runs the next step of one sale.
    ///
    /// # Errors
    /// When SQL or Redis does not answer. The step may or may not be done; call it again.
    pub async fn step(&self, sale: &mut EndedSale) -> Result<Progress, Unavailable> {
        let now_ms = now_ms();
        let Some(archived_at_ms) = sale.archived_at_ms else {
            let store = &self.store;
            if !store
                .archive()
                .mark_archived(&sale.id, sale.ends_at_ms, now_ms)
                .await?
            {
                return Ok(Progress::Wait);
            }
            sale.archived_at_ms = Some(now_ms);
            return Ok(Progress::More);
        };
        if sale.cleared_at_ms.is_none() {
            if now_ms < archived_at_ms.saturating_add(self.rules.settle_ms) {
                return Ok(Progress::Wait);
            }
            for shard in self.shards_here(sale).await? {
                self.ledger.clear(&sale.id, shard).await?;
            }
            self.store.archive().mark_cleared(&sale.id, now_ms).await?;
            sale.cleared_at_ms = Some(now_ms);
            return Ok(Progress::More);
        }
        if self.store.archive().archive_some(&sale.id).await? {
            return Ok(Progress::More);
        }
        if self.store.archive().has_unpaid(&sale.id).await? {
            return Ok(Progress::Wait);
        }
        self.store
            .archive()
            .mark_archive_done(&sale.id, now_ms)
            .await?;
        info!(sale = %sale.id, "archived");
        Ok(Progress::Done)
    }
}
