//! Steps of the archive: ranges of the log. A step is stored before its first file is written, so that a repetition
//! writes the same files.

use super::EventStore;
use weir_origin_core::sql::{SqlError, sql};

const SELECT_NEXT: &str =
    "SELECT next_position FROM event_archives WHERE source = ? AND first_position = ?";

const INSERT: &str = "
    INSERT INTO event_archives (source, first_position, next_position, noted_at_ms) VALUES (?, ?, ?, ?)";

const SELECT_FIRST: &str = "
    SELECT first_position, next_position FROM event_archives
    WHERE source = ? AND first_position <= ? ORDER BY first_position DESC LIMIT 1";

const SELECT_FOLLOWING: &str = "
    SELECT first_position FROM event_archives
    WHERE source = ? AND first_position > ? ORDER BY first_position LIMIT 1";

const DELETE_OLD: &str = "DELETE FROM event_archives WHERE noted_at_ms < ?";

/// Where a step must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArchiveCut {
    /// The position.
    pub at: u64,
    /// Whether exactly this step is stored. Otherwise another step begins at the position, and this one may end
    /// earlier.
    pub is_noted: bool,
}

/// Stores the archive's steps.
#[derive(Clone, Copy, Debug)]
pub struct ArchiveStore<'a>(pub(super) &'a EventStore);

impl ArchiveStore<'_> {
    /// Stores a step that begins at `first`, unless one exists, and returns its end.
    pub async fn note_archive(
        self,
        source: &str,
        first: u64,
        next: u64,
        now_ms: u64,
    ) -> Result<u64, SqlError> {
        let insert = sql(INSERT).text(source).number(first).number(next);
        if self.0.db.insert(insert.number(now_ms)).await? {
            return Ok(next);
        }
        let select = sql(SELECT_NEXT).text(source).number(first);
        let row = self.0.db.one(select).await?;
        let recorded = row.map(|row| row.number("next_position")).transpose()?;
        Ok(recorded.unwrap_or(next))
    }

    /// The start of the step that contains this position, if there is one.
    pub async fn archive_first(self, source: &str, position: u64) -> Result<Option<u64>, SqlError> {
        let select = sql(SELECT_FIRST).text(source).number(position);
        let Some(row) = self.0.db.one(select).await? else {
            return Ok(None);
        };
        let (first, next) = (row.number("first_position")?, row.number("next_position")?);
        Ok((position < next).then_some(first))
    }

    /// Where a step that begins at this position must end, if there is a constraint.
    pub async fn archive_cut(
        self,
        source: &str,
        position: u64,
    ) -> Result<Option<ArchiveCut>, SqlError> {
        let select = sql(SELECT_NEXT).text(source).number(position);
        if let Some(row) = self.0.db.one(select).await? {
            let (at, is_noted) = (row.number("next_position")?, true);
            return Ok(Some(ArchiveCut { at, is_noted }));
        }
        let select = sql(SELECT_FOLLOWING).text(source).number(position);
        let Some(row) = self.0.db.one(select).await? else {
            return Ok(None);
        };
        let (at, is_noted) = (row.number("first_position")?, false);
        Ok(Some(ArchiveCut { at, is_noted }))
    }

    /// Deletes steps stored before this time.
    pub async fn clean_archives(self, before_ms: u64) -> Result<(), SqlError> {
        self.0.db.execute(sql(DELETE_OLD).number(before_ms)).await?;
        Ok(())
    }
}
