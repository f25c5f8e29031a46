//! Access to the admin routes, and the audit trail of changes.
//!
//! | module | contents |
//! |---|---|
//! | [`scope`] | areas, permissions, roles |
//! | [`auth_layer`] | the layer around all admin routes: authentication, authorization, audit entries |
//! | [`http`] | routes of keys, sessions and the audit trail |
//! | `key` | creation and verification of keys and sessions |
//! | `session` | exchanges a key for a cookie, and a cookie for the caller |
//! | `attempts` | rate limit of failed sign-ins per address |
//! | [`tenancy`], `pace` | what tenants' keys may access, and their request rates |
//! | [`tenants`] | routes of tenants |
//! | `trail`, `behind` | the audit trail, written before or after the answer |
//! | `store` | keys and sessions in SQL |
//! | [`jobs`], [`config`], [`metrics`] | deletion of expired data, settings, metrics |
//!
//! The admin token from the environment has all permissions and works without SQL. Use it to create the first keys, and
//! while SQL does not answer.

mod attempts;
mod audit_detail;
pub mod auth_layer;
pub mod config;
pub mod http;
pub mod jobs;
mod key;
pub mod metrics;
mod pace;
pub mod scope;
mod session;
mod sign_in;
mod store;
pub mod tenancy;
pub mod tenants;
mod trail;
mod trail_writer;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::extract::FromRequestParts;
use axum::http::request::Parts as RequestParts;

use crate::clock::now_ms;
use crate::http::{AdminToken, Problem, Refusal};
use crate::sql::{Database, SqlError};
use crate::tenants::{Counts, NameRange, Tenant, TenantStore};
use attempts::Attempts;
use metrics::AccessMetrics;
use pace::Paces;
use scope::{Area, Role, Scope, Scopes};
use store::{AccessStore, StoredKey};
use trail::Trail;
use trail_writer::TrailWriter;

pub use audit_detail::AuditDetail;
pub use config::Settings;

/// Id of the admin token in the audit trail.
pub const ADMIN_TOKEN_ID: &str = "admin-token";

/// How long a caller is cached without a query to SQL, in milliseconds. Another origin may accept a revoked key for
/// this long.
const KNOWN_MS: u64 = 5_000;

/// Maximum number of cached callers.
const KNOWN_MAX: usize = 1_024;

/// Keys, sessions and the audit trail. Cloning it is cheap.
#[derive(Clone, Debug)]
pub struct Access(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    store: AccessStore,
    tenants: TenantStore,
    paces: Paces,
    trail: Trail,
    behind: TrailWriter,
    attempts: Attempts,
    /// Cached callers by the hash of their key, with their expiry.
    cached: Mutex<HashMap<Vec<u8>, (Caller, u64)>>,
    metrics: AccessMetrics,
    settings: Settings,
    areas: &'static [Area],
}

/// Access of one admin port, which also accepts the admin token.
#[derive(Clone, Debug)]
pub struct AuthLayer {
    access: Access,
    token: AdminToken,
}

/// The caller of a request. Handlers find it in the request's extensions.
#[derive(Clone, Debug)]
pub struct Caller(Arc<CallerIdentity>);

#[derive(Clone, Debug)]
struct CallerIdentity {
    id: String,
    name: String,
    role: Option<Role>,
    scopes: Scopes,
    domains: Vec<String>,
    tags: Vec<String>,
    expires_at_ms: Option<u64>,
    /// The key's tenant; `None`: the platform.
    tenant: Option<Arc<Tenant>>,
    /// Id of the session, if the caller signed in to the console.
    session: Option<String>,
}

impl Access {
    /// Creates access on this database. `counts` lists what tenant limits count. No key has permissions outside
    /// `areas`.
    pub fn new(
        database: Database,
        metrics: AccessMetrics,
        settings: Settings,
        counts: Counts,
        areas: &'static [Area],
    ) -> Self {
        let trail = Trail::new(database.clone());
        Self(Arc::new(Parts {
            tenants: TenantStore::new(database.clone(), counts),
            paces: Paces::default(),
            store: AccessStore::new(database),
            behind: TrailWriter::new(trail.clone(), metrics.audit_lost.clone()),
            trail,
            attempts: Attempts::default(),
            cached: Mutex::default(),
            metrics,
            settings,
            areas,
        }))
    }

    /// The authorization layer of an admin port, with the admin token.
    pub fn with_token(&self, token: AdminToken) -> AuthLayer {
        let access = self.clone();
        AuthLayer { access, token }
    }

    /// Waits until the audit trail is written.
    pub async fn finish(&self) {
        self.0.behind.finish().await;
    }

    fn known_keys(&self) -> MutexGuard<'_, HashMap<Vec<u8>, (Caller, u64)>> {
        self.0.cached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the caller with this key; `None` if the key is invalid.
    async fn holder(&self, presented: &str) -> Result<Option<Caller>, SqlError> {
        let Some(id) = key::id_of(presented) else {
            return Ok(None);
        };
        let (hash, now_ms) = (key::hash(presented), now_ms());
        let existing = self.known_keys().get(&hash).cloned();
        if let Some((caller, until_ms)) = existing
            && now_ms < until_ms
        {
            return Ok(Some(caller));
        }
        let stored = self.0.store.key(id).await?;
        let good =
            stored.filter(|stored| stored.is_good(now_ms) && key::is_key(presented, &stored.hash));
        let caller = match good {
            Some(stored) => self.caller_of(&stored).await?,
            None => None,
        };
        if let Some(caller) = &caller {
            self.remember(hash, caller.clone(), now_ms);
        }
        Ok(caller)
    }

    /// Returns the caller of this key with its current permissions; `None` if its tenant does not exist.
    async fn caller_of(&self, stored: &StoredKey) -> Result<Option<Caller>, SqlError> {
        let Some(name) = &stored.tenant else {
            return Ok(Some(Caller::from_stored(stored, self.0.areas, None)));
        };
        let tenant = self.0.tenants.tenant(name.as_str()).await?;
        Ok(tenant.map(|tenant| Caller::from_stored(stored, self.0.areas, Some(tenant))))
    }

    fn remember(&self, hash: Vec<u8>, caller: Caller, now_ms: u64) {
        let ends_ms = caller.0.expires_at_ms.unwrap_or(u64::MAX);
        let mut existing = self.known_keys();
        if existing.len() >= KNOWN_MAX {
            existing.clear();
        }
        existing.insert(hash, (caller, ends_ms.min(now_ms + KNOWN_MS)));
    }

    /// Clears the cache of callers.
    fn forget_known(&self) {
        self.known_keys().clear();
    }
}

impl AuthLayer {
    /// Returns the caller with this token or key; `None` if it is neither.
    async fn opened_by(&self, presented: &str) -> Result<Option<Caller>, SqlError> {
        match self.token.is(presented.as_bytes()) {
            true => Ok(Some(self.bootstrap())),
            false => self.access.holder(presented).await,
        }
    }

    /// The caller with the admin token.
    fn bootstrap(&self) -> Caller {
        Caller(Arc::new(CallerIdentity {
            id: ADMIN_TOKEN_ID.to_owned(),
            name: "admin token".to_owned(),
            role: Some(Role::Admin),
            scopes: Role::Admin.scopes().of_areas(self.access.0.areas),
            domains: vec![],
            tags: vec![],
            expires_at_ms: None,
            tenant: None,
            session: None,
        }))
    }
}

impl Caller {
    fn from_stored(stored: &StoredKey, areas: &[Area], tenant: Option<Tenant>) -> Self {
        Self(Arc::new(CallerIdentity {
            id: stored.id.clone(),
            name: stored.name.clone(),
            role: stored.role,
            scopes: stored.may().of_areas(areas),
            domains: stored.domains.clone(),
            tags: stored.tags.clone(),
            expires_at_ms: stored.expires_at_ms,
            tenant: tenant.map(Arc::new),
            session: None,
        }))
    }

    fn in_session(mut self, id: String, expires_at_ms: u64) -> Self {
        let user = Arc::make_mut(&mut self.0);
        user.session = Some(id);
        let ends_ms = user.expires_at_ms.unwrap_or(u64::MAX);
        user.expires_at_ms = Some(ends_ms.min(expires_at_ms));
        self
    }

    fn may(&self, scope: Scope) -> bool {
        self.0.scopes.has(scope)
    }

    /// The key's tenant; `None`: the platform.
    pub fn tenant(&self) -> Option<&Tenant> {
        self.0.tenant.as_deref()
    }

    /// The names that the caller may access: all, or those of its tenant.
    pub fn names(&self) -> NameRange {
        self.tenant()
            .map_or_else(NameRange::default, |tenant| (&tenant.name).into())
    }

    /// Whether the caller may access an object with this name.
    pub fn may_name(&self, name: &str) -> bool {
        self.tenant().is_none_or(|tenant| tenant.name.owns(name))
    }

    /// Checks whether the caller may create an object with this name.
    ///
    /// # Errors
    /// 403, with the required prefix.
    pub fn check_new_name(&self, field: &str, name: &str) -> Result<(), Problem> {
        match self.tenant().filter(|_| !self.may_name(name)) {
            Some(tenant) => {
                let prefix = tenant.name.prefix();
                Err(auth_layer::forbidden(format!(
                    "{field}: must start with \"{prefix}\", like all names of the tenant"
                )))
            }
            None => Ok(()),
        }
    }

    /// Whether the key is restricted to some domains or tags.
    fn has_filter(&self) -> bool {
        !(self.0.domains.is_empty() && self.0.tags.is_empty())
    }

    /// Whether the caller may access only some links.
    pub fn is_narrow(&self) -> bool {
        self.has_filter() || self.0.tenant.is_some()
    }

    /// The domains that the caller may access; `None`: all.
    pub fn domains(&self) -> Option<Vec<&str>> {
        let all = match (self.tenant(), self.0.domains.is_empty()) {
            (None, true) => return None,
            (Some(tenant), _) => &tenant.domains,
            (None, false) => &self.0.domains,
        };
        let may = |domain: &&str| self.may_domain(domain);
        Some(all.iter().map(String::as_str).filter(may).collect())
    }

    /// Whether the caller may access objects in this domain.
    pub fn may_domain(&self, domain: &str) -> bool {
        let has = |domains: &[String]| domains.iter().any(|one| one == domain);
        let is_tenants = self.tenant().is_none_or(|tenant| has(&tenant.domains));
        is_tenants && (self.0.domains.is_empty() || has(&self.0.domains))
    }

    /// Whether the caller may access an object with these tags. A restricted key needs at least one matching tag.
    pub fn may_tags<T: AsRef<str>>(&self, tags: &[T]) -> bool {
        let is_own = |tag: &T| self.0.tags.iter().any(|one| one == tag.as_ref());
        self.0.tags.is_empty() || tags.iter().any(is_own)
    }
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Problem;

    /// A request without a key has no caller.
    async fn from_request_parts(parts: &mut RequestParts, _: &S) -> Result<Self, Problem> {
        let caller = parts.extensions.get::<Self>().cloned();
        caller.ok_or_else(|| auth_layer::forbidden("the caller is unknown"))
    }
}

/// 409: the tenant has reached a limit.
pub const TENANT_LIMIT: Refusal = Refusal::conflict(
    "tenant_limit",
    "Too many",
    "The tenant would exceed its limits",
);

/// 409: the tenant would exceed a limit.
pub fn over_limit(over: crate::tenants::LimitExceeded) -> Problem {
    TENANT_LIMIT.because(over.to_string())
}
