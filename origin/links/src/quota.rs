//! How many links a tenant may have.
//!
//! Links are made faster than SQL is asked, by Redis and a log, so they are not counted by a transaction but here: what SQL had a
//! little while ago, and what was made since. Each origin counts for itself. So with several of them a tenant may have more by what
//! the others have made in [`FRESH_FOR`]; one alone never lets it have more.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Mutex as AsyncMutex;

use super::store::LinkStore;
use weir_origin_core::sql::SqlError;
use weir_origin_core::tenants::{LimitExceeded, TENANTS_MAX, Tenant, TenantName};

/// For how long what SQL has said counts.
pub const FRESH_FOR: Duration = Duration::from_secs(10);

/// How soon it is asked again by a tenant that has all it may have: links are deleted, too.
pub const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// The most tenants that are remembered: with more, all are counted anew.
const REMEMBERED_MAX: usize = 2 * TENANTS_MAX as usize;

/// What is known of one tenant's links.
#[derive(Debug, Default)]
struct CachedCount {
    /// When SQL was asked; `None`: never.
    at: Option<Instant>,
    /// As SQL had it, and what was taken beside.
    links: u64,
    /// Taken since SQL was asked: it may not have them yet when it is asked again.
    since: u64,
}

/// Counts links of tenants. Cloning it is cheap, and clones count together.
#[derive(Clone, Debug)]
pub struct Quota {
    store: LinkStore,
    of: Arc<Mutex<HashMap<TenantName, Arc<AsyncMutex<CachedCount>>>>>,
}

impl Quota {
    /// Of the links in this store.
    pub fn new(store: LinkStore) -> Self {
        let of = Arc::default();
        Self { store, of }
    }

    /// Lets a tenant make so many links; else what it has too much. They count whether or not they are made, until SQL is asked
    /// again.
    ///
    /// # Errors
    /// When SQL does not answer.
    pub async fn take(
        &self,
        tenant: &Tenant,
        links: u64,
    ) -> Result<Option<LimitExceeded>, SqlError> {
        let known = self.cached_count(&tenant.name);
        // Only this tenant's requests wait while it is counted.
        let mut known = known.lock().await;
        let max = tenant.limits.links;
        let age = known.at.map(|at| at.elapsed());
        let is_over = known.links.saturating_add(links) > max;
        let is_old = age.is_none_or(|age| age >= FRESH_FOR || (is_over && age >= AGAIN_AFTER));
        if is_old {
            let domains: Vec<&str> = tenant.domains.iter().map(String::as_str).collect();
            let at = Instant::now();
            let counted = self.store.count_within(&domains, max).await?;
            *known = CachedCount {
                at: Some(at),
                links: counted.saturating_add(known.since),
                since: 0,
            };
        }
        let over = LimitExceeded::check("links", known.links.saturating_add(links), max);
        if over.is_none() {
            known.links += links;
            known.since += links;
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
