//! Orders in SQLite.

use sqlx::sqlite::{SqlitePool, SqliteRow};
use sqlx::{Error, Row, query};
use weir_core::id::{SaleId, UserId};
use weir_core::ledger::{Deduction, OrderEntry};

use super::sales::{damaged, unsigned};
use super::to_sql;

// An order's id is `<sale>.<shard>.<generation>`, and a sale's id has neither `.` nor a wildcard.
const SELECT_PAGE: &str = "
    SELECT user_id, quantity, CAST(SUBSTR(id, LENGTH(?1) + 1) AS INTEGER) AS generation
    FROM orders
    WHERE sale_id = ?2 AND SUBSTR(id, 1, LENGTH(?1)) = ?1 AND generation > ?3
    ORDER BY generation
    LIMIT ?4";

pub(super) async fn page(
    pool: &SqlitePool,
    sale: &SaleId,
    shard: u32,
    after: u64,
    limit: usize,
) -> Result<Vec<(UserId, OrderEntry)>, Error> {
    let rows = query(SELECT_PAGE)
        .bind(format!("{sale}.{shard}."))
        .bind(sale.as_str())
        .bind(to_sql(after))
        .bind(to_sql(limit as u64))
        .fetch_all(pool)
        .await?;
    rows.iter().map(entry).collect()
}

fn entry(row: &SqliteRow) -> Result<(UserId, OrderEntry), Error> {
    let user: String = row.try_get("user_id")?;
    let user = UserId::new(user).map_err(|error| damaged("user_id", error))?;
    let order = OrderEntry {
        generation: unsigned(row, "generation")?,
        units: unsigned(row, "quantity")?,
        deduction: Deduction::AtOrder,
    };
    Ok((user, order))
}
