//! Small documents of a team: shared reports and UTM templates.

use sqlx::Error;

use super::LinkStore;
use weir_origin_core::sql::{Row, SqlError, retried, sql};

/// Maximum number of items of a kind per owner.
pub const ITEMS_MAX: usize = 200;

const COUNT: &str = "
    SELECT COUNT(*) AS n FROM link_team_items WHERE kind = ? AND owner = ? AND name <> ?";

const DELETE: &str = "DELETE FROM link_team_items WHERE kind = ? AND name = ? AND owner = ?";

const INSERT: &str = "
    INSERT INTO link_team_items (kind, name, owner, body, created_at_ms) VALUES (?, ?, ?, ?, ?)";

const SELECT: &str = "
    SELECT name, owner, body, created_at_ms FROM link_team_items WHERE kind = ? AND name = ? LIMIT 1";

const LIST: &str = "
    SELECT name, owner, body, created_at_ms FROM link_team_items
    WHERE kind = ? AND owner = ? ORDER BY created_at_ms DESC, name LIMIT ?";

const LIST_ALL: &str = "
    SELECT name, owner, body, created_at_ms FROM link_team_items
    WHERE kind = ? ORDER BY created_at_ms DESC, name LIMIT ?";

/// The kind of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TeamKind {
    /// A report shared without a key.
    Report,
    /// A template of UTM parameters.
    Utm,
}

impl TeamKind {
    const fn label(self) -> &'static str {
        match self {
            Self::Report => "report",
            Self::Utm => "utm",
        }
    }
}

/// A document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TeamItem {
    /// Its name.
    pub name: String,
    /// The tenant; empty: the platform.
    pub owner: String,
    /// JSON.
    pub body: String,
    /// Creation time, in milliseconds since the Unix epoch.
    pub created_at_ms: u64,
}

/// Stores documents of teams.
#[derive(Clone, Copy, Debug)]
pub struct TeamStore<'a>(pub(super) &'a LinkStore);

impl TeamStore<'_> {
    /// Stores an item or replaces it. Returns false if the owner has `ITEMS_MAX` others.
    pub async fn put(self, kind: TeamKind, item: &TeamItem) -> Result<bool, SqlError> {
        let owner = item.owner.as_str();
        let once = || async {
            let mut tx = self.0.db.begin().await?;
            let count = sql(COUNT).text(kind.label()).text(owner).text(&item.name);
            let others: usize = tx.one(count).await?.map_or(Ok(0), |row| row.number("n"))?;
            let has_room = others < ITEMS_MAX;
            if has_room {
                let named = |statement| {
                    sql(statement)
                        .text(kind.label())
                        .text(&item.name)
                        .text(owner)
                };
                tx.execute(named(DELETE)).await?;
                let insert = named(INSERT).text(&item.body);
                tx.insert(insert.number(item.created_at_ms)).await?;
            }
            tx.commit().await?;
            Ok(has_room)
        };
        Ok(retried(once).await?)
    }

    /// Reads an item of any owner.
    pub async fn get(self, kind: TeamKind, name: &str) -> Result<Option<TeamItem>, SqlError> {
        let row = self
            .0
            .db
            .one(sql(SELECT).text(kind.label()).text(name))
            .await?;
        Ok(row.as_ref().map(item).transpose()?)
    }

    /// The newest items of an owner, or of all owners.
    pub async fn list(
        self,
        kind: TeamKind,
        owner: Option<&str>,
    ) -> Result<Vec<TeamItem>, SqlError> {
        let select = match owner {
            Some(owner) => sql(LIST).text(kind.label()).text(owner),
            None => sql(LIST_ALL).text(kind.label()),
        };
        let rows = self.0.db.all(select.number(ITEMS_MAX)).await?;
        Ok(rows.iter().map(item).collect::<Result<_, _>>()?)
    }

    /// Deletes an item of an owner. Returns false if there is none.
    pub async fn delete(self, kind: TeamKind, owner: &str, name: &str) -> Result<bool, SqlError> {
        let delete = sql(DELETE).text(kind.label()).text(name).text(owner);
        Ok(self.0.db.execute(delete).await? > 0)
    }
}

fn item(row: &Row) -> Result<TeamItem, Error> {
    Ok(TeamItem {
        name: row.text("name")?,
        owner: row.text("owner")?,
        body: row.text("body")?,
        created_at_ms: row.number("created_at_ms")?,
    })
}
