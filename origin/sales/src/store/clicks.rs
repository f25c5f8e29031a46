//! Orders, by the link whose click they came of.

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

/// Orders that came of a link's clicks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClickOrders {
    /// Clicks that an order came of.
    pub clicks: u64,
    /// Orders, whatever has become of them.
    pub orders: u64,
    /// Their units.
    pub units: u64,
    /// Those that are paid.
    pub paid_orders: u64,
    /// Their units.
    pub paid_units: u64,
    /// What those cost, by currency.
    pub revenue: BTreeMap<String, u64>,
}

/// Orders, by the link whose click they came of.
#[derive(Clone, Copy, Debug)]
pub struct ClickStore<'a>(pub(super) &'a SaleStore);

impl ClickStore<'_> {
    /// The orders that came of clicks on this link, made from `from_ms` until before `until_ms`.
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
    async fn a_links_orders_are_found_without_a_walk_through_all_orders() {
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
