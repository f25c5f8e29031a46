//! Short links: made, kept, found again when Redis has lost them; their clicks.
//!
//! | module | does |
//! |---|---|
//! | [`request`], [`view`] | links as the API takes and shows them |
//! | [`numbers`] | numbers of generated codes, ready before they are asked for |
//! | [`create`] | new links: one write to Redis, one to the log |
//! | [`edit`] | links found, changed, deleted |
//! | [`cold`] | what gateways ask when Redis does not know a link |
//! | [`publish`] | Redis follows edits; gateways hear of domains |
//! | [`clean`] | what has ended is taken away |
//! | [`store`] | the cold store: SQL behind a trait |
//! | [`redis`] | links in Redis |
//! | [`log`] | what makes a link survive before the cold store has it |
//! | [`metrics`] | what is counted of all this |
//! | [`clicks`] | takes batches of clicks from gateways and counts each once |
//! | [`csv`] | tables for other programs |
//! | [`geo`] | where an address is, and who runs its network |
//! | [`qr`] | QR codes |
//! | [`report`] | what is answered about a link's clicks |
//! | [`stats`] | what is counted of clicks, and how it is asked for |
//! | [`uniques`] | visitors and addresses, counted without being known |

pub mod clean;
pub mod clicks;
pub mod cold;
pub mod create;
pub mod csv;
pub mod edit;
pub mod geo;
pub mod log;
pub mod metrics;
pub mod numbers;
pub mod publish;
pub mod qr;
pub mod redis;
pub mod report;
pub mod request;
pub mod stats;
pub mod store;
mod stream;
pub mod uniques;
pub mod view;

use std::path::PathBuf;
use std::sync::Arc;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use weir_link::code::{Code, DomainId, Length};
use weir_link::domain::{Domain, Domains};
use weir_link::scramble::Numbering;
use weir_link::segment::{Plan, Times};

use crate::clock::now_ms;
use crate::ledger::Ledger;
use crate::store::StoreError;
use log::{Log, LogError, LogLimits, Sync, drain};
use metrics::LinkMetrics;
use numbers::{Allocator, AllocatorDeps, Clock};
use redis::LinkRecords;
use store::LinkStore;

/// How links are made and kept.
#[derive(Clone)]
pub struct Settings {
    /// Under which domains.
    pub domains: Domains,
    /// How numbers become codes.
    pub numbering: Numbering,
    /// The folder of the log.
    pub log: PathBuf,
    /// When an entry of the log counts as written.
    pub sync: Sync,
    /// What the log may hold.
    pub log_limits: LogLimits,
    /// How the numbers of each length are parted.
    pub plans: [Plan; Length::ALL.len()],
    /// For how long numbers and names are kept from others.
    pub times: Times,
    /// Reads the clock.
    pub clock: Clock,
}

impl Settings {
    /// The usual ones.
    pub fn new(domains: Domains, log: PathBuf) -> Self {
        Self {
            domains,
            numbering: Numbering::plain(),
            log,
            sync: Sync::default(),
            log_limits: LogLimits::default(),
            plans: Length::ALL.map(Plan::standard),
            times: Times::default(),
            clock: Arc::new(now_ms),
        }
    }
}

/// Why no links can be made.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The log's folder is not fit.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The cold store does not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Links were made with another secret, or without one: the same code would come of two numbers.
    #[error(
        "codes were numbered as {known} before, and would be as {ours} now: WEIR_LINK_SECRET must stay"
    )]
    Numbering {
        /// As the cold store has it.
        known: String,
        /// As it is configured.
        ours: String,
    },
}

/// All that makes, changes and finds links. Cloning it is cheap.
#[derive(Clone, Debug)]
pub struct Links(Arc<Parts>);

struct Parts {
    domains: Domains,
    store: Arc<dyn LinkStore>,
    redis: LinkRecords,
    log: Log,
    allocator: Allocator,
    metrics: LinkMetrics,
    times: Times,
    clock: Clock,
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts").finish_non_exhaustive()
    }
}

impl Links {
    /// Opens the log, and notes domains and numbering in the cold store. Until [`Links::spawn`] nothing is
    /// made.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub async fn open(
        settings: Settings,
        store: Arc<dyn LinkStore>,
        ledger: Ledger,
        metrics: LinkMetrics,
    ) -> Result<Self, OpenError> {
        let ours = settings.numbering.fingerprint();
        let known = store.numbering(&ours).await?;
        if known != ours {
            return Err(OpenError::Numbering { known, ours });
        }
        let ids: Vec<DomainId> = settings.domains.iter().map(|d| d.id.clone()).collect();
        let redis = LinkRecords::new(ledger);
        let deps = AllocatorDeps {
            store: store.clone(),
            redis: redis.clone(),
            numbering: settings.numbering,
            plans: settings.plans,
            times: settings.times,
            domains: store.domains(&ids).await?,
            metrics: metrics.clone(),
            clock: settings.clock.clone(),
        };
        Ok(Self(Arc::new(Parts {
            domains: settings.domains,
            log: Log::open(&settings.log, settings.sync, settings.log_limits)?,
            allocator: Allocator::new(deps),
            store,
            redis,
            metrics,
            times: settings.times,
            clock: settings.clock,
        })))
    }

    /// Starts all that goes on in the background, until `stop`.
    pub fn spawn(&self, stop: &CancellationToken) -> Vec<JoinHandle<()>> {
        let drain = drain::run(
            self.0.log.clone(),
            self.0.store.clone(),
            self.0.metrics.clone(),
            stop.clone(),
        );
        let fill = |length| tokio::spawn(self.allocator().clone().run(length, stop.clone()));
        let mut tasks: Vec<_> = Length::ALL.into_iter().map(fill).collect();
        tasks.push(tokio::spawn(drain));
        tasks.push(tokio::spawn(publish::run(self.clone(), stop.clone())));
        tasks.push(tokio::spawn(clean::run(self.clone(), stop.clone())));
        tasks
    }

    /// The domains.
    pub fn domains(&self) -> &Domains {
        &self.0.domains
    }

    /// The domain of this name, if it is configured.
    pub fn domain(&self, id: &DomainId) -> Option<&Domain> {
        self.0.domains.by_id(id.as_str())
    }

    /// The cold store.
    pub fn store(&self) -> &dyn LinkStore {
        &*self.0.store
    }

    /// Redis.
    pub fn redis(&self) -> &LinkRecords {
        &self.0.redis
    }

    /// The log.
    pub fn log(&self) -> &Log {
        &self.0.log
    }

    /// What hands out codes.
    pub fn allocator(&self) -> &Allocator {
        &self.0.allocator
    }

    /// What is counted.
    pub fn metrics(&self) -> &LinkMetrics {
        &self.0.metrics
    }

    /// For how long numbers and names are kept from others.
    pub fn times(&self) -> Times {
        self.0.times
    }

    /// Now.
    pub fn now_ms(&self) -> u64 {
        (self.0.clock)()
    }

    /// Which number a code has, if it is one that may be generated.
    pub fn index(&self, code: &Code) -> Option<(Length, u64)> {
        let (length, _) = code.number()?;
        let range = self.allocator().plan(length).range();
        let index = self.allocator().numbering().index(length, range, code)?;
        Some((length, index))
    }
}
