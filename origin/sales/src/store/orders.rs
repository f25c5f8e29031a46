//! Reads orders, and lists those that Redis has not followed.

use std::ops::Range;

use sqlx::Error;
use weir_base::id::{SaleId, UserId};
use weir_sale::ledger::{Deduction, OrderEntry};

use super::columns::PriceColumns;
use super::sales::sale_id;
use super::{OrderStatus, SaleStore, StoredOrder};
use crate::model::click::OrderClick;
use crate::model::site::LocalFence;
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

// SQLite does not reorder a CROSS JOIN. Otherwise it would scan all orders, twice per second, to find the few
// unfollowed ones.
const SELECT_UNFOLLOWED: &str = "
    SELECT orders.*
    FROM unfollowed_orders CROSS JOIN orders ON orders.id = unfollowed_orders.order_id
    ORDER BY unfollowed_orders.at_ms, orders.id
    LIMIT ?";

const SELECT_UNFOLLOWED_SALES: &str = "
    SELECT DISTINCT orders.sale_id
    FROM unfollowed_orders CROSS JOIN orders ON orders.id = unfollowed_orders.order_id
    WHERE orders.shard >= ? AND orders.shard < ?";

const SELECT_UNFOLLOWED_OF: &str = "
    SELECT orders.*
    FROM unfollowed_orders CROSS JOIN orders ON orders.id = unfollowed_orders.order_id
    WHERE orders.sale_id = ? AND orders.shard >= ? AND orders.shard < ?
    ORDER BY unfollowed_orders.at_ms, orders.id
    LIMIT ?";

const INSERT_UNFOLLOWED: &str = "
    INSERT INTO unfollowed_orders (order_id, at_ms) VALUES (?, ?)";

// An order's status changes at most once, so an order that still has this status has been followed.
const DELETE_UNFOLLOWED: &str = "
    DELETE FROM unfollowed_orders
    WHERE order_id = ? AND EXISTS (SELECT 1 FROM orders WHERE id = ? AND status = ?)";

impl SaleStore {
    /// Returns an order of this user.
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

    /// Returns up to `limit` active orders on `shard` with their users, sorted by generation, after generation `after`.
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

    /// Returns up to `limit` orders that Redis may not have followed, earliest change first. These are cancelled and
    /// expired orders (`cancel` in Redis), and orders deducted at payment (`settle` in Redis, then `charge`). New
    /// orders are not included: their claims stay open in Redis until Redis has followed.
    pub async fn unfollowed(&self, limit: usize) -> Result<Vec<StoredOrder>, SqlError> {
        let rows = self.db.all(sql(SELECT_UNFOLLOWED).number(limit)).await?;
        Ok(rows.iter().map(stored).collect::<Result<_, _>>()?)
    }

    /// Returns a user's active orders from claims on this shard, oldest first.
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

    /// Returns the sales with orders that Redis here may not have followed.
    pub async fn unfollowed_sales(&self) -> Result<Vec<SaleId>, SqlError> {
        let shards = self.followed_shards(self.here().await?);
        let select = sql(SELECT_UNFOLLOWED_SALES);
        let select = select.number(shards.start).number(shards.end);
        let rows = self.db.all(select).await?;
        rows.iter()
            .map(|row| Ok(sale_id(row, "sale_id")?))
            .collect()
    }

    /// The shards whose orders Redis here follows: without sites, all.
    pub(super) fn followed_shards(&self, here: LocalFence) -> Range<u32> {
        match self.site {
            None => 0..u32::MAX,
            Some(_) if here.is_open() => here.shards(),
            Some(_) => 0..0,
        }
    }

    /// Whether Redis here follows the orders of a shard. Without sites, it asks no database.
    ///
    /// Ask after the order has changed. A unit of a closed fence moves to another one in SQL; Redis would sell it once
    /// more.
    pub async fn follows(&self, shard: u32) -> Result<bool, SqlError> {
        let here = self.here().await?;
        Ok(self.followed_shards(here).contains(&shard))
    }

    /// Like [`SaleStore::unfollowed`], for one sale and Redis here.
    pub async fn unfollowed_of(
        &self,
        sale: &SaleId,
        limit: usize,
    ) -> Result<Vec<StoredOrder>, SqlError> {
        let shards = self.followed_shards(self.here().await?);
        let select = sql(SELECT_UNFOLLOWED_OF).text(sale.as_str());
        let select = select.number(shards.start).number(shards.end).number(limit);
        let rows = self.db.all(select).await?;
        Ok(rows.iter().map(stored).collect::<Result<_, _>>()?)
    }

    /// Records that Redis has followed the order to this status. Has no effect if the status has changed since.
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

/// Whether Redis has followed all orders of a sale on these shards.
pub(super) async fn is_followed(
    tx: &mut Tx,
    sale: &SaleId,
    shards: Range<u32>,
) -> Result<bool, Error> {
    let select = sql(SELECT_UNFOLLOWED_OF).text(sale.as_str());
    let select = select.number(shards.start).number(shards.end).number(1_u32);
    Ok(tx.one(select).await?.is_none())
}

/// Reads an order of any user in a transaction.
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

/// Records, in the order's transaction, that Redis must follow it.
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
