//! The domains of links: stored in SQL, shared by all origins, changed by the API.
//!
//! Each origin caches them and checks SQL for changes every second. All origins therefore publish the same document,
//! regardless of the file they were started with. The file is only used if the database has no domains yet.

use std::sync::{Arc, PoisonError, RwLock};

use tracing::{info, warn};
use weir_base::FieldError;
use weir_link::code::DomainId;
use weir_link::domain::{Domain, Domains, DomainsConfig};

use super::numbers::Clock;
use super::store::{LinkStore, StoredDomains};
use weir_origin_core::sql::SqlError;

/// Maximum number of attempts when others change the domains concurrently.
const ATTEMPTS: usize = 8;

/// A snapshot of the domains.
#[derive(Clone, Debug)]
pub struct DomainSnapshot {
    /// The current domains and their version.
    pub stored: Arc<StoredDomains>,
    /// All domains that ever existed: they may have links.
    pub ever: Arc<[DomainId]>,
}

/// The domains. Clones are cheap and share them.
#[derive(Clone)]
pub struct SharedDomains {
    store: LinkStore,
    cached: Arc<RwLock<DomainSnapshot>>,
    clock: Clock,
}

/// Why a change of the domains failed.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// The new domains would be invalid.
    #[error(transparent)]
    Invalid(#[from] FieldError),
    /// The version differs from the expected one.
    #[error("the domains have version {0}")]
    Version(u64),
    /// The domain does not exist.
    #[error("there is no such domain")]
    Unknown,
    /// The domain has links.
    #[error("the domain has links: delete them first")]
    HasLinks,
    /// The domain has links, whose codes would change.
    #[error(
        "codes.ignore_case cannot change while the domain \"{0}\" has links: delete them first, or create another domain"
    )]
    Case(DomainId),
    /// Others kept changing the domains.
    #[error("the domains are being changed concurrently")]
    Busy,
    /// A SQL call failed.
    #[error(transparent)]
    Store(#[from] SqlError),
}

impl SharedDomains {
    /// Reads the domains from SQL. If there are none, stores those of `file`.
    ///
    /// # Errors
    /// If a SQL call fails.
    pub async fn open(store: LinkStore, file: &Domains, clock: Clock) -> Result<Self, SqlError> {
        if store.shared_domains().seed_domains(file, clock()).await? {
            info!("imported the link domains from the file into the database");
        }
        let seed = || StoredDomains {
            version: 0,
            domains: file.clone(),
        };
        let stored = store
            .shared_domains()
            .stored_domains()
            .await?
            .unwrap_or_else(seed);
        if !stored.domains.iter().eq(file.iter()) {
            warn!(
                version = stored.version,
                "the --links file differs from the domains in the database, which are used: change them with the API"
            );
        }
        let ever = all_domain_ids(&store, &stored.domains).await?;
        let stored = Arc::new(stored);
        let existing = Arc::new(RwLock::new(DomainSnapshot { stored, ever }));
        Ok(Self {
            store,
            cached: existing,
            clock,
        })
    }

    /// The current snapshot.
    pub fn snapshot(&self) -> DomainSnapshot {
        // A panic cannot leave it half-changed.
        let existing = self.cached.read().unwrap_or_else(PoisonError::into_inner);
        existing.clone()
    }

    /// The current domains.
    pub fn get(&self) -> Arc<StoredDomains> {
        self.snapshot().stored
    }

    /// Reloads the domains if SQL has a newer version. Returns whether it had.
    ///
    /// # Errors
    /// If a SQL call fails; the snapshot stays.
    pub async fn refresh(&self) -> Result<bool, SqlError> {
        if self.store.shared_domains().domains_version().await? == self.get().version {
            return Ok(false);
        }
        let Some(stored) = self.store.shared_domains().stored_domains().await? else {
            return Ok(false);
        };
        let ever = all_domain_ids(&self.store, &stored.domains).await?;
        let mut existing = self.cached.write().unwrap_or_else(PoisonError::into_inner);
        // Another task may have been faster.
        if stored.version > existing.stored.version {
            let stored = Arc::new(stored);
            *existing = DomainSnapshot { stored, ever };
        }
        Ok(true)
    }

    /// Changes the domains; with `version`, only that version.
    ///
    /// # Errors
    /// See [`ChangeError`].
    pub async fn change(
        &self,
        version: Option<u64>,
        change: impl Fn(&mut Vec<Domain>) -> Result<(), ChangeError>,
    ) -> Result<Arc<StoredDomains>, ChangeError> {
        for _ in 0..ATTEMPTS {
            self.refresh().await?;
            let before = self.get();
            if version.is_some_and(|version| version != before.version) {
                return Err(ChangeError::Version(before.version));
            }
            let mut all: Vec<Domain> = before.domains.iter().cloned().collect();
            change(&mut all)?;
            let domains = DomainsConfig {
                version: 0,
                domains: all,
            };
            let domains = domains.checked()?;
            let now_ms = (self.clock)();
            if self
                .store
                .shared_domains()
                .change_domains(before.version, &domains, now_ms)
                .await?
            {
                self.refresh().await?;
                return Ok(self.get());
            }
        }
        Err(ChangeError::Busy)
    }

    /// Refuses a different case sensitivity for a domain that has links.
    ///
    /// # Errors
    /// See [`ChangeError`].
    pub async fn check_case(&self, domain: &Domain) -> Result<(), ChangeError> {
        let existing = self.get();
        let before = existing.domains.by_id(domain.id.as_str());
        let changes =
            before.is_some_and(|before| before.codes.ignore_case != domain.codes.ignore_case);
        match changes && self.store.has_links(&domain.id).await? {
            true => Err(ChangeError::Case(domain.id.clone())),
            false => Ok(()),
        }
    }

    /// Removes a domain without links.
    ///
    /// # Errors
    /// See [`ChangeError`].
    pub async fn remove(&self, version: Option<u64>, id: &str) -> Result<(), ChangeError> {
        if let Ok(domain) = DomainId::new(id)
            && self.store.has_links(&domain).await?
        {
            return Err(ChangeError::HasLinks);
        }
        let remove = |all: &mut Vec<Domain>| {
            let count = all.len();
            all.retain(|domain| domain.id.as_str() != id);
            match all.len() < count {
                true => Ok(()),
                false => Err(ChangeError::Unknown),
            }
        };
        self.change(version, remove).await.map(drop)
    }
}

async fn all_domain_ids(store: &LinkStore, domains: &Domains) -> Result<Arc<[DomainId]>, SqlError> {
    let ids: Vec<DomainId> = domains.iter().map(|domain| domain.id.clone()).collect();
    Ok(store.segments().domains(&ids).await?.into())
}
