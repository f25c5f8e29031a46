//! A sale's books: every term of `Σ stock + transfers + claims + orders = total`.

use serde::Serialize;
use utoipa::ToSchema;
use weir_base::id::SaleId;
use weir_sale::claim::Ticket;
use weir_sale::ledger::Audit;
use weir_sale::mark::{self, changes_lost};
use weir_sale::repair::{Terms, total_in_redis};

use super::ledger::Ledger;
use super::store::{Balance, SaleStore, ShardCounts};
use weir_origin_core::redis::CallError;
use weir_origin_core::unavailable::Unavailable;

/// How often the books are read again because they changed during the reading.
const READINGS_MAX: u32 = 3;

/// The most open claims of which SQL is asked whether it has counted them. With more, the sum is not exact: each may be an
/// order that Redis has not followed yet.
const OPEN_MAX: u64 = 200;

/// What SQL and Redis hold of a sale.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StockBalance {
    /// What each shard holds.
    pub shards: Vec<Audit>,
    /// The terms, summed; `None` as long as a shard is cold.
    pub terms: Option<Terms>,
    /// Whether all of it is from one instant, and each term counts what no other does. Under traffic it may not be; then
    /// the sum may be off by what was under way.
    pub is_exact: bool,
    /// Whether Redis has followed every order that ended or was paid. Until then the sum is off by them.
    pub is_followed: bool,
    /// SQL's orders by shard.
    pub counts: Vec<ShardCounts>,
    /// How many changes of orders SQL has lost: see [`weir_sale::mark`].
    pub changes_lost: u64,
    /// Units that were added to the sale since it was warmed.
    pub topped_up: u64,
    /// Units that were withdrawn from it.
    pub withdrawn: u64,
    /// Whether a change of its stock is under way: then `terms.total` is what shards have heard of.
    pub is_changing: bool,
}

impl StockBalance {
    /// Reads a sale's books; `None` if SQL has no such sale. It reads sums, and no user but those who hold a claim.
    ///
    /// Redis is read before SQL and after it. If both readings are equal, nothing changed in between: a change that
    /// leaves a shard's terms as they are raises its version.
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
        let count = stored.sale.shards;
        let mut before = ledger.audits(id, count).await?;
        for reading in 1.. {
            let open = open_claims(ledger, id, &before).await?;
            let known = open.as_deref().unwrap_or_default();
            let Some(balance) = store.balance(id, known).await? else {
                return Ok(None);
            };
            // Redis was read first: what it was told, SQL had committed.
            let in_sql = balance.counts.iter().map(|counts| counts.orders.changes());
            let changes_lost = changes_lost(&before, in_sql.sum());
            let shards = ledger.audits(id, count).await?;
            let is_exact = shards == before && open.is_some();
            if is_exact || reading == READINGS_MAX {
                let books = Self::new(shards, balance, open.is_some(), is_exact);
                return Ok(Some(Self {
                    changes_lost,
                    ..books
                }));
            }
            before = shards;
        }
        Ok(None)
    }

    fn new(shards: Vec<Audit>, balance: Balance, knows_claims: bool, is_exact: bool) -> Self {
        let ordered = balance.total.saturating_sub(balance.remaining);
        let total = total_in_redis(balance.total, balance.open_change, &shards);
        let mut terms = Terms::new(&shards, ordered, total);
        if let Some(terms) = terms.as_mut().filter(|_| knows_claims) {
            terms.held = balance.held;
        }
        Self {
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

    /// The drift, if nothing is under way that makes it uncertain.
    pub fn drift(&self) -> Option<i64> {
        let is_certain = self.is_exact && self.is_followed;
        let terms = self.terms.filter(|_| is_certain)?;
        Some(terms.drift())
    }

    /// The shards on which Redis knows other orders than SQL, as far as that is certain.
    pub fn shards_with_other_orders(&self) -> Vec<u32> {
        if !self.is_exact || !self.is_followed {
            return vec![];
        }
        let differs = |&(shard, seen): &(u32, &Audit)| {
            let sql = self.counts_of(shard);
            seen.open == 0
                && (seen.bought, seen.deferred, seen.checksum)
                    != (sql.units_deducted, sql.units_deferred, sql.checksum)
        };
        let shards = (0..).zip(&self.shards).filter(differs);
        shards.map(|(shard, _)| shard).collect()
    }

    /// The shards whose marks are below SQL's count, each with that count. Call it only if the drift is 0 and no shard has other
    /// orders: then Redis has missed nothing that SQL counts.
    pub fn marks_behind(&self) -> Vec<(u32, u64)> {
        let counts = (0..).zip(&self.shards).map(|(shard, seen)| {
            let in_sql = self.counts_of(shard).orders.changes();
            mark::is_behind(seen, in_sql).then_some((shard, in_sql))
        });
        counts.flatten().collect()
    }

    fn counts_of(&self, shard: u32) -> ShardCounts {
        let mut counts = self.counts.iter();
        let counts = counts.find(|counts| counts.shard == shard).copied();
        counts.unwrap_or_default()
    }

    /// The books as operators see them.
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

/// All open claims, unless they are too many, or not all are found.
async fn open_claims(
    ledger: &Ledger,
    id: &SaleId,
    shards: &[Audit],
) -> Result<Option<Vec<Ticket>>, CallError> {
    let count: u64 = shards.iter().map(|seen| seen.open).sum();
    if count > OPEN_MAX {
        return Ok(None);
    }
    let mut open = Vec::new();
    for (shard, _) in (0..).zip(shards).filter(|(_, seen)| seen.open > 0) {
        for claim in ledger.open_claims(id, shard, OPEN_MAX as u32).await? {
            open.push(claim.into_ticket(id, shard));
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
    /// Units in Redis; null: Redis has lost this shard's data.
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
    /// Ordered units in SQL.
    orders: u64,
    /// Units of orders that are deducted at payment.
    orders_deferred: u64,
    /// Number of rebuilds of the shard.
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
