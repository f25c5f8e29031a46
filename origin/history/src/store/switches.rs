//! The switches in SQL.

use super::HistoryStore;
use crate::model::switches::SwitchSettings;
use weir_origin_core::sql::{SqlError, sql};

const SELECT: &str =
    "SELECT cold_reads, count_cache, products_batch FROM history_switches WHERE id = 1";

const REPLACE: &str = "
    REPLACE INTO history_switches (id, cold_reads, count_cache, products_batch) VALUES (1, ?, ?, ?)";

/// Stores the switches, which are shared by all origins.
#[derive(Clone, Copy, Debug)]
pub struct SwitchStore<'a>(pub(super) &'a HistoryStore);

impl SwitchStore<'_> {
    /// Reads the switches as set by operators.
    pub async fn read(&self) -> Result<SwitchSettings, SqlError> {
        let Some(row) = self.0.db.one(sql(SELECT)).await? else {
            return Ok(SwitchSettings::default());
        };
        let batch = row.maybe("products_batch")?;
        Ok(SwitchSettings {
            cold_reads: row.maybe("cold_reads")?.map(|flag| flag != 0),
            count_cache: row.maybe("count_cache")?.map(|flag| flag != 0),
            products_batch: batch.and_then(|batch| usize::try_from(batch).ok()),
        })
    }

    /// Replaces the switches.
    pub async fn put(&self, switched: SwitchSettings) -> Result<(), SqlError> {
        let replace = sql(REPLACE)
            .maybe(switched.cold_reads.map(u64::from))
            .maybe(switched.count_cache.map(u64::from))
            .maybe(switched.products_batch.map(|batch| batch as u64));
        Ok(self.0.db.execute(replace).await.map(drop)?)
    }
}
