//! Cursors of the collectors that pull events.

use sqlx::Error;

use super::{EventStore, Step, cut};
use weir_origin_core::sql::{Row, SqlError, sql};

const SELECT_ONE: &str = "
    SELECT name, next_from, failures, error, fetched_at_ms FROM event_pulls WHERE name = ?";

const INSERT: &str = "
    INSERT INTO event_pulls (name, next_from, failures, error) VALUES (?, '', 0, '')";

const MOVE: &str = "
    UPDATE event_pulls SET next_from = ?, failures = 0, error = '', fetched_at_ms = ?
    WHERE name = ? AND next_from = ?";

const FAIL: &str = "UPDATE event_pulls SET failures = failures + 1, error = ? WHERE name = ?";

/// The state of a collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullState {
    /// Its name.
    pub name: String,
    /// The last cursor of its source; empty at first.
    pub cursor: String,
    /// Number of consecutive failures.
    pub failures: u64,
    /// The last error.
    pub error: String,
    /// Time of the last fetch, in milliseconds since the Unix epoch.
    pub fetched_at_ms: Option<u64>,
}

/// Stores the cursors of collectors.
#[derive(Clone, Copy, Debug)]
pub struct PullStore<'a>(pub(super) &'a EventStore);

impl PullStore<'_> {
    /// Reads the state of a collector; creates it if missing.
    pub async fn pull(self, name: &str) -> Result<PullState, SqlError> {
        let select = || self.0.db.one(sql(SELECT_ONE).text(name));
        let mut row = select().await?;
        if row.is_none() {
            self.0.db.insert(sql(INSERT).text(name)).await?;
            row = select().await?;
        }
        Ok(row.as_ref().ok_or(Error::RowNotFound).and_then(state)?)
    }

    /// Moves a collector's cursor, if the stored cursor is the expected one.
    pub async fn move_pull(
        self,
        name: &str,
        from: &str,
        to: &str,
        now_ms: u64,
    ) -> Result<Step, SqlError> {
        let update = sql(MOVE).text(to).number(now_ms).text(name).text(from);
        Ok(match self.0.db.execute(update).await? {
            0 => Step::Moved,
            _ => Step::Taken,
        })
    }

    /// Records a failure of a collector.
    pub async fn fail_pull(self, name: &str, error: &str) -> Result<(), SqlError> {
        let error = cut(error);
        self.0.db.execute(sql(FAIL).text(&error).text(name)).await?;
        Ok(())
    }
}

fn state(row: &Row) -> Result<PullState, Error> {
    Ok(PullState {
        name: row.text("name")?,
        cursor: row.text("next_from")?,
        failures: row.number("failures")?,
        error: row.text("error")?,
        fetched_at_ms: row.maybe("fetched_at_ms")?,
    })
}
