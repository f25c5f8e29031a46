//! What a sale has earned, by order status.

use serde::Serialize;
use sqlx::Error;
use utoipa::ToSchema;
use weir_base::id::SaleId;

use super::SaleStore;
use weir_origin_core::sql::{Row, SqlError, sql};

// An order is in one of the two tables.
const SUMS: &str = "
    SELECT status, currency, COUNT(*) AS orders, CAST(COALESCE(SUM(quantity), 0) AS SIGNED) AS units,
        CAST(COALESCE(SUM(amount), 0) AS SIGNED) AS amount
    FROM (
        SELECT status, COALESCE(currency, '') AS currency, quantity, quantity * unit_amount AS amount
        FROM orders WHERE sale_id = ?
        UNION ALL
        SELECT status, COALESCE(currency, '') AS currency, quantity, quantity * unit_amount AS amount
        FROM orders_archive WHERE sale_id = ?
    ) AS found
    GROUP BY status, currency ORDER BY status, currency";

const CLAIMS: &str =
    "SELECT COUNT(*) AS number FROM claim_outcomes WHERE sale_id = ? AND outcome = ?";

/// Orders with one status and one currency.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = SaleMoneySum)]
pub struct MoneySum {
    /// `unpaid`, `paid`, `cancelled` or `expired`.
    pub status: String,
    /// The currency; empty: orders without a price.
    pub currency: String,
    /// Number of orders.
    pub orders: u64,
    /// Their units.
    pub units: u64,
    /// Their price, in the currency's smallest unit.
    pub amount: u64,
}

/// The money of a sale, and how many claims became orders.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = SaleMoney)]
pub struct Money {
    /// Sums by status and currency.
    pub sums: Vec<MoneySum>,
    /// Buyers' claims on units that became orders.
    pub claims_ordered: u64,
    /// Claims that were released without an order.
    pub claims_released: u64,
}

impl SaleStore {
    /// Sums over all orders of a sale. It reads every order, so it is for single requests.
    pub async fn money(&self, id: &SaleId) -> Result<Money, SqlError> {
        let sums = sql(SUMS).text(id.as_str()).text(id.as_str());
        let sums = self.db.all(sums).await?;
        Ok(Money {
            sums: sums.iter().map(sum).collect::<Result<_, _>>()?,
            claims_ordered: self.count_claims(id, "ordered").await?,
            claims_released: self.count_claims(id, "released").await?,
        })
    }

    async fn count_claims(&self, id: &SaleId, outcome: &str) -> Result<u64, SqlError> {
        let count = sql(CLAIMS).text(id.as_str()).text(outcome);
        let row = self.db.one(count).await?;
        Ok(row.map_or(Ok(0), |row| row.number("number"))?)
    }
}

fn sum(row: &Row) -> Result<MoneySum, Error> {
    Ok(MoneySum {
        status: row.text("status")?,
        currency: row.text("currency")?,
        orders: row.number("orders")?,
        units: row.number("units")?,
        amount: row.number("amount")?,
    })
}
