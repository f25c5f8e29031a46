//! The fates of claims in SQLite.

use sqlx::sqlite::{SqliteConnection, SqlitePool};
use sqlx::{Error, Row, query};
use weir_core::claim::Ticket;

use super::to_sql;
use crate::store::{Placed, Shortage};

const INSERT_OUTCOME: &str = "
    INSERT INTO claim_outcomes (claim_id, sale_id, user_id, outcome, void, at_ms)
    VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT DO NOTHING";

const SELECT_OUTCOME: &str = "SELECT user_id, outcome, void FROM claim_outcomes WHERE claim_id = ?";

const INSERT_ORDER: &str = "
    INSERT INTO orders (id, sale_id, user_id, quantity, created_at_ms)
    VALUES (?, ?, ?, ?, ?)";

const INSERT_CHANGE: &str = "
    INSERT INTO change_log (sale_id, order_id, units, reason, at_ms)
    VALUES (?, ?, ?, 'order', ?)";

const TAKE_STOCK: &str = "
    UPDATE stock SET remaining = remaining - ? WHERE sale_id = ? AND remaining >= ?";

/// What is decided about a claim.
#[derive(Clone, Copy)]
enum Outcome {
    Ordered,
    Released,
    Void,
}

pub(super) async fn place(
    pool: &SqlitePool,
    ticket: &Ticket,
    now_ms: u64,
) -> Result<Placed, Error> {
    // IMMEDIATE: a transaction that first reads and then writes could find the file locked half
    // way.
    let mut tx = pool.begin_with("BEGIN IMMEDIATE").await?;
    let placed = place_in(&mut tx, ticket, now_ms).await?;
    if placed == Placed::New {
        tx.commit().await?;
    } else {
        tx.rollback().await?;
    }
    Ok(placed)
}

/// The steps, in the design's order. Whatever but [`Placed::New`] comes of them is rolled back.
async fn place_in(
    tx: &mut SqliteConnection,
    ticket: &Ticket,
    now_ms: u64,
) -> Result<Placed, Error> {
    if !insert_outcome(tx, ticket, Outcome::Ordered, now_ms).await? {
        return known_outcome(tx, ticket).await;
    }
    if !insert_order(tx, ticket, now_ms).await? {
        return Ok(Placed::Short(Shortage::UnknownSale));
    }
    insert_change(tx, ticket, now_ms).await?;
    if !take_stock(tx, ticket).await? {
        return Ok(Placed::Short(Shortage::SoldOut));
    }
    Ok(Placed::New)
}

pub(super) async fn void(pool: &SqlitePool, ticket: &Ticket, now_ms: u64) -> Result<bool, Error> {
    let mut tx = pool.begin_with("BEGIN IMMEDIATE").await?;
    let won = insert_outcome(&mut tx, ticket, Outcome::Void, now_ms).await?;
    tx.commit().await?;
    Ok(won)
}

/// `None` if it is released now, else its known fate.
pub(super) async fn release(
    pool: &SqlitePool,
    ticket: &Ticket,
    now_ms: u64,
) -> Result<Option<Placed>, Error> {
    let mut tx = pool.begin_with("BEGIN IMMEDIATE").await?;
    if insert_outcome(&mut tx, ticket, Outcome::Released, now_ms).await? {
        tx.commit().await?;
        return Ok(None);
    }
    let known = known_outcome(&mut tx, ticket).await?;
    tx.rollback().await?;
    Ok(Some(known))
}

/// Decides the claim's fate; false if it was decided before.
async fn insert_outcome(
    tx: &mut SqliteConnection,
    ticket: &Ticket,
    outcome: Outcome,
    now_ms: u64,
) -> Result<bool, Error> {
    let (outcome, void) = match outcome {
        Outcome::Ordered => ("ordered", false),
        Outcome::Released => ("released", false),
        Outcome::Void => ("released", true),
    };
    let inserted = query(INSERT_OUTCOME)
        .bind(ticket.claim_id().to_string())
        .bind(ticket.sale.as_str())
        .bind(ticket.user.as_str())
        .bind(outcome)
        .bind(void)
        .bind(to_sql(now_ms))
        .execute(tx)
        .await?;
    Ok(inserted.rows_affected() == 1)
}

/// The fate that was decided before.
async fn known_outcome(tx: &mut SqliteConnection, ticket: &Ticket) -> Result<Placed, Error> {
    let row = query(SELECT_OUTCOME)
        .bind(ticket.claim_id().to_string())
        .fetch_one(tx)
        .await?;
    let user: String = row.try_get("user_id")?;
    let outcome: String = row.try_get("outcome")?;
    if user != ticket.user.as_str() {
        return Ok(Placed::NameTaken);
    }
    // The column's CHECK leaves no third.
    if outcome == "ordered" {
        return Ok(Placed::Again);
    }
    let void = row.try_get("void")?;
    Ok(Placed::Released { void })
}

/// Inserts the order; false if there is no such sale.
async fn insert_order(
    tx: &mut SqliteConnection,
    ticket: &Ticket,
    now_ms: u64,
) -> Result<bool, Error> {
    let inserted = query(INSERT_ORDER)
        .bind(ticket.claim_id().to_string())
        .bind(ticket.sale.as_str())
        .bind(ticket.user.as_str())
        .bind(ticket.quantity)
        .bind(to_sql(now_ms))
        .execute(tx)
        .await;
    match inserted {
        Ok(_) => Ok(true),
        Err(Error::Database(error)) if error.is_foreign_key_violation() => Ok(false),
        Err(error) => Err(error),
    }
}

async fn insert_change(
    tx: &mut SqliteConnection,
    ticket: &Ticket,
    now_ms: u64,
) -> Result<(), Error> {
    query(INSERT_CHANGE)
        .bind(ticket.sale.as_str())
        .bind(ticket.claim_id().to_string())
        .bind(-i64::from(ticket.quantity))
        .bind(to_sql(now_ms))
        .execute(tx)
        .await?;
    Ok(())
}

/// Takes the units; false if fewer are left.
async fn take_stock(tx: &mut SqliteConnection, ticket: &Ticket) -> Result<bool, Error> {
    let taken = query(TAKE_STOCK)
        .bind(ticket.quantity)
        .bind(ticket.sale.as_str())
        .bind(ticket.quantity)
        .execute(tx)
        .await?;
    Ok(taken.rows_affected() == 1)
}
