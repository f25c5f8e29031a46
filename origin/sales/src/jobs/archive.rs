//! Clears away what an ended sale leaves: first in Redis, then in SQL.
//!
//! 1. SQL notes that the sale is archived. From then on nothing puts it on Redis: it is not in the catalogue, so the
//!    reconciler leaves it alone; it takes no orders, and cannot be warmed.
//! 2. After [`ArchiveRules::settle_ms`], in which whoever had it in hand has let go of it, its keys in Redis go.
//! 3. In SQL, its decided orders move to `orders_archive`, then what served it goes: reservations, blocked users, buyers,
//!    idempotency keys, claim outcomes. Unpaid orders stay, with all that, until they are decided.
//!
//! Each step is noted when it is done, and may be done again: whoever dies in between leaves the rest to the next one.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::ledger::Ledger;
use crate::store::{EndedSale, SaleStore};
use weir_origin_core::background::Interval;
use weir_origin_core::clock::now_ms;
use weir_origin_core::unavailable::Unavailable;

/// The pause between two rounds.
const PERIOD: Duration = Duration::from_secs(5);

/// The pause between two batches: orders of other sales come first.
const BATCH_PAUSE: Duration = Duration::from_millis(20);

/// Sales of one round.
const SALES_MAX: usize = 100;

/// Batches of one sale in one round: one with very much must not keep others from theirs.
const BATCHES_MAX: usize = 200;

/// When what a sale leaves goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArchiveRules {
    /// How long after its end, in milliseconds; `None`: never.
    pub after_ms: Option<u64>,
    /// How long after that its keys go, in milliseconds: longer than anybody has a sale in hand.
    pub settle_ms: u64,
}

impl Default for ArchiveRules {
    /// A day, and a minute.
    fn default() -> Self {
        Self {
            after_ms: Some(24 * 60 * 60 * 1_000),
            settle_ms: 60_000,
        }
    }
}

/// Clears away what ended sales leave.
#[derive(Clone, Debug)]
pub struct Archiver {
    pub(crate) store: SaleStore,
    pub(crate) ledger: Ledger,
    pub(crate) rules: ArchiveRules,
}

/// How far a step has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// There may be more to do at once.
    More,
    /// Nothing for now.
    Wait,
    /// All is done.
    Done,
}

impl Archiver {
    /// Works until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        let mut interval = Interval::every(PERIOD, "archiving ended sales", stop);
        while interval.next().await {
            let outcome = self.round().await;
            interval.ended(&outcome);
        }
    }

    /// One round over all sales that are due.
    ///
    /// # Errors
    /// When SQL or Redis does not answer. The next round goes on from there.
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

    /// The next step of one sale.
    ///
    /// # Errors
    /// When SQL or Redis does not answer: then it may or may not be done, and is done again.
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
            for shard in 0..sale.shards {
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
