//! Settings of waiting rooms in SQL.

use weir_room::{Mode, RoomName, Setting};

use weir_origin_core::sql::{Database, Row, SqlError, Tx, damaged, retried, sql};
use weir_origin_core::tenants::{Count, NameRange, Over, held_by};

const SELECT: &str = "
    SELECT name, version, mode, per_minute, active_max, opens_at_ms FROM rooms
    WHERE ? = '' OR (name >= ? AND name < ?)
    ORDER BY name";

const COUNT: &str = "SELECT COUNT(*) AS n FROM rooms WHERE name >= ? AND name < ?";

/// A tenant's rooms.
pub const TENANTS_ROOMS: Count = Count {
    what: "rooms",
    used: COUNT,
    named: COUNT,
};

const SELECT_ONE: &str =
    "SELECT name, version, mode, per_minute, active_max, opens_at_ms FROM rooms WHERE name = ?";

const INSERT: &str = "
    INSERT INTO rooms (name, version, mode, per_minute, active_max, opens_at_ms, changed_at_ms) VALUES (?, 1, ?, ?, ?, ?, ?)";

const UPDATE: &str = "
    UPDATE rooms SET version = version + 1, mode = ?, per_minute = ?, active_max = ?, opens_at_ms = ?, changed_at_ms = ?
    WHERE name = ?";

/// A room was not set.
#[derive(Debug, thiserror::Error)]
pub enum SetError {
    /// SQL did not answer, or answered with an error.
    #[error(transparent)]
    Sql(#[from] SqlError),
    /// It would be one too many of its tenant's.
    #[error(transparent)]
    Over(#[from] Over),
}

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

    /// The rooms of these names that something is set for.
    ///
    /// # Errors
    /// When SQL does not answer.
    pub async fn all(&self, names: &NameRange) -> Result<Vec<(RoomName, Setting)>, SqlError> {
        let (from, to) = (names.first(), names.end());
        let select = sql(SELECT).text(from).text(from).text(to);
        let rows = self.db.all(select).await?;
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
    /// When SQL does not answer, and when its tenant has as many rooms as it may have.
    pub async fn set(
        &self,
        room: &RoomName,
        setting: &Setting,
        now_ms: u64,
    ) -> Result<Setting, SetError> {
        let set = || set_once(&self.db, room, setting, now_ms);
        if let Some(over) = retried(set).await.map_err(SqlError::from)? {
            return Err(over.into());
        }
        let stored = self.setting(room).await?;
        let stored = stored.ok_or_else(|| damaged("rooms", "has lost a row"));
        Ok(stored.map_err(SqlError::from)?)
    }
}

/// Why it is not set; `None`: it is.
async fn set_once(
    db: &Database,
    room: &RoomName,
    setting: &Setting,
    now_ms: u64,
) -> Result<Option<Over>, sqlx::Error> {
    let mut tx = db.begin().await?;
    let tenant = held_by(&mut tx, room.as_str()).await?;
    let update = || {
        let update = sql(UPDATE).text(setting.mode.word());
        let update = update.number(setting.per_minute).number(setting.active_max);
        let update = update.number(setting.opens_at_ms).number(now_ms);
        update.text(room.as_str())
    };
    if tx.execute(update()).await? > 0 {
        tx.commit().await?;
        return Ok(None);
    }
    let insert = sql(INSERT).text(room.as_str()).text(setting.mode.word());
    let insert = insert.number(setting.per_minute).number(setting.active_max);
    let insert = insert.number(setting.opens_at_ms).number(now_ms);
    if !tx.insert(insert).await? {
        // Somebody else has made it in between.
        tx.execute(update()).await?;
    }
    if let Some((names, limits)) = tenant
        && let Some(over) = Over::check("rooms", count(&mut tx, &names).await?, limits.rooms)
    {
        tx.rollback().await?;
        return Ok(Some(over));
    }
    tx.commit().await?;
    Ok(None)
}

async fn count(tx: &mut Tx, names: &NameRange) -> Result<u64, sqlx::Error> {
    let row = tx
        .one(sql(COUNT).text(names.first()).text(names.end()))
        .await?;
    row.map_or(Ok(0), |row| row.number("n"))
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
