//! A sale's books: every term of `Σ stock + transfers + claims + orders = total`.

use serde::Serialize;
use weir_base::id::SaleId;
use weir_sale::ledger::Audit;
use weir_sale::repair::Terms;

use super::ledger::Ledger;
use super::store::SaleStore;
use crate::redis::CallError;
use crate::unavailable::Unavailable;

/// How often the books are read again because they changed during the reading.
const READINGS_MAX: u32 = 3;

/// What SQL and Redis hold of a sale.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Books {
    /// What each shard holds.
    pub shards: Vec<Audit>,
    /// The terms, summed; `None` as long as a shard is cold.
    pub terms: Option<Terms>,
    /// Whether all of it is from one instant. Under traffic it may not be; then the sum may be off by what was in
    /// batch.
    pub is_exact: bool,
}

impl Books {
    /// Reads a sale's books; `None` if SQL has no such sale. Reads every record of the sale in Redis:
    /// for operators, tests, and the reconciler when a sale is at rest.
    ///
    /// Redis is read before SQL and after it. If both readings are equal, nothing changed in between: a change that
    /// leaves a shard's terms as they are raises its epoch or its sequence.
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
        let count = totals.stored.sale.shards;
        let mut before = audits(ledger, id, count).await?;
        for reading in 1.. {
            let Some(totals) = store.totals(id).await? else {
                return Ok(None);
            };
            let shards = audits(ledger, id, count).await?;
            let is_exact = shards == before;
            if is_exact || reading == READINGS_MAX {
                let terms = Terms::new(&shards, totals.units_deducted, totals.stored.total);
                return Ok(Some(Self {
                    shards,
                    terms,
                    is_exact,
                }));
            }
            before = shards;
        }
        Ok(None)
    }

    /// The books as operators see them.
    pub fn view(&self, id: SaleId) -> BooksView {
        BooksView {
            id,
            exact: self.is_exact,
            balanced: self.terms.map(|terms| terms.drift() == 0),
            terms: self.terms.map(TermsView::from),
            shards: self.shards.iter().map(ShardView::from).collect(),
        }
    }
}

async fn audits(ledger: &Ledger, id: &SaleId, count: u32) -> Result<Vec<Audit>, CallError> {
    let mut shards = Vec::new();
    for shard in 0..count {
        shards.push(ledger.audit(id, shard).await?);
    }
    Ok(shards)
}

/// A sale's books as operators see them.
#[derive(Clone, Debug, Serialize)]
pub struct BooksView {
    id: SaleId,
    /// Whether all of it is of one instant.
    exact: bool,
    /// Whether the sum holds; null as long as a shard is cold.
    balanced: Option<bool>,
    /// The terms of the sum; null as long as a shard is cold.
    terms: Option<TermsView>,
    shards: Vec<ShardView>,
}

/// `stock + transfers + claims + orders = total + drift`, in units.
#[derive(Clone, Copy, Debug, Serialize)]
struct TermsView {
    stock: i64,
    transfers: u64,
    claims: u64,
    orders: u64,
    total: u64,
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

/// One shard, in units. Orders are those that Redis knows of.
#[derive(Clone, Copy, Debug, Serialize)]
struct ShardView {
    stock: Option<i64>,
    /// What has left for other shards and is not settled.
    transfers: u64,
    claims: u64,
    orders: u64,
    /// Units of orders that leave the stock at payment.
    orders_deferred: u64,
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
