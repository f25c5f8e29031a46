//! Search of orders for operators, including archived sales.

use sqlx::Error;
use weir_base::id::{SaleId, UserId};

use super::{OrderStatus, SaleStore, StoredOrder, StoredPayment, orders, provider};
use crate::model::payload::Payload;
use weir_origin_core::sql::{MANY, Row, SqlError, filled, in_many, sql};
use weir_origin_core::tenants::NameRange;

/// The part of a page from one table. Both tables have these columns in the same order.
macro_rules! part {
    ($table:literal, $by:literal, $order:literal, $compare:literal) => {
        concat!(
            "SELECT * FROM (SELECT * FROM ",
            $table,
            " WHERE ",
            $by,
            " = ? AND (? = '' OR sale_id = ?) AND (? = '' OR user_id = ?)",
            " AND (? = '' OR status = ?) AND created_at_ms >= ? AND created_at_ms < ?",
            " AND (? = '' OR (sale_id >= ? AND sale_id < ?))",
            " AND (created_at_ms ",
            $compare,
            " ? OR (created_at_ms = ? AND id ",
            $compare,
            " ?)) ORDER BY created_at_ms ",
            $order,
            ", id ",
            $order,
            " LIMIT ?) AS ",
            $table,
            "_part"
        )
    };
}

macro_rules! page {
    ($by:literal, $order:literal, $compare:literal) => {
        concat!(
            part!("orders", $by, $order, $compare),
            " UNION ALL ",
            part!("orders_archive", $by, $order, $compare),
            " ORDER BY created_at_ms ",
            $order,
            ", id ",
            $order,
            " LIMIT ?"
        )
    };
}

const SALE_NEWEST: &str = page!("sale_id", "DESC", "<");
const SALE_OLDEST: &str = page!("sale_id", "ASC", ">");
const USER_NEWEST: &str = page!("user_id", "DESC", "<");
const USER_OLDEST: &str = page!("user_id", "ASC", ">");

const SELECT_ONE: &str = "
    SELECT * FROM orders WHERE id = ?
    UNION ALL
    SELECT * FROM orders_archive WHERE id = ?";

const SELECT_PAYMENTS: &str = in_many!("SELECT * FROM payments WHERE order_id");

/// Whose orders to search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OrdersOf {
    /// Orders of a sale, optionally of one user.
    Sale(SaleId, Option<UserId>),
    /// Orders of a user in all sales.
    User(UserId),
}

/// Sort order by creation time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sorting {
    /// Newest first.
    #[default]
    Newest,
    /// Oldest first.
    Oldest,
}

/// Filter of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderFilter {
    /// Sale or user.
    pub of: OrdersOf,
    /// Only this status; `None`: any status.
    pub status: Option<OrderStatus>,
    /// Only orders created at or after this time, in milliseconds since the Unix epoch.
    pub from_ms: u64,
    /// Only orders created before this time.
    pub until_ms: u64,
    /// Only sales in this range of names.
    pub sales: NameRange,
    /// Sort order.
    pub sorting: Sorting,
}

/// Cursor: the last order of a page, after which the next page starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderCursor {
    /// Creation time, in milliseconds since the Unix epoch.
    pub created_at_ms: u64,
    /// Order id.
    pub id: String,
}

/// An order with its times, payments and payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundOrder {
    /// The order.
    pub order: StoredOrder,
    /// Payment time, in milliseconds since the Unix epoch.
    pub paid_at_ms: Option<u64>,
    /// End time of a cancelled or expired order, in milliseconds since the Unix epoch.
    pub ended_at_ms: Option<u64>,
    /// Its payments, oldest first.
    pub payments: Vec<StoredPayment>,
    /// The buyer's data.
    pub payload: Option<Payload>,
}

impl FoundOrder {
    /// The cursor after which the next page starts.
    pub fn cursor(&self) -> OrderCursor {
        OrderCursor {
            created_at_ms: self.order.created_at_ms,
            id: self.order.id.clone(),
        }
    }
}

/// Search of orders for operators, including archived sales.
#[derive(Clone, Copy, Debug)]
pub struct SearchStore<'a>(pub(super) &'a SaleStore);

impl SearchStore<'_> {
    /// Returns an order of any user.
    pub async fn find_order(self, order_id: &str) -> Result<Option<FoundOrder>, SqlError> {
        let select = sql(SELECT_ONE).text(order_id).text(order_id);
        let rows = self.0.db.all(select).await?;
        let mut found: Vec<_> = rows.iter().map(found).collect::<Result<_, _>>()?;
        found.truncate(1);
        self.add_payments(&mut found).await?;
        self.0.payloads().add_payloads(&mut found).await?;
        Ok(found.pop())
    }

    /// Returns up to `limit` orders after `after`. A page shorter than its limit is the last.
    pub async fn find_orders(
        self,
        filter: &OrderFilter,
        after: Option<&OrderCursor>,
        limit: usize,
    ) -> Result<Vec<FoundOrder>, SqlError> {
        let (statement, by, sale, user) = match (&filter.of, filter.sorting) {
            (OrdersOf::Sale(sale, user), sorting) => {
                let statement = match sorting {
                    Sorting::Newest => SALE_NEWEST,
                    Sorting::Oldest => SALE_OLDEST,
                };
                let user = user.as_ref().map_or("", UserId::as_str);
                (statement, sale.as_str(), "", user)
            }
            (OrdersOf::User(user), Sorting::Newest) => (USER_NEWEST, user.as_str(), "", ""),
            (OrdersOf::User(user), Sorting::Oldest) => (USER_OLDEST, user.as_str(), "", ""),
        };
        let status = filter.status.map_or("", OrderStatus::label);
        let (cursor_ms, cursor_id) = match (after, filter.sorting) {
            (Some(after), _) => (after.created_at_ms, after.id.as_str()),
            (None, Sorting::Newest) => (u64::MAX, ""),
            (None, Sorting::Oldest) => (0, ""),
        };
        let mut select = sql(statement);
        for _ in 0..2 {
            select = select
                .text(by)
                .text(sale)
                .text(sale)
                .text(user)
                .text(user)
                .text(status)
                .text(status)
                .number(filter.from_ms)
                .number(filter.until_ms)
                .text(filter.sales.first())
                .text(filter.sales.first())
                .text(filter.sales.end())
                .number(cursor_ms)
                .number(cursor_ms)
                .text(cursor_id)
                .number(limit);
        }
        let rows = self.0.db.all(select.number(limit)).await?;
        let mut found: Vec<_> = rows.iter().map(found).collect::<Result<_, _>>()?;
        self.add_payments(&mut found).await?;
        self.0.payloads().add_payloads(&mut found).await?;
        Ok(found)
    }

    async fn add_payments(self, found: &mut [FoundOrder]) -> Result<(), SqlError> {
        for some in found.chunks_mut(MANY) {
            let ids: Vec<String> = some.iter().map(|one| one.order.id.clone()).collect();
            let names: Vec<&str> = ids.iter().map(String::as_str).collect();
            let select = filled(&names).fold(sql(SELECT_PAYMENTS), |select, id| select.text(id));
            let rows = self.0.db.all(select).await?;
            for row in &rows {
                let payment = provider::stored(row)?;
                let mut of = some.iter_mut();
                if let Some(one) = of.find(|one| one.order.id == payment.order) {
                    one.payments.push(payment);
                }
            }
            for one in some {
                one.payments.sort_by_key(provider::number);
            }
        }
        Ok(())
    }
}

fn found(row: &Row) -> Result<FoundOrder, Error> {
    Ok(FoundOrder {
        order: orders::stored(row)?,
        paid_at_ms: row.maybe("paid_at_ms")?,
        ended_at_ms: row.maybe("ended_at_ms")?,
        payments: Vec::new(),
        payload: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_origin_core::sql::plan::plan;

    #[tokio::test]
    async fn page_is_read_by_index_without_sorting() {
        for (statement, index) in [
            (SALE_NEWEST, "sale"),
            (SALE_OLDEST, "sale"),
            (USER_NEWEST, "user"),
            (USER_OLDEST, "user"),
        ] {
            let steps = plan(&[crate::MIGRATIONS], statement).await;
            for table in ["orders", "orders_archive"] {
                let name = format!("SEARCH {table} USING INDEX {table}_by_{index}_and_time");
                assert!(
                    steps.iter().any(|step| step.starts_with(&name)),
                    "{name}: {steps:?}"
                );
            }
        }
    }
}
