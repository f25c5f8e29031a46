//! Idempotency keys and their orders.

use sqlx::Error;
use weir_base::id::{SaleId, UserId};
use weir_sale::claim::Ticket;
use weir_sale::idempotency::IdempotencyKey;

use super::orders::user_id;
use super::{Attempt, OrderOutcome, SaleStore, orders};
use weir_origin_core::sql::{Row, SqlError, Tx, damaged, sql};

const INSERT_KEY: &str = "
    INSERT INTO idempotency_keys (sale_id, user_id, attempt_key, order_id, body_sha256)
    VALUES (?, ?, ?, ?, ?)";

const SELECT_KEY: &str = "
    SELECT order_id, body_sha256 FROM idempotency_keys
    WHERE sale_id = ? AND user_id = ? AND attempt_key = ?";

const SELECT_PAGE: &str = "
    SELECT orders.generation, orders.user_id, idempotency_keys.attempt_key
    FROM orders JOIN idempotency_keys ON idempotency_keys.sale_id = orders.sale_id
        AND idempotency_keys.user_id = orders.user_id AND idempotency_keys.order_id = orders.id
    WHERE orders.sale_id = ? AND orders.shard = ? AND orders.generation >= ?
        AND (orders.generation > ? OR idempotency_keys.attempt_key > ?)
        AND orders.status IN ('unpaid', 'paid')
    ORDER BY orders.generation, idempotency_keys.attempt_key
    LIMIT ?";

/// An idempotency key with an order: the user, the key and the order's generation.
pub type OrderedAttempt = (UserId, IdempotencyKey, u64);

/// Idempotency keys and their orders.
#[derive(Clone, Copy, Debug)]
pub struct AttemptStore<'a>(pub(super) &'a SaleStore);

impl AttemptStore<'_> {
    /// Returns up to `limit` idempotency keys with active orders on `shard`, sorted by generation and key, after
    /// `after`. An order may have several keys: if the user cannot buy more, each further attempt returns this order.
    pub async fn attempts_page(
        self,
        sale: &SaleId,
        shard: u32,
        after: Option<&OrderedAttempt>,
        limit: usize,
    ) -> Result<Vec<OrderedAttempt>, SqlError> {
        let (generation, key) =
            after.map_or((0, ""), |(_, key, generation)| (*generation, key.as_str()));
        let select = sql(SELECT_PAGE)
            .text(sale.as_str())
            .number(shard)
            .number(generation)
            .number(generation)
            .text(key)
            .number(limit);
        let rows = self.0.db.all(select).await?;
        Ok(rows.iter().map(ordered).collect::<Result<_, _>>()?)
    }
}

fn ordered(row: &Row) -> Result<OrderedAttempt, Error> {
    let key = row.text("attempt_key")?;
    let key = IdempotencyKey::read(key.as_bytes());
    let key = key.map_err(|error| damaged("attempt_key", error))?;
    Ok((user_id(row)?, key, row.number("generation")?))
}

/// Binds an idempotency key to the claim that is about to become an order. Returns the outcome if the key is bound to
/// another claim or request; `None`: it is bound to this claim.
pub(super) async fn bind(
    tx: &mut Tx,
    ticket: &Ticket,
    attempt: &Attempt,
) -> Result<Option<OrderOutcome>, Error> {
    let id = ticket.claim_id();
    let of_attempt = |statement| {
        sql(statement)
            .text(ticket.sale.as_str())
            .text(ticket.user.as_str())
            .text(attempt.key.as_str())
    };
    let insert = of_attempt(INSERT_KEY)
        .text(id.as_str())
        .text(&attempt.body_sha256);
    // Insert first, then read, so that a concurrent binding is visible.
    if tx.insert(insert).await? {
        return Ok(None);
    }
    let row = tx.one(of_attempt(SELECT_KEY)).await?;
    let row = row.ok_or(Error::RowNotFound)?;
    let order_id = row.text("order_id")?;
    let is_spare = order_id != id.as_str();
    if row.text("body_sha256")? != attempt.body_sha256 {
        return Ok(Some(OrderOutcome::KeyReused { is_spare }));
    }
    if !is_spare {
        return Ok(None);
    }
    let order = orders::select(tx, &order_id).await?;
    Ok(Some(OrderOutcome::Elsewhere(
        order.ok_or(Error::RowNotFound)?,
    )))
}
