//! The audit trail in SQL: intended changes and their outcomes. Rows are only added, and deleted after the retention
//! period.

use serde::Serialize;
use tracing::error;
use utoipa::ToSchema;

use super::key::{NoRandom, twenty_bits};
use crate::sql::{Database, Row, SqlError, Tx, retried, sql};

/// Random bits of an entry's id, below its time.
const RANDOM_BITS: u32 = 20;

/// Maximum number of tries for an unused id. Two entries of the same millisecond collide once in a million.
const IDS_MAX: u32 = 4;

/// Maximum characters of a stored path or detail.
const PATH_LEN_MAX: usize = 512;

/// Maximum number of entries per DELETE, so that other writers do not wait long.
const DELETED_AT_ONCE: u32 = 1_000;

const INSERT: &str = "
    INSERT INTO audit_trail (id, at_ms, actor, actor_name, is_session, method, route, path, source, tenant)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
const INSERT_VERDICT: &str =
    "INSERT INTO audit_verdicts (id, at_ms, status, created, detail) VALUES (?, ?, ?, ?, ?)";

macro_rules! select {
    ($of:literal) => {
        concat!(
            "SELECT t.id, t.at_ms, t.actor, t.actor_name, t.is_session, t.method, t.route, t.path, t.source, t.tenant, ",
            "v.at_ms AS ended_at_ms, v.status, v.created, v.detail ",
            "FROM audit_trail t LEFT JOIN audit_verdicts v ON v.id = t.id ",
            "WHERE t.id < ?",
            $of,
            " ORDER BY t.id DESC LIMIT ?"
        )
    };
}
const SELECT: &str = select!("");
const SELECT_OF: &str = select!(" AND t.actor = ?");
const SELECT_TENANTS: &str = select!(" AND t.tenant = ?");
const SELECT_TENANTS_OF: &str = select!(" AND t.tenant = ? AND t.actor = ?");

const OLDEST: &str = "SELECT id FROM audit_trail WHERE id < ? ORDER BY id LIMIT 1 OFFSET ?";
const DELETE: &str = "DELETE FROM audit_trail WHERE id < ?";
const DELETE_VERDICTS: &str = "DELETE FROM audit_verdicts WHERE id < ?";

/// A change that is about to run.
#[derive(Clone, Debug)]
pub(super) struct Intent {
    pub at_ms: u64,
    pub actor: String,
    pub actor_name: String,
    /// The key's tenant; `None`: the platform.
    pub tenant: Option<String>,
    pub is_session: bool,
    pub method: String,
    pub route: String,
    pub path: String,
    pub source: String,
}

/// The outcome of a change.
#[derive(Clone, Debug)]
pub(super) struct Verdict {
    pub at_ms: u64,
    pub status: u16,
    /// Path of the created object; empty: none.
    pub created: String,
    /// The changed members; empty: not recorded.
    pub detail: String,
}

/// An entry of the audit trail.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = AuditEntry)]
pub(super) struct EntryView {
    /// Increasing id, usable as a cursor.
    id: String,
    /// Milliseconds since the Unix epoch.
    at_ms: u64,
    /// The id of the key, or `admin-token`.
    actor: String,
    /// Display name of that key.
    actor_name: String,
    /// Tenant of the key; null: the platform.
    #[schema(required)]
    tenant: Option<String>,
    /// Whether the change came from a console session.
    session: bool,
    /// The method of the request.
    method: String,
    /// The pattern of its path.
    route: String,
    /// Its path.
    path: String,
    /// Address of the connection; empty: unknown.
    source: String,
    /// HTTP status; null: unknown, because the origin crashed or did not answer in time.
    #[schema(required)]
    status: Option<u64>,
    /// Milliseconds since the Unix epoch.
    #[schema(required)]
    ended_at_ms: Option<u64>,
    /// Path of the created object.
    #[schema(required)]
    created: Option<String>,
    /// The changed members, from and to, such as `state: open to closed`; null: not recorded.
    #[schema(required)]
    detail: Option<String>,
}

impl EntryView {
    pub(super) fn id(&self) -> &str {
        &self.id
    }
}

/// An entry was not written to the audit trail.
#[derive(Debug, thiserror::Error)]
pub(super) enum TrailError {
    #[error(transparent)]
    Sql(#[from] SqlError),
    #[error(transparent)]
    NoRandom(#[from] NoRandom),
    #[error("no free id for an audit entry")]
    NoId,
}

/// The audit trail. Cloning it is cheap.
#[derive(Clone, Debug)]
pub(super) struct Trail {
    db: Database,
}

impl Trail {
    pub(super) fn new(db: Database) -> Self {
        Self { db }
    }

    /// Records a change before it runs. Returns the id of the entry.
    pub(super) async fn begin(&self, intent: &Intent) -> Result<u64, TrailError> {
        for _ in 0..IDS_MAX {
            let id = new_id(intent.at_ms)?;
            let is_new = self.db.insert(insert(id, intent)).await;
            if is_new.map_err(SqlError::from)? {
                return Ok(id);
            }
        }
        Err(TrailError::NoId)
    }

    /// Records the outcome of a change. If that fails, the entry's outcome stays unknown.
    pub(super) async fn end(&self, id: u64, verdict: &Verdict) {
        if let Err(error) = self.db.insert(insert_verdict(id, verdict)).await {
            error!(%error, id, status = verdict.status, "cannot store the outcome in the audit trail");
        }
    }

    /// Records changes with their outcomes in one transaction.
    pub(super) async fn add_all(&self, done: &[(Intent, Verdict)]) -> Result<(), TrailError> {
        let mut entries = Vec::with_capacity(done.len());
        for (intent, verdict) in done {
            entries.push((new_id(intent.at_ms)?, intent, verdict));
        }
        let add = async || {
            let mut tx = self.db.begin().await?;
            for (id, intent, verdict) in &entries {
                add_one(&mut tx, *id, intent, verdict).await?;
            }
            tx.commit().await
        };
        retried(add).await.map_err(SqlError::from)?;
        Ok(())
    }

    /// Returns the entries before this id, newest first. `tenant` and `actor` filter them.
    pub(super) async fn entries_before(
        &self,
        id: u64,
        tenant: Option<&str>,
        actor: Option<&str>,
        limit: usize,
    ) -> Result<Vec<EntryView>, SqlError> {
        let select = match (tenant, actor) {
            (None, None) => sql(SELECT).number(id),
            (None, Some(actor)) => sql(SELECT_OF).number(id).text(actor),
            (Some(tenant), None) => sql(SELECT_TENANTS).number(id).text(tenant),
            (Some(tenant), Some(actor)) => {
                let select = sql(SELECT_TENANTS_OF).number(id);
                select.text(tenant).text(actor)
            }
        };
        let rows = self.db.all(select.number(limit)).await?;
        Ok(rows.iter().map(view).collect::<Result<_, _>>()?)
    }

    /// Deletes some of the entries before `at_ms`. Returns whether more remain.
    pub(super) async fn forget_before(&self, at_ms: u64) -> Result<bool, SqlError> {
        let end = first_id(at_ms);
        let more = sql(OLDEST).number(end).number(DELETED_AT_ONCE);
        let more = self.db.one(more).await?;
        let up_to: Option<u64> = more.map(|row| row.number("id")).transpose()?;
        let end = up_to.unwrap_or(end);
        // Delete verdicts first: a verdict without its entry would never be deleted.
        self.db.execute(sql(DELETE_VERDICTS).number(end)).await?;
        self.db.execute(sql(DELETE).number(end)).await?;
        Ok(up_to.is_some())
    }
}

/// The smallest possible id of an entry at this time.
fn first_id(at_ms: u64) -> u64 {
    at_ms.saturating_mul(1 << RANDOM_BITS).min(i64::MAX as u64)
}

fn new_id(at_ms: u64) -> Result<u64, NoRandom> {
    Ok(first_id(at_ms) | twenty_bits()?)
}

async fn add_one(
    tx: &mut Tx,
    id: u64,
    intent: &Intent,
    verdict: &Verdict,
) -> Result<(), sqlx::Error> {
    // Ignore a duplicate id: it is a collision, or a retry of the same entry.
    if tx.insert(insert(id, intent)).await? {
        tx.insert(insert_verdict(id, verdict)).await?;
    }
    Ok(())
}

fn insert(id: u64, intent: &Intent) -> crate::sql::Statement<'_> {
    let insert = sql(INSERT).number(id).number(intent.at_ms);
    let insert = insert.text(&intent.actor).text(&intent.actor_name);
    let insert = insert.number(u8::from(intent.is_session));
    let insert = insert.text(&intent.method).text(cut(&intent.route));
    let insert = insert.text(cut(&intent.path)).text(&intent.source);
    insert.maybe_text(intent.tenant.as_deref())
}

fn insert_verdict(id: u64, verdict: &Verdict) -> crate::sql::Statement<'_> {
    let insert = sql(INSERT_VERDICT).number(id).number(verdict.at_ms);
    let insert = insert.number(verdict.status).text(cut(&verdict.created));
    insert.text(cut(&verdict.detail))
}

/// Truncates a path or a detail, at a character boundary.
fn cut(text: &str) -> &str {
    let end = text.char_indices().nth(PATH_LEN_MAX).map(|(at, _)| at);
    text.get(..end.unwrap_or(text.len())).unwrap_or_default()
}

fn view(row: &Row) -> Result<EntryView, sqlx::Error> {
    let id: u64 = row.number("id")?;
    Ok(EntryView {
        id: id.to_string(),
        at_ms: row.number("at_ms")?,
        actor: row.text("actor")?,
        actor_name: row.text("actor_name")?,
        tenant: row.maybe_text("tenant")?,
        session: row.flag("is_session")?,
        method: row.text("method")?,
        route: row.text("route")?,
        path: row.text("path")?,
        source: row.text("source")?,
        status: row.maybe("status")?,
        ended_at_ms: row.maybe("ended_at_ms")?,
        created: row
            .maybe_text("created")?
            .filter(|created| !created.is_empty()),
        detail: row
            .maybe_text("detail")?
            .filter(|detail| !detail.is_empty()),
    })
}
