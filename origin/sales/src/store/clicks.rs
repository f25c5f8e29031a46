//! Orders by the link that led to them.

use std::collections::BTreeMap;

use super::SaleStore;
use weir_origin_core::sql::{SqlError, sql};

// An order is in one of the two tables.
const SELECT_SUMS: &str = "
    SELECT COUNT(DISTINCT click_id) AS clicks, COUNT(*) AS orders, CAST(COALESCE(SUM(quantity), 0) AS SIGNED) AS units,
        CAST(COALESCE(SUM(CASE WHEN status = 'paid' THEN 1 ELSE 0 END), 0) AS SIGNED) AS paid_orders,
        CAST(COALESCE(SUM(CASE WHEN status = 'paid' THEN quantity ELSE 0 END), 0) AS SIGNED) AS paid_units
    FROM (
        SELECT click_id, quantity, status FROM orders
        WHERE click_link = ? AND created_at_ms >= ? AND created_at_ms < ?
        UNION ALL
        SELECT click_id, quantity, status FROM orders_archive
        WHERE click_link = ? AND created_at_ms >= ? AND created_at_ms < ?
    ) AS found";

const SELECT_REVENUE: &str = "
    SELECT currency, CAST(SUM(amount) AS SIGNED) AS amount
    FROM (
        SELECT currency, unit_amount * quantity AS amount FROM orders
        WHERE click_link = ? AND created_at_ms >= ? AND created_at_ms < ?
            AND status = 'paid' AND currency IS NOT NULL
        UNION ALL
        SELECT currency, unit_amount * quantity AS amount FROM orders_archive
        WHERE click_link = ? AND created_at_ms >= ? AND created_at_ms < ?
            AND status = 'paid' AND currency IS NOT NULL
    ) AS found
    GROUP BY currency";

/// Totals of orders that a link's clicks led to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClickOrders {
    /// Number of clicks that led to orders.
    pub clicks: u64,
    /// Number of orders, regardless of their status.
    pub orders: u64,
    /// Units of these orders.
    pub units: u64,
    /// Number of paid orders.
    pub paid_orders: u64,
    /// Units of the paid orders.
    pub paid_units: u64,
    /// Total price of the paid orders, by currency.
    pub revenue: BTreeMap<String, u64>,
}

/// Orders by the link that led to them.
#[derive(Clone, Copy, Debug)]
pub struct ClickStore<'a>(pub(super) &'a SaleStore);

impl ClickStore<'_> {
    /// Sums the orders that this link's clicks led to, created from `from_ms` (inclusive) to `until_ms` (exclusive).
    pub async fn orders_of_click_link(
        self,
        link: &str,
        from_ms: u64,
        until_ms: u64,
    ) -> Result<ClickOrders, SqlError> {
        let twice = |statement| {
            let one = sql(statement).text(link).number(from_ms).number(until_ms);
            one.text(link).number(from_ms).number(until_ms)
        };
        let mut found = ClickOrders::default();
        if let Some(row) = self.0.db.one(twice(SELECT_SUMS)).await? {
            found.clicks = row.number("clicks")?;
            found.orders = row.number("orders")?;
            found.units = row.number("units")?;
            found.paid_orders = row.number("paid_orders")?;
            found.paid_units = row.number("paid_units")?;
        }
        for row in &self.0.db.all(twice(SELECT_REVENUE)).await? {
            let amount = row.number("amount")?;
            found.revenue.insert(row.text("currency")?, amount);
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_origin_core::sql::plan::plan;

    #[tokio::test]
    async fn orders_of_a_link_are_found_without_a_full_scan() {
        for statement in [SELECT_SUMS, SELECT_REVENUE] {
            let steps = plan(&[crate::MIGRATIONS], statement).await;
            for index in ["orders_by_click", "orders_archive_by_click"] {
                assert!(steps.iter().any(|step| step.contains(index)), "{steps:?}");
            }
            assert!(
                !steps.iter().any(|step| step.starts_with("SCAN orders")),
                "{steps:?}"
            );
        }
    }
}
