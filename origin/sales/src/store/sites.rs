//! Sites in SQL: fences, allotments, and units that move between sites. See [`weir_sale::site`].
//!
//! Each transaction that reads a fence and depends on its state locks it, shared. A transaction that changes a fence
//! locks all fences first, exclusively. So nothing that began under an open fence is committed after the fence is closed.

use std::collections::BTreeMap;

use sqlx::Error;
use weir_base::id::SaleId;
use weir_sale::ledger::StockChange;
use weir_sale::sale::SHARDS_MAX;
use weir_sale::shard::spread_stock;
use weir_sale::site::{FenceState, FenceStock, fence_of, heir, inherited};

use super::sales::{sale_id, select_one};
use super::stock_changes::{self, ChangeReason, StoredChange};
use super::{SaleStore, counts};
use crate::model::site::{LocalFence, SiteName};
use weir_origin_core::sql::{Database, Row, SqlError, Tx, damaged, retried, sql};

const SELECT_HERE: &str = "
    SELECT fence, state FROM fences WHERE site = ? ORDER BY fence DESC LIMIT 1";

const SELECT_FENCES: &str = "SELECT * FROM fences ORDER BY fence";

// SQLite has one writing transaction at a time, so it needs no lock.
const SELECT_FENCES_SHARED: &str = "SELECT * FROM fences ORDER BY fence LOCK IN SHARE MODE";

// Locks the rows without a change.
const LOCK_FENCES: &str = "UPDATE fences SET site = site";

const INSERT_FENCE: &str = "
    INSERT INTO fences (fence, site, state, joined_at_ms) VALUES (?, ?, 'live', ?)";

const DRAIN: &str = "UPDATE fences SET state = 'draining' WHERE fence = ?";

const CLOSE: &str = "UPDATE fences SET state = 'closed', closed_at_ms = ? WHERE fence = ?";

// Nothing was withdrawn, as far as SQL counts, and added units stay in the fence's allotment.
const CLOSE_CHANGES: &str = "
    UPDATE stock_changes SET units = CASE WHEN requested > 0 THEN requested ELSE 0 END, done_at_ms = ?
    WHERE fence = ? AND done_at_ms IS NULL";

const CLOSE_REQUESTS: &str = "UPDATE allotments SET wanted = 0 WHERE fence = ?";

const SELECT_OPEN_CHANGES: &str = "
    SELECT 1 AS one FROM stock_changes WHERE fence = ? AND done_at_ms IS NULL LIMIT 1";

const LOCK_SALE: &str = "UPDATE sales SET total = total WHERE id = ?";

// Locks the rows, so that a concurrent change of an order waits.
const LOCK_COUNTS: &str = "UPDATE order_counts SET unpaid = unpaid WHERE shard >= ? AND shard < ?";

/// SELECT of what each fence has of the sales that `$rest` selects.
macro_rules! select_stocks {
    ($rest:literal) => {
        concat!(
            "SELECT sales.id AS sale_id, fences.fence, fences.state,
                COALESCE(allotments.units, 0) AS units, COALESCE(allotments.wanted, 0) AS wanted,
                (SELECT CAST(COALESCE(SUM(units_deducted), 0) AS SIGNED) FROM order_counts
                    WHERE order_counts.sale_id = sales.id
                        AND shard >= fences.fence * 64 AND shard < fences.fence * 64 + 64) AS ordered
            FROM sales CROSS JOIN fences
            LEFT JOIN allotments
                ON allotments.sale_id = sales.id AND allotments.fence = fences.fence
            WHERE sales.warmed_at_ms IS NOT NULL AND sales.archived_at_ms IS NULL ",
            $rest
        )
    };
}

// The statement above contains the number.
const _: () = assert!(SHARDS_MAX == 64);

const SELECT_STOCKS: &str =
    select_stocks!("AND sales.ends_at_ms > ? ORDER BY sales.id, fences.fence");

const SELECT_STOCKS_OF: &str = select_stocks!("AND sales.id = ? ORDER BY fences.fence");

const SELECT_ALLOTMENT: &str = "SELECT units FROM allotments WHERE sale_id = ? AND fence = ?";

const ADD_UNITS: &str = "UPDATE allotments SET units = units + ? WHERE sale_id = ? AND fence = ?";

const INSERT_ALLOTMENT: &str = "INSERT INTO allotments (units, sale_id, fence) VALUES (?, ?, ?)";

const SET_WANTED: &str = "UPDATE allotments SET wanted = ? WHERE sale_id = ? AND fence = ?";

// The first site has the shards of the time without sites, and so all units.
const ALLOT_ALL: &str = "
    INSERT INTO allotments (sale_id, fence, units)
    SELECT id, ?, total FROM sales WHERE warmed_at_ms IS NOT NULL AND archived_at_ms IS NULL";

const SELECT_LOADING: &str = "
    SELECT allotments.fence, fences.state
    FROM allotments JOIN fences ON fences.fence = allotments.fence
    WHERE sale_id = ? ORDER BY allotments.fence DESC";

const DELETE_ALLOTMENTS: &str = "DELETE FROM allotments WHERE sale_id = ?";

const MARK_WARMED: &str = "
    UPDATE sales SET warmed_at_ms = ? WHERE id = ? AND warmed_at_ms IS NULL";

// No Redis sells the units of a closed fence, so nothing follows its orders. MySQL changes no table that a subquery reads
// directly.
const FORGET_CLOSED: &str = "
    DELETE FROM unfollowed_orders WHERE order_id IN (
        SELECT id FROM (
            SELECT orders.id
            FROM unfollowed_orders CROSS JOIN orders ON orders.id = unfollowed_orders.order_id
            JOIN fences ON orders.shard >= fences.fence * 64 AND orders.shard < fences.fence * 64 + 64
            WHERE fences.state = 'closed'
        ) AS closed)";

const SEE_REDIS: &str = "UPDATE redis_seen SET site = ?, seen_at_ms = ? WHERE identity = ?";

const INSERT_REDIS: &str = "INSERT INTO redis_seen (site, seen_at_ms, identity) VALUES (?, ?, ?)";

const FORGET_REDIS: &str = "DELETE FROM redis_seen WHERE seen_at_ms < ?";

const SELECT_REDIS: &str = "
    SELECT site, COUNT(*) AS count FROM redis_seen WHERE seen_at_ms >= ? GROUP BY site ORDER BY site";

/// How long a Redis counts as used after an origin has last reported it, in milliseconds.
const REDIS_USED_MS: u64 = 60_000;

/// A fence of a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredFence {
    /// Its number.
    pub number: u32,
    /// The site that sells under it.
    pub site: SiteName,
    /// Its state.
    pub state: FenceState,
    /// When the site joined, in milliseconds since the Unix epoch.
    pub joined_at_ms: u64,
    /// When it was closed, in milliseconds since the Unix epoch.
    pub closed_at_ms: Option<u64>,
}

/// The outcome of an operator's command about a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SiteOutcome {
    /// The fence has changed.
    Done(StoredFence),
    /// The fence was in this state before.
    Unchanged(StoredFence),
    /// Nothing was changed.
    Refused(SiteRefusal),
}

/// Why a command about a site is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SiteRefusal {
    /// The site has never joined.
    #[error("no site has this name: see `weir-origin site list`")]
    Unknown,
    /// Nobody would sell.
    #[error("no other site sells: first join another one with `weir-origin site join`")]
    Last,
    /// A closed fence cannot drain.
    #[error("the site does not sell: nothing is left to drain")]
    Closed,
    /// A site that drains keeps its fence until it is closed.
    #[error(
        "the site still drains: wait until `weir-origin site list` shows it as closed, or fail it"
    )]
    Draining,
}

/// Which site loads a sale's units into Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadTurn {
    /// This one.
    Here,
    /// The units are in Redis already.
    Done,
    /// Another one.
    Elsewhere,
}

impl SaleStore {
    /// The fence of this origin's site. Without sites, it asks no database.
    pub(super) async fn here(&self) -> Result<LocalFence, Error> {
        let Some(site) = &self.site else {
            return Ok(LocalFence::ALONE);
        };
        local_fence(self.db.one(sql(SELECT_HERE).text(site.as_str())).await?)
    }

    /// Like `here`, in a transaction.
    pub(super) async fn here_in(&self, tx: &mut Tx) -> Result<LocalFence, Error> {
        let Some(site) = &self.site else {
            return Ok(LocalFence::ALONE);
        };
        local_fence(tx.one(sql(SELECT_HERE).text(site.as_str())).await?)
    }
}

/// Sites in SQL.
#[derive(Clone, Copy, Debug)]
pub struct SiteStore<'a>(pub(super) &'a SaleStore);

impl SiteStore<'_> {
    /// The fence of this origin's site. Without sites, it asks no database.
    pub async fn here(self) -> Result<LocalFence, SqlError> {
        Ok(self.0.here().await?)
    }

    /// All fences, oldest first.
    pub async fn fences(self) -> Result<Vec<StoredFence>, SqlError> {
        let rows = self.0.db.all(sql(SELECT_FENCES)).await?;
        Ok(rows.iter().map(fence).collect::<Result<_, _>>()?)
    }

    /// Closes the fence of a site. From the commit on, no claim of the site becomes an order, and no transfer of it
    /// counts.
    pub async fn fail(self, site: &SiteName, now_ms: u64) -> Result<SiteOutcome, SqlError> {
        Ok(retried(|| fail_once(&self.0.db, site, now_ms)).await?)
    }

    /// Makes a site give its units to others. Claims of the site still become orders.
    pub async fn drain(self, site: &SiteName) -> Result<SiteOutcome, SqlError> {
        Ok(retried(|| drain_once(&self.0.db, site)).await?)
    }

    /// Gives a site a new fence, without units, unless it has one that sells. The first site of all gets all units.
    pub async fn join(self, site: &SiteName, now_ms: u64) -> Result<SiteOutcome, SqlError> {
        Ok(retried(|| join_once(&self.0.db, site, now_ms)).await?)
    }

    /// Joins the site of this origin if it has never joined. A failed site stays failed.
    pub async fn join_new(self, site: &SiteName, now_ms: u64) -> Result<(), SqlError> {
        let fences = self.fences().await?;
        if !fences.iter().any(|fence| fence.site == *site) {
            self.join(site, now_ms).await?;
        }
        Ok(())
    }

    /// Closes a draining fence if none of its units is left: in the sales that end after `ended_after_ms`, all are in
    /// orders. The caller knows that Redis has no open claim. Returns whether the fence is closed.
    pub async fn end_drain(
        self,
        fence: u32,
        ended_after_ms: u64,
        now_ms: u64,
    ) -> Result<bool, SqlError> {
        let once = || end_drain_once(&self.0.db, fence, ended_after_ms, now_ms);
        Ok(retried(once).await?)
    }

    /// What each fence has of each warmed sale that ends after `ended_after_ms`.
    pub async fn stocks(
        self,
        ended_after_ms: u64,
    ) -> Result<BTreeMap<SaleId, Vec<FenceStock>>, SqlError> {
        let rows = self.0.db.all(sql(SELECT_STOCKS).number(ended_after_ms));
        Ok(by_sale(&rows.await?)?)
    }

    /// What each fence has of a sale; empty if the sale is not warmed.
    pub async fn stocks_of(self, sale: &SaleId) -> Result<Vec<FenceStock>, SqlError> {
        let rows = self.0.db.all(sql(SELECT_STOCKS_OF).text(sale.as_str()));
        Ok(rows.await?.iter().map(stock).collect::<Result<_, _>>()?)
    }

    /// Moves the units of closed fences that are not in orders to another fence. Returns their number.
    pub async fn inherit(self, sale: &SaleId, now_ms: u64) -> Result<u64, SqlError> {
        Ok(retried(|| inherit_once(&self.0.db, sale, now_ms)).await?)
    }

    /// Records the number of units that a fence asks others for.
    pub async fn set_wanted(self, sale: &SaleId, fence: u32, units: u64) -> Result<(), SqlError> {
        let once = || async {
            let mut tx = self.0.db.begin().await?;
            set_wanted(&mut tx, sale, fence, units).await?;
            tx.commit().await
        };
        Ok(retried(once).await?)
    }

    /// Records a transfer of units between fences, with the units that each shard gives up. Returns `false` if the
    /// source is closed or has another open change.
    pub async fn begin_transfer(
        self,
        sale: &SaleId,
        from: u32,
        to: u32,
        shares: &[u64],
        now_ms: u64,
    ) -> Result<bool, SqlError> {
        let once = || begin_transfer_once(&self.0.db, sale, (from, to), shares, now_ms);
        Ok(retried(once).await?)
    }

    /// Which site loads the units of a sale. If it is this one, SQL records that, so that no other site does the same.
    pub async fn begin_load(self, sale: &SaleId) -> Result<LoadTurn, SqlError> {
        if self.0.site.is_none() {
            return Ok(LoadTurn::Here);
        }
        Ok(retried(|| begin_load_once(self.0, sale)).await?)
    }

    /// Records that this origin uses the Redis with this name.
    pub async fn see_redis(self, identity: &str, now_ms: u64) -> Result<(), SqlError> {
        let site = self.0.site.as_ref().map_or("", SiteName::as_str);
        let with = |statement| sql(statement).text(site).number(now_ms).text(identity);
        if self.0.db.execute(with(SEE_REDIS)).await? == 0 {
            self.0.db.insert(with(INSERT_REDIS)).await?;
        }
        let forget = sql(FORGET_REDIS).number(now_ms.saturating_sub(REDIS_USED_MS));
        self.0.db.execute(forget).await?;
        Ok(())
    }

    /// The number of different Redis that origins of each site use now; the name is empty without sites.
    pub async fn redis_by_site(self, now_ms: u64) -> Result<Vec<(String, u64)>, SqlError> {
        let select = sql(SELECT_REDIS).number(now_ms.saturating_sub(REDIS_USED_MS));
        let rows = self.0.db.all(select).await?;
        let count = |row: &Row| Ok((row.text("site")?, row.number("count")?));
        Ok(rows.iter().map(count).collect::<Result<_, Error>>()?)
    }

    /// Deletes what Redis has to follow of orders of closed fences.
    pub async fn forget_closed(self) -> Result<(), SqlError> {
        retried(|| self.0.db.execute(sql(FORGET_CLOSED))).await?;
        Ok(())
    }
}

async fn fail_once(db: &Database, site: &SiteName, now_ms: u64) -> Result<SiteOutcome, Error> {
    let mut tx = db.begin().await?;
    let fences = locked_fences(&mut tx).await?;
    let Some(own) = last_of(&fences, site) else {
        return Ok(SiteOutcome::Refused(SiteRefusal::Unknown));
    };
    if own.state == FenceState::Closed {
        return Ok(SiteOutcome::Unchanged(own.clone()));
    }
    if !has_other(&fences, own) {
        return Ok(SiteOutcome::Refused(SiteRefusal::Last));
    }
    close(&mut tx, own.number, now_ms).await?;
    tx.commit().await?;
    Ok(SiteOutcome::Done(StoredFence {
        state: FenceState::Closed,
        closed_at_ms: Some(now_ms),
        ..own.clone()
    }))
}

async fn drain_once(db: &Database, site: &SiteName) -> Result<SiteOutcome, Error> {
    let mut tx = db.begin().await?;
    let fences = locked_fences(&mut tx).await?;
    let Some(own) = last_of(&fences, site) else {
        return Ok(SiteOutcome::Refused(SiteRefusal::Unknown));
    };
    match own.state {
        FenceState::Live if has_other(&fences, own) => {}
        FenceState::Live => return Ok(SiteOutcome::Refused(SiteRefusal::Last)),
        FenceState::Draining => return Ok(SiteOutcome::Unchanged(own.clone())),
        FenceState::Closed => return Ok(SiteOutcome::Refused(SiteRefusal::Closed)),
    }
    tx.execute(sql(DRAIN).number(own.number)).await?;
    tx.commit().await?;
    Ok(SiteOutcome::Done(StoredFence {
        state: FenceState::Draining,
        ..own.clone()
    }))
}

async fn join_once(db: &Database, site: &SiteName, now_ms: u64) -> Result<SiteOutcome, Error> {
    loop {
        let mut tx = db.begin().await?;
        let fences = locked_fences(&mut tx).await?;
        match last_of(&fences, site) {
            Some(own) if own.state == FenceState::Live => {
                return Ok(SiteOutcome::Unchanged(own.clone()));
            }
            Some(own) if own.state == FenceState::Draining => {
                return Ok(SiteOutcome::Refused(SiteRefusal::Draining));
            }
            _ => {}
        }
        let last = fences.last().map(|fence| fence.number);
        let number = last.map_or(0, |last| last + 1);
        let insert = sql(INSERT_FENCE).number(number).text(site.as_str());
        if !tx.insert(insert.number(now_ms)).await? {
            // Another site has joined at the same time.
            tx.rollback().await?;
            continue;
        }
        if last.is_none() {
            tx.execute(sql(ALLOT_ALL).number(number)).await?;
        }
        tx.commit().await?;
        return Ok(SiteOutcome::Done(StoredFence {
            number,
            site: site.clone(),
            state: FenceState::Live,
            joined_at_ms: now_ms,
            closed_at_ms: None,
        }));
    }
}

async fn end_drain_once(
    db: &Database,
    number: u32,
    ended_after_ms: u64,
    now_ms: u64,
) -> Result<bool, Error> {
    let mut tx = db.begin().await?;
    let fences = locked_fences(&mut tx).await?;
    let is_draining =
        |fence: &StoredFence| fence.number == number && fence.state == FenceState::Draining;
    if !fences.iter().any(is_draining) {
        return Ok(false);
    }
    // An order that ends meanwhile waits, and is not followed in Redis, because the fence is closed then.
    let shards = LocalFence {
        number,
        state: FenceState::Draining,
    }
    .shards();
    let lock = sql(LOCK_COUNTS).number(shards.start).number(shards.end);
    tx.execute(lock).await?;
    if tx
        .one(sql(SELECT_OPEN_CHANGES).number(number))
        .await?
        .is_some()
    {
        return Ok(false);
    }
    let rows = tx.all(sql(SELECT_STOCKS).number(ended_after_ms)).await?;
    for row in &rows {
        let stock = stock(row)?;
        if stock.fence == number && stock.unsold() != 0 {
            return Ok(false);
        }
    }
    close(&mut tx, number, now_ms).await?;
    tx.commit().await?;
    Ok(true)
}

async fn close(tx: &mut Tx, fence: u32, now_ms: u64) -> Result<(), Error> {
    tx.execute(sql(CLOSE).number(now_ms).number(fence)).await?;
    tx.execute(sql(CLOSE_CHANGES).number(now_ms).number(fence))
        .await?;
    tx.execute(sql(CLOSE_REQUESTS).number(fence)).await?;
    Ok(())
}

async fn inherit_once(db: &Database, sale: &SaleId, now_ms: u64) -> Result<u64, Error> {
    let mut tx = db.begin().await?;
    shared_fences(&mut tx).await?;
    tx.execute(sql(LOCK_SALE).text(sale.as_str())).await?;
    let stocks = stocks_in(&mut tx, sale).await?;
    let mut moved = 0;
    for closed in &stocks {
        if let Some((heir, units)) = inherited(closed, &stocks) {
            let signed = i64::try_from(units).unwrap_or(i64::MAX);
            allot(&mut tx, sale, closed.fence, -signed).await?;
            add_to(&mut tx, sale, heir, signed, now_ms).await?;
            moved += units;
        }
    }
    tx.commit().await?;
    Ok(moved)
}

async fn begin_transfer_once(
    db: &Database,
    sale: &SaleId,
    (from, to): (u32, u32),
    shares: &[u64],
    now_ms: u64,
) -> Result<bool, Error> {
    let units: u64 = shares.iter().sum();
    let mut tx = db.begin().await?;
    let fences = shared_fences(&mut tx).await?;
    tx.execute(sql(LOCK_SALE).text(sale.as_str())).await?;
    let is_open = |fence: &StoredFence| fence.number == from && fence.state != FenceState::Closed;
    let has_change = !stock_changes::open_of(&mut tx, sale, from)
        .await?
        .is_empty();
    if units == 0 || has_change || !fences.iter().any(is_open) {
        return Ok(false);
    }
    set_wanted(&mut tx, sale, to, 0).await?;
    let transfer = StoredChange {
        fence: from,
        to_fence: Some(to),
        reason: ChangeReason::Transfer,
        requested: -i64::try_from(units).unwrap_or(i64::MAX),
        shares: shares.to_vec(),
        ..StoredChange::moved(sale, now_ms)
    };
    stock_changes::insert_next(&mut tx, &transfer).await?;
    tx.commit().await?;
    Ok(true)
}

async fn begin_load_once(store: &SaleStore, sale: &SaleId) -> Result<LoadTurn, Error> {
    let mut tx = store.db.begin().await?;
    let fences = shared_fences(&mut tx).await?;
    tx.execute(sql(LOCK_SALE).text(sale.as_str())).await?;
    let here = store.here_in(&mut tx).await?;
    let Some(stored) = select_one(&mut tx, sale, here).await? else {
        return Ok(LoadTurn::Here); // The caller reports that the sale is unknown.
    };
    if stored.warmed_at_ms.is_some() {
        return Ok(LoadTurn::Done);
    }
    let loading = loading_fence(&mut tx, sale).await?;
    let empty = |fence: &StoredFence| FenceStock {
        fence: fence.number,
        state: fence.state,
        units: 0,
        ordered: 0,
        wanted: 0,
    };
    let stocks: Vec<FenceStock> = fences.iter().map(empty).collect();
    if loading.or_else(|| heir(&stocks)) != Some(here.number) || !here.is_open() {
        return Ok(LoadTurn::Elsewhere);
    }
    if loading.is_none() {
        tx.execute(sql(DELETE_ALLOTMENTS).text(sale.as_str()))
            .await?;
        allot(&mut tx, sale, here.number, 0).await?;
    }
    tx.commit().await?;
    Ok(LoadTurn::Here)
}

/// The open fence that loads the units of a sale.
async fn loading_fence(tx: &mut Tx, sale: &SaleId) -> Result<Option<u32>, Error> {
    let rows = tx.all(sql(SELECT_LOADING).text(sale.as_str())).await?;
    for row in &rows {
        let number = row.number("fence")?;
        if state(row)? != FenceState::Closed {
            return Ok(Some(number));
        }
    }
    Ok(None)
}

/// Records that the units of a sale are in the Redis of a site. Returns `false` if another site has to load them.
pub(super) async fn mark_loaded(
    store: &SaleStore,
    sale: &SaleId,
    now_ms: u64,
) -> Result<bool, Error> {
    let mut tx = store.db.begin().await?;
    shared_fences(&mut tx).await?;
    tx.execute(sql(LOCK_SALE).text(sale.as_str())).await?;
    let here = store.here_in(&mut tx).await?;
    let Some(stored) = select_one(&mut tx, sale, here).await? else {
        return Ok(false);
    };
    if stored.warmed_at_ms.is_some() {
        return Ok(true);
    }
    if !here.is_open() || loading_fence(&mut tx, sale).await? != Some(here.number) {
        return Ok(false);
    }
    let total = i64::try_from(stored.fields.total).unwrap_or(i64::MAX);
    allot(&mut tx, sale, here.number, total).await?;
    let mark = sql(MARK_WARMED).number(now_ms).text(sale.as_str());
    tx.execute(mark).await?;
    tx.commit().await?;
    Ok(true)
}

/// The outcome of a transfer: `units` have left its source. Only those move that SQL has not sold there. Redis has given
/// up more if it had lost data; the reconciler adds these to the source again.
pub(super) async fn end_transfer(
    tx: &mut Tx,
    transfer: &StoredChange,
    to: u32,
    units: i64,
    now_ms: u64,
) -> Result<(), Error> {
    let sale = &transfer.sale;
    let stocks = stocks_in(tx, sale).await?;
    let source = stocks.iter().find(|stock| stock.fence == transfer.fence);
    let units = units.min(source.map_or(0, FenceStock::unsold));
    if units <= 0 {
        return Ok(());
    }
    allot(tx, sale, transfer.fence, -units).await?;
    let fences = shared_fences(tx).await?;
    let is_closed = |fence: &StoredFence| fence.number == to && fence.state == FenceState::Closed;
    match fences.iter().any(is_closed) {
        // They pay for its orders, or move on.
        true => allot(tx, sale, to, units).await,
        false => add_to(tx, sale, to, units, now_ms).await,
    }
}

/// Adds units to a fence's allotment, and records their addition to its shards.
async fn add_to(
    tx: &mut Tx,
    sale: &SaleId,
    fence: u32,
    units: i64,
    now_ms: u64,
) -> Result<(), Error> {
    allot(tx, sale, fence, units).await?;
    let Some(stored) = select_one(tx, sale, LocalFence::ALONE).await? else {
        return Ok(());
    };
    let arrival = StoredChange {
        fence,
        reason: ChangeReason::Arrival,
        requested: units,
        shares: spread_stock(units.unsigned_abs(), stored.sale.shards),
        ..StoredChange::moved(sale, now_ms)
    };
    stock_changes::insert_next(tx, &arrival).await
}

/// Adds units to a fence's allotment, or removes them if below 0.
pub(super) async fn allot(tx: &mut Tx, sale: &SaleId, fence: u32, units: i64) -> Result<(), Error> {
    let with = |statement| {
        sql(statement)
            .signed(units)
            .text(sale.as_str())
            .number(fence)
    };
    if tx.execute(with(ADD_UNITS)).await? == 0 {
        tx.insert(with(INSERT_ALLOTMENT)).await?;
    }
    Ok(())
}

async fn set_wanted(tx: &mut Tx, sale: &SaleId, fence: u32, units: u64) -> Result<(), Error> {
    let set = || {
        sql(SET_WANTED)
            .number(units)
            .text(sale.as_str())
            .number(fence)
    };
    if tx.execute(set()).await? == 0 && units > 0 {
        allot(tx, sale, fence, 0).await?;
        tx.execute(set()).await?;
    }
    Ok(())
}

/// The fence that gets the changes of operators; locks all fences, shared.
pub(super) async fn heir_of(tx: &mut Tx, sale: &SaleId) -> Result<Option<u32>, Error> {
    shared_fences(tx).await?;
    Ok(heir(&stocks_in(tx, sale).await?))
}

/// The units that Redis of a fence must have, with those in its orders, and its open stock change. Additions that wait
/// for another change are not in Redis.
pub(super) async fn local_units(
    tx: &mut Tx,
    sale: &SaleId,
    fence: u32,
) -> Result<(u64, Option<StockChange>), Error> {
    let select = sql(SELECT_ALLOTMENT).text(sale.as_str()).number(fence);
    let row = tx.one(select).await?;
    let allotted = row.map_or(Ok(0), |row| row.signed("units"))?;
    let open = stock_changes::open_of(tx, sale, fence).await?;
    let waiting = open.iter().skip(1).map(|change| change.requested.max(0));
    let units = allotted - waiting.sum::<i64>();
    let counted = open.first().map(StoredChange::counted);
    Ok((u64::try_from(units).unwrap_or(0), counted))
}

/// The order counts of the shards of a fence.
pub(super) async fn counts_of(
    tx: &mut Tx,
    sale: &SaleId,
    here: LocalFence,
) -> Result<Vec<super::ShardCounts>, Error> {
    let mut counts = counts::select(tx, sale).await?;
    counts.retain(|counts| fence_of(counts.shard) == here.number);
    Ok(counts)
}

async fn stocks_in(tx: &mut Tx, sale: &SaleId) -> Result<Vec<FenceStock>, Error> {
    let rows = tx.all(sql(SELECT_STOCKS_OF).text(sale.as_str())).await?;
    rows.iter().map(stock).collect()
}

/// Locks all fences for a change of one of them.
async fn locked_fences(tx: &mut Tx) -> Result<Vec<StoredFence>, Error> {
    tx.execute(sql(LOCK_FENCES)).await?;
    let rows = tx.all(sql(SELECT_FENCES)).await?;
    rows.iter().map(fence).collect()
}

/// Reads all fences. None changes until the transaction ends.
pub(super) async fn shared_fences(tx: &mut Tx) -> Result<Vec<StoredFence>, Error> {
    let select = match tx {
        Tx::Sqlite(_) => SELECT_FENCES,
        Tx::MySql(_) => SELECT_FENCES_SHARED,
    };
    let rows = tx.all(sql(select)).await?;
    rows.iter().map(fence).collect()
}

fn last_of<'a>(fences: &'a [StoredFence], site: &SiteName) -> Option<&'a StoredFence> {
    fences.iter().rev().find(|fence| fence.site == *site)
}

fn has_other(fences: &[StoredFence], own: &StoredFence) -> bool {
    let sells = |other: &StoredFence| other.number != own.number && other.state == FenceState::Live;
    fences.iter().any(sells)
}

fn by_sale(rows: &[Row]) -> Result<BTreeMap<SaleId, Vec<FenceStock>>, Error> {
    let mut sales = BTreeMap::<_, Vec<_>>::new();
    for row in rows {
        let id = sale_id(row, "sale_id")?;
        sales.entry(id).or_default().push(stock(row)?);
    }
    Ok(sales)
}

fn stock(row: &Row) -> Result<FenceStock, Error> {
    Ok(FenceStock {
        fence: row.number("fence")?,
        state: state(row)?,
        units: row.signed("units")?,
        ordered: row.signed("ordered")?,
        wanted: row.number("wanted")?,
    })
}

fn fence(row: &Row) -> Result<StoredFence, Error> {
    let site = row.text("site")?;
    Ok(StoredFence {
        number: row.number("fence")?,
        site: site.parse().map_err(|error| damaged("site", error))?,
        state: state(row)?,
        joined_at_ms: row.number("joined_at_ms")?,
        closed_at_ms: row.maybe("closed_at_ms")?,
    })
}

fn local_fence(row: Option<Row>) -> Result<LocalFence, Error> {
    let Some(row) = row else {
        return Ok(LocalFence::MISSING);
    };
    Ok(LocalFence {
        number: row.number("fence")?,
        state: state(&row)?,
    })
}

fn state(row: &Row) -> Result<FenceState, Error> {
    parse_state(&row.text("state")?)
}

/// Reads the label of a fence's state.
pub(super) fn parse_state(label: &str) -> Result<FenceState, Error> {
    let mut states = FenceState::ALL.into_iter();
    states
        .find(|state| state.label() == label)
        .ok_or_else(|| damaged("state", "is not a state of a fence"))
}
