//! Link quotas of tenants.
//!
//! Links are created without a SQL transaction, through Redis and a log. The quota therefore counts in memory: the
//! number of links in SQL some seconds ago, plus those created since. Each origin counts alone. With several origins, a
//! tenant may exceed its quota by what the others created within [`FRESH_FOR`]. A single origin never exceeds it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Mutex as AsyncMutex;

use super::store::LinkStore;
use weir_origin_core::sql::SqlError;
use weir_origin_core::tenants::{LimitExceeded, TENANTS_MAX, Tenant, TenantName};

/// How long a count from SQL is used.
pub const FRESH_FOR: Duration = Duration::from_secs(10);

/// How soon SQL is queried again for a tenant at its quota, because links may have been deleted.
pub const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Maximum number of cached tenants. Above it, all are counted again.
const REMEMBERED_MAX: usize = 2 * TENANTS_MAX as usize;

/// The cached count of a tenant's links.
#[derive(Debug, Default)]
struct CachedCount {
    /// When SQL was queried; `None`: never.
    at: Option<Instant>,
    /// The count from SQL, plus links created since.
    links: u64,
    /// Links created since the SQL query. The next query may not include them yet.
    since: u64,
}

/// Counts links of tenants. Clones are cheap and share the counts.
#[derive(Clone, Debug)]
pub struct Quota {
    store: LinkStore,
    of: Arc<Mutex<HashMap<TenantName, Arc<AsyncMutex<CachedCount>>>>>,
}

impl Quota {
    /// Creates quotas for the links in this store.
    pub fn new(store: LinkStore) -> Self {
        let of = Arc::default();
        Self { store, of }
    }

    /// Reserves this number of links for a tenant; otherwise returns the exceeded limit. Reserved links count until the
    /// next SQL query, even if they are not created.
    ///
    /// # Errors
    /// If a SQL call fails.
    pub async fn take(
        &self,
        tenant: &Tenant,
        links: u64,
    ) -> Result<Option<LimitExceeded>, SqlError> {
        let existing = self.cached_count(&tenant.name);
        // Only requests of this tenant wait during the query.
        let mut existing = existing.lock().await;
        let max = tenant.limits.links;
        let age = existing.at.map(|at| at.elapsed());
        let is_over = existing.links.saturating_add(links) > max;
        let is_old = age.is_none_or(|age| age >= FRESH_FOR || (is_over && age >= AGAIN_AFTER));
        if is_old {
            let domains: Vec<&str> = tenant.domains.iter().map(String::as_str).collect();
            let at = Instant::now();
            let counted = self.store.count_within(&domains, max).await?;
            *existing = CachedCount {
                at: Some(at),
                links: counted.saturating_add(existing.since),
                since: 0,
            };
        }
        let over = LimitExceeded::check("links", existing.links.saturating_add(links), max);
        if over.is_none() {
            existing.links += links;
            existing.since += links;
        }
        Ok(over)
    }

    fn cached_count(&self, name: &TenantName) -> Arc<AsyncMutex<CachedCount>> {
        let mut of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        if of.len() >= REMEMBERED_MAX {
            of.clear();
        }
        of.entry(name.clone()).or_default().clone()
    }
}
