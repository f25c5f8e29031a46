//! Order counts by shard, updated in the transactions that change orders.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use serde::Serialize;
use sqlx::Error;
use utoipa::ToSchema;
use weir_base::id::SaleId;
use weir_sale::ledger::checksum_of;
use weir_sale::mark;

use super::{OrderStatus, SaleStore, ShardCounts, StoredOrder};
use weir_origin_core::sql::{Row, SqlError, Tx, sql};

/// The number of orders by status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = OrdersByState)]
pub struct OrderCounts {
    /// Not paid.
    pub unpaid: u64,
    /// Paid.
    pub paid: u64,
    /// Cancelled.
    pub cancelled: u64,
    /// Not paid in time.
    pub expired: u64,
}

impl OrderCounts {
    /// Orders that hold, or will hold, units.
    pub fn active(&self) -> u64 {
        self.unpaid + self.paid
    }

    /// Total number of changes of these orders: see [`weir_sale::mark`].
    pub fn changes(&self) -> u64 {
        mark::changes(self.active(), self.cancelled + self.expired)
    }
}

impl AddAssign for OrderCounts {
    fn add_assign(&mut self, other: Self) {
        let Self {
            unpaid,
            paid,
            cancelled,
            expired,
        } = other;
        self.unpaid += unpaid;
        self.paid += paid;
        self.cancelled += cancelled;
        self.expired += expired;
    }
}

const UPDATE: &str = "
    UPDATE order_counts SET
        unpaid = unpaid + ?, paid = paid + ?, cancelled = cancelled + ?, expired = expired + ?,
        units_deducted = units_deducted + ?, units_deferred = units_deferred + ?,
        checksum = (checksum + ?) % 2147483647
    WHERE sale_id = ? AND shard = ?";

const INSERT: &str = "
    INSERT INTO order_counts
        (sale_id, shard, unpaid, paid, cancelled, expired, units_deducted, units_deferred, checksum)
    VALUES (?, ?, 0, 0, 0, 0, 0, 0, 0)";

const SELECT: &str = "SELECT * FROM order_counts WHERE sale_id = ? ORDER BY shard";

/// Changes of a shard's order counts.
#[derive(Clone, Copy, Debug, Default)]
struct Change {
    /// By status, in the order of [`OrderStatus::ALL`].
    orders: [i64; 4],
    units_deducted: i64,
    units_deferred: i64,
    checksum: u64,
}

/// Count changes of several orders. They are sorted by sale and shard, so that concurrent transactions cannot deadlock.
#[derive(Debug, Default)]
pub(super) struct Changes(BTreeMap<(SaleId, u32), Change>);

impl Changes {
    /// The change from `before`, if the order existed, to `after`.
    pub(super) fn between(before: Option<&StoredOrder>, after: &StoredOrder) -> Self {
        let mut changes = Self::default();
        changes.add(before, after);
        changes
    }

    pub(super) fn add(&mut self, before: Option<&StoredOrder>, after: &StoredOrder) {
        let key = (after.sale.clone(), after.shard);
        let change = self.0.entry(key).or_default();
        if let Some(before) = before {
            change.count(before, -1);
        }
        change.count(after, 1);
    }

    /// Writes the changes.
    pub(super) async fn write(&self, tx: &mut Tx) -> Result<(), Error> {
        for ((sale, shard), change) in &self.0 {
            if change.write(tx, sale, *shard).await? == 0 {
                // This is the shard's first order. A concurrent transaction may insert the row first.
                tx.insert(sql(INSERT).text(sale.as_str()).number(*shard))
                    .await?;
                change.write(tx, sale, *shard).await?;
            }
        }
        Ok(())
    }
}

impl Change {
    /// Adds or subtracts `order`.
    fn count(&mut self, order: &StoredOrder, by: i64) {
        let mut statuses = OrderStatus::ALL.iter();
        let at = statuses.position(|&status| status == order.status);
        if let Some(place) = at.and_then(|at| self.orders.get_mut(at)) {
            *place += by;
        }
        if !order.status.is_active() {
            return;
        }
        let units = i64::from(order.units) * by;
        match order.deducted {
            true => self.units_deducted += units,
            false => self.units_deferred += units,
        }
        self.checksum = checksum_of(self.checksum, order.generation, by > 0);
    }

    async fn write(&self, tx: &mut Tx, sale: &SaleId, shard: u32) -> Result<u64, Error> {
        let mut update = sql(UPDATE);
        for orders in self.orders {
            update = update.signed(orders);
        }
        let update = update
            .signed(self.units_deducted)
            .signed(self.units_deferred)
            .number(self.checksum)
            .text(sale.as_str())
            .number(shard);
        tx.execute(update).await
    }
}

/// Order counts by shard, updated in the transactions that change orders.
#[derive(Clone, Copy, Debug)]
pub struct CountStore<'a>(pub(super) &'a SaleStore);

impl CountStore<'_> {
    /// Returns a sale's order counts by shard. Omits shards without orders.
    pub async fn counts(self, id: &SaleId) -> Result<Vec<ShardCounts>, SqlError> {
        let mut tx = self.0.db.snapshot().await?;
        let counts = select(&mut tx, id).await?;
        tx.rollback().await?;
        Ok(counts)
    }
}

/// Like [`CountStore::counts`], in a transaction.
pub(super) async fn select(tx: &mut Tx, id: &SaleId) -> Result<Vec<ShardCounts>, Error> {
    let rows = tx.all(sql(SELECT).text(id.as_str())).await?;
    rows.iter().map(counts).collect()
}

fn counts(row: &Row) -> Result<ShardCounts, Error> {
    Ok(ShardCounts {
        shard: row.number("shard")?,
        orders: OrderCounts {
            unpaid: row.number("unpaid")?,
            paid: row.number("paid")?,
            cancelled: row.number("cancelled")?,
            expired: row.number("expired")?,
        },
        units_deducted: row.number("units_deducted")?,
        units_deferred: row.number("units_deferred")?,
        checksum: row.number("checksum")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_counts_add_up_by_status_and_keep_their_json_names() {
        let counts = |unpaid, paid, cancelled, expired| OrderCounts {
            unpaid,
            paid,
            cancelled,
            expired,
        };
        let mut sum = counts(1, 2, 3, 4);
        sum += counts(10, 20, 30, 40);
        let json = serde_json::json!({ "unpaid": 11, "paid": 22, "cancelled": 33, "expired": 44 });
        assert_eq!(serde_json::to_value(sum).unwrap(), json);
    }
}
