//! Keys and sessions in SQL.

use sqlx::Error;

use super::scope::{Role, Scopes};
use super::tenancy::of_tenants;
use crate::sql::{Database, Row, SqlError, Tx, damaged, retried, sql};
use crate::tenants::{LimitExceeded, TenantName, store as tenants};

/// Maximum number of the platform's keys, including revoked ones.
pub(super) const KEYS_MAX: u64 = 1_000;

/// Maximum number of a tenant's expired and revoked keys that are retained; tenants can create keys without limit over
/// time.
const ENDED_MAX: u64 = 100;

const INSERT_KEY: &str = "
    INSERT INTO access_keys
        (id, name, hash, role, scopes, domains, tags, created_at_ms, created_by, expires_at_ms, tenant)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
const SELECT_KEYS: &str =
    "SELECT * FROM access_keys WHERE tenant IS NULL ORDER BY created_at_ms DESC, id";
const SELECT_KEYS_OF: &str =
    "SELECT * FROM access_keys WHERE tenant = ? ORDER BY created_at_ms DESC, id";
const SELECT_KEY: &str = "SELECT * FROM access_keys WHERE id = ?";
const COUNT_KEYS: &str = "SELECT COUNT(*) AS n FROM access_keys WHERE tenant IS NULL";
const COUNT_GOOD_OF: &str = "
    SELECT COUNT(*) AS n FROM access_keys
    WHERE tenant = ? AND revoked_at_ms IS NULL AND (expires_at_ms IS NULL OR expires_at_ms > ?)";
const SELECT_ENDED_OF: &str = "
    SELECT id FROM access_keys
    WHERE tenant = ? AND (revoked_at_ms IS NOT NULL OR expires_at_ms <= ?)
    ORDER BY created_at_ms DESC, id LIMIT ? OFFSET ?";
const DELETE_KEY: &str = "DELETE FROM access_keys WHERE id = ?";
const REVOKE_KEY: &str =
    "UPDATE access_keys SET revoked_at_ms = ? WHERE id = ? AND revoked_at_ms IS NULL";

const INSERT_SESSION: &str = "
    INSERT INTO access_sessions (id, key_id, proof, created_at_ms, expires_at_ms) VALUES (?, ?, ?, ?, ?)";
const SELECT_SESSION: &str = "SELECT * FROM access_sessions WHERE id = ?";
const EXTEND_SESSION: &str = "UPDATE access_sessions SET expires_at_ms = ? WHERE id = ?";
const DELETE_SESSION: &str = "DELETE FROM access_sessions WHERE id = ?";
const DELETE_ENDED_SESSIONS: &str = "DELETE FROM access_sessions WHERE expires_at_ms <= ?";

/// Metadata and hash of a key.
#[derive(Clone, Debug)]
pub(super) struct StoredKey {
    pub id: String,
    pub name: String,
    pub hash: Vec<u8>,
    /// `None`: `scopes` lists the permissions.
    pub role: Option<Role>,
    pub scopes: Scopes,
    pub domains: Vec<String>,
    pub tags: Vec<String>,
    pub created_at_ms: u64,
    pub created_by: String,
    pub expires_at_ms: Option<u64>,
    pub revoked_at_ms: Option<u64>,
    /// The key's tenant; `None`: the platform.
    pub tenant: Option<TenantName>,
}

/// The outcome of adding a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AddKeyOutcome {
    Made,
    /// The platform has too many keys.
    TooMany,
    /// The tenant has reached its key limit.
    Over(LimitExceeded),
    /// The tenant does not exist.
    NoTenant,
}

impl StoredKey {
    /// Whether the key is valid at `now_ms`.
    pub(super) fn is_good(&self, now_ms: u64) -> bool {
        self.revoked_at_ms.is_none() && self.expires_at_ms.is_none_or(|at_ms| now_ms < at_ms)
    }

    /// The permissions of the key.
    pub(super) fn may(&self) -> Scopes {
        let scopes = self.role.map_or_else(|| self.scopes.clone(), Role::scopes);
        match self.tenant {
            Some(_) => of_tenants(&scopes),
            None => scopes,
        }
    }
}

/// A session in SQL: its key, its proof and its expiry.
#[derive(Clone, Debug)]
pub(super) struct StoredSession {
    pub id: String,
    pub key_id: String,
    pub proof: Vec<u8>,
    pub created_at_ms: u64,
    pub expires_at_ms: u64,
}

/// Keys and sessions in SQL. Methods fail only when SQL does not answer or returns an error.
#[derive(Clone, Debug)]
pub(super) struct AccessStore {
    db: Database,
}

impl AccessStore {
    pub(super) fn new(db: Database) -> Self {
        Self { db }
    }

    /// Adds a key. Concurrent requests may exceed the platform's limit, but not a tenant's.
    pub(super) async fn add_key(&self, key: &StoredKey) -> Result<AddKeyOutcome, SqlError> {
        let add = async || {
            let mut tx = self.db.begin().await?;
            let refusal = match &key.tenant {
                Some(tenant) => tenants_refusal(&mut tx, tenant, key.created_at_ms).await?,
                None => {
                    let count = tx.one(sql(COUNT_KEYS)).await?;
                    let count: u64 = count.map_or(Ok(0), |row| row.number("n"))?;
                    (count >= KEYS_MAX).then_some(AddKeyOutcome::TooMany)
                }
            };
            if let Some(refusal) = refusal {
                tx.rollback().await?;
                return Ok(refusal);
            }
            insert(&mut tx, key).await?;
            tx.commit().await?;
            Ok(AddKeyOutcome::Made)
        };
        Ok(retried(add).await?)
    }

    /// Returns all keys of a tenant or of the platform, newest first.
    pub(super) async fn keys(&self, tenant: Option<&str>) -> Result<Vec<StoredKey>, SqlError> {
        let select = match tenant {
            Some(tenant) => sql(SELECT_KEYS_OF).text(tenant),
            None => sql(SELECT_KEYS),
        };
        let rows = self.db.all(select).await?;
        Ok(rows.iter().map(key).collect::<Result<_, _>>()?)
    }

    /// Number of valid keys of a tenant.
    pub(super) async fn good_keys(&self, tenant: &str, now_ms: u64) -> Result<u64, SqlError> {
        let count = sql(COUNT_GOOD_OF).text(tenant).number(now_ms);
        let row = self.db.one(count).await?;
        Ok(row.map_or(Ok(0), |row| row.number("n"))?)
    }

    pub(super) async fn key(&self, id: &str) -> Result<Option<StoredKey>, SqlError> {
        let row = self.db.one(sql(SELECT_KEY).text(id)).await?;
        Ok(row.as_ref().map(key).transpose()?)
    }

    /// Revokes a key and returns it. Repeating it changes nothing.
    pub(super) async fn revoke(
        &self,
        id: &str,
        now_ms: u64,
    ) -> Result<Option<StoredKey>, SqlError> {
        self.db
            .execute(sql(REVOKE_KEY).number(now_ms).text(id))
            .await?;
        self.key(id).await
    }

    pub(super) async fn add_session(&self, session: &StoredSession) -> Result<(), SqlError> {
        let insert = sql(INSERT_SESSION).text(&session.id).text(&session.key_id);
        let insert = insert.bytes(&session.proof).number(session.created_at_ms);
        self.db
            .execute(insert.number(session.expires_at_ms))
            .await?;
        Ok(())
    }

    pub(super) async fn session(&self, id: &str) -> Result<Option<StoredSession>, SqlError> {
        let row = self.db.one(sql(SELECT_SESSION).text(id)).await?;
        Ok(row.as_ref().map(session).transpose()?)
    }

    pub(super) async fn extend_session(&self, id: &str, to_ms: u64) -> Result<(), SqlError> {
        let extend = sql(EXTEND_SESSION).number(to_ms).text(id);
        self.db.execute(extend).await?;
        Ok(())
    }

    pub(super) async fn end_session(&self, id: &str) -> Result<(), SqlError> {
        self.db.execute(sql(DELETE_SESSION).text(id)).await?;
        Ok(())
    }

    /// Deletes ended sessions and returns their number.
    pub(super) async fn forget_ended(&self, now_ms: u64) -> Result<u64, SqlError> {
        let delete = sql(DELETE_ENDED_SESSIONS).number(now_ms);
        Ok(self.db.execute(delete).await?)
    }
}

/// Checks whether a tenant may add a key. Also deletes the oldest of its expired and revoked keys beyond the limit.
async fn tenants_refusal(
    tx: &mut Tx,
    tenant: &TenantName,
    now_ms: u64,
) -> Result<Option<AddKeyOutcome>, Error> {
    let name = tenant.as_str();
    let Some(limits) = tenants::locked(tx, name).await? else {
        return Ok(Some(AddKeyOutcome::NoTenant));
    };
    let good = tx.one(sql(COUNT_GOOD_OF).text(name).number(now_ms)).await?;
    let good: u64 = good.map_or(Ok(0), |row| row.number("n"))?;
    if let Some(over) = LimitExceeded::check("keys", good + 1, limits.keys) {
        return Ok(Some(AddKeyOutcome::Over(over)));
    }
    let ended = sql(SELECT_ENDED_OF).text(name).number(now_ms);
    let ended = tx.all(ended.number(ENDED_MAX).number(ENDED_MAX)).await?;
    for row in &ended {
        let id = row.text("id")?;
        tx.execute(sql(DELETE_KEY).text(&id)).await?;
    }
    Ok(None)
}

async fn insert(tx: &mut Tx, key: &StoredKey) -> Result<(), Error> {
    let (scopes, domains) = (key.scopes.words().join(" "), list(&key.domains)?);
    let tags = list(&key.tags)?;
    let insert = sql(INSERT_KEY).text(&key.id).text(&key.name);
    let insert = insert
        .bytes(&key.hash)
        .maybe_text(key.role.map(Role::label));
    let insert = insert.text(&scopes).text(&domains).text(&tags);
    let insert = insert.number(key.created_at_ms).text(&key.created_by);
    let insert = insert.maybe(key.expires_at_ms);
    tx.execute(insert.maybe_text(key.tenant.as_ref().map(TenantName::as_str)))
        .await?;
    Ok(())
}

fn list(words: &[String]) -> Result<String, Error> {
    serde_json::to_string(words).map_err(|error| Error::Encode(error.into()))
}

fn words(row: &Row, column: &str) -> Result<Vec<String>, Error> {
    serde_json::from_str(&row.text(column)?).map_err(|error| damaged(column, error))
}

fn key(row: &Row) -> Result<StoredKey, Error> {
    let role = row.maybe_text("role")?;
    let role = role.map(|word| Role::from_label(&word).ok_or_else(|| damaged("role", "is none")));
    // Scopes of newer versions have no effect here.
    let tenant = row.maybe_text("tenant")?;
    let tenant =
        tenant.map(|name| TenantName::new(&name).ok_or_else(|| damaged("tenant", "is none")));
    let scopes = row.text("scopes")?;
    let scopes = scopes.split(' ').filter_map(|word| word.parse().ok());
    Ok(StoredKey {
        id: row.text("id")?,
        name: row.text("name")?,
        hash: row.bytes("hash")?,
        role: role.transpose()?,
        scopes: scopes.collect(),
        domains: words(row, "domains")?,
        tags: words(row, "tags")?,
        created_at_ms: row.number("created_at_ms")?,
        created_by: row.text("created_by")?,
        expires_at_ms: row.maybe("expires_at_ms")?,
        revoked_at_ms: row.maybe("revoked_at_ms")?,
        tenant: tenant.transpose()?,
    })
}

fn session(row: &Row) -> Result<StoredSession, Error> {
    Ok(StoredSession {
        id: row.text("id")?,
        key_id: row.text("key_id")?,
        proof: row.bytes("proof")?,
        created_at_ms: row.number("created_at_ms")?,
        expires_at_ms: row.number("expires_at_ms")?,
    })
}
