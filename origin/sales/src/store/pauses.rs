//! Sales paused because SQL has lost orders, and lookups of orders by claim.

use weir_base::id::SaleId;
use weir_sale::claim::ClaimId;

use super::sales::sale_id;
use super::{SaleStore, StoredSale};
use weir_origin_core::sql::{SqlError, retried, sql};

const PAUSE: &str = "
    UPDATE sales SET paused_at_ms = ?, pauses = pauses + 1
    WHERE id = ? AND pauses = ? AND paused_at_ms IS NULL AND archived_at_ms IS NULL";

const RESUME: &str = "
    UPDATE sales SET paused_at_ms = NULL
    WHERE id = ? AND pauses = ? AND paused_at_ms IS NOT NULL";

const SELECT_PAUSED: &str = "SELECT id FROM sales WHERE paused_at_ms IS NOT NULL";

const SELECT_ORDER: &str = "
    SELECT 1 AS one FROM orders WHERE id = ?
    UNION ALL
    SELECT 1 AS one FROM orders_archive WHERE id = ?";

/// Sales paused because SQL has lost orders.
#[derive(Clone, Copy, Debug)]
pub struct PauseStore<'a>(pub(super) &'a SaleStore);

impl PauseStore<'_> {
    /// Pauses a sale. Returns false if it is paused already, or if a pause has ended since `sale` was read: an operator
    /// has then decided about the same loss.
    pub async fn pause(self, sale: &StoredSale, now_ms: u64) -> Result<bool, SqlError> {
        let pause = || {
            let pause = sql(PAUSE).number(now_ms).text(sale.sale.id.as_str());
            pause.number(sale.pauses)
        };
        Ok(retried(|| self.0.db.execute(pause())).await? == 1)
    }

    /// Ends the pause in `sale`. Returns false if it has already ended.
    pub async fn resume(self, sale: &StoredSale) -> Result<bool, SqlError> {
        let resume = || sql(RESUME).text(sale.sale.id.as_str()).number(sale.pauses);
        Ok(retried(|| self.0.db.execute(resume())).await? == 1)
    }

    /// Returns the paused sales.
    pub async fn paused(self) -> Result<Vec<SaleId>, SqlError> {
        let rows = self.0.db.all(sql(SELECT_PAUSED)).await?;
        let ids = rows.iter().map(|row| sale_id(row, "id"));
        let mut ids: Vec<SaleId> = ids.collect::<Result<_, _>>()?;
        // Sort here: with ORDER BY, SQL would scan all sales by id.
        ids.sort();
        Ok(ids)
    }

    /// Whether SQL has an order of this claim, in any status.
    pub async fn has_order(self, claim: &ClaimId) -> Result<bool, SqlError> {
        let select = sql(SELECT_ORDER).text(claim.as_str()).text(claim.as_str());
        Ok(self.0.db.one(select).await?.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_origin_core::sql::plan::plan;

    #[tokio::test]
    async fn paused_sales_are_found_without_a_full_scan() {
        let steps = plan(&[crate::MIGRATIONS], SELECT_PAUSED).await;
        assert!(steps[0].contains("sales_paused"), "{steps:?}");
    }
}
