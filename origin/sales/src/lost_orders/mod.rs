//! Orders that SQL has lost, because it failed over to a replica that lagged, or was restored from a backup.
//!
//! ```text
//! reconciler: Redis counts more changes than SQL has ──────────▶ pause ──▶ gateways answer 503 `paused`
//!                                                                  │
//! operator: GET /sales/{id}/lost-orders, then POST ────────────────┤
//!                                                                  ├─ accept:  SQL is right, the lost orders are dropped
//!                                                                  └─ restore: they are created again, as far as stock allows
//!                                                                       └──▶ Redis is rebuilt from SQL ──▶ resume
//! ```
//!
//! While a sale is paused, Redis has the only list of its lost orders, so the reconciler repairs nothing of it. It
//! still ends overdue claims. Gateways grant no new ones, so soon no claim is open, and Redis lists the orders of all
//! users. All steps can be repeated, also by another origin: if a decision is interrupted, send it again.

pub mod cli;

use serde::{Deserialize, Serialize};
use tracing::{error, info, warn};
use utoipa::ToSchema;
use weir_base::id::{SaleId, UserId};
use weir_sale::claim::Ticket;
use weir_sale::mark::changes_lost;
use weir_sale::sale::Sale;

use crate::jobs::catalogue::{PublishError, Publisher};
use crate::jobs::rebuild::Rebuilder;
use crate::ledger::Ledger;
use crate::store::{OrderOutcome, SaleStore, ShardCounts, Shortage, StoredSale};
use crate::verify::Verifier;
use weir_origin_core::clock::now_ms;
use weir_origin_core::redis::CallError;
use weir_origin_core::sql::SqlError;
use weir_origin_core::unavailable::Unavailable;

/// What to do with lost orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = LostOrdersDecision)]
pub enum Decision {
    /// SQL is right: drop them and put their units back on sale.
    Accept,
    /// Create them again with the same ids, as far as stock and limits allow.
    Restore,
}

/// A confirmed order that SQL has lost, as Redis has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct LostOrder {
    /// Its id, as confirmed to the buyer.
    pub id: String,
    /// The buyer.
    #[schema(value_type = String)]
    pub user: UserId,
    /// Shard of its claim.
    pub shard: u32,
    /// The claim's generation.
    pub generation: u64,
    /// Its units.
    pub units: u64,
    /// Whether its units are deducted. If orders are deducted at payment, it was paid.
    pub deducted: bool,
}

/// The outcome of one lost order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct DecidedOrder {
    /// The order.
    #[serde(flatten)]
    pub order: LostOrder,
    /// `restored`, `given_up`, or why it could not be restored: `sold_out`, `user_cap`, `group_cap`, `barred`, `cooling_down`,
    /// `released`.
    pub outcome: &'static str,
}

/// Why a decision failed or is incomplete.
#[derive(Debug, thiserror::Error)]
pub enum DecideError {
    /// SQL has no such sale.
    #[error("sale not found")]
    UnknownSale,
    /// No orders of the sale are lost, or the decision has already been made.
    #[error("the sale is not paused")]
    NotPaused,
    /// A user has an open claim, so Redis does not list that user's orders.
    #[error("the sale has {0} open claims; try again in about half a minute")]
    ClaimsOpen(u64),
    /// SQL or Redis did not answer. Send the same decision again to continue.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// The sale is resumed, but gateways may not know it yet; the publisher retries.
    #[error(transparent)]
    Publish(#[from] PublishError),
}

impl From<SqlError> for DecideError {
    fn from(error: SqlError) -> Self {
        Unavailable::from(error).into()
    }
}

impl From<CallError> for DecideError {
    fn from(error: CallError) -> Self {
        Unavailable::from(error).into()
    }
}

/// Pauses sales whose orders SQL has lost, and executes operators' decisions. Cloning it is cheap.
#[derive(Clone, Debug)]
pub struct LostOrders {
    store: SaleStore,
    ledger: Ledger,
    publisher: Publisher,
    rebuilder: Rebuilder,
    verifier: Verifier,
}

impl LostOrders {
    pub(crate) fn new(
        store: SaleStore,
        ledger: Ledger,
        publisher: Publisher,
        rebuilder: Rebuilder,
    ) -> Self {
        Self {
            verifier: Verifier::new(store.clone(), ledger.clone()),
            store,
            ledger,
            publisher,
            rebuilder,
        }
    }

    /// Pauses a sale and publishes it, unless this loss was decided after the sale was read.
    ///
    /// # Errors
    /// When SQL or Redis does not answer. The next round finds the loss again.
    pub(crate) async fn pause(&self, observed: &StoredSale, lost: u64) -> Result<(), PublishError> {
        if self.store.pauses().pause(observed, now_ms()).await? {
            error!(
                sale = %observed.sale.id,
                lost,
                "SQL has lost confirmed order changes, so the sale is paused: see GET /sales/{{id}}/lost-orders at the admin port, then decide"
            );
        }
        self.publisher.publish().await
    }

    /// Number of order changes that SQL has lost, according to the counts in Redis.
    ///
    /// # Errors
    /// When SQL or Redis does not answer.
    pub async fn changes_lost(&self, sale: &Sale) -> Result<u64, Unavailable> {
        let shards = self.ledger.audits(sale).await?;
        let counts = self.store.counters().counts(&sale.id).await?;
        let is_here = |counts: &&ShardCounts| sale.shard_numbers().contains(&counts.shard);
        let in_sql = counts.iter().filter(is_here);
        let in_sql = in_sql.map(|counts| counts.orders.changes());
        Ok(changes_lost(&shards, in_sql.sum()))
    }

    /// Returns the orders that Redis has and SQL does not, by shard.
    ///
    /// # Errors
    /// When SQL or Redis does not answer.
    pub async fn list(&self, sale: &Sale) -> Result<Vec<LostOrder>, Unavailable> {
        self.verifier.lost_orders(sale).await
    }

    /// Executes an operator's decision, rebuilds Redis from SQL, and resumes the sale.
    ///
    /// # Errors
    /// See [`DecideError`]. Call it again to continue.
    pub async fn decide(
        &self,
        id: &SaleId,
        decision: Decision,
    ) -> Result<Vec<DecidedOrder>, DecideError> {
        let stored = self.paused(id).await?;
        let shards = self.ledger.audits(&stored.sale).await?;
        let open = shards.iter().map(|observed| observed.open).sum();
        if open > 0 {
            return Err(DecideError::ClaimsOpen(open));
        }
        let mut decided = Vec::new();
        for order in self.list(&stored.sale).await? {
            let outcome = match decision {
                Decision::Accept => "given_up",
                Decision::Restore => self.restore(id, &order).await?,
            };
            warn!(order = %order.id, user = %order.user, units = order.units, outcome, "lost order resolved");
            decided.push(DecidedOrder { order, outcome });
        }
        // If a concurrent decision has finished, gateways already sell from these shards.
        if self.paused(id).await?.pauses != stored.pauses {
            return Err(DecideError::NotPaused);
        }
        let shards: Vec<u32> = stored.sale.shard_numbers().collect();
        for &shard in &shards {
            self.ledger.forget(id, shard).await?;
        }
        self.rebuilder.rebuild(&stored.sale, &shards).await?;
        self.store.pauses().resume(&stored).await?;
        info!(sale = %id, ?decision, "sale resumed");
        self.publisher.publish().await?;
        Ok(decided)
    }

    async fn paused(&self, id: &SaleId) -> Result<StoredSale, DecideError> {
        let stored = self.store.sale(id).await?;
        let stored = stored.ok_or(DecideError::UnknownSale)?;
        match stored.paused_at_ms {
            Some(_) => Ok(stored),
            None => Err(DecideError::NotPaused),
        }
    }

    /// Creates an order again from its claim, with the same id. Other data of the buyer's request is lost.
    async fn restore(&self, sale: &SaleId, order: &LostOrder) -> Result<&'static str, SqlError> {
        let ticket = Ticket {
            sale: sale.clone(),
            shard: order.shard,
            generation: order.generation,
            quantity: u32::try_from(order.units).unwrap_or(u32::MAX),
            // The claim was decided long ago.
            deadline_ms: 0,
            user: order.user.clone(),
        };
        let placed = self.store.claims().place(&ticket, now_ms()).await?;
        Ok(match placed {
            OrderOutcome::New(_) | OrderOutcome::Again(_) | OrderOutcome::Elsewhere(_) => {
                "restored"
            }
            OrderOutcome::Released { .. }
            | OrderOutcome::NameTaken
            | OrderOutcome::KeyReused { .. } => "released",
            OrderOutcome::Short(Shortage::SoldOut) => "sold_out",
            OrderOutcome::Short(Shortage::UserCap) => "user_cap",
            OrderOutcome::Short(Shortage::GroupCap) => "group_cap",
            OrderOutcome::Short(Shortage::Barred) => "barred",
            OrderOutcome::Short(Shortage::CoolingDown { .. } | Shortage::UnpaidHolds) => {
                "cooling_down"
            }
            OrderOutcome::Short(Shortage::UnknownSale) => "unknown_sale",
        })
    }
}
