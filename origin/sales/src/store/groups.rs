//! How many units users have of the sales of a group together.
//!
//! Orders of one user meet at one row, whatever sale they are in; those of different users do not meet. It is written after the
//! sale's own row of the user and before the stock, in this order everywhere, so that two orders never wait for each other.

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

// Nothing counts any more when the last sale of a group is archived.
const SELECT_OVER: &str = "
    SELECT group_id FROM sales
    WHERE id = ? AND group_id IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM sales AS others
        WHERE others.group_id = sales.group_id AND others.archived_at_ms IS NULL)";

const SELECT_BATCH: &str = "
    SELECT MAX(user_id) AS last FROM (
        SELECT user_id FROM group_buyers WHERE group_id = ? ORDER BY user_id LIMIT ?) AS batch";

const DELETE_BATCH: &str = "DELETE FROM group_buyers WHERE group_id = ? AND user_id <= ?";

/// Counts a claim's units as the user's in the group; false if that is more than one user may have.
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

/// Counts the order's units no longer as its user's.
pub(super) async fn take(tx: &mut Tx, order: &StoredOrder) -> Result<(), Error> {
    let take = sql(TAKE)
        .number(order.units)
        .text(order.user.as_str())
        .text(order.sale.as_str());
    tx.execute(take).await.map(drop)
}

/// Forgets at most `limit` users of the group of this sale, if all its sales are archived. False if there is nothing to forget.
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
