//! How many orders a sale has: kept by shard, in the transactions that change them.

use std::collections::BTreeMap;

use sqlx::Error;
use weir_base::id::SaleId;
use weir_sale::ledger::checksum_of;

use super::{OrderCounts, OrderStatus, SaleStore, ShardCounts, StoredOrder};
use crate::sql::{Row, SqlError, Tx, sql};

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

/// What changes in the numbers of a shard's orders.
#[derive(Clone, Copy, Debug, Default)]
struct Change {
    /// By status, in the order of [`OrderStatus::ALL`].
    orders: [i64; 4],
    units_deducted: i64,
    units_deferred: i64,
    checksum: u64,
}

/// Changes of several orders, by sale and shard: in this order, so that two transactions never wait for each other.
#[derive(Debug, Default)]
pub(super) struct Changes(BTreeMap<(SaleId, u32), Change>);

impl Changes {
    /// Those of one order, which was as `before`, if it was, and is as `after`.
    pub(super) fn of(before: Option<&StoredOrder>, after: &StoredOrder) -> Self {
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

    /// Writes them.
    pub(super) async fn write(&self, tx: &mut Tx) -> Result<(), Error> {
        for ((sale, shard), change) in &self.0 {
            if change.write(tx, sale, *shard).await? == 0 {
                // The shard's first order. Another may make the row first.
                tx.insert(sql(INSERT).text(sale.as_str()).number(*shard))
                    .await?;
                change.write(tx, sale, *shard).await?;
            }
        }
        Ok(())
    }
}

impl Change {
    /// Counts `order` once more, or once less.
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

impl SaleStore {
    /// The numbers of a sale's orders by shard. Shards that never had one are left out.
    pub async fn counts(&self, id: &SaleId) -> Result<Vec<ShardCounts>, SqlError> {
        let mut tx = self.db.snapshot().await?;
        let counts = select(&mut tx, id).await?;
        tx.rollback().await?;
        Ok(counts)
    }
}

/// The same within a transaction.
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
