//! Settings of waiting rooms in SQL.

use weir_room::{Mode, RoomName, Setting};

use crate::sql::{Database, Row, SqlError, damaged, sql};

const SELECT: &str =
    "SELECT name, version, mode, per_minute, active_max, opens_at_ms FROM rooms ORDER BY name";

const SELECT_ONE: &str =
    "SELECT name, version, mode, per_minute, active_max, opens_at_ms FROM rooms WHERE name = ?";

const INSERT: &str = "
    INSERT INTO rooms (name, version, mode, per_minute, active_max, opens_at_ms, changed_at_ms) VALUES (?, 1, ?, ?, ?, ?, ?)";

const UPDATE: &str = "
    UPDATE rooms SET version = version + 1, mode = ?, per_minute = ?, active_max = ?, opens_at_ms = ?, changed_at_ms = ?
    WHERE name = ?";

/// Settings in SQL. Cloning it is cheap. A call fails only when SQL does not answer or answers with an error.
#[derive(Clone, Debug)]
pub struct RoomStore {
    db: Database,
}

impl RoomStore {
    /// The store in this database.
    pub fn new(db: Database) -> Self {
        Self { db }
    }

    /// All rooms that something is set for.
    ///
    /// # Errors
    /// When SQL does not answer.
    pub async fn all(&self) -> Result<Vec<(RoomName, Setting)>, SqlError> {
        let rows = self.db.all(sql(SELECT)).await?;
        Ok(rows.iter().map(stored).collect::<Result<_, _>>()?)
    }

    /// What is set for a room; `None`: nothing.
    ///
    /// # Errors
    /// When SQL does not answer.
    pub async fn setting(&self, room: &RoomName) -> Result<Option<Setting>, SqlError> {
        let row = self.db.one(sql(SELECT_ONE).text(room.as_str())).await?;
        let row = row.as_ref().map(stored).transpose()?;
        Ok(row.map(|(_, setting)| setting))
    }

    /// Sets what is in `setting`, but for its version. What is set then, with its version.
    ///
    /// # Errors
    /// When SQL does not answer.
    pub async fn set(
        &self,
        room: &RoomName,
        setting: &Setting,
        now_ms: u64,
    ) -> Result<Setting, SqlError> {
        let insert = sql(INSERT).text(room.as_str()).text(setting.mode.word());
        let insert = insert.number(setting.per_minute).number(setting.active_max);
        let insert = insert.number(setting.opens_at_ms).number(now_ms);
        if !self.db.insert(insert).await? {
            let update = sql(UPDATE)
                .text(setting.mode.word())
                .number(setting.per_minute);
            let update = update
                .number(setting.active_max)
                .number(setting.opens_at_ms);
            self.db
                .execute(update.number(now_ms).text(room.as_str()))
                .await?;
        }
        let stored = self.setting(room).await?;
        Ok(stored.ok_or_else(|| damaged("rooms", "has lost a row"))?)
    }
}

fn stored(row: &Row) -> Result<(RoomName, Setting), sqlx::Error> {
    let name = row.text("name")?;
    let name = RoomName::new(&name).ok_or_else(|| damaged("name", "is no room's"))?;
    let mode = row.text("mode")?;
    let setting = Setting {
        version: row.number("version")?,
        mode: Mode::from_word(&mode).ok_or_else(|| damaged("mode", "is none"))?,
        per_minute: row.number("per_minute")?,
        active_max: row.number("active_max")?,
        opens_at_ms: row.number("opens_at_ms")?,
    };
    Ok((name, setting))
}
