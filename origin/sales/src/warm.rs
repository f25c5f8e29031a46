//! Loads a sale's stock into Redis, once.
//!
//! Filling a shard whose stock is out in claims would create units. So a cold shard is filled only while no claim can
//! exist: before the sale is first warmed (the catalogue marks it as cold, and gateways grant no claims), or before it
//! starts. After that, a cold shard means that Redis has lost data, and warming is refused.

use std::sync::Arc;

use tokio::sync::Mutex;
use tracing::{error, info};
use weir_base::id::SaleId;
use weir_sale::ledger::Audit;
use weir_sale::sale::SALES_MAX;
use weir_sale::shard::spread_stock;

use super::ledger::Ledger;
use super::store::{LoadTurn, SaleStore, SaleTotals};
use crate::jobs::catalogue::{PublishError, Publisher};
use crate::jobs::rebuild::Rebuilder;
use weir_origin_core::clock::now_ms;
use weir_origin_core::redis::CallError;
use weir_origin_core::sql::SqlError;
use weir_origin_core::unavailable::Unavailable;

/// Maximum clock skew of a gateway, in milliseconds: claims on a warmed sale may exist this long before its start.
const CLOCK_SKEW_MS: u64 = 60 * 1000;

/// The result of a warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WarmSummary {
    /// Number of the sale's shards.
    pub shards: u32,
    /// Number of shards filled just now; the others had their stock already.
    pub filled: u32,
}

/// Why a sale was not warmed.
#[derive(Debug, thiserror::Error)]
pub enum WarmError {
    /// SQL has no such sale.
    #[error("sale not found")]
    UnknownSale,
    /// A shard has no stock although claims may exist.
    #[error(
        "shard {shard} has no stock in Redis, but claims may exist: Redis has lost data, and warming the sale now could oversell it"
    )]
    StockLost {
        /// The first such shard.
        shard: u32,
    },
    /// A shard of a sale that was never warmed contains data.
    #[error(
        "shard {shard} has stock or claims in Redis from another sale with this id: use another sale id, another key prefix, or an empty Redis"
    )]
    NotOurs {
        /// The first such shard.
        shard: u32,
    },
    /// Another site loads the stock.
    #[error(
        "another site loads the stock of this sale: ask an origin of the site that has been live longest, see `weir-origin site list`"
    )]
    Elsewhere,
    /// Gateways have the maximum number of sales.
    #[error("{SALES_MAX} warmed sales have not ended yet, the maximum for gateways")]
    CatalogueFull,
    /// SQL did not answer.
    #[error(transparent)]
    Store(#[from] SqlError),
    /// Redis did not answer. Some shards may have their stock; warm the sale again.
    #[error(transparent)]
    Ledger(#[from] CallError),
    /// The stock is loaded, but gateways may not know the sale yet; the publisher retries.
    #[error(transparent)]
    Publish(#[from] PublishError),
}

/// Loads stock into Redis.
#[derive(Clone, Debug)]
pub struct Warmer {
    store: SaleStore,
    ledger: Ledger,
    publisher: Publisher,
    rebuilder: Rebuilder,
    // One warm-up at a time, so that none sees another one unfinished.
    turn: Arc<Mutex<()>>,
}

impl From<Unavailable> for WarmError {
    fn from(error: Unavailable) -> Self {
        match error {
            Unavailable::Sql(error) => Self::Store(error),
            Unavailable::Redis(error) => Self::Ledger(error),
        }
    }
}

impl Warmer {
    pub(super) fn new(
        store: SaleStore,
        ledger: Ledger,
        publisher: Publisher,
        rebuilder: Rebuilder,
    ) -> Self {
        Self {
            rebuilder,
            store,
            ledger,
            publisher,
            turn: Arc::default(),
        }
    }

    /// Spreads the sale's remaining units over its shards, and publishes the sale to gateways. Repeating it changes
    /// nothing.
    ///
    /// # Errors
    /// See [`WarmError`].
    pub async fn warm(&self, id: &SaleId) -> Result<WarmSummary, WarmError> {
        let _turn = self.turn.lock().await;
        let totals = self.store.totals(id).await?.ok_or(WarmError::UnknownSale)?;
        self.check_room(id).await?;
        let turn = self.store.sites().begin_load(id).await?;
        if turn == LoadTurn::Elsewhere {
            return Err(WarmError::Elsewhere);
        }
        // Write the lists before the stock, so that Redis cannot lose the lists but keep the stock.
        self.rebuilder.add_users(&totals.stored.sale).await?;
        let filled = match claims_possible(&totals, now_ms()) {
            // The shards here have what other sites gave. The reconciler opens those that are cold.
            _ if turn == LoadTurn::Done => 0,
            true => self.expect_warm(&totals).await?,
            false => self.fill(&totals).await?,
        };
        // Write them again: Redis may have lost them in between, which cannot be detected.
        self.rebuilder.add_users(&totals.stored.sale).await?;
        if !self.store.warming().mark_warmed(id, now_ms()).await? {
            return Err(WarmError::Elsewhere);
        }
        self.publisher.publish().await?;
        let shards = totals.stored.sale.shards;
        info!(sale = %id, shards, filled, "warmed");
        Ok(WarmSummary { shards, filled })
    }

    async fn check_room(&self, id: &SaleId) -> Result<(), WarmError> {
        let sales = self.publisher.current().await?.sales;
        let warm = sales.iter().filter(|sale| !sale.cold).count();
        if warm >= SALES_MAX && sales.iter().all(|sale| sale.cold || sale.id != *id) {
            return Err(WarmError::CatalogueFull);
        }
        Ok(())
    }

    /// Checks that all shards have stock; fills none.
    async fn expect_warm(&self, totals: &SaleTotals) -> Result<u32, WarmError> {
        let sale = &totals.stored.sale;
        for shard in sale.shard_numbers() {
            if !self.ledger.is_warm(&sale.id, shard).await? {
                error!(sale = %sale.id, shard, "Redis has lost a shard's stock");
                return Err(WarmError::StockLost { shard });
            }
        }
        Ok(0)
    }

    /// Fills all shards, while no claim can exist. A shard may have its units already from an interrupted warm-up.
    async fn fill(&self, totals: &SaleTotals) -> Result<u32, WarmError> {
        let sale = &totals.stored.sale;
        let mut filled = 0;
        let units = spread_stock(totals.stored.remaining, sale.shards);
        for (shard, units) in sale.shard_numbers().zip(units) {
            if self.ledger.warm(&sale.id, shard, units, None).await? {
                filled += 1;
            }
            if !is_untouched(self.ledger.audit(&sale.id, shard).await?, units) {
                return Err(WarmError::NotOurs { shard });
            }
        }
        Ok(filled)
    }
}

/// Whether Redis may have granted claims, or applied stock changes.
fn claims_possible(totals: &SaleTotals, now_ms: u64) -> bool {
    let stored = &totals.stored;
    let may_be_touched = stored.warmed_at_ms.is_some() && totals.has_changes;
    let started = now_ms.saturating_add(CLOCK_SKEW_MS) >= stored.sale.starts_at_ms;
    totals.has_outcomes || may_be_touched || (stored.warmed_at_ms.is_some() && started)
}

/// Whether a shard has `units` and has never granted a claim.
fn is_untouched(audit: Audit, units: u64) -> bool {
    audit.stock == i64::try_from(units).ok() && audit.held == 0 && audit.bought == 0
}
