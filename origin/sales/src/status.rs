//! A sale's status in SQL and Redis.

use serde::Serialize;
use utoipa::ToSchema;
use weir_base::id::SaleId;
use weir_sale::ledger::Audit;
use weir_sale::repair::total_in_redis;
use weir_sale::sale::{Degrade, SaleState};

use super::ledger::Ledger;
use super::store::{SaleStore, SaleTotals, StoredSale};
use crate::model::sale::SaleFields;
use weir_origin_core::unavailable::Unavailable;

/// A sale, without its state in Redis.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Sale)]
pub struct SaleSummary {
    /// Its id.
    #[schema(value_type = String)]
    pub id: SaleId,
    /// Fields set by operators.
    #[serde(flatten)]
    pub fields: SaleFields,
    /// Units not sold according to SQL.
    pub remaining: u64,
    /// Number of stock shards.
    pub shard_count: u32,
    /// This sale's switch.
    pub state: SaleState,
    /// Effective switch: the stricter of this sale's and the global one.
    pub effective_state: SaleState,
    /// Degraded modes.
    pub degrade: Degrade,
    /// Creation time.
    pub created_at_ms: u64,
    /// Time of the first warm-up; null: not warmed.
    #[schema(required)]
    pub warmed_at_ms: Option<u64>,
    /// Time of archiving, after which it accepts no orders and is removed from Redis; null: not archived.
    pub archived_at_ms: Option<u64>,
    /// Time of the pause, because SQL has lost orders (see `GET /sales/{id}/lost-orders`); null: not paused.
    pub paused_at_ms: Option<u64>,
}

/// A sale with its status in SQL and Redis.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct SaleStatus {
    /// The sale.
    #[serde(flatten)]
    pub summary: SaleSummary,
    /// Unpaid and paid orders in SQL.
    pub orders: u64,
    /// Units deducted for them in SQL.
    pub units_ordered: u64,
    /// Status in Redis, by shard.
    pub shards: Vec<ShardStatus>,
    /// Whether `Σ stock + Σ held + units_ordered = total`, of this site. A stock change in progress counts as far as shards have applied it.
    // Redis is read before SQL. While orders are placed, the sum may therefore be too high, but never too low: a claim
    // that becomes an order in between counts twice. Without traffic the sum is exact. False while a shard is cold.
    pub balanced: bool,
}

/// Status of one shard in Redis.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[schema(as = SaleStatusShard)]
pub struct ShardStatus {
    /// Units in stock; null: not warmed, or lost.
    #[schema(required)]
    pub stock: Option<i64>,
    /// Units in open claims.
    pub held: u64,
    /// Units in settled orders.
    pub bought: u64,
    /// Increases whenever units arrive or the last one leaves.
    pub epoch: i64,
}

impl SaleStatus {
    /// Reads a sale's status; `None` if the sale does not exist.
    ///
    /// # Errors
    /// When SQL or Redis does not answer.
    pub async fn read(
        store: &SaleStore,
        ledger: &Ledger,
        id: &SaleId,
    ) -> Result<Option<Self>, Unavailable> {
        let Some(totals) = store.totals(id).await? else {
            return Ok(None);
        };
        // For an archived sale, SQL has all data and Redis none.
        let shards = match totals.stored.archived_at_ms {
            Some(_) => Vec::new(),
            None => ledger.audits(&totals.stored.sale).await?,
        };
        // Read SQL again after Redis: see `SaleStatus::balanced`. Sales are never deleted.
        let totals = store.totals(id).await?;
        let switch = store.global_switch().await?;
        Ok(totals.map(|totals| Self::new(totals, &shards, switch)))
    }

    fn new(totals: SaleTotals, shards: &[Audit], switch: SaleState) -> Self {
        Self {
            balanced: is_balanced(&totals, shards),
            orders: totals.orders.active(),
            units_ordered: totals.units_deducted,
            shards: shards.iter().map(ShardStatus::from).collect(),
            summary: SaleSummary::new(totals.stored, switch),
        }
    }
}

fn is_balanced(totals: &SaleTotals, shards: &[Audit]) -> bool {
    if totals.stored.archived_at_ms.is_some() {
        return totals.stored.remaining + totals.units_deducted == totals.stored.fields.total;
    }
    let total = total_in_redis(totals.units_here, totals.open_change, shards);
    let in_redis: Option<i64> = shards
        .iter()
        .map(|s| s.stock?.checked_add_unsigned(s.held))
        .sum();
    in_redis.and_then(|units| units.checked_add_unsigned(totals.units_deducted_here))
        == i64::try_from(total).ok()
}

impl From<&Audit> for ShardStatus {
    fn from(audit: &Audit) -> Self {
        let &Audit {
            stock,
            held,
            bought,
            epoch,
            ..
        } = audit;
        Self {
            stock,
            held,
            bought,
            epoch,
        }
    }
}

impl SaleSummary {
    /// Creates the summary of a sale, given the global switch.
    pub fn new(stored: StoredSale, switch: SaleState) -> Self {
        let sale = stored.sale;
        Self {
            id: sale.id,
            fields: stored.fields,
            remaining: stored.remaining,
            shard_count: sale.shards,
            state: sale.state,
            effective_state: sale.state.max(switch),
            degrade: sale.degrade,
            created_at_ms: stored.created_at_ms,
            warmed_at_ms: stored.warmed_at_ms,
            archived_at_ms: stored.archived_at_ms,
            paused_at_ms: stored.paused_at_ms,
        }
    }
}
