//! How far groups are, and whether they run.

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

/// What a group is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control {
    /// Nothing, until it is told to go on.
    pub is_paused: bool,
    /// Where it is to go on, if it ever was anywhere.
    pub position: Option<u64>,
}

impl EventStore {
    /// What a group is to do.
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

    /// Where a group is in a source.
    pub async fn position(&self, group: &str, source: &str) -> Result<Option<u64>, SqlError> {
        let select = sql(SELECT_POSITION).text(group).text(source);
        let row = self.db.one(select).await?;
        Ok(row.map(|row| row.number("position")).transpose()?)
    }

    /// Where a group is in each source that it ever was in.
    pub async fn positions(&self, group: &str) -> Result<BTreeMap<String, u64>, SqlError> {
        let rows = self.db.all(sql(SELECT_POSITIONS).text(group)).await?;
        let position = |row: &Row| Ok((row.text("source")?, row.number("position")?));
        Ok(rows.iter().map(position).collect::<Result<_, Error>>()?)
    }

    /// Notes where a group begins; nothing if it is somewhere already.
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

    /// Moves a group on, if it is where it is believed to be.
    pub async fn step(&self, to: Move<'_>) -> Result<Step, SqlError> {
        let once = || async {
            let mut tx = self.db.begin().await?;
            let step = move_in(&mut tx, to).await?;
            tx.commit().await?;
            Ok(step)
        };
        Ok(retried(once).await?)
    }

    /// Puts a group elsewhere, wherever it is.
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

    /// Pauses a group in all origins, or lets it go on.
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
            // Another origin has made the row meanwhile.
            self.db.execute(set(SET_PAUSED)).await?;
        }
        Ok(())
    }
}

/// The step of a transaction that counts only if the group is where it is believed to be.
pub(super) async fn move_in(tx: &mut Tx, to: Move<'_>) -> Result<Step, Error> {
    let update = sql(MOVE_POSITION).number(to.to).number(to.now_ms);
    let update = update.text(to.group).text(to.source).number(to.from);
    Ok(match tx.execute(update).await? {
        0 => Step::Moved,
        _ => Step::Taken,
    })
}
