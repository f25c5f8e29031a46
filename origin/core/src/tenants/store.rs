//! Tenants in SQL.

use sqlx::Error;

use super::{Limits, NameRange, TENANTS_MAX, Tenant, TenantName};
use crate::sql::{Database, Row, SqlError, Statement, Tx, damaged, retried, sql};

const INSERT: &str = "
    INSERT INTO tenants
        (title, sales_max, units_max, rooms_max, links_max, keys_max, requests_per_second,
        requests_at_once, changed_at_ms, name, created_at_ms)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";

const UPDATE: &str = "
    UPDATE tenants SET
        title = ?, sales_max = ?, units_max = ?, rooms_max = ?, links_max = ?, keys_max = ?,
        requests_per_second = ?, requests_at_once = ?, changed_at_ms = ?
    WHERE name = ?";

// Locks the row, so that counts of the tenant stay valid until the transaction adds to them.
const LOCK: &str = "UPDATE tenants SET changed_at_ms = changed_at_ms WHERE name = ?";

const SELECT: &str = "SELECT * FROM tenants ORDER BY name";

const SELECT_ONE: &str = "SELECT * FROM tenants WHERE name = ?";

const COUNT: &str = "SELECT COUNT(*) AS n FROM tenants";

const DELETE: &str = "DELETE FROM tenants WHERE name = ?";

const INSERT_DOMAIN: &str = "INSERT INTO tenant_domains (domain, tenant) VALUES (?, ?)";

const SELECT_DOMAINS: &str = "SELECT domain, tenant FROM tenant_domains ORDER BY domain";

const SELECT_DOMAINS_OF: &str =
    "SELECT domain FROM tenant_domains WHERE tenant = ? ORDER BY domain";

const DELETE_DOMAINS: &str = "DELETE FROM tenant_domains WHERE tenant = ?";

const REVOKE_KEYS: &str =
    "UPDATE access_keys SET revoked_at_ms = ? WHERE tenant = ? AND revoked_at_ms IS NULL";

/// Statements that count one kind of object by name. Other modules own the tables and statements.
#[derive(Clone, Copy, Debug)]
pub struct Count {
    /// The kind of object.
    pub what: &'static str,
    /// Counts objects that count against the limit. Parameters: first name and exclusive end.
    pub used: &'static str,
    /// Counts all objects with such names, with the same parameters.
    pub named: &'static str,
}

/// All kinds of objects.
pub type Counts = &'static [Count];

/// The outcome of a PUT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PutTenantOutcome {
    /// The tenant was created.
    Made,
    /// The tenant was changed.
    Changed,
    /// The limit of tenants is reached.
    TooMany,
    /// Objects with the tenant's prefix already exist: their kinds and numbers.
    NamesTaken(Vec<(&'static str, u64)>),
    /// Another tenant owns this domain.
    DomainTaken(String),
}

/// Tenants in SQL. Cloning it is cheap. Methods fail only when SQL does not answer or returns an error.
#[derive(Clone, Debug)]
pub struct TenantStore {
    db: Database,
    counts: Counts,
}

impl TenantStore {
    /// Creates a store on this database. `counts` lists the objects that limits count.
    pub fn new(db: Database, counts: Counts) -> Self {
        Self { db, counts }
    }

    /// Returns all tenants, sorted by name.
    ///
    /// # Errors
    /// When SQL does not answer.
    pub async fn all(&self) -> Result<Vec<Tenant>, SqlError> {
        let rows = self.db.all(sql(SELECT)).await?;
        let domains = self.db.all(sql(SELECT_DOMAINS)).await?;
        let mut tenants: Vec<Tenant> = rows.iter().map(stored).collect::<Result<_, _>>()?;
        for row in &domains {
            let name = row.text("tenant")?;
            let at = tenants.binary_search_by(|one| one.name.as_str().cmp(&name));
            if let Some(tenant) = at.ok().and_then(|at| tenants.get_mut(at)) {
                tenant.domains.push(row.text("domain")?);
            }
        }
        Ok(tenants)
    }

    /// Returns the tenant with this name.
    ///
    /// # Errors
    /// When SQL does not answer.
    pub async fn tenant(&self, name: &str) -> Result<Option<Tenant>, SqlError> {
        let Some(row) = self.db.one(sql(SELECT_ONE).text(name)).await? else {
            return Ok(None);
        };
        let mut tenant = stored(&row)?;
        for row in self.db.all(sql(SELECT_DOMAINS_OF).text(name)).await? {
            tenant.domains.push(row.text("domain")?);
        }
        Ok(Some(tenant))
    }

    /// Returns the current usage of each limit.
    ///
    /// # Errors
    /// When SQL does not answer.
    pub async fn used(&self, name: &TenantName) -> Result<Vec<(&'static str, u64)>, SqlError> {
        let range = NameRange::from(name);
        let mut used = Vec::with_capacity(self.counts.len());
        for count in self.counts {
            let row = self.db.one(within(count.used, &range)).await?;
            let n: u64 = row.map_or(Ok(0), |row| row.number("n"))?;
            used.push((count.what, n));
        }
        Ok(used)
    }

    /// Creates or changes a tenant. A new tenant takes over objects with its prefix if `takes_over`; otherwise such
    /// objects must not exist.
    ///
    /// # Errors
    /// When SQL does not answer.
    pub async fn put(
        &self,
        tenant: &Tenant,
        takes_over: bool,
    ) -> Result<PutTenantOutcome, SqlError> {
        let put = || put_once(&self.db, self.counts, tenant, takes_over);
        Ok(retried(put).await?)
    }

    /// Deletes a tenant with its domains and revokes its keys. Objects with its prefix then belong to the platform.
    /// Returns false if the tenant does not exist.
    ///
    /// # Errors
    /// When SQL does not answer.
    pub async fn delete(&self, name: &str, now_ms: u64) -> Result<bool, SqlError> {
        let delete = async || {
            let mut tx = self.db.begin().await?;
            let is_there = tx.execute(sql(DELETE).text(name)).await? > 0;
            tx.execute(sql(DELETE_DOMAINS).text(name)).await?;
            tx.execute(sql(REVOKE_KEYS).number(now_ms).text(name))
                .await?;
            tx.commit().await?;
            Ok(is_there)
        };
        Ok(retried(delete).await?)
    }
}

/// Returns the range of names and the limits of the tenant that owns `name`; `None`: no tenant owns it. Locks the
/// tenant's row, so that no other transaction adds objects before this one ends. Call it before other locks.
pub async fn held_by(tx: &mut Tx, name: &str) -> Result<Option<(NameRange, Limits)>, Error> {
    let Some(tenant) = TenantName::owner_of(name) else {
        return Ok(None);
    };
    let limits = locked(tx, tenant.as_str()).await?;
    Ok(limits.map(|limits| (NameRange::from(&tenant), limits)))
}

/// Locks the row of the tenant with this name, and returns its limits.
pub async fn locked(tx: &mut Tx, tenant: &str) -> Result<Option<Limits>, Error> {
    if tx.execute(sql(LOCK).text(tenant)).await? == 0 {
        return Ok(None);
    }
    let row = tx.one(sql(SELECT_ONE).text(tenant)).await?;
    row.as_ref().map(limits).transpose()
}

fn within<'a>(statement: &'static str, range: &'a NameRange) -> Statement<'a> {
    sql(statement).text(range.first()).text(range.end())
}

async fn put_once(
    db: &Database,
    counts: Counts,
    tenant: &Tenant,
    takes_over: bool,
) -> Result<PutTenantOutcome, Error> {
    let mut tx = db.begin().await?;
    let name = tenant.name.as_str();
    let update = with_fields(sql(UPDATE), tenant).text(name);
    let is_new = tx.execute(update).await? == 0;
    if is_new {
        let insert = with_fields(sql(INSERT), tenant).text(name);
        // If another transaction creates the same tenant concurrently, update it.
        if !tx.insert(insert.number(tenant.created_at_ms)).await? {
            let update = with_fields(sql(UPDATE), tenant).text(name);
            tx.execute(update).await?;
        }
        if let Some(refused) = refusal(&mut tx, counts, tenant, takes_over).await? {
            tx.rollback().await?;
            return Ok(refused);
        }
    }
    tx.execute(sql(DELETE_DOMAINS).text(name)).await?;
    for domain in &tenant.domains {
        if !tx
            .insert(sql(INSERT_DOMAIN).text(domain).text(name))
            .await?
        {
            tx.rollback().await?;
            return Ok(PutTenantOutcome::DomainTaken(domain.clone()));
        }
    }
    tx.commit().await?;
    Ok(if is_new {
        PutTenantOutcome::Made
    } else {
        PutTenantOutcome::Changed
    })
}

/// Why a new tenant, whose row is already inserted, is refused.
async fn refusal(
    tx: &mut Tx,
    counts: Counts,
    tenant: &Tenant,
    takes_over: bool,
) -> Result<Option<PutTenantOutcome>, Error> {
    let row = tx.one(sql(COUNT)).await?;
    let tenants: u64 = row.map_or(Ok(0), |row| row.number("n"))?;
    if tenants > TENANTS_MAX {
        return Ok(Some(PutTenantOutcome::TooMany));
    }
    let range = NameRange::from(&tenant.name);
    let mut accepted = Vec::new();
    for count in counts.iter().filter(|_| !takes_over) {
        let row = tx.one(within(count.named, &range)).await?;
        match row.map_or(Ok(0), |row| row.number("n"))? {
            0 => {}
            n => accepted.push((count.what, n)),
        }
    }
    Ok((!accepted.is_empty()).then_some(PutTenantOutcome::NamesTaken(accepted)))
}

/// Binds the changeable fields, in the order of the statements above.
fn with_fields<'a>(statement: Statement<'a>, tenant: &'a Tenant) -> Statement<'a> {
    let limits = &tenant.limits;
    statement
        .text(&tenant.title)
        .number(limits.sales)
        .number(limits.units)
        .number(limits.rooms)
        .number(limits.links)
        .number(limits.keys)
        .number(limits.requests_per_second)
        .number(limits.requests_at_once)
        .number(tenant.changed_at_ms)
}

fn limits(row: &Row) -> Result<Limits, Error> {
    Ok(Limits {
        sales: row.number("sales_max")?,
        units: row.number("units_max")?,
        rooms: row.number("rooms_max")?,
        links: row.number("links_max")?,
        keys: row.number("keys_max")?,
        requests_per_second: row.number("requests_per_second")?,
        requests_at_once: row.number("requests_at_once")?,
    })
}

fn stored(row: &Row) -> Result<Tenant, Error> {
    let name = row.text("name")?;
    Ok(Tenant {
        name: TenantName::new(&name).ok_or_else(|| damaged("name", "is not a tenant name"))?,
        title: row.text("title")?,
        domains: Vec::new(),
        limits: limits(row)?,
        created_at_ms: row.number("created_at_ms")?,
        changed_at_ms: row.number("changed_at_ms")?,
    })
}
