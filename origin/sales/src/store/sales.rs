//! Sales, their switches and sums.

use std::sync::LazyLock;

use sqlx::Error;
use weir_base::id::SaleId;
use weir_sale::claim::Ticket;
use weir_sale::ledger::StockChange;
use weir_sale::sale::{Band, Catalogue, Degrade, Sale, SaleState};
use weir_sale::site::{FenceState, fence_of};

use super::{
    Balance, CreateError, EditRefusal, OrderCounts, SaleStore, SaleTotals, ShardCounts,
    StoredChange, StoredSale, SwitchChange, UpdateOutcome, claims, counts, draws, orders, payloads,
    sites, stock_changes, tenants,
};
use crate::model::sale::{INSTANT_MS_MAX, NewSale, Payment, SaleFields, Window};
use crate::model::site::LocalFence;
use weir_origin_core::sql::{
    Columns, Database, Row, SqlError, Tx, damaged, insert_into, retried, sql, update,
};
use weir_origin_core::tenants::{LimitExceeded, held_by};

static INSERT_SALE: LazyLock<String> = LazyLock::new(|| {
    let others = [
        "id",
        "shards",
        "state",
        "skip_risk",
        "skip_reservation",
        "static_page",
        "created_at_ms",
    ];
    insert_into::<SaleFields>("sales", &others)
});

static UPDATE_SALE: LazyLock<String> =
    LazyLock::new(|| update::<SaleFields>("sales", &["shards"]) + " WHERE id = ?");

const INSERT_STOCK: &str = "INSERT INTO stock (sale_id, remaining) VALUES (?, ?)";

const SET_STOCK: &str = "UPDATE stock SET remaining = ? WHERE sale_id = ?";

/// SELECT of the columns that [`stored`] reads, for the sales that `$rest` selects; `$more` adds columns.
macro_rules! select_sales {
    ($rest:literal) => {
        select_sales!("", $rest)
    };
    ($more:literal, $rest:literal) => {
        concat!(
            "SELECT sales.*, stock.remaining,
                CASE WHEN stock.remaining = 0 AND EXISTS (
                    SELECT 1 FROM order_counts
                    WHERE order_counts.sale_id = sales.id AND order_counts.unpaid > 0
                ) THEN 1 ELSE 0 END AS is_unpaid",
            $more,
            " FROM sales JOIN stock ON stock.sale_id = sales.id ",
            $rest
        )
    };
}
pub(super) use select_sales;

const SELECT_ONE: &str = select_sales!("WHERE sales.id = ?");

const SELECT_FOR_CLAIM: &str = select_sales!(
    ", (SELECT fences.state FROM fences WHERE fences.fence = ?) AS fence_state",
    "WHERE sales.id = ?"
);

const SELECT_FOR_CLAIM_SHARED: &str = select_sales!(
    ", (SELECT fences.state FROM fences WHERE fences.fence = ? LOCK IN SHARE MODE) AS fence_state",
    "WHERE sales.id = ?"
);

const SELECT_LIST: &str = select_sales!(
    "WHERE ends_at_ms < ? OR (ends_at_ms = ? AND id > ?)
    ORDER BY ends_at_ms DESC, id
    LIMIT ?"
);

const SELECT_LISTED: &str = select_sales!(
    "WHERE listed = 1 AND archived_at_ms IS NULL AND ends_at_ms > ?
    ORDER BY starts_at_ms, id
    LIMIT ?"
);

const SET_LISTED: &str = "UPDATE sales SET listed = ? WHERE id = ?";

// Gateways know a sale from its creation on, so that early buyers learn when it starts. Warmed sales come first.
const SELECT_CATALOGUE: &str = select_sales!(
    "WHERE archived_at_ms IS NULL AND ends_at_ms > ?
    ORDER BY CASE WHEN warmed_at_ms IS NULL THEN 1 ELSE 0 END, starts_at_ms, id
    LIMIT ?"
);

// The log contains every order change, with or without units. Both versions only grow, so their sum changes with
// either. If SQL loses commits and makes new ones, the sum may repeat, so `order_changes` is compared too.
const SELECT_RUNNING: &str = select_sales!(
    ",
        (SELECT COALESCE(MAX(id), 0) FROM change_log WHERE change_log.sale_id = sales.id)
        + (SELECT COUNT(*) FROM stock_changes
            WHERE stock_changes.sale_id = sales.id AND done_at_ms IS NOT NULL) AS version,
        (SELECT CAST(COALESCE(SUM(unpaid + paid + 2 * (cancelled + expired)), 0) AS SIGNED)
            FROM order_counts WHERE order_counts.sale_id = sales.id) AS order_changes",
    "WHERE warmed_at_ms IS NOT NULL AND archived_at_ms IS NULL AND ends_at_ms > ?
    ORDER BY starts_at_ms, id
    LIMIT ?"
);

const SET_STATE: &str = "
    UPDATE sales SET state = ?, skip_risk = ?, skip_reservation = ?, static_page = ?
    WHERE id = ?";

const CHANGE_SWITCH: &str = "
    UPDATE sales SET
        state = COALESCE(?, state), skip_risk = COALESCE(?, skip_risk),
        skip_reservation = COALESCE(?, skip_reservation), static_page = COALESCE(?, static_page)
    WHERE id = ?";

const SELECT_OUTCOMES: &str = "SELECT 1 AS one FROM claim_outcomes WHERE sale_id = ? LIMIT 1";

const SELECT_RESERVED: &str = "SELECT 1 AS one FROM reservations WHERE sale_id = ? LIMIT 1";

const SELECT_VERSION: &str = "
    SELECT COALESCE(MAX(id), 0) AS version FROM change_log WHERE sale_id = ?";

/// The setting with the global switch.
const GLOBAL_SWITCH: &str = "switch";

/// The setting with the version of the last catalogue.
const CATALOGUE_VERSION: &str = "catalogue_version";

// Locks the row without changing its value.
const LOCK_SETTING: &str = "UPDATE settings SET value = value WHERE name = ?";

const SELECT_SETTING: &str = "SELECT value FROM settings WHERE name = ?";

const UPDATE_SETTING: &str = "UPDATE settings SET value = ? WHERE name = ?";

const INSERT_SETTING: &str = "INSERT INTO settings (value, name) VALUES (?, ?)";

impl SaleStore {
    /// Creates an open sale with all units remaining. Returns false if the id exists.
    pub async fn create_sale(&self, new: &NewSale, now_ms: u64) -> Result<bool, CreateError> {
        match retried(|| create_once(&self.db, new, now_ms)).await {
            Ok(CreateOutcome::New) => Ok(true),
            Ok(CreateOutcome::Exists) => Ok(false),
            Ok(CreateOutcome::OverLimit(over)) => Err(over.into()),
            Err(error) => Err(SqlError::from(error).into()),
        }
    }

    /// Changes a sale before it starts; its switch stays unchanged.
    pub async fn update_sale(&self, new: &NewSale, now_ms: u64) -> Result<UpdateOutcome, SqlError> {
        Ok(retried(|| update_once(&self.db, new, now_ms)).await?)
    }

    /// Sets the switch and degraded modes of a sale at any time. Returns false if the sale does not exist.
    pub async fn set_state(
        &self,
        id: &SaleId,
        state: SaleState,
        degrade: Degrade,
    ) -> Result<bool, SqlError> {
        let set = || {
            sql(SET_STATE)
                .text(state.label())
                .number(degrade.skip_risk)
                .number(degrade.skip_reservation)
                .number(degrade.static_page)
                .text(id.as_str())
        };
        Ok(retried(|| self.db.execute(set())).await? == 1)
    }

    /// Changes some switches of a sale at any time, in one statement, so that concurrent changes of different switches
    /// do not overwrite each other. Returns false if the sale does not exist.
    pub async fn change_switch(
        &self,
        id: &SaleId,
        change: &SwitchChange,
    ) -> Result<bool, SqlError> {
        let set = || {
            let statement = sql(CHANGE_SWITCH);
            let statement = match change.state {
                Some(state) => statement.text(state.label()),
                None => statement.maybe(None),
            };
            statement
                .maybe(change.skip_risk.map(u64::from))
                .maybe(change.skip_reservation.map(u64::from))
                .maybe(change.static_page.map(u64::from))
                .text(id.as_str())
        };
        Ok(retried(|| self.db.execute(set())).await? == 1)
    }

    /// Returns the global switch; it is open unless it was set.
    pub async fn global_switch(&self) -> Result<SaleState, SqlError> {
        let row = self.db.one(sql(SELECT_SETTING).text(GLOBAL_SWITCH));
        match row.await? {
            Some(row) => Ok(parse_state(&row, "value")?),
            None => Ok(SaleState::default()),
        }
    }

    /// Sets the global switch.
    pub async fn set_global_switch(&self, state: SaleState) -> Result<(), SqlError> {
        let with = |statement: &'static str| sql(statement).text(state.label()).text(GLOBAL_SWITCH);
        if self.db.execute(with(UPDATE_SETTING)).await? == 0
            && !self.db.insert(with(INSERT_SETTING)).await?
        {
            // A concurrent request has inserted the row.
            self.db.execute(with(UPDATE_SETTING)).await?;
        }
        Ok(())
    }

    /// Returns the catalogue with a new version, which is later than all earlier ones: of two catalogues, the one with
    /// the later version was read later. Omits sales that ended before `ended_after_ms`, and those beyond `limit`.
    pub async fn next_catalogue(
        &self,
        ended_after_ms: u64,
        limit: usize,
        now_ms: u64,
    ) -> Result<Catalogue, SqlError> {
        let read = || next_catalogue_once(self, ended_after_ms, limit, now_ms);
        Ok(retried(read).await?)
    }

    /// Returns a sale.
    pub async fn sale(&self, id: &SaleId) -> Result<Option<StoredSale>, SqlError> {
        let here = self.here().await?;
        let row = self.db.one(sql(SELECT_ONE).text(id.as_str())).await?;
        Ok(row.as_ref().map(|row| stored(row, here)).transpose()?)
    }

    /// Returns a sale and its sums, from one consistent snapshot.
    pub async fn totals(&self, id: &SaleId) -> Result<Option<SaleTotals>, SqlError> {
        // All values are from one snapshot.
        let mut tx = self.db.snapshot().await?;
        let here = self.here_in(&mut tx).await?;
        let Some(stored) = select_one(&mut tx, id, here).await? else {
            return Ok(None);
        };
        let version = tx.one(sql(SELECT_VERSION).text(id.as_str())).await?;
        let version = version.map_or(Ok(0), |row| row.number("version"))?;
        let (units_here, open_change) = self.local_units(&mut tx, &stored, here).await?;
        let mut totals = SaleTotals {
            has_changes: open_change.is_some() || stored.topped_up > 0 || stored.withdrawn > 0,
            open_change,
            units_here,
            units_deducted_here: 0,
            stored,
            orders: OrderCounts::default(),
            units_deducted: 0,
            units_deferred: 0,
            has_outcomes: has_outcomes(&mut tx, id).await?,
            version,
        };
        for counts in counts::select(&mut tx, id).await? {
            totals.add(&counts);
            if fence_of(counts.shard) == here.number {
                totals.units_deducted_here += counts.units_deducted;
            }
        }
        tx.rollback().await?;
        Ok(Some(totals))
    }

    /// Returns a sale's units in SQL, given the open claims in Redis; `None` if the sale does not exist, or the fence
    /// of this origin's site is closed.
    pub async fn balance(&self, id: &SaleId, open: &[Ticket]) -> Result<Option<Balance>, SqlError> {
        let mut tx = self.db.snapshot().await?;
        let here = self.here_in(&mut tx).await?;
        let Some(stored) = select_one(&mut tx, id, here).await? else {
            return Ok(None);
        };
        if !here.is_open() {
            return Ok(None);
        }
        let (total, open_change) = self.local_units(&mut tx, &stored, here).await?;
        let counts = sites::counts_of(&mut tx, id, here).await?;
        let ordered = match self.site {
            Some(_) => counts.iter().map(|counts| counts.units_deducted).sum(),
            None => total.saturating_sub(stored.remaining),
        };
        let balance = Balance {
            first_shard: here.first_shard(),
            total,
            topped_up: stored.topped_up,
            withdrawn: stored.withdrawn,
            open_change,
            ordered,
            held: claims::held_units(&mut tx, open).await?,
            is_followed: orders::is_followed(&mut tx, id, self.followed_shards(here)).await?,
            counts,
        };
        tx.rollback().await?;
        Ok(Some(balance))
    }

    /// The units that Redis here must have, with those in orders, and the open change.
    async fn local_units(
        &self,
        tx: &mut Tx,
        stored: &StoredSale,
        here: LocalFence,
    ) -> Result<(u64, Option<StockChange>), Error> {
        let id = &stored.sale.id;
        if self.site.is_some() {
            return sites::local_units(tx, id, here.number).await;
        }
        let open = stock_changes::open_of(tx, id, here.number).await?;
        let counted = open.first().map(StoredChange::counted);
        Ok((stored.fields.total, counted))
    }

    /// Returns up to `limit` sales, latest end first, after the sale with end `after.0` and id `after.1`.
    pub async fn sales(
        &self,
        after: Option<(u64, &SaleId)>,
        limit: usize,
    ) -> Result<Vec<StoredSale>, SqlError> {
        // The first page: no sale ends that late.
        let (ends_at_ms, id) = after.map_or((INSTANT_MS_MAX + 1, ""), |(ends_at_ms, id)| {
            (ends_at_ms.min(INSTANT_MS_MAX + 1), id.as_str())
        });
        let select = sql(SELECT_LIST).number(ends_at_ms).number(ends_at_ms);
        let here = self.here().await?;
        let rows = self.db.all(select.text(id).number(limit)).await?;
        let rows = rows.iter().map(|row| stored(row, here));
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Returns up to `limit` listed sales that end after `ended_after_ms`, earliest start first.
    pub async fn listed(
        &self,
        ended_after_ms: u64,
        limit: usize,
    ) -> Result<Vec<StoredSale>, SqlError> {
        let here = self.here().await?;
        let select = sql(SELECT_LISTED).number(ended_after_ms).number(limit);
        let rows = self.db.all(select).await?;
        let rows = rows.iter().map(|row| stored(row, here));
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Lists or unlists a sale, at any time.
    pub async fn set_listed(&self, id: &SaleId, listed: bool) -> Result<(), SqlError> {
        let set = || sql(SET_LISTED).number(listed).text(id.as_str());
        retried(|| self.db.execute(set())).await?;
        Ok(())
    }

    /// Returns up to `limit` sales that end after `ended_after_ms`: warmed ones first, then by start time.
    pub async fn catalogue(
        &self,
        ended_after_ms: u64,
        limit: usize,
    ) -> Result<Vec<StoredSale>, SqlError> {
        let here = self.here().await?;
        let select = sql(SELECT_CATALOGUE).number(ended_after_ms).number(limit);
        let rows = self.db.all(select).await?;
        rows.iter().map(|row| Ok(stored(row, here)?)).collect()
    }

    /// Returns up to `limit` warmed sales that end after `ended_after_ms`, by start time. Each has the version of its
    /// orders and stock changes, and the total number of order changes. None is returned while the fence of this origin's
    /// site is closed.
    pub async fn running(
        &self,
        ended_after_ms: u64,
        limit: usize,
    ) -> Result<Vec<(StoredSale, [u64; 2])>, SqlError> {
        let here = self.here().await?;
        if !here.is_open() {
            return Ok(Vec::new());
        }
        let select = sql(SELECT_RUNNING).number(ended_after_ms).number(limit);
        let rows = self.db.all(select).await?;
        let sale = |row: &Row| {
            let versions = [row.number("version")?, row.number("order_changes")?];
            Ok((stored(row, here)?, versions))
        };
        rows.iter().map(sale).collect()
    }
}

impl SaleTotals {
    fn add(&mut self, counts: &ShardCounts) {
        self.orders += counts.orders;
        self.units_deducted += counts.units_deducted;
        self.units_deferred += counts.units_deferred;
    }
}

async fn next_catalogue_once(
    store: &SaleStore,
    ended_after_ms: u64,
    limit: usize,
    now_ms: u64,
) -> Result<Catalogue, Error> {
    let mut tx = store.db.begin().await?;
    // Take the version first: it locks the row, so a concurrent call waits and reads the sales after this one.
    let version = next_version(&mut tx, now_ms).await?;
    let here = store.here_in(&mut tx).await?;
    let select = sql(SELECT_CATALOGUE).number(ended_after_ms).number(limit);
    let rows = tx.all(select).await?;
    let sales = rows.iter().map(|row| Ok(stored(row, here)?.sale));
    let sales = sales.collect::<Result<_, Error>>()?;
    let switch = tx.one(sql(SELECT_SETTING).text(GLOBAL_SWITCH)).await?;
    let switch = switch.map_or(Ok(SaleState::default()), |row| parse_state(&row, "value"))?;
    tx.commit().await?;
    Ok(Catalogue {
        version,
        switch,
        sales,
        ..Catalogue::default()
    })
}

/// Returns the last version plus one, and at least the time, so that versions grow even if SQL is restored from a
/// backup.
async fn next_version(tx: &mut Tx, now_ms: u64) -> Result<u64, Error> {
    let insert = sql(INSERT_SETTING).text("0").text(CATALOGUE_VERSION);
    if tx
        .execute(sql(LOCK_SETTING).text(CATALOGUE_VERSION))
        .await?
        == 0
    {
        tx.insert(insert).await?;
    }
    let row = tx.one(sql(SELECT_SETTING).text(CATALOGUE_VERSION)).await?;
    let last = row.map_or(Ok("0".into()), |row| row.text("value"))?;
    let last: u64 = last
        .parse()
        .map_err(|error| damaged("catalogue_version", error))?;
    let version = (last + 1).max(now_ms);
    let text = version.to_string();
    tx.execute(sql(UPDATE_SETTING).text(&text).text(CATALOGUE_VERSION))
        .await?;
    Ok(version)
}

/// The outcome of one attempt to create a sale.
enum CreateOutcome {
    New,
    /// The id exists already.
    Exists,
    /// Its tenant would exceed a limit.
    OverLimit(LimitExceeded),
}

async fn create_once(db: &Database, new: &NewSale, now_ms: u64) -> Result<CreateOutcome, Error> {
    let mut tx = db.begin().await?;
    let tenant = held_by(&mut tx, new.id.as_str()).await?;
    let insert = new.fields.bind(sql(&INSERT_SALE)).text(new.id.as_str());
    let insert = insert.number(new.shards).text(SaleState::Open.label());
    let insert = insert.number(false).number(false).number(false);
    let insert = insert.number(now_ms);
    if !tx.insert(insert).await? {
        tx.rollback().await?;
        return Ok(CreateOutcome::Exists);
    }
    if let Some(over) =
        tenants::over(&mut tx, tenant.as_ref(), &new.id, new.fields.total, true).await?
    {
        tx.rollback().await?;
        return Ok(CreateOutcome::OverLimit(over));
    }
    let stock = sql(INSERT_STOCK)
        .text(new.id.as_str())
        .number(new.fields.total);
    tx.execute(stock).await?;
    payloads::set_schema(&mut tx, &new.id, new.payload_schema.as_ref()).await?;
    draws::set(&mut tx, &new.id, new.draw).await?;
    tx.commit().await?;
    Ok(CreateOutcome::New)
}

async fn update_once(db: &Database, new: &NewSale, now_ms: u64) -> Result<UpdateOutcome, Error> {
    let mut tx = db.begin().await?;
    let tenant = held_by(&mut tx, new.id.as_str()).await?;
    let Some(old) = select_one(&mut tx, &new.id, LocalFence::ALONE).await? else {
        return Ok(UpdateOutcome::Unknown);
    };
    if let Some(refusal) = refusal(&mut tx, &old, new, now_ms).await? {
        return Ok(UpdateOutcome::Refused(refusal));
    }
    let tenant = tenant
        .as_ref()
        .filter(|_| new.fields.total > old.fields.total);
    if let Some(over) = tenants::over(&mut tx, tenant, &new.id, new.fields.total, false).await? {
        return Ok(UpdateOutcome::Refused(over.into()));
    }
    let changed = new.fields.bind(sql(&UPDATE_SALE)).number(new.shards);
    tx.execute(changed.text(new.id.as_str())).await?;
    let stock = sql(SET_STOCK)
        .number(new.fields.total)
        .text(new.id.as_str());
    tx.execute(stock).await?;
    payloads::set_schema(&mut tx, &new.id, new.payload_schema.as_ref()).await?;
    draws::set(&mut tx, &new.id, new.draw).await?;
    tx.commit().await?;
    Ok(UpdateOutcome::Done)
}

/// Checks whether a sale can be changed: only before its start and its first order. Stock, shards and the need for a
/// reservation can change only before the warm-up.
async fn refusal(
    tx: &mut Tx,
    old: &StoredSale,
    new: &NewSale,
    now_ms: u64,
) -> Result<Option<EditRefusal>, Error> {
    if now_ms >= old.sale.starts_at_ms || has_outcomes(tx, &new.id).await? {
        return Ok(Some(EditRefusal::Started));
    }
    if is_drawing(tx, old, new, now_ms).await? {
        return Ok(Some(EditRefusal::Drawing));
    }
    let on_redis = (old.fields.total, old.sale.shards, old.sale.reservation);
    let requested = (
        new.fields.total,
        new.shards,
        new.fields.reservation.is_some(),
    );
    let fixed = old.warmed_at_ms.is_some() && on_redis != requested;
    Ok(fixed.then_some(EditRefusal::Warmed))
}

/// Whether the change would affect a draw that users may rely on, because reservations have opened.
async fn is_drawing(
    tx: &mut Tx,
    old: &StoredSale,
    new: &NewSale,
    now_ms: u64,
) -> Result<bool, Error> {
    let draw = draws::in_transaction(tx, &new.id).await?;
    let winners = draw.as_ref().map(|draw| draw.winners);
    let stays = winners == new.draw.map(|draw| draw.winners)
        && old.fields.reservation == new.fields.reservation;
    let has_opened = |window: Option<Window>| window.is_some_and(|w| w.from_ms <= now_ms);
    let is_draws = draw.is_some() || new.draw.is_some();
    if !is_draws || stays {
        return Ok(false);
    }
    // Users who reserved before there was a draw have no ticket.
    let reserved = tx.one(sql(SELECT_RESERVED).text(new.id.as_str()));
    Ok(has_opened(old.fields.reservation) || reserved.await?.is_some())
}

/// Reads a sale in a transaction.
pub(super) async fn select_one(
    tx: &mut Tx,
    id: &SaleId,
    here: LocalFence,
) -> Result<Option<StoredSale>, Error> {
    let row = tx.one(sql(SELECT_ONE).text(id.as_str())).await?;
    row.as_ref().map(|row| stored(row, here)).transpose()
}

/// Reads the sale of a claim, and whether the fence of the claim's shard is closed. No fence changes until the
/// transaction ends. One statement, so that sites cost no call.
pub(super) async fn select_for_claim(
    tx: &mut Tx,
    id: &SaleId,
    shard: u32,
) -> Result<Option<(StoredSale, bool)>, Error> {
    let select = match tx {
        Tx::Sqlite(_) => SELECT_FOR_CLAIM,
        Tx::MySql(_) => SELECT_FOR_CLAIM_SHARED,
    };
    let row = tx
        .one(sql(select).number(fence_of(shard)).text(id.as_str()))
        .await?;
    let Some(row) = row else { return Ok(None) };
    let state = row.maybe_text("fence_state")?;
    let state = state.map(|state| sites::parse_state(&state)).transpose()?;
    // Nobody has sold under a fence that does not exist.
    let is_closed = state.is_none_or(|state| state == FenceState::Closed);
    Ok(Some((stored(&row, LocalFence::ALONE)?, is_closed)))
}

async fn has_outcomes(tx: &mut Tx, id: &SaleId) -> Result<bool, Error> {
    let row = tx.one(sql(SELECT_OUTCOMES).text(id.as_str())).await?;
    Ok(row.is_some())
}

/// Reads a sale as the site with the fence `here` sells it.
pub(super) fn stored(row: &Row, here: LocalFence) -> Result<StoredSale, Error> {
    let fields = SaleFields::read(row)?;
    let remaining = row.number("remaining")?;
    Ok(StoredSale {
        sale: sale(row, &fields, band(row, &fields, remaining)?, here)?,
        fields,
        topped_up: row.number("topped_up")?,
        withdrawn: row.number("withdrawn")?,
        remaining,
        created_at_ms: row.number("created_at_ms")?,
        warmed_at_ms: row.maybe("warmed_at_ms")?,
        archived_at_ms: row.maybe("archived_at_ms")?,
        paused_at_ms: row.maybe("paused_at_ms")?,
        pauses: row.number("pauses")?,
    })
}

/// The stock level. A sale with unpaid holds is not sold out, because their units may return.
fn band(row: &Row, fields: &SaleFields, remaining: u64) -> Result<Band, Error> {
    let holds = matches!(fields.payment, Payment::Hold { .. });
    Ok(match Band::from_remaining(remaining, fields.total) {
        Band::None if holds && row.flag("is_unpaid")? => Band::Reserved,
        band => band,
    })
}

fn sale(row: &Row, fields: &SaleFields, band: Band, here: LocalFence) -> Result<Sale, Error> {
    Ok(Sale {
        id: sale_id(row, "id")?,
        starts_at_ms: fields.starts_at_ms,
        ends_at_ms: fields.ends_at_ms,
        shards: row.number("shards")?,
        first_shard: here.first_shard(),
        user_cap: fields.user_cap,
        state: parse_state(row, "state")?,
        reservation: fields.reservation.is_some(),
        token: fields.token,
        challenge: fields.challenge,
        degrade: Degrade {
            skip_risk: row.flag("skip_risk")?,
            skip_reservation: row.flag("skip_reservation")?,
            static_page: row.flag("static_page")?,
        },
        sku: fields.sku.clone(),
        cold: row.maybe("warmed_at_ms")?.is_none() || !here.is_open(),
        band,
        paused: row.maybe("paused_at_ms")?.is_some(),
    })
}

fn parse_state(row: &Row, column: &str) -> Result<SaleState, Error> {
    let word = row.text(column)?;
    let mut states = SaleState::ALL.into_iter();
    states
        .find(|state| state.label() == word)
        .ok_or_else(|| damaged(column, "is not a state"))
}

pub(super) fn sale_id(row: &Row, column: &str) -> Result<SaleId, Error> {
    SaleId::new(row.text(column)?).map_err(|error| damaged(column, error))
}
