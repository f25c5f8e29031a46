//! Where the views of a day begin in each log.

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

/// Where the views of a day begin in each log.
#[derive(Clone, Copy, Debug)]
pub struct MarkStore<'a>(pub(super) &'a HistoryStore);

impl MarkStore<'_> {
    /// Notes that views of a day begin at `position` of a log, unless they begin before.
    pub async fn note_begin(self, source: &str, day: u64, position: u64) -> Result<(), SqlError> {
        let lower = || sql(LOWER).number(position).number(position);
        let lower = || lower().text(source).number(day);
        let insert = sql(INSERT).text(source).number(day).number(position);
        if self.0.db.execute(lower()).await? == 0 && !self.0.db.insert(insert).await? {
            self.0.db.execute(lower()).await?;
        }
        Ok(())
    }

    /// Whether it was noted on that day, or before, where views of a log begin.
    pub async fn has_begin(self, source: &str, day: u64) -> Result<bool, SqlError> {
        let select = sql(SELECT_BEFORE).text(source).number(day);
        Ok(self.0.db.one(select).await?.is_some())
    }

    /// Where the views of that day and of all later ones begin in a log; `None`: there are none.
    pub async fn begin_since(self, source: &str, day: u64) -> Result<Option<u64>, SqlError> {
        let select = sql(SELECT_SINCE).text(source).number(day);
        let row = self.0.db.one(select).await?;
        Ok(row.map_or(Ok(None), |row| row.maybe("position"))?)
    }

    /// Forgets days before.
    pub async fn forget_begins(self, before: u64) -> Result<(), SqlError> {
        self.0.db.execute(sql(DELETE_OLD).number(before)).await?;
        Ok(())
    }
}
