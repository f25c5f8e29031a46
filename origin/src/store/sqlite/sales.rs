//! Sales in SQLite.

use sqlx::sqlite::{SqlitePool, SqliteRow};
use sqlx::{Error, Row, query};
use weir_core::id::SaleId;
use weir_core::sale::{Band, Degrade, Sale};

use super::to_sql;
use crate::new_sale::NewSale;
use crate::store::{SaleTotals, StoredSale, parse_state, state_text};

const INSERT_SALE: &str = "
    INSERT INTO sales
        (id, title, total, shards, user_cap, starts_at_ms, ends_at_ms, state, created_at_ms)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT DO NOTHING";

const INSERT_STOCK: &str = "INSERT INTO stock (sale_id, remaining) VALUES (?, ?)";

// One statement, so that all its numbers are of one instant.
const SELECT_ONE: &str = "
    SELECT sales.*, stock.remaining,
        (SELECT COUNT(*) FROM orders WHERE sale_id = sales.id) AS orders,
        (SELECT COALESCE(SUM(quantity), 0) FROM orders WHERE sale_id = sales.id) AS units_ordered,
        EXISTS (SELECT 1 FROM claim_outcomes WHERE sale_id = sales.id) AS has_outcomes
    FROM sales JOIN stock ON stock.sale_id = sales.id
    WHERE sales.id = ?";

const SELECT_LIST: &str = "
    SELECT sales.*, stock.remaining
    FROM sales JOIN stock ON stock.sale_id = sales.id
    ORDER BY ends_at_ms DESC, id
    LIMIT ?";

const SELECT_CATALOGUE: &str = "
    SELECT * FROM sales
    WHERE warmed_at_ms IS NOT NULL AND ends_at_ms > ?
    ORDER BY starts_at_ms, id
    LIMIT ?";

const MARK_WARMED: &str = "
    UPDATE sales SET warmed_at_ms = ? WHERE id = ? AND warmed_at_ms IS NULL";

pub(super) async fn create(pool: &SqlitePool, new: &NewSale, now_ms: u64) -> Result<bool, Error> {
    let mut tx = pool.begin_with("BEGIN IMMEDIATE").await?;
    let inserted = query(INSERT_SALE)
        .bind(new.id.as_str())
        .bind(&new.title)
        .bind(to_sql(new.total))
        .bind(new.shards)
        .bind(new.user_cap)
        .bind(to_sql(new.starts_at_ms))
        .bind(to_sql(new.ends_at_ms))
        .bind(state_text(weir_core::sale::SaleState::Open))
        .bind(to_sql(now_ms))
        .execute(&mut *tx)
        .await?;
    if inserted.rows_affected() == 0 {
        tx.rollback().await?;
        return Ok(false);
    }
    query(INSERT_STOCK)
        .bind(new.id.as_str())
        .bind(to_sql(new.total))
        .execute(&mut *tx)
        .await?;
    tx.commit().await?;
    Ok(true)
}

pub(super) async fn one(pool: &SqlitePool, id: &SaleId) -> Result<Option<SaleTotals>, Error> {
    let row = query(SELECT_ONE)
        .bind(id.as_str())
        .fetch_optional(pool)
        .await?;
    row.map(|row| {
        Ok(SaleTotals {
            stored: stored(&row)?,
            orders: unsigned(&row, "orders")?,
            units_ordered: unsigned(&row, "units_ordered")?,
            has_outcomes: row.try_get("has_outcomes")?,
        })
    })
    .transpose()
}

pub(super) async fn list(pool: &SqlitePool, limit: usize) -> Result<Vec<StoredSale>, Error> {
    let rows = query(SELECT_LIST)
        .bind(to_sql(limit as u64))
        .fetch_all(pool)
        .await?;
    rows.iter().map(stored).collect()
}

pub(super) async fn catalogue(
    pool: &SqlitePool,
    ended_after_ms: u64,
    limit: usize,
) -> Result<Vec<Sale>, Error> {
    let rows = query(SELECT_CATALOGUE)
        .bind(to_sql(ended_after_ms))
        .bind(to_sql(limit as u64))
        .fetch_all(pool)
        .await?;
    rows.iter().map(sale).collect()
}

pub(super) async fn mark_warmed(pool: &SqlitePool, id: &SaleId, now_ms: u64) -> Result<(), Error> {
    query(MARK_WARMED)
        .bind(to_sql(now_ms))
        .bind(id.as_str())
        .execute(pool)
        .await?;
    Ok(())
}

fn stored(row: &SqliteRow) -> Result<StoredSale, Error> {
    let warmed_at_ms: Option<i64> = row.try_get("warmed_at_ms")?;
    Ok(StoredSale {
        sale: sale(row)?,
        title: row.try_get("title")?,
        total: unsigned(row, "total")?,
        remaining: unsigned(row, "remaining")?,
        created_at_ms: unsigned(row, "created_at_ms")?,
        warmed_at_ms: warmed_at_ms.map(i64::cast_unsigned),
    })
}

fn sale(row: &SqliteRow) -> Result<Sale, Error> {
    let id: String = row.try_get("id")?;
    let state: String = row.try_get("state")?;
    Ok(Sale {
        id: SaleId::new(id).map_err(|error| damaged("id", error))?,
        starts_at_ms: unsigned(row, "starts_at_ms")?,
        ends_at_ms: unsigned(row, "ends_at_ms")?,
        shards: row.try_get("shards")?,
        user_cap: row.try_get("user_cap")?,
        state: parse_state(&state).ok_or_else(|| damaged("state", "names no state"))?,
        reservation: false,
        token: false,
        degrade: Degrade::default(),
        band: Band::default(),
    })
}

/// A column that holds no negative number, by its CHECK or by what is written there.
pub(super) fn unsigned(row: &SqliteRow, column: &str) -> Result<u64, Error> {
    let number: i64 = row.try_get(column)?;
    u64::try_from(number).map_err(|error| damaged(column, error))
}

/// A row that no Weir has written.
pub(super) fn damaged(
    column: &str,
    error: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> Error {
    Error::ColumnDecode {
        index: column.to_owned(),
        source: error.into(),
    }
}
