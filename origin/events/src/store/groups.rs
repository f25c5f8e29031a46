//! Positions of groups, and whether they are paused.

use std::collections::BTreeMap;

use sqlx::Error;

use super::{EventStore, Move, Step};
use weir_origin_core::sql::{Row, SqlError, Tx, retried, sql};

const SELECT_POSITION: &str =
    "SELECT position FROM event_positions WHERE group_name = ? AND source = ?";

const SELECT_POSITIONS: &str = "SELECT source, position FROM event_positions WHERE group_name = ?";

const INSERT_POSITION: &str = "
    INSERT INTO event_positions (group_name, source, position, changed_at_ms) VALUES (?, ?, ?, ?)";

const MOVE_POSITION: &str = "
    UPDATE event_positions SET position = ?, changed_at_ms = ?
    WHERE group_name = ? AND source = ? AND position = ?";

const SET_POSITION: &str = "
    UPDATE event_positions SET position = ?, changed_at_ms = ? WHERE group_name = ? AND source = ?";

const SELECT_PAUSED: &str = "SELECT paused FROM event_groups WHERE name = ?";

const SET_PAUSED: &str = "UPDATE event_groups SET paused = ?, changed_at_ms = ? WHERE name = ?";

const INSERT_PAUSED: &str =
    "INSERT INTO event_groups (paused, changed_at_ms, name) VALUES (?, ?, ?)";

/// The stored control state of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control {
    /// Whether the group is paused.
    pub is_paused: bool,
    /// Its position; `None` if it has never started.
    pub position: Option<u64>,
}

impl EventStore {
    /// Reads the control state of a group.
    pub async fn control(&self, group: &str, source: &str) -> Result<Control, SqlError> {
        Ok(Control {
            is_paused: self.is_paused(group).await?,
            position: self.position(group, source).await?,
        })
    }

    /// Whether an operator has paused a group.
    pub async fn is_paused(&self, group: &str) -> Result<bool, SqlError> {
        let row = self.db.one(sql(SELECT_PAUSED).text(group)).await?;
        Ok(row.map_or(Ok(false), |row| row.flag("paused"))?)
    }

    /// The position of a group in a source.
    pub async fn position(&self, group: &str, source: &str) -> Result<Option<u64>, SqlError> {
        let select = sql(SELECT_POSITION).text(group).text(source);
        let row = self.db.one(select).await?;
        Ok(row.map(|row| row.number("position")).transpose()?)
    }

    /// The position of a group in each of its sources.
    pub async fn positions(&self, group: &str) -> Result<BTreeMap<String, u64>, SqlError> {
        let rows = self.db.all(sql(SELECT_POSITIONS).text(group)).await?;
        let position = |row: &Row| Ok((row.text("source")?, row.number("position")?));
        Ok(rows.iter().map(position).collect::<Result<_, Error>>()?)
    }

    /// Stores the start position of a group, unless it already has a position.
    pub async fn begin(
        &self,
        group: &str,
        source: &str,
        position: u64,
        now_ms: u64,
    ) -> Result<(), SqlError> {
        let insert = sql(INSERT_POSITION).text(group).text(source);
        self.db
            .insert(insert.number(position).number(now_ms))
            .await?;
        Ok(())
    }

    /// Moves a group if its stored position is the expected one.
    pub async fn step(&self, to: Move<'_>) -> Result<Step, SqlError> {
        let once = || async {
            let mut tx = self.db.begin().await?;
            let step = move_in(&mut tx, to).await?;
            tx.commit().await?;
            Ok(step)
        };
        Ok(retried(once).await?)
    }

    /// Moves a group unconditionally.
    pub async fn seek(
        &self,
        group: &str,
        source: &str,
        position: u64,
        now_ms: u64,
    ) -> Result<(), SqlError> {
        let update = sql(SET_POSITION).number(position).number(now_ms);
        if self.db.execute(update.text(group).text(source)).await? == 0 {
            self.begin(group, source, position, now_ms).await?;
        }
        Ok(())
    }

    /// Pauses or resumes a group in all origins.
    pub async fn set_paused(
        &self,
        group: &str,
        is_paused: bool,
        now_ms: u64,
    ) -> Result<(), SqlError> {
        let set = |statement| {
            let statement = sql(statement).number(u8::from(is_paused));
            statement.number(now_ms).text(group)
        };
        if self.db.execute(set(SET_PAUSED)).await? == 0
            && !self.db.insert(set(INSERT_PAUSED)).await?
        {
            // Another origin inserted the row meanwhile.
            self.db.execute(set(SET_PAUSED)).await?;
        }
        Ok(())
    }
}

/// Moves the group inside a transaction, if its stored position is the expected one.
pub(super) async fn move_in(tx: &mut Tx, to: Move<'_>) -> Result<Step, Error> {
    let update = sql(MOVE_POSITION).number(to.to).number(to.now_ms);
    let update = update.text(to.group).text(to.source).number(to.from);
    Ok(match tx.execute(update).await? {
        0 => Step::Moved,
        _ => Step::Taken,
    })
}
