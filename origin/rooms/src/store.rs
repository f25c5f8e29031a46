//! Settings of waiting rooms in SQL.

use std::sync::LazyLock;

use weir_room::{Mode, RoomName, Setting};

use crate::model::RoomFields;
use weir_origin_core::sql::{
    Codec, Columns, Database, Plain, Row, SqlError, Statement, Tx, damaged, insert_into, retried,
    sql, update,
};
use weir_origin_core::tenants::{Count, LimitExceeded, NameRange, held_by};

const SELECT: &str = "
    SELECT * FROM rooms
    WHERE ? = '' OR (name >= ? AND name < ?)
    ORDER BY name";

const COUNT: &str = "SELECT COUNT(*) AS n FROM rooms WHERE name >= ? AND name < ?";

/// Number of rooms per tenant.
pub const TENANTS_ROOMS: Count = Count {
    what: "rooms",
    used: COUNT,
    named: COUNT,
};

const DELETE: &str = "DELETE FROM rooms WHERE name = ?";

const SELECT_ONE: &str = "SELECT * FROM rooms WHERE name = ?";

static INSERT: LazyLock<String> =
    LazyLock::new(|| insert_into::<RoomFields>("rooms", &["version", "changed_at_ms", "name"]));

static UPDATE: LazyLock<String> = LazyLock::new(|| {
    update::<RoomFields>("rooms", &["changed_at_ms"]) + ", version = version + 1 WHERE name = ?"
});

/// The version of a room's first setting.
const FIRST_VERSION: u64 = 1;

weir_origin_core::columns!(RoomFields {
    mode: ModeColumn["mode"],
    per_minute: Plain["per_minute"],
    active_max: Plain["active_max"],
    opens_at_ms: Plain["opens_at_ms"],
});

/// Codec that stores a mode as its label.
struct ModeColumn;

impl Codec<Mode> for ModeColumn {
    fn bind<'a>(mode: &'a Mode, statement: Statement<'a>) -> Statement<'a> {
        statement.text(mode.label())
    }

    fn read(row: &Row, _: &[&str]) -> Result<Mode, sqlx::Error> {
        Mode::from_label(&row.text("mode")?).ok_or_else(|| damaged("mode", "is not a mode"))
    }
}

/// Why a room was not set.
#[derive(Debug, thiserror::Error)]
pub enum SetError {
    /// The SQL statement failed.
    #[error(transparent)]
    Sql(#[from] SqlError),
    /// The tenant has reached its room limit.
    #[error(transparent)]
    Over(#[from] LimitExceeded),
}

/// Room settings in SQL. Cloning it is cheap. Methods fail only when SQL does not answer or returns an error.
#[derive(Clone, Debug)]
pub struct RoomStore {
    db: Database,
}

impl RoomStore {
    /// Creates a store on this database.
    pub fn new(db: Database) -> Self {
        Self { db }
    }

    /// Returns the rooms with a setting in this range of names.
    ///
    /// # Errors
    /// When SQL does not answer.
    pub async fn all(&self, names: &NameRange) -> Result<Vec<(RoomName, Setting)>, SqlError> {
        let (from, to) = (names.first(), names.end());
        let select = sql(SELECT).text(from).text(from).text(to);
        let rows = self.db.all(select).await?;
        Ok(rows.iter().map(stored).collect::<Result<_, _>>()?)
    }

    /// Returns the setting of a room; `None` if it has none.
    ///
    /// # Errors
    /// When SQL does not answer.
    pub async fn setting(&self, room: &RoomName) -> Result<Option<Setting>, SqlError> {
        let row = self.db.one(sql(SELECT_ONE).text(room.as_str())).await?;
        let row = row.as_ref().map(stored).transpose()?;
        Ok(row.map(|(_, setting)| setting))
    }

    /// Deletes the setting of a room, if it has one.
    ///
    /// # Errors
    /// When SQL does not answer.
    pub async fn delete(&self, room: &RoomName) -> Result<(), SqlError> {
        self.db.execute(sql(DELETE).text(room.as_str())).await?;
        Ok(())
    }

    /// Sets a room. Returns the stored setting with its version.
    ///
    /// # Errors
    /// When SQL does not answer, or when the tenant has reached its room limit.
    pub async fn set(
        &self,
        room: &RoomName,
        fields: &RoomFields,
        now_ms: u64,
    ) -> Result<Setting, SetError> {
        let set = || set_once(&self.db, room, fields, now_ms);
        if let Some(over) = retried(set).await.map_err(SqlError::from)? {
            return Err(over.into());
        }
        let stored = self.setting(room).await?;
        let stored = stored.ok_or_else(|| damaged("rooms", "misses a row"));
        Ok(stored.map_err(SqlError::from)?)
    }
}

/// Sets a room in one transaction. Returns the exceeded limit; `None` if the room was set.
async fn set_once(
    db: &Database,
    room: &RoomName,
    fields: &RoomFields,
    now_ms: u64,
) -> Result<Option<LimitExceeded>, sqlx::Error> {
    let mut tx = db.begin().await?;
    let tenant = held_by(&mut tx, room.as_str()).await?;
    let update = || {
        let update = fields.bind(sql(&UPDATE)).number(now_ms);
        update.text(room.as_str())
    };
    if tx.execute(update()).await? > 0 {
        tx.commit().await?;
        return Ok(None);
    }
    let insert = fields.bind(sql(&INSERT)).number(FIRST_VERSION);
    let insert = insert.number(now_ms).text(room.as_str());
    if !tx.insert(insert).await? {
        // Another request has inserted the room in the meantime.
        tx.execute(update()).await?;
    }
    if let Some((names, limits)) = tenant
        && let Some(over) =
            LimitExceeded::check("rooms", count(&mut tx, &names).await?, limits.rooms)
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
    let name = RoomName::new(&name).ok_or_else(|| damaged("name", "is not a room name"))?;
    let setting = RoomFields::read(row)?.setting(row.number("version")?);
    Ok((name, setting))
}
