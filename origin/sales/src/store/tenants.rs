//! What of sales is a tenant's, told by its name: counted against the tenant's limits, and listed.

use sqlx::Error;
use weir_base::id::SaleId;

use super::sales::{select_sales, stored};
use super::{SaleStore, StoredSale};
use crate::model::sale::INSTANT_MS_MAX;
use weir_origin_core::sql::{SqlError, Tx, sql};
use weir_origin_core::tenants::{Count, LimitExceeded, Limits, NameRange};

const NAMED: &str = "SELECT COUNT(*) AS n FROM sales WHERE id >= ? AND id < ?";

/// A tenant's sales.
pub const TENANTS_SALES: Count = Count {
    what: "sales",
    used: "
        SELECT COUNT(*) AS n FROM sales WHERE id >= ? AND id < ? AND archived_at_ms IS NULL",
    named: NAMED,
};

/// The units in them. What is named so is told by the sales.
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

/// What of sales is a tenant's, told by its name: counted against the tenant's limits, and listed.
#[derive(Clone, Copy, Debug)]
pub struct TenantStore<'a>(pub(super) &'a SaleStore);

impl TenantStore<'_> {
    /// At most `limit` sales of these names, those that end last first, behind the one that ends at `after.0` and has the name
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
        Ok(rows.iter().map(stored).collect::<Result<_, _>>()?)
    }
}

/// What of its tenant's limits a sale of `total` units would pass, with what the tenant has beside it; one that is there counts
/// for its units alone. The tenant's row is locked.
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
