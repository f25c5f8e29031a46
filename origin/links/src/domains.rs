//! The domains of links: stored in SQL, shared by all origins, changed by the API.
//!
//! Each origin has them in memory and looks every second whether SQL has others. So all of them publish the same
//! document, whatever file each was started with: that only seeds a database that has none.

use std::sync::{Arc, PoisonError, RwLock};

use tracing::{info, warn};
use weir_base::FieldError;
use weir_link::code::DomainId;
use weir_link::domain::{Domain, Domains, DomainsConfig};

use super::numbers::Clock;
use super::store::{LinkStore, StoredDomains};
use weir_origin_core::sql::SqlError;

/// How often a change is tried when others change the domains, too.
const ATTEMPTS: usize = 8;

/// What an origin knows of the domains.
#[derive(Clone, Debug)]
pub struct DomainSnapshot {
    /// They, of this version.
    pub stored: Arc<StoredDomains>,
    /// Every domain that ever was: it may have links.
    pub ever: Arc<[DomainId]>,
}

/// The domains. Cloning it is cheap, and clones share them.
#[derive(Clone)]
pub struct SharedDomains {
    store: LinkStore,
    known: Arc<RwLock<DomainSnapshot>>,
    clock: Clock,
}

/// Why domains were not changed.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// They would not be valid.
    #[error(transparent)]
    Invalid(#[from] FieldError),
    /// They have another version than was to be changed.
    #[error("the domains have version {0}")]
    Version(u64),
    /// There is no such domain.
    #[error("there is no such domain")]
    Unknown,
    /// It has links.
    #[error("the domain has links: delete them first")]
    HasLinks,
    /// It has links, whose codes would be others.
    #[error(
        "codes.ignore_case cannot change while the domain \"{0}\" has links: delete them first, or create another domain"
    )]
    Case(DomainId),
    /// Others kept changing them.
    #[error("the domains are being changed concurrently")]
    Busy,
    /// SQL does not answer.
    #[error(transparent)]
    Store(#[from] SqlError),
}

impl SharedDomains {
    /// The domains that SQL has; if none, those of `file`, which it has from then on.
    ///
    /// # Errors
    /// When SQL does not answer.
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
        let known = Arc::new(RwLock::new(DomainSnapshot { stored, ever }));
        Ok(Self {
            store,
            known,
            clock,
        })
    }

    /// What is known now.
    pub fn snapshot(&self) -> DomainSnapshot {
        // Nothing in there can be half done.
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.clone()
    }

    /// The domains.
    pub fn get(&self) -> Arc<StoredDomains> {
        self.snapshot().stored
    }

    /// Reads them again if SQL has others. Whether it has.
    ///
    /// # Errors
    /// When SQL does not answer: what is known stays.
    pub async fn refresh(&self) -> Result<bool, SqlError> {
        if self.store.shared_domains().domains_version().await? == self.get().version {
            return Ok(false);
        }
        let Some(stored) = self.store.shared_domains().stored_domains().await? else {
            return Ok(false);
        };
        let ever = all_domain_ids(&self.store, &stored.domains).await?;
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        // Another task may have been faster.
        if stored.version > known.stored.version {
            let stored = Arc::new(stored);
            *known = DomainSnapshot { stored, ever };
        }
        Ok(true)
    }

    /// Changes the domains; `version`: only if they have this one.
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

    /// Refuses a domain that treats upper and lower case in another way than before, if it has links.
    ///
    /// # Errors
    /// See [`ChangeError`].
    pub async fn check_case(&self, wanted: &Domain) -> Result<(), ChangeError> {
        let known = self.get();
        let before = known.domains.by_id(wanted.id.as_str());
        let changes =
            before.is_some_and(|before| before.codes.ignore_case != wanted.codes.ignore_case);
        match changes && self.store.has_links(&wanted.id).await? {
            true => Err(ChangeError::Case(wanted.id.clone())),
            false => Ok(()),
        }
    }

    /// Takes a domain away that has no links.
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
