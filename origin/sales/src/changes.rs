//! Changes the stock of a running sale: adds units, and withdraws some that nobody holds.
//!
//! First SQL notes what is wanted, and how many units each shard is to add or give (*intent*). Then each shard is told its
//! share, and remembers the change's number with what came of it (*effect*): told again, it answers the same. When all
//! have answered, SQL notes how many it were (*outcome*). Whoever dies in between, the jobs of any origin go on from
//! there.
//!
//! SQL decides what is sold. So it counts units that are added from the intent on, before Redis has any of them, and
//! those that are withdrawn until the outcome, when Redis has given all of them up. Until then books count a change as far
//! as shards have heard of it: [`weir_sale::repair::total_in_redis`]. After that they count all of it, so a shard that
//! loses it is put right like any other.

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

    /// Notes in SQL that a sale is to have `wanted` units more, or below 0 fewer. The same key again changes nothing.
    ///
    /// # Errors
    /// When SQL or Redis does not answer: then it may be noted or not.
    pub async fn begin(
        &self,
        sale: &SaleId,
        key: &IdempotencyKey,
        wanted: i64,
    ) -> Result<ChangeBegun, Unavailable> {
        if let Some(known) = self.store.stock_changes().change(sale, key).await? {
            return Ok(ChangeBegun::Known(known));
        }
        let Some(stored) = self.store.sale(sale).await? else {
            return Ok(ChangeBegun::Refused(ChangeRefusal::UnknownSale));
        };
        let shards = stored.sale.shards;
        let units = wanted.unsigned_abs();
        let shares = match wanted > 0 {
            true => spread_stock(units, shards),
            false => withdrawal(&self.ledger.audits(sale, shards).await?, units),
        };
        let store = &self.store;
        let begun = store
            .stock_changes()
            .begin_change(sale, key, wanted, &shares, now_ms());
        let begun = begun.await?;
        if let ChangeBegun::New(change) = &begun {
            info!(%sale, number = change.number, wanted, "stock change requested");
        }
        Ok(begun)
    }

    /// Tells each shard its share of a change, and notes what came of it; `None` as long as a shard is cold.
    ///
    /// # Errors
    /// When SQL or Redis does not answer. The same again goes on from there.
    pub async fn finish(&self, open: &StoredChange) -> Result<Option<StoredChange>, Unavailable> {
        let mut units = 0;
        for (shard, &share) in (0..).zip(&open.shares).filter(|(_, share)| **share > 0) {
            let share = i64::try_from(share).unwrap_or(i64::MAX);
            let part = StockChange {
                number: open.number,
                units: share * open.wanted.signum(),
            };
            match self.ledger.change(&open.sale, shard, part).await? {
                StockChanged::Done(done) => units += done,
                StockChanged::Cold if self.is_forsaken(&open.sale).await? => {}
                StockChanged::Cold => {
                    debug!(sale = %open.sale, shard, "cannot change the stock of a cold shard");
                    return Ok(None);
                }
                // Another origin has come to its end, and begun a later one.
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

    /// Whether nobody rebuilds the sale's shards any more.
    async fn is_forsaken(&self, sale: &SaleId) -> Result<bool, SqlError> {
        let stored = self.store.sale(sale).await?;
        Ok(stored.is_none_or(|stored| stored.sale.ends_at_ms <= ended_after_ms()))
    }

    /// Goes on with all changes that are not done. Sales do not wait for each other.
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
