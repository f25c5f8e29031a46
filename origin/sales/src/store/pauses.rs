//! Sales that are paused because SQL has lost orders of them, and which orders SQL has ever had.

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

/// Sales that are paused because SQL has lost orders of them.
#[derive(Clone, Copy, Debug)]
pub struct PauseStore<'a>(pub(super) &'a SaleStore);

impl PauseStore<'_> {
    /// Pauses a sale. False if it is paused already, or a pause has ended since `seen` was read: an operator has decided about
    /// the same loss then.
    pub async fn pause(self, seen: &StoredSale, now_ms: u64) -> Result<bool, SqlError> {
        let pause = || {
            let pause = sql(PAUSE).number(now_ms).text(seen.sale.id.as_str());
            pause.number(seen.pauses)
        };
        Ok(retried(|| self.0.db.execute(pause())).await? == 1)
    }

    /// Ends the pause that `seen` tells of. False if another has ended it.
    pub async fn resume(self, seen: &StoredSale) -> Result<bool, SqlError> {
        let resume = || sql(RESUME).text(seen.sale.id.as_str()).number(seen.pauses);
        Ok(retried(|| self.0.db.execute(resume())).await? == 1)
    }

    /// The sales that are paused.
    pub async fn paused(self) -> Result<Vec<SaleId>, SqlError> {
        let rows = self.0.db.all(sql(SELECT_PAUSED)).await?;
        let ids = rows.iter().map(|row| sale_id(row, "id"));
        let mut ids: Vec<SaleId> = ids.collect::<Result<_, _>>()?;
        // Not by SQL, which would walk through all sales by their ids.
        ids.sort();
        Ok(ids)
    }

    /// Whether SQL has the order that this claim became, in whatever state.
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
    async fn paused_sales_are_found_without_a_walk_through_all_sales() {
        let steps = plan(&[crate::MIGRATIONS], SELECT_PAUSED).await;
        assert!(steps[0].contains("sales_paused"), "{steps:?}");
    }
}
