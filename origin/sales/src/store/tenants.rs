//! Sales of tenants, by the prefix of their names: counts for limits, and lists.

use sqlx::Error;
use weir_base::id::SaleId;

use super::sales::{select_sales, stored};
use super::{SaleStore, StoredSale};
use crate::model::sale::INSTANT_MS_MAX;
use crate::model::site::LocalFence;
use weir_origin_core::sql::{SqlError, Tx, sql};
use weir_origin_core::tenants::{Count, LimitExceeded, Limits, NameRange};

const NAMED: &str = "SELECT COUNT(*) AS n FROM sales WHERE id >= ? AND id < ?";

/// Number of sales per tenant.
pub const TENANTS_SALES: Count = Count {
    what: "sales",
    used: "
        SELECT COUNT(*) AS n FROM sales WHERE id >= ? AND id < ? AND archived_at_ms IS NULL",
    named: NAMED,
};

/// Number of units in a tenant's sales. `named` counts nothing, because the sales already count as named objects.
pub const TENANTS_UNITS: Count = Count {
    what: "units",
    used: "
        SELECT CAST(COALESCE(SUM(total), 0) AS SIGNED) AS n FROM sales
        WHERE id >= ? AND id < ? AND archived_at_ms IS NULL",
    named: "SELECT COUNT(*) AS n FROM sales WHERE id >= ? AND id < ? AND total < 0",
};

const SELECT_OTHERS: &str = "
    SELECT COUNT(*) AS sales, CAST(COALESCE(SUM(total), 0) AS SIGNED) AS units FROM sales
    WHERE id >= ? AND id < ? AND archived_at_ms IS NULL AND id <> ?";

const SELECT_LIST: &str = select_sales!(
    "WHERE id >= ? AND id < ? AND (ends_at_ms < ? OR (ends_at_ms = ? AND id > ?))
    ORDER BY ends_at_ms DESC, id
    LIMIT ?"
);

/// Sales of tenants, by the prefix of their names: counts for limits, and lists.
#[derive(Clone, Copy, Debug)]
pub struct TenantStore<'a>(pub(super) &'a SaleStore);

impl TenantStore<'_> {
    /// Returns up to `limit` sales in this range of names, latest end first, after the sale with end `after.0` and id
    /// `after.1`.
    pub async fn sales_of(
        self,
        names: &NameRange,
        after: Option<(u64, &SaleId)>,
        limit: usize,
    ) -> Result<Vec<StoredSale>, SqlError> {
        if names.first().is_empty() {
            return self.0.sales(after, limit).await;
        }
        let (ends_at_ms, id) = after.map_or((INSTANT_MS_MAX + 1, ""), |(ends_at_ms, id)| {
            (ends_at_ms.min(INSTANT_MS_MAX + 1), id.as_str())
        });
        let select = sql(SELECT_LIST).text(names.first()).text(names.end());
        let select = select.number(ends_at_ms).number(ends_at_ms);
        let rows = self.0.db.all(select.text(id).number(limit)).await?;
        let rows = rows.iter().map(|row| stored(row, LocalFence::ALONE));
        Ok(rows.collect::<Result<_, _>>()?)
    }
}

/// Returns the tenant limit that a sale of `total` units would exceed, together with the tenant's other sales. An
/// existing sale is checked only for its units. The caller has locked the tenant's row.
pub(super) async fn over(
    tx: &mut Tx,
    tenant: Option<&(NameRange, Limits)>,
    sale: &SaleId,
    total: u64,
    is_new: bool,
) -> Result<Option<LimitExceeded>, Error> {
    let Some((names, limits)) = tenant else {
        return Ok(None);
    };
    let select = sql(SELECT_OTHERS).text(names.first()).text(names.end());
    let Some(row) = tx.one(select.text(sale.as_str())).await? else {
        return Ok(None);
    };
    let (sales, units): (u64, u64) = (row.number("sales")?, row.number("units")?);
    let sales = LimitExceeded::check("sales", sales + 1, limits.sales).filter(|_| is_new);
    let units = LimitExceeded::check("units", units.saturating_add(total), limits.units);
    Ok(sales.or(units))
}
