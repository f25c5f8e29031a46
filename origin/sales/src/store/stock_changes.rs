//! Changes of a running sale's stock and end.

use std::collections::BTreeSet;

use sqlx::Error;
use weir_base::id::SaleId;
use weir_sale::idempotency::IdempotencyKey;
use weir_sale::ledger::StockChange;

use super::sales::{sale_id, select_one};
use super::{SaleStore, StoredSale, sites, tenants};
use crate::model::sale::TOTAL_MAX;
use crate::model::site::LocalFence;
use weir_origin_core::sql::{Row, SqlError, Tx, damaged, retried, sql};
use weir_origin_core::tenants::{LimitExceeded, Limits, NameRange, held_by};

// Locks the row, so that changes of one sale run one after another.
const LOCK_SALE: &str = "UPDATE sales SET total = total WHERE id = ?";

// Locks the stock, so that no order takes the units that are about to be withdrawn.
const LOCK_STOCK: &str = "UPDATE stock SET remaining = remaining WHERE sale_id = ?";

const SELECT_BY_KEY: &str = "SELECT * FROM stock_changes WHERE sale_id = ? AND change_key = ?";

const SELECT_LIST: &str = "
    SELECT * FROM stock_changes WHERE sale_id = ? AND reason = 'operator'
    ORDER BY number DESC LIMIT ?";

const SELECT_OPEN: &str = "
    SELECT * FROM stock_changes WHERE done_at_ms IS NULL AND fence = ?
    ORDER BY number, sale_id LIMIT ?";

const SELECT_OPEN_OF: &str = "
    SELECT * FROM stock_changes WHERE sale_id = ? AND fence = ? AND done_at_ms IS NULL
    ORDER BY number";

const SELECT_LAST: &str = "
    SELECT COALESCE(MAX(number), 0) AS last FROM stock_changes WHERE sale_id = ?";

const INSERT: &str = "
    INSERT INTO stock_changes
        (sale_id, number, change_key, requested, shares, asked_at_ms, fence, to_fence, reason)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)";

const END: &str = "
    UPDATE stock_changes SET units = ?, done_at_ms = ?
    WHERE sale_id = ? AND number = ? AND done_at_ms IS NULL";

const ADD_STOCK: &str = "UPDATE stock SET remaining = remaining + ? WHERE sale_id = ?";

const ADD_TOTAL: &str = "
    UPDATE sales SET total = total + ?, topped_up = topped_up + ?, withdrawn = withdrawn + ?
    WHERE id = ?";

const MOVE_END: &str = "
    UPDATE sales SET ends_at_ms = ?
    WHERE id = ? AND archived_at_ms IS NULL AND starts_at_ms < ?";

/// A change of a sale's stock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredChange {
    /// The sale.
    pub sale: SaleId,
    /// Number of the change, unique within the sale and increasing.
    pub number: u64,
    /// Idempotency key from the operator, or a key that no operator can have.
    pub key: String,
    /// The fence whose shards apply it.
    pub fence: u32,
    /// The fence that gets the withdrawn units.
    pub to_fence: Option<u32>,
    /// Why the stock changes.
    pub reason: ChangeReason,
    /// Units to add; below 0: free units to withdraw.
    pub requested: i64,
    /// Units that each shard adds or gives up.
    pub shares: Vec<u64>,
    /// Units added, or below 0 withdrawn; `None`: some shards have not answered.
    pub units: Option<i64>,
    /// Request time, in milliseconds since the Unix epoch.
    pub asked_at_ms: u64,
    /// Time at which all shards had answered, in milliseconds since the Unix epoch.
    pub done_at_ms: Option<u64>,
}

/// Why the stock of a fence changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeReason {
    /// An operator changes the total.
    Operator,
    /// Units leave for another site.
    Transfer,
    /// Units of another site arrive.
    Arrival,
}

impl ChangeReason {
    const ALL: [Self; 3] = [Self::Operator, Self::Transfer, Self::Arrival];

    /// Label in SQL.
    fn label(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::Transfer => "transfer",
            Self::Arrival => "arrival",
        }
    }
}

/// The outcome of requesting a stock change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeBegun {
    /// The change is stored, and will be completed even after a crash.
    New(StoredChange),
    /// The change was stored before, and may be completed.
    Known(StoredChange),
    /// Nothing was changed.
    Refused(ChangeRefusal),
}

/// Why the stock of a running sale cannot be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeRefusal {
    /// SQL does not have the sale.
    #[error("sale not found")]
    UnknownSale,
    /// The sale is not warmed.
    #[error("the sale was never warmed: PATCH its total before it starts, or warm it first")]
    NotWarmed,
    /// The sale has ended.
    #[error("the sale has ended: first extend it with PATCH /sales/{{id}}")]
    Ended,
    /// The sale is archived.
    #[error("the sale is archived and cannot change")]
    Archived,
    /// Another change is in progress.
    #[error("another stock change of the sale is in progress")]
    UnderWay,
    /// Another site must apply it.
    #[error(
        "another site changes the stock of this sale: ask an origin of the site that has been live longest, see `weir-origin site list`"
    )]
    OtherSite,
    /// The sale would exceed the maximum number of units.
    #[error("the sale would have more than {TOTAL_MAX} units")]
    TooMany,
    /// The tenant would exceed its limit of units.
    #[error(transparent)]
    Over(#[from] LimitExceeded),
}

impl StoredChange {
    /// A change without an operator. `insert_next` sets its number and key.
    pub(super) fn moved(sale: &SaleId, now_ms: u64) -> Self {
        Self {
            sale: sale.clone(),
            number: 0,
            key: String::new(),
            fence: 0,
            to_fence: None,
            reason: ChangeReason::Arrival,
            requested: 0,
            shares: Vec::new(),
            units: None,
            asked_at_ms: now_ms,
            done_at_ms: None,
        }
    }

    /// The part of the open change that SQL's total contains: see [`weir_sale::repair::total_in_redis`].
    pub(super) fn counted(&self) -> StockChange {
        StockChange {
            number: self.number,
            units: self.requested.max(0),
        }
    }
}

/// Changes of a running sale's stock and end.
#[derive(Clone, Copy, Debug)]
pub struct StockChangeStore<'a>(pub(super) &'a SaleStore);

impl StockChangeStore<'_> {
    /// Returns the change with this key.
    pub async fn change(
        self,
        sale: &SaleId,
        key: &IdempotencyKey,
    ) -> Result<Option<StoredChange>, SqlError> {
        let select = sql(SELECT_BY_KEY).text(sale.as_str()).text(key.as_str());
        let row = self.0.db.one(select).await?;
        Ok(row.as_ref().map(change).transpose()?)
    }

    /// Returns up to `limit` stock changes of a sale, newest first.
    pub async fn changes(self, sale: &SaleId, limit: usize) -> Result<Vec<StoredChange>, SqlError> {
        let select = sql(SELECT_LIST).text(sale.as_str()).number(limit);
        let rows = self.0.db.all(select).await?;
        Ok(rows.iter().map(change).collect::<Result<_, _>>()?)
    }

    /// Returns the oldest unfinished stock change of each sale here, oldest first; up to `limit` changes.
    pub async fn open_changes(self, limit: usize) -> Result<Vec<StoredChange>, SqlError> {
        let here = self.0.here().await?;
        if !here.is_open() {
            return Ok(Vec::new());
        }
        let select = sql(SELECT_OPEN).number(here.number).number(limit);
        let rows = self.0.db.all(select).await?;
        let mut open: Vec<StoredChange> = rows.iter().map(change).collect::<Result<_, _>>()?;
        // Shards apply the changes of a sale one after the other.
        let mut sales = BTreeSet::new();
        open.retain(|change| sales.insert(change.sale.clone()));
        Ok(open)
    }

    /// Stores a stock change of `requested` units with the share of each shard. Added units can be ordered at once;
    /// withdrawn units stay in the total until `StockChangeStore::end_change`.
    pub async fn begin_change(
        self,
        sale: &SaleId,
        key: &IdempotencyKey,
        requested: i64,
        shares: &[u64],
        now_ms: u64,
    ) -> Result<ChangeBegun, SqlError> {
        let change = StoredChange {
            sale: sale.clone(),
            number: 0,
            key: key.as_str().to_owned(),
            fence: 0,
            to_fence: None,
            reason: ChangeReason::Operator,
            requested,
            shares: shares.to_vec(),
            units: None,
            asked_at_ms: now_ms,
            done_at_ms: None,
        };
        Ok(retried(|| begin_once(self.0, &change)).await?)
    }

    /// Stores the outcome of a change: `units` are the units that shards have added, or below 0 withdrawn. Only the
    /// first call counts. Returns the stored change.
    pub async fn end_change(
        self,
        open: &StoredChange,
        units: i64,
        now_ms: u64,
    ) -> Result<StoredChange, SqlError> {
        Ok(retried(|| end_once(self.0, open, units, now_ms)).await?)
    }

    /// Moves the end of a sale that is not archived. Returns false if the sale does not exist, is archived, or would
    /// end before its start.
    pub async fn move_end(self, sale: &SaleId, ends_at_ms: u64) -> Result<bool, SqlError> {
        let set = || {
            sql(MOVE_END)
                .number(ends_at_ms)
                .text(sale.as_str())
                .number(ends_at_ms)
        };
        Ok(retried(|| self.0.db.execute(set())).await? == 1)
    }
}

async fn begin_once(store: &SaleStore, requested: &StoredChange) -> Result<ChangeBegun, Error> {
    let mut tx = store.db.begin().await?;
    let id = requested.sale.as_str();
    let tenant = held_by(&mut tx, id).await?;
    if store.site.is_some() {
        // Fences are locked before sales, as in all transactions.
        sites::shared_fences(&mut tx).await?;
    }
    let here = store.here_in(&mut tx).await?;
    tx.execute(sql(LOCK_SALE).text(id)).await?;
    let existing = sql(SELECT_BY_KEY).text(id).text(&requested.key);
    if let Some(existing) = tx.one(existing).await? {
        return Ok(ChangeBegun::Known(change(&existing)?));
    }
    let Some(stored) = select_one(&mut tx, &requested.sale, here).await? else {
        return Ok(ChangeBegun::Refused(ChangeRefusal::UnknownSale));
    };
    let requested = StoredChange {
        fence: here.number,
        ..requested.clone()
    };
    if let Some(refusal) = refusal(&mut tx, &stored, &requested, tenant.as_ref()).await? {
        return Ok(ChangeBegun::Refused(refusal));
    }
    if store.site.is_some() && sites::heir_of(&mut tx, &requested.sale).await? != Some(here.number)
    {
        return Ok(ChangeBegun::Refused(ChangeRefusal::OtherSite));
    }
    let started = StoredChange {
        number: next_number(&mut tx, &requested).await?,
        ..requested
    };
    insert(&mut tx, &started).await?;
    if started.requested > 0 {
        add_units(store, &mut tx, &started, started.requested).await?;
    }
    tx.commit().await?;
    Ok(ChangeBegun::New(started))
}

async fn refusal(
    tx: &mut Tx,
    stored: &StoredSale,
    change: &StoredChange,
    tenant: Option<&(NameRange, Limits)>,
) -> Result<Option<ChangeRefusal>, Error> {
    let total = stored
        .fields
        .total
        .saturating_add_signed(change.requested.max(0));
    let refusal = match stored {
        _ if stored.archived_at_ms.is_some() => ChangeRefusal::Archived,
        _ if stored.warmed_at_ms.is_none() => ChangeRefusal::NotWarmed,
        _ if stored.sale.ends_at_ms <= change.asked_at_ms => ChangeRefusal::Ended,
        _ if total > TOTAL_MAX => ChangeRefusal::TooMany,
        _ if !open_of(tx, &change.sale, change.fence).await?.is_empty() => ChangeRefusal::UnderWay,
        _ if change.requested > 0 => {
            let over = tenants::over(tx, tenant, &change.sale, total, false).await?;
            return Ok(over.map(ChangeRefusal::from));
        }
        _ => return Ok(None),
    };
    Ok(Some(refusal))
}

/// The number of a new change: later than all others of the sale.
async fn next_number(tx: &mut Tx, change: &StoredChange) -> Result<u64, Error> {
    let last = tx.one(sql(SELECT_LAST).text(change.sale.as_str())).await?;
    let last: u64 = last.map_or(Ok(0), |row| row.number("last"))?;
    // At least the time, so that numbers grow even if SQL is restored from a backup.
    Ok((last + 1).max(change.asked_at_ms))
}

/// Stores a change without an operator. The caller has locked the sale.
pub(super) async fn insert_next(tx: &mut Tx, change: &StoredChange) -> Result<(), Error> {
    let number = next_number(tx, change).await?;
    let stored = StoredChange {
        number,
        // Operators' keys contain no space.
        key: format!("{} {number}", change.reason.label()),
        ..change.clone()
    };
    insert(tx, &stored).await
}

async fn insert(tx: &mut Tx, change: &StoredChange) -> Result<(), Error> {
    let shares: Vec<String> = change.shares.iter().map(u64::to_string).collect();
    let shares = shares.join(",");
    let insert = sql(INSERT)
        .text(change.sale.as_str())
        .number(change.number)
        .text(&change.key)
        .signed(change.requested)
        .text(&shares)
        .number(change.asked_at_ms)
        .number(change.fence)
        .maybe(change.to_fence.map(u64::from))
        .text(change.reason.label());
    tx.execute(insert).await?;
    Ok(())
}

async fn end_once(
    store: &SaleStore,
    open: &StoredChange,
    units: i64,
    now_ms: u64,
) -> Result<StoredChange, Error> {
    let mut tx = store.db.begin().await?;
    let id = open.sale.as_str();
    if store.site.is_some() {
        sites::shared_fences(&mut tx).await?;
    }
    tx.execute(sql(LOCK_SALE).text(id)).await?;
    let units = match open.reason {
        // SQL has already counted all added units. If a shard has lost some, the reconciler adds them.
        _ if open.requested > 0 => open.requested,
        // The units stay in the sale.
        ChangeReason::Transfer => units.min(0),
        _ => withdrawable(&mut tx, &open.sale, units).await?,
    };
    let end = sql(END)
        .signed(units)
        .number(now_ms)
        .text(id)
        .number(open.number);
    let is_first = tx.execute(end).await? == 1;
    match open.to_fence {
        _ if !is_first || units >= 0 => {}
        Some(to) => sites::end_transfer(&mut tx, open, to, -units, now_ms).await?,
        None => add_units(store, &mut tx, open, units).await?,
    }
    let select = sql(SELECT_BY_KEY).text(id).text(&open.key);
    let row = tx.one(select).await?;
    let row = row.ok_or_else(|| damaged("stock_changes", "misses a row"))?;
    let ended = change(&row)?;
    tx.commit().await?;
    Ok(ended)
}

/// Limits the units that Redis has withdrawn (below 0) to those that SQL has not sold. Redis may withdraw too many if
/// it lost data, or has not followed payments that deducted units. The reconciler then adds the difference to Redis.
async fn withdrawable(tx: &mut Tx, sale: &SaleId, units: i64) -> Result<i64, Error> {
    tx.execute(sql(LOCK_STOCK).text(sale.as_str())).await?;
    let stored = select_one(tx, sale, LocalFence::ALONE).await?;
    let remaining = stored.map_or(0, |stored| stored.remaining);
    let remaining = i64::try_from(remaining).unwrap_or(i64::MAX);
    Ok(units.clamp(-remaining, 0))
}

/// Adds the units of an operator's change to its sale, or removes them if below 0.
async fn add_units(
    store: &SaleStore,
    tx: &mut Tx,
    change: &StoredChange,
    units: i64,
) -> Result<(), Error> {
    let sale = &change.sale;
    if store.site.is_some() {
        sites::allot(tx, sale, change.fence, units).await?;
    }
    let stock = sql(ADD_STOCK).signed(units).text(sale.as_str());
    tx.execute(stock).await?;
    let total = sql(ADD_TOTAL)
        .signed(units)
        .signed(units.max(0))
        .signed(-units.min(0))
        .text(sale.as_str());
    tx.execute(total).await?;
    Ok(())
}

/// Reads the open stock changes of a sale at a fence in a transaction, oldest first. Without sites, at most one is open.
pub(super) async fn open_of(
    tx: &mut Tx,
    sale: &SaleId,
    fence: u32,
) -> Result<Vec<StoredChange>, Error> {
    let select = sql(SELECT_OPEN_OF).text(sale.as_str()).number(fence);
    tx.all(select).await?.iter().map(change).collect()
}

fn reason(row: &Row) -> Result<ChangeReason, Error> {
    let label = row.text("reason")?;
    let mut reasons = ChangeReason::ALL.into_iter();
    reasons
        .find(|reason| reason.label() == label)
        .ok_or_else(|| damaged("reason", "is not a reason"))
}

fn change(row: &Row) -> Result<StoredChange, Error> {
    let done_at_ms = row.maybe("done_at_ms")?;
    let units = done_at_ms.map(|_| row.signed("units")).transpose()?;
    let shares = row.text("shares")?;
    let share = |text: &str| text.parse().map_err(|error| damaged("shares", error));
    Ok(StoredChange {
        sale: sale_id(row, "sale_id")?,
        number: row.number("number")?,
        key: row.text("change_key")?,
        fence: row.number("fence")?,
        to_fence: row
            .maybe("to_fence")?
            .map(u32::try_from)
            .transpose()
            .map_err(|error| damaged("to_fence", error))?,
        reason: reason(row)?,
        requested: row.signed("requested")?,
        shares: shares.split(',').map(share).collect::<Result<_, _>>()?,
        units,
        asked_at_ms: row.number("asked_at_ms")?,
        done_at_ms,
    })
}
