//! Units of users in all sales of a group together.
//!
//! Orders of one user lock one row, regardless of the sale; orders of different users do not collide. The row is always
//! written after the user's row of the sale and before the stock, so that concurrent orders cannot deadlock.

use sqlx::Error;
use weir_base::id::SaleId;
use weir_sale::claim::Ticket;

use super::StoredOrder;
use crate::model::sale::SaleGroup;
use weir_origin_core::sql::{Tx, sql};

const INSERT: &str = "INSERT INTO group_buyers (units, group_id, user_id) VALUES (?, ?, ?)";

const ADD: &str = "
    UPDATE group_buyers SET units = units + ?
    WHERE group_id = ? AND user_id = ? AND units + ? <= ?";

const TAKE: &str = "
    UPDATE group_buyers SET units = units - ?
    WHERE user_id = ? AND group_id = (SELECT group_id FROM sales WHERE id = ?)";

// The totals are no longer needed when the last sale of a group is archived.
const SELECT_OVER: &str = "
    SELECT group_id FROM sales
    WHERE id = ? AND group_id IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM sales AS others
        WHERE others.group_id = sales.group_id AND others.archived_at_ms IS NULL)";

const SELECT_BATCH: &str = "
    SELECT MAX(user_id) AS last FROM (
        SELECT user_id FROM group_buyers WHERE group_id = ? ORDER BY user_id LIMIT ?) AS batch";

const DELETE_BATCH: &str = "DELETE FROM group_buyers WHERE group_id = ? AND user_id <= ?";

/// Adds a claim's units to the user's total in the group. Returns false if that exceeds the limit.
pub(super) async fn add(tx: &mut Tx, ticket: &Ticket, group: &SaleGroup) -> Result<bool, Error> {
    if ticket.quantity > group.user_cap {
        return Ok(false);
    }
    let with = |statement| {
        sql(statement)
            .number(ticket.quantity)
            .text(group.id.as_str())
            .text(ticket.user.as_str())
    };
    if tx.insert(with(INSERT)).await? {
        return Ok(true);
    }
    let add = with(ADD).number(ticket.quantity).number(group.user_cap);
    Ok(tx.execute(add).await? == 1)
}

/// Subtracts the order's units from its user's total.
pub(super) async fn take(tx: &mut Tx, order: &StoredOrder) -> Result<(), Error> {
    let take = sql(TAKE)
        .number(order.units)
        .text(order.user.as_str())
        .text(order.sale.as_str());
    tx.execute(take).await.map(drop)
}

/// Deletes up to `limit` users of this sale's group, if all its sales are archived. Returns false if nothing is left to
/// delete.
pub(super) async fn forget(tx: &mut Tx, sale: &SaleId, limit: u64) -> Result<bool, Error> {
    let Some(row) = tx.one(sql(SELECT_OVER).text(sale.as_str())).await? else {
        return Ok(false);
    };
    let group = row.text("group_id")?;
    let batch = tx.one(sql(SELECT_BATCH).text(&group).number(limit)).await?;
    let last = batch.map_or(Ok(None), |row| row.maybe_text("last"))?;
    let Some(last) = last else {
        return Ok(false);
    };
    tx.execute(sql(DELETE_BATCH).text(&group).text(&last))
        .await?;
    Ok(true)
}
