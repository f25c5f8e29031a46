//! Sales to warm, and warmed ones.

use weir_base::id::SaleId;

use super::sales::sale_id;
use super::{SaleStore, sites};
use weir_origin_core::sql::{SqlError, retried, sql};

const SELECT_DUE: &str = "
    SELECT id FROM sales
    WHERE warmed_at_ms IS NULL AND warm_before_ms IS NOT NULL
        AND starts_at_ms - warm_before_ms <= ? AND ends_at_ms > ?
    ORDER BY starts_at_ms, id";

const SELECT_UNLOADED: &str = "
    SELECT id FROM sales
    WHERE warmed_at_ms IS NULL AND starts_at_ms <= ? AND ends_at_ms > ?
    ORDER BY starts_at_ms, id";

const MARK_WARMED: &str = "
    UPDATE sales SET warmed_at_ms = ? WHERE id = ? AND warmed_at_ms IS NULL";

/// Sales to warm, and warmed ones.
#[derive(Clone, Copy, Debug)]
pub struct WarmingStore<'a>(pub(super) &'a SaleStore);

impl WarmingStore<'_> {
    /// Returns the sales whose automatic warm-up is due, and that are neither warmed nor ended.
    pub async fn due_to_warm(self, now_ms: u64) -> Result<Vec<SaleId>, SqlError> {
        let select = sql(SELECT_DUE).number(now_ms).number(now_ms);
        let rows = self.0.db.all(select).await?;
        Ok(rows
            .iter()
            .map(|row| sale_id(row, "id"))
            .collect::<Result<_, _>>()?)
    }

    /// Started, unfinished sales that were never loaded into Redis, so gateways do not know them.
    pub async fn unloaded_sales(self, now_ms: u64) -> Result<Vec<SaleId>, SqlError> {
        let select = sql(SELECT_UNLOADED).number(now_ms).number(now_ms);
        let rows = self.0.db.all(select).await?;
        Ok(rows
            .iter()
            .map(|row| sale_id(row, "id"))
            .collect::<Result<_, _>>()?)
    }

    /// Records that a sale's stock is in Redis, unless that is recorded already. Returns `false` if another site has to
    /// load it.
    pub async fn mark_warmed(self, id: &SaleId, now_ms: u64) -> Result<bool, SqlError> {
        if self.0.site.is_some() {
            return Ok(retried(|| sites::mark_loaded(self.0, id, now_ms)).await?);
        }
        let mark = || sql(MARK_WARMED).number(now_ms).text(id.as_str());
        retried(|| self.0.db.execute(mark())).await?;
        Ok(true)
    }
}
