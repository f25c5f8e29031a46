//! Puts a sale's stock on Redis, once.
//!
//! The danger is to create units by filling a shard whose stock is out in claims. So a cold shard is filled only while
//! no claim can exist: before the sale was first warmed (the catalogue has it as cold, and gateways grant no claims), or
//! before it starts. After
//! that a cold shard means that Redis lost data, and warming is refused.

use std::sync::Arc;

use tokio::sync::Mutex;
use tracing::{error, info};
use weir_base::id::SaleId;
use weir_sale::ledger::Audit;
use weir_sale::sale::SALES_MAX;
use weir_sale::shard::spread_stock;

use super::ledger::Ledger;
use super::store::{SaleStore, SaleTotals};
use crate::jobs::catalogue::{PublishError, Publisher};
use crate::jobs::rebuild::Rebuilder;
use weir_origin_core::clock::now_ms;
use weir_origin_core::redis::CallError;
use weir_origin_core::sql::SqlError;
use weir_origin_core::unavailable::Unavailable;

/// How far a gateway's clock may be ahead of ours, in milliseconds: claims on a warmed sale are possible that long
/// before its start.
const CLOCK_SKEW_MS: u64 = 60 * 1000;

/// What a warm-up did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WarmSummary {
    /// The sale's shards.
    pub shards: u32,
    /// How many of them got their stock just now; the others held it already.
    pub filled: u32,
}

/// Why a sale is not warm.
#[derive(Debug, thiserror::Error)]
pub enum WarmError {
    /// SQL has no such sale.
    #[error("there is no such sale")]
    UnknownSale,
    /// A shard holds no stock although claims may have been made.
    #[error(
        "shard {shard} has no stock in Redis, but claims may exist: Redis has lost data, and warming the sale now could oversell it"
    )]
    StockLost {
        /// The first such shard.
        shard: u32,
    },
    /// A shard of a sale that was never warmed holds something.
    #[error(
        "shard {shard} has stock or claims in Redis from another sale with this id: use another sale id, another key prefix, or an empty Redis"
    )]
    NotOurs {
        /// The first such shard.
        shard: u32,
    },
    /// Gateways know as many sales as they can.
    #[error("{SALES_MAX} warmed sales have not ended yet, the maximum for gateways")]
    CatalogueFull,
    /// SQL did not answer.
    #[error(transparent)]
    Store(#[from] SqlError),
    /// Redis did not answer. Some shards may hold their stock: warm again.
    #[error(transparent)]
    Ledger(#[from] CallError),
    /// The stock is on Redis, but gateways may not know of the sale yet: that is tried again.
    #[error(transparent)]
    Publish(#[from] PublishError),
}

/// Puts stock on Redis.
#[derive(Clone, Debug)]
pub struct Warmer {
    store: SaleStore,
    ledger: Ledger,
    publisher: Publisher,
    rebuilder: Rebuilder,
    // One warm-up at a time, so that none sees another half done.
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

    /// Spreads the sale's remaining units over its shards and tells gateways of it. Doing it again
    /// changes nothing.
    ///
    /// # Errors
    /// See [`WarmError`].
    pub async fn warm(&self, id: &SaleId) -> Result<WarmSummary, WarmError> {
        let _turn = self.turn.lock().await;
        let totals = self.store.totals(id).await?.ok_or(WarmError::UnknownSale)?;
        self.check_room(id).await?;
        // Before there is any stock: of what Redis may lose later the lists are never lost first.
        self.rebuilder.add_users(&totals.stored.sale).await?;
        let filled = match claims_possible(&totals, now_ms()) {
            true => self.expect_warm(&totals).await?,
            false => self.fill(&totals).await?,
        };
        // And once more: Redis may have lost them in between, and then nothing would tell.
        self.rebuilder.add_users(&totals.stored.sale).await?;
        self.store.warming().mark_warmed(id, now_ms()).await?;
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

    /// Every shard must hold stock; none gets any.
    async fn expect_warm(&self, totals: &SaleTotals) -> Result<u32, WarmError> {
        let sale = &totals.stored.sale;
        for shard in 0..sale.shards {
            if !self.ledger.is_warm(&sale.id, shard).await? {
                error!(sale = %sale.id, shard, "Redis has lost a shard's stock");
                return Err(WarmError::StockLost { shard });
            }
        }
        Ok(0)
    }

    /// No claim can have been made: every shard gets its part, or has just that already, from a
    /// warm-up that broke off.
    async fn fill(&self, totals: &SaleTotals) -> Result<u32, WarmError> {
        let sale = &totals.stored.sale;
        let mut filled = 0;
        for (shard, units) in (0..).zip(spread_stock(totals.stored.remaining, sale.shards)) {
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

/// Whether Redis may have handed out units of the sale, or has been told to change how many it has.
fn claims_possible(totals: &SaleTotals, now_ms: u64) -> bool {
    let stored = &totals.stored;
    let may_be_touched = stored.warmed_at_ms.is_some() && totals.has_changes;
    let started = now_ms.saturating_add(CLOCK_SKEW_MS) >= stored.sale.starts_at_ms;
    totals.has_outcomes || may_be_touched || (stored.warmed_at_ms.is_some() && started)
}

/// Whether a shard holds `units` and has never handed out one.
fn is_untouched(audit: Audit, units: u64) -> bool {
    audit.stock == i64::try_from(units).ok() && audit.held == 0 && audit.bought == 0
}
