//! The stock balance of a sale: all terms of `Σ stock + transfers + claims + orders = total`.

use serde::Serialize;
use utoipa::ToSchema;
use weir_base::id::SaleId;
use weir_sale::claim::Ticket;
use weir_sale::ledger::Audit;
use weir_sale::mark::{self, changes_lost};
use weir_sale::repair::{Terms, total_in_redis};
use weir_sale::sale::Sale;

use super::ledger::Ledger;
use super::store::{Balance, SaleStore, ShardCounts};
use weir_origin_core::redis::CallError;
use weir_origin_core::unavailable::Unavailable;

/// Maximum number of readings when the balance changes during a reading.
const READINGS_MAX: u32 = 3;

/// Maximum number of open claims that are looked up in SQL. With more, the sum is not exact, because each claim may be
/// an order that Redis has not followed yet.
const OPEN_MAX: u64 = 200;

/// A sale's stock in SQL and Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StockBalance {
    /// The number of the first shard.
    pub first_shard: u32,
    /// Terms of each shard.
    pub shards: Vec<Audit>,
    /// Sums of the terms; `None` while a shard is cold.
    pub terms: Option<Terms>,
    /// Whether all values are from the same moment, and no unit counts twice. Otherwise the sum may be off by work in
    /// progress.
    pub is_exact: bool,
    /// Whether Redis has followed all ended and paid orders. Until then, the sum is off by their units.
    pub is_followed: bool,
    /// Order counts in SQL by shard.
    pub counts: Vec<ShardCounts>,
    /// Number of order changes that SQL has lost: see [`weir_sale::mark`].
    pub changes_lost: u64,
    /// Units added to the sale since it was warmed.
    pub topped_up: u64,
    /// Units withdrawn from the sale.
    pub withdrawn: u64,
    /// Whether a stock change is in progress; `terms.total` then contains the part that shards have applied.
    pub is_changing: bool,
}

impl StockBalance {
    /// Reads a sale's balance; `None` if SQL does not have the sale, or the fence of this origin's site is closed. It
    /// reads sums, and single users only if they have open claims.
    ///
    /// Redis is read before and after SQL. If both readings are equal, nothing changed in between, because each change
    /// raises a shard's version.
    ///
    /// # Errors
    /// When SQL or Redis does not answer.
    pub async fn read(
        store: &SaleStore,
        ledger: &Ledger,
        id: &SaleId,
    ) -> Result<Option<Self>, Unavailable> {
        let Some(stored) = store.sale(id).await? else {
            return Ok(None);
        };
        let mut before = ledger.audits(&stored.sale).await?;
        for reading in 1.. {
            let open = open_claims(ledger, &stored.sale, &before).await?;
            let existing = open.as_deref().unwrap_or_default();
            let Some(balance) = store.balance(id, existing).await? else {
                return Ok(None);
            };
            if balance.first_shard != stored.sale.first_shard {
                // The site has joined again in between. The next round reads its new shards.
                return Ok(None);
            }
            // Redis was read first, so SQL had committed everything that Redis contains.
            let in_sql = balance.counts.iter().map(|counts| counts.orders.changes());
            let changes_lost = changes_lost(&before, in_sql.sum());
            let shards = ledger.audits(&stored.sale).await?;
            let is_exact = shards == before && open.is_some();
            if is_exact || reading == READINGS_MAX {
                let stock_balance = Self::new(shards, balance, open.is_some(), is_exact);
                return Ok(Some(Self {
                    changes_lost,
                    ..stock_balance
                }));
            }
            before = shards;
        }
        Ok(None)
    }

    fn new(shards: Vec<Audit>, balance: Balance, knows_claims: bool, is_exact: bool) -> Self {
        let total = total_in_redis(balance.total, balance.open_change, &shards);
        let mut terms = Terms::new(&shards, balance.ordered, total);
        if let Some(terms) = terms.as_mut().filter(|_| knows_claims) {
            terms.held = balance.held;
        }
        Self {
            first_shard: balance.first_shard,
            terms,
            is_exact: is_exact && shards.iter().all(Audit::is_sound),
            is_followed: balance.is_followed,
            counts: balance.counts,
            changes_lost: 0,
            topped_up: balance.topped_up,
            withdrawn: balance.withdrawn,
            is_changing: balance.open_change.is_some(),
            shards,
        }
    }

    /// The drift; `None` if work in progress makes it uncertain.
    pub fn drift(&self) -> Option<i64> {
        let is_certain = self.is_exact && self.is_followed;
        let terms = self.terms.filter(|_| is_certain)?;
        Some(terms.drift())
    }

    /// Shards on which Redis has other orders than SQL, as far as that is certain.
    pub fn shards_with_other_orders(&self) -> Vec<u32> {
        if !self.is_exact || !self.is_followed {
            return vec![];
        }
        let differs = |&(shard, observed): &(u32, &Audit)| {
            let sql = self.counts_of(shard);
            observed.open == 0
                && (observed.bought, observed.deferred, observed.checksum)
                    != (sql.units_deducted, sql.units_deferred, sql.checksum)
        };
        let shards = (self.first_shard..).zip(&self.shards).filter(differs);
        shards.map(|(shard, _)| shard).collect()
    }

    /// Shards with marks below SQL's count, each with that count. Call it only if the drift is 0 and no shard has other
    /// orders: then Redis contains everything that SQL counts.
    pub fn marks_behind(&self) -> Vec<(u32, u64)> {
        let numbered = (self.first_shard..).zip(&self.shards);
        let counts = numbered.map(|(shard, observed)| {
            let in_sql = self.counts_of(shard).orders.changes();
            mark::is_behind(observed, in_sql).then_some((shard, in_sql))
        });
        counts.flatten().collect()
    }

    fn counts_of(&self, shard: u32) -> ShardCounts {
        let mut counts = self.counts.iter();
        let counts = counts.find(|counts| counts.shard == shard).copied();
        counts.unwrap_or_default()
    }

    /// The balance in its admin form.
    pub fn view(&self, id: SaleId) -> BooksView {
        BooksView {
            id,
            exact: self.is_exact,
            balanced: self.terms.map(|terms| terms.drift() == 0),
            terms: self.terms.map(TermsView::from),
            topped_up: self.topped_up,
            withdrawn: self.withdrawn,
            changing: self.is_changing,
            shards: self.shards.iter().map(ShardView::from).collect(),
        }
    }
}

/// Returns all open claims; `None` if there are too many, or not all are found.
async fn open_claims(
    ledger: &Ledger,
    sale: &Sale,
    shards: &[Audit],
) -> Result<Option<Vec<Ticket>>, CallError> {
    let count: u64 = shards.iter().map(|observed| observed.open).sum();
    if count > OPEN_MAX {
        return Ok(None);
    }
    let mut open = Vec::new();
    let numbered = sale.shard_numbers().zip(shards);
    for (shard, _) in numbered.filter(|(_, observed)| observed.open > 0) {
        let claims = ledger.open_claims(&sale.id, shard, OPEN_MAX as u32);
        for claim in claims.await? {
            open.push(claim.into_ticket(&sale.id, shard));
        }
    }
    Ok((open.len() as u64 == count).then_some(open))
}

/// Stock balance of a sale.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Books)]
pub struct BooksView {
    /// Its id.
    #[schema(value_type = String)]
    id: SaleId,
    /// Whether all values are from the same moment.
    exact: bool,
    /// Whether the stock is balanced; null while a shard is cold.
    #[schema(required)]
    balanced: Option<bool>,
    /// Terms of the balance; null while a shard is cold.
    #[schema(required)]
    terms: Option<TermsView>,
    /// Units added since the sale was warmed; included in the total.
    topped_up: u64,
    /// Units withdrawn.
    withdrawn: u64,
    /// Whether a stock change is in progress. The total then includes the part that shards have applied.
    changing: bool,
    /// One entry per shard.
    shards: Vec<ShardView>,
}

/// `stock + transfers + claims + orders = total + drift`, in units.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[schema(as = BooksTerms)]
struct TermsView {
    /// Units in Redis, over all shards.
    stock: i64,
    /// Units in transfer between shards.
    transfers: u64,
    /// Units held by claims.
    claims: u64,
    /// Ordered units in SQL.
    orders: u64,
    /// Units to sell.
    total: u64,
    /// Difference from the total; must be 0.
    drift: i64,
}

impl From<Terms> for TermsView {
    fn from(terms: Terms) -> Self {
        Self {
            stock: terms.stock,
            transfers: terms.moving,
            claims: terms.held,
            orders: terms.ordered,
            total: terms.total,
            drift: terms.drift(),
        }
    }
}

/// One shard, in units, as in Redis.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[schema(as = BooksShard)]
struct ShardView {
    /// Units in Redis; null: Redis has lost this shard's data.
    #[schema(required)]
    stock: Option<i64>,
    /// Unfinished transfers to other shards.
    transfers: u64,
    /// Units held by claims.
    claims: u64,
    /// Units of settled orders that were deducted from the stock.
    orders: u64,
    /// Units of orders that are deducted at payment.
    orders_deferred: u64,
    /// Increases whenever units arrive, the last one leaves, or the shard is rebuilt.
    epoch: i64,
}

impl From<&Audit> for ShardView {
    fn from(audit: &Audit) -> Self {
        let leaving = audit.transfers.iter().map(|open| open.transfer.units);
        Self {
            stock: audit.stock,
            transfers: leaving.sum(),
            claims: audit.held,
            orders: audit.bought,
            orders_deferred: audit.deferred,
            epoch: audit.epoch,
        }
    }
}
