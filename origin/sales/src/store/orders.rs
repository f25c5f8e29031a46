//! Orders as they are read, and what Redis has still to follow.

use sqlx::Error;
use weir_base::id::{SaleId, UserId};
use weir_sale::ledger::{Deduction, OrderEntry};

use super::columns::PriceColumns;
use super::sales::sale_id;
use super::{OrderStatus, SaleStore, StoredOrder};
use crate::model::click::OrderClick;
use weir_origin_core::sql::{Codec, Row, SqlError, Tx, damaged, retried, sql};

const SELECT_ORDER: &str = "
    SELECT * FROM orders WHERE id = ?
    UNION ALL
    SELECT * FROM orders_archive WHERE id = ?";

const SELECT_PAGE: &str = "
    SELECT * FROM orders
    WHERE sale_id = ? AND shard = ? AND generation > ? AND status IN ('unpaid', 'paid')
    ORDER BY generation
    LIMIT ?";

const SELECT_OF_USER: &str = "
    SELECT * FROM orders
    WHERE sale_id = ? AND user_id = ? AND shard = ? AND status IN ('unpaid', 'paid')
    ORDER BY generation";

// CROSS JOIN is a join whose order SQLite keeps. Left to choose, it walks all orders there are, twice a second, to find the
// few that are unfollowed.
const SELECT_UNFOLLOWED: &str = "
    SELECT orders.*
    FROM unfollowed_orders CROSS JOIN orders ON orders.id = unfollowed_orders.order_id
    ORDER BY unfollowed_orders.at_ms, orders.id
    LIMIT ?";

const SELECT_UNFOLLOWED_SALES: &str = "
    SELECT DISTINCT orders.sale_id
    FROM unfollowed_orders CROSS JOIN orders ON orders.id = unfollowed_orders.order_id";

const SELECT_UNFOLLOWED_OF: &str = "
    SELECT orders.*
    FROM unfollowed_orders CROSS JOIN orders ON orders.id = unfollowed_orders.order_id
    WHERE orders.sale_id = ?
    ORDER BY unfollowed_orders.at_ms, orders.id
    LIMIT ?";

const INSERT_UNFOLLOWED: &str = "
    INSERT INTO unfollowed_orders (order_id, at_ms) VALUES (?, ?)";

// An order changes once after it was made, so a status that it has is the one that was followed.
const DELETE_UNFOLLOWED: &str = "
    DELETE FROM unfollowed_orders
    WHERE order_id = ? AND EXISTS (SELECT 1 FROM orders WHERE id = ? AND status = ?)";

impl SaleStore {
    /// One order of this user.
    pub async fn order(
        &self,
        order_id: &str,
        user: &UserId,
    ) -> Result<Option<StoredOrder>, SqlError> {
        let row = self
            .db
            .one(sql(SELECT_ORDER).text(order_id).text(order_id))
            .await?;
        let order = row.as_ref().map(stored).transpose()?;
        Ok(order.filter(|order| order.user == *user))
    }

    /// At most `limit` unpaid and paid orders, of users at home on `shard`, with their users: those
    /// that came of a later generation than `after`, the earliest first.
    pub async fn orders_page(
        &self,
        sale: &SaleId,
        shard: u32,
        after: u64,
        limit: usize,
    ) -> Result<Vec<(UserId, OrderEntry)>, SqlError> {
        let select = sql(SELECT_PAGE)
            .text(sale.as_str())
            .number(shard)
            .number(after)
            .number(limit);
        let rows = self.db.all(select).await?;
        Ok(rows.iter().map(entry).collect::<Result<_, _>>()?)
    }

    /// At most `limit` orders that Redis may not have followed, those that changed first first:
    /// cancelled and expired ones (`cancel` in Redis), and those that took their units when they
    /// were paid (`settle` in Redis, then `charge`). A new order is not among them: its claim is
    /// open in Redis until Redis has followed.
    pub async fn unfollowed(&self, limit: usize) -> Result<Vec<StoredOrder>, SqlError> {
        let rows = self.db.all(sql(SELECT_UNFOLLOWED).number(limit)).await?;
        Ok(rows.iter().map(stored).collect::<Result<_, _>>()?)
    }

    /// The orders of a user that stand, which came of claims on this shard, oldest first.
    pub async fn orders_of(
        &self,
        sale: &SaleId,
        shard: u32,
        user: &UserId,
    ) -> Result<Vec<OrderEntry>, SqlError> {
        let select = sql(SELECT_OF_USER)
            .text(sale.as_str())
            .text(user.as_str())
            .number(shard);
        let rows = self.db.all(select).await?;
        let orders = rows.iter().map(|row| Ok(entry(row)?.1));
        orders.collect()
    }

    /// The sales of which Redis may not have followed an order.
    pub async fn unfollowed_sales(&self) -> Result<Vec<SaleId>, SqlError> {
        let rows = self.db.all(sql(SELECT_UNFOLLOWED_SALES)).await?;
        rows.iter()
            .map(|row| Ok(sale_id(row, "sale_id")?))
            .collect()
    }

    /// As [`SaleStore::unfollowed`], of one sale.
    pub async fn unfollowed_of(
        &self,
        sale: &SaleId,
        limit: usize,
    ) -> Result<Vec<StoredOrder>, SqlError> {
        let select = sql(SELECT_UNFOLLOWED_OF).text(sale.as_str()).number(limit);
        let rows = self.db.all(select).await?;
        Ok(rows.iter().map(stored).collect::<Result<_, _>>()?)
    }

    /// Notes that Redis has followed the order to this status, which is of no effect if it has
    /// another one now.
    pub async fn mark_followed(&self, order_id: &str, status: OrderStatus) -> Result<(), SqlError> {
        let delete = || {
            sql(DELETE_UNFOLLOWED)
                .text(order_id)
                .text(order_id)
                .text(status.label())
        };
        retried(|| self.db.execute(delete())).await?;
        Ok(())
    }
}

/// Whether Redis has followed all orders of a sale.
pub(super) async fn is_followed(tx: &mut Tx, sale: &SaleId) -> Result<bool, Error> {
    let select = sql(SELECT_UNFOLLOWED_OF).text(sale.as_str()).number(1_u32);
    Ok(tx.one(select).await?.is_none())
}

/// The same within a transaction, whoever's it is.
pub(super) async fn select(tx: &mut Tx, order_id: &str) -> Result<Option<StoredOrder>, Error> {
    let row = tx
        .one(sql(SELECT_ORDER).text(order_id).text(order_id))
        .await?;
    row.as_ref().map(stored).transpose()
}

fn entry(row: &Row) -> Result<(UserId, OrderEntry), Error> {
    let deduction = match row.flag("deducted")? {
        true => Deduction::AtOrder,
        false => Deduction::AtPayment,
    };
    let entry = OrderEntry {
        generation: row.number("generation")?,
        units: row.number("quantity")?,
        deduction,
    };
    Ok((user_id(row)?, entry))
}

/// Notes in the order's own transaction that Redis has to follow it.
pub(super) async fn note_unfollowed(tx: &mut Tx, id: &str, now_ms: u64) -> Result<(), Error> {
    let insert = sql(INSERT_UNFOLLOWED).text(id).number(now_ms);
    tx.execute(insert).await.map(drop)
}

pub(super) fn stored(row: &Row) -> Result<StoredOrder, Error> {
    Ok(StoredOrder {
        id: row.text("id")?,
        sale: sale_id(row, "sale_id")?,
        shard: row.number("shard")?,
        generation: row.number("generation")?,
        user: user_id(row)?,
        units: row.number("quantity")?,
        status: status(row)?,
        deducted: row.flag("deducted")?,
        pay_by_ms: row.maybe("pay_by_ms")?,
        created_at_ms: row.number("created_at_ms")?,
        sku: row.maybe_text("sku")?,
        price: PriceColumns::read(row, &[])?,
        click: click(row)?,
    })
}

fn click(row: &Row) -> Result<Option<OrderClick>, Error> {
    let (link, id) = (row.maybe_text("click_link")?, row.maybe_text("click_id")?);
    Ok(link.zip(id).map(|(link, id)| OrderClick { link, id }))
}

pub(super) fn status(row: &Row) -> Result<OrderStatus, Error> {
    let word = row.text("status")?;
    let mut all = OrderStatus::ALL.into_iter();
    all.find(|status| status.label() == word)
        .ok_or_else(|| damaged("status", "is not a status"))
}

pub(super) fn user_id(row: &Row) -> Result<UserId, Error> {
    UserId::new(row.text("user_id")?).map_err(|error| damaged("user_id", error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_origin_core::sql::plan::plan;

    #[tokio::test]
    async fn pending_orders_are_found_without_a_full_scan() {
        for statement in [
            SELECT_UNFOLLOWED,
            SELECT_UNFOLLOWED_SALES,
            SELECT_UNFOLLOWED_OF,
        ] {
            let steps = plan(&[crate::MIGRATIONS], statement).await;
            assert!(steps[0].starts_with("SCAN unfollowed_orders"), "{steps:?}");
            assert!(steps[1].starts_with("SEARCH orders"), "{steps:?}");
            assert!(steps[1].ends_with("(id=?)"), "{steps:?}");
        }
    }
}
