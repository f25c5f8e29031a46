//! The position in each log where the views of a day begin.

use super::HistoryStore;
use weir_origin_core::sql::{SqlError, sql};

const LOWER: &str = "
    UPDATE history_begins SET position = CASE WHEN position > ? THEN ? ELSE position END
    WHERE source = ? AND day = ?";

const INSERT: &str = "INSERT INTO history_begins (source, day, position) VALUES (?, ?, ?)";

const SELECT_BEFORE: &str = "SELECT day FROM history_begins WHERE source = ? AND day <= ? LIMIT 1";

const SELECT_SINCE: &str =
    "SELECT MIN(position) AS position FROM history_begins WHERE source = ? AND day >= ?";

const DELETE_OLD: &str = "DELETE FROM history_begins WHERE day < ?";

/// Stores where the views of a day begin in each log.
#[derive(Clone, Copy, Debug)]
pub struct MarkStore<'a>(pub(super) &'a HistoryStore);

impl MarkStore<'_> {
    /// Records that the views of a day begin at `position`, unless an earlier position is stored.
    pub async fn note_begin(self, source: &str, day: u64, position: u64) -> Result<(), SqlError> {
        let lower = || sql(LOWER).number(position).number(position);
        let lower = || lower().text(source).number(day);
        let insert = sql(INSERT).text(source).number(day).number(position);
        if self.0.db.execute(lower()).await? == 0 && !self.0.db.insert(insert).await? {
            self.0.db.execute(lower()).await?;
        }
        Ok(())
    }

    /// Whether a start was recorded for this log on that day or before.
    pub async fn has_begin(self, source: &str, day: u64) -> Result<bool, SqlError> {
        let select = sql(SELECT_BEFORE).text(source).number(day);
        Ok(self.0.db.one(select).await?.is_some())
    }

    /// The position where the views of that day and all later ones begin; `None`: there are no views.
    pub async fn begin_since(self, source: &str, day: u64) -> Result<Option<u64>, SqlError> {
        let select = sql(SELECT_SINCE).text(source).number(day);
        let row = self.0.db.one(select).await?;
        Ok(row.map_or(Ok(None), |row| row.maybe("position"))?)
    }

    /// Deletes earlier days.
    pub async fn forget_begins(self, before: u64) -> Result<(), SqlError> {
        self.0.db.execute(sql(DELETE_OLD).number(before)).await?;
        Ok(())
    }
}
