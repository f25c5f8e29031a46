//! Orders of a sale or of a user, as operators look for them: those of archived sales, too.

use sqlx::Error;
use weir_base::id::{SaleId, UserId};

use super::{OrderStatus, SaleStore, StoredOrder, StoredPayment, orders, provider};
use crate::model::payload::Payload;
use weir_origin_core::sql::{MANY, Row, SqlError, filled, in_many, sql};
use weir_origin_core::tenants::NameRange;

/// One table's part of a page. The columns are those of both tables, in one order.
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

/// Whose orders are looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OrdersOf {
    /// A sale's, of this user if there is one.
    Sale(SaleId, Option<UserId>),
    /// A user's, of any sale.
    User(UserId),
}

/// In which order they come, by when they were made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sorting {
    /// The last one first.
    #[default]
    Newest,
    /// The first one first.
    Oldest,
}

/// Which orders are looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderFilter {
    /// Whose.
    pub of: OrdersOf,
    /// Those that stand so; `None`: however.
    pub status: Option<OrderStatus>,
    /// Those that were made at this instant or later, in milliseconds since the Unix epoch.
    pub from_ms: u64,
    /// And before this one.
    pub until_ms: u64,
    /// Those of sales of these names.
    pub sales: NameRange,
    /// In which order.
    pub sorting: Sorting,
}

/// The last order of a page: the next page begins behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderCursor {
    /// When it was made.
    pub created_at_ms: u64,
    /// Its name.
    pub id: String,
}

/// An order with its times and its payments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundOrder {
    /// The order.
    pub order: StoredOrder,
    /// When it was paid, in milliseconds since the Unix epoch.
    pub paid_at_ms: Option<u64>,
    /// When it was cancelled or expired.
    pub ended_at_ms: Option<u64>,
    /// Its payments, the first to be started first.
    pub payments: Vec<StoredPayment>,
    /// What its buyer has said with it.
    pub payload: Option<Payload>,
}

impl FoundOrder {
    /// Behind it the next page begins.
    pub fn cursor(&self) -> OrderCursor {
        OrderCursor {
            created_at_ms: self.order.created_at_ms,
            id: self.order.id.clone(),
        }
    }
}

/// Orders of a sale or of a user, as operators look for them: those of archived sales, too.
#[derive(Clone, Copy, Debug)]
pub struct SearchStore<'a>(pub(super) &'a SaleStore);

impl SearchStore<'_> {
    /// One order, whosever it is.
    pub async fn find_order(self, order_id: &str) -> Result<Option<FoundOrder>, SqlError> {
        let select = sql(SELECT_ONE).text(order_id).text(order_id);
        let rows = self.0.db.all(select).await?;
        let mut found: Vec<_> = rows.iter().map(found).collect::<Result<_, _>>()?;
        found.truncate(1);
        self.add_payments(&mut found).await?;
        self.0.payloads().add_payloads(&mut found).await?;
        Ok(found.pop())
    }

    /// At most `limit` orders behind `after`. A page that is shorter than its limit is the last.
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
    async fn a_page_is_read_along_an_index_and_not_sorted() {
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
