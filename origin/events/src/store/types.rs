//! The stored event types.

use sqlx::Error;

use super::EventStore;
use weir_origin_core::sql::{Row, SqlError, sql};

const SELECT: &str = "SELECT name, version, document, changed_at_ms FROM event_types ORDER BY name";

const INSERT: &str = "
    INSERT INTO event_types (version, document, changed_at_ms, name) VALUES (1, ?, ?, ?)";

const UPDATE: &str = "
    UPDATE event_types SET version = version + 1, document = ?, changed_at_ms = ?
    WHERE name = ? AND version = ?";

const DELETE: &str = "DELETE FROM event_types WHERE name = ? AND version = ?";

/// A stored event type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredType {
    /// Its name.
    pub name: String,
    /// 1, incremented by each change.
    pub version: u64,
    /// The definition from the API, as JSON.
    pub document: String,
    /// Time of the last change, in milliseconds since the Unix epoch.
    pub changed_at_ms: u64,
}

/// Stores event types.
#[derive(Clone, Copy, Debug)]
pub struct TypeStore<'a>(pub(super) &'a EventStore);

impl TypeStore<'_> {
    /// Lists all types.
    pub async fn types(self) -> Result<Vec<StoredType>, SqlError> {
        let rows = self.0.db.all(sql(SELECT)).await?;
        Ok(rows.iter().map(stored).collect::<Result<_, _>>()?)
    }

    /// Creates a type, or changes the version `before`. Returns false if the stored version differs.
    pub async fn put_type(
        self,
        name: &str,
        document: &str,
        before: Option<u64>,
        now_ms: u64,
    ) -> Result<bool, SqlError> {
        let put = |statement| sql(statement).text(document).number(now_ms).text(name);
        match before {
            None => Ok(self.0.db.insert(put(INSERT)).await?),
            Some(version) => Ok(self.0.db.execute(put(UPDATE).number(version)).await? > 0),
        }
    }

    /// Deletes this version of a type. Returns false if the type does not exist or has another version.
    pub async fn delete_type(self, name: &str, version: u64) -> Result<bool, SqlError> {
        let delete = sql(DELETE).text(name).number(version);
        Ok(self.0.db.execute(delete).await? > 0)
    }
}

fn stored(row: &Row) -> Result<StoredType, Error> {
    Ok(StoredType {
        name: row.text("name")?,
        version: row.number("version")?,
        document: row.text("document")?,
        changed_at_ms: row.number("changed_at_ms")?,
    })
}
