//! Changes the stock of a running sale: adds units, or withdraws free ones.
//!
//! 1. SQL stores the requested change, and how many units each shard adds or gives up (*intent*).
//! 2. Each shard applies its share, and stores the change's number with the result (*effect*). A repeated request
//!    returns the same result.
//! 3. When all shards have answered, SQL stores the total (*outcome*).
//!
//! After a crash, the jobs of any origin continue.
//!
//! SQL decides what is sold. It counts added units from the intent on, before Redis has any of them. It counts
//! withdrawn units until the outcome, when Redis has given up all of them. Until the outcome, the balance counts only
//! the part of the change that shards have applied: [`weir_sale::repair::total_in_redis`]. After the outcome it counts
//! the whole change, so a shard that loses it is repaired like any other.

use tokio::task::JoinSet;
use tracing::{debug, error, info, warn};
use weir_base::id::SaleId;
use weir_sale::idempotency::IdempotencyKey;
use weir_sale::ledger::{StockChange, StockChanged};
use weir_sale::repair::withdrawal;
use weir_sale::sale::SALES_MAX;
use weir_sale::shard::spread_stock;

use super::ledger::Ledger;
use super::metrics::SaleMetrics;
use super::store::{ChangeBegun, ChangeRefusal, SaleStore, StoredChange};
use crate::jobs::catalogue::ended_after_ms;
use weir_origin_core::clock::now_ms;
use weir_origin_core::sql::SqlError;
use weir_origin_core::unavailable::Unavailable;

/// Changes stock. Cloning it is cheap.
#[derive(Clone, Debug)]
pub struct Changer {
    store: SaleStore,
    ledger: Ledger,
    metrics: SaleMetrics,
}

impl Changer {
    pub(super) fn new(store: SaleStore, ledger: Ledger, metrics: SaleMetrics) -> Self {
        Self {
            store,
            ledger,
            metrics,
        }
    }

    /// Stores a requested change in SQL: `requested` units to add, or below 0 to withdraw. Repeating the key changes
    /// nothing.
    ///
    /// # Errors
    /// When SQL or Redis does not answer; the change may or may not be stored.
    pub async fn begin(
        &self,
        sale: &SaleId,
        key: &IdempotencyKey,
        requested: i64,
    ) -> Result<ChangeBegun, Unavailable> {
        if let Some(existing) = self.store.stock_changes().change(sale, key).await? {
            return Ok(ChangeBegun::Known(existing));
        }
        let Some(stored) = self.store.sale(sale).await? else {
            return Ok(ChangeBegun::Refused(ChangeRefusal::UnknownSale));
        };
        let units = requested.unsigned_abs();
        let shares = match requested > 0 {
            true => spread_stock(units, stored.sale.shards),
            false => withdrawal(&self.ledger.audits(&stored.sale).await?, units),
        };
        let store = &self.store;
        let started = store
            .stock_changes()
            .begin_change(sale, key, requested, &shares, now_ms());
        let started = started.await?;
        if let ChangeBegun::New(change) = &started {
            info!(%sale, number = change.number, requested, "stock change requested");
        }
        Ok(started)
    }

    /// Applies a change on each shard, and stores the outcome; `None` while a shard is cold, and if another site has to
    /// apply it.
    ///
    /// # Errors
    /// When SQL or Redis does not answer. Call it again to continue.
    pub async fn finish(&self, open: &StoredChange) -> Result<Option<StoredChange>, Unavailable> {
        let here = self.store.sites().here().await?;
        if here.number != open.fence || !here.is_open() {
            return Ok(None);
        }
        let mut units = 0;
        for (shard, &share) in (here.first_shard()..)
            .zip(&open.shares)
            .filter(|(_, share)| **share > 0)
        {
            let share = i64::try_from(share).unwrap_or(i64::MAX);
            let part = StockChange {
                number: open.number,
                units: share * open.requested.signum(),
            };
            match self.ledger.change(&open.sale, shard, part).await? {
                StockChanged::Done(done) => units += done,
                StockChanged::Cold if self.is_forsaken(&open.sale).await? => {}
                StockChanged::Cold => {
                    debug!(sale = %open.sale, shard, "cannot change the stock of a cold shard");
                    return Ok(None);
                }
                // Another origin has finished this change and started a later one.
                StockChanged::Over => break,
            }
        }
        let done = self
            .store
            .stock_changes()
            .end_change(open, units, now_ms())
            .await?;
        info!(sale = %done.sale, number = done.number, units = done.units, "stock changed");
        Ok(Some(done))
    }

    /// Whether the sale ended so long ago that its shards are no longer rebuilt.
    async fn is_forsaken(&self, sale: &SaleId) -> Result<bool, SqlError> {
        let stored = self.store.sale(sale).await?;
        Ok(stored.is_none_or(|stored| stored.sale.ends_at_ms <= ended_after_ms()))
    }

    /// Continues all unfinished changes. Sales are processed concurrently.
    ///
    /// # Errors
    /// When SQL does not answer.
    pub async fn finish_all(&self) -> Result<(), SqlError> {
        let open = self.store.stock_changes().open_changes(SALES_MAX).await?;
        self.metrics.open_changes(open.len());
        let mut changes = JoinSet::new();
        for change in open {
            let changer = self.clone();
            changes.spawn(async move { (changer.finish(&change).await, change.sale) });
        }
        let mut outcome = Ok(());
        while let Some(ended) = changes.join_next().await {
            match ended {
                Ok((Ok(_), _)) => {}
                Ok((Err(Unavailable::Sql(error)), _)) => outcome = Err(error),
                Ok((Err(Unavailable::Redis(error)), sale)) => {
                    warn!(%sale, %error, "stock change is not on every shard yet");
                }
                Err(error) => error!(%error, "stock change interrupted"),
            }
        }
        outcome
    }
}
