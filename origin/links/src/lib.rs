//! Short links: creation, storage, recovery after a data loss in Redis, and click statistics.
//!
//! | module | does |
//! |---|---|
//! | [`http`] | the public and the admin routes, and the page of links |
//! | [`model`] | plain types and calculations: fields, requests, answers, click counts, QR codes |
//! | [`store`] | the cold store: links in SQL |
//! | [`jobs`] | counts clicks, writes edits to Redis, deletes ended links, measures the remaining numbers |
//! | [`records`] | links in Redis |
//! | [`log`] | stores new links until the cold store has them |
//! | [`create`], [`numbers`] | creates links: one write to Redis, one to the log; allocates numbers for generated codes |
//! | [`edit`] | changes and deletes links |
//! | [`find`], [`search`] | finds a link in the cold store or in a log; searches links |
//! | [`cold`] | answers gateways if Redis does not have a link |
//! | [`state`] | the current state of a link |
//! | [`password`] | password-protected links |
//! | [`domains`] | the domains, shared by all origins |
//! | [`quota`] | link quotas of tenants |
//! | [`report`], [`crosstab`] | a link's clicks: totals, time series, breakdowns, cross-tabs |
//! | [`group`], [`shared`] | the clicks of many links; reports for people without a key |
//! | [`conversions`] | orders attributed to a link's clicks |
//! | [`geo`] | locates addresses and finds their network operators |
//! | `import` | imports links from exports of other shorteners and of Weir (feature `imports`) |
//! | `cli` | `weir-origin links`, a client of a running origin (feature `cli`) |
//! | [`metrics`], [`config`] | metrics; flags and settings |

#![forbid(unsafe_code)]

#[cfg(feature = "cli")]
pub mod cli;
pub mod cold;
pub mod config;
pub mod conversions;
pub mod create;
pub mod crosstab;
pub mod domains;
pub mod edit;
pub mod find;
pub mod geo;
pub mod group;
pub mod http;
#[cfg(feature = "imports")]
pub mod import;
pub mod jobs;
pub mod log;
pub mod metrics;
pub mod model;
pub mod numbers;
pub mod password;
pub mod quota;
pub mod records;
pub mod report;
pub mod search;
pub mod shared;
pub mod state;
pub mod store;
mod turns;

use std::sync::Arc;

use axum::http::HeaderMap;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use weir_base::key::KeyRing;
use weir_link::click_tag::ClickTag;
use weir_link::code::{Length, LinkId};
use weir_link::record::Country;

use cold::ColdLinks;
use conversions::Orders;
use create::Creator;
use domains::SharedDomains;
use edit::Editor;
use find::Finder;
use geo::Geo;
#[cfg(feature = "imports")]
use import::Importer;
use jobs::capacity::CapacityGauge;
use jobs::clean::Cleaner;
use jobs::clicks::{ClickCounter, consumer_name};
use jobs::publish::Publisher;
use log::{LinkLog, LogError, drain};
use metrics::LinkMetrics;
use numbers::{Allocator, AllocatorDeps, Clock};
use password::Passwords;
use quota::Quota;
use records::LinkRecords;
use shared::SharedReports;
use state::States;
use store::{LinkStore, StoredDomains};
use weir_origin_core::outbox::{Outbox, OutboxTimes, Sink, SinkName};
use weir_origin_core::redis::Redis;
use weir_origin_core::sql::{Database, SqlError};

pub use config::Settings;
pub use jobs::clicks::NoName;

/// SQL migrations of links and clicks.
pub const MIGRATIONS: weir_origin_core::sql::Migrations = weir_origin_core::migrations!(
    "links",
    (1, "baseline", "0001_baseline"),
    (2, "segment times", "0002_segment_times"),
);

/// Why links cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The log's folder is unusable.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The cold store failed.
    #[error(transparent)]
    Store(#[from] SqlError),
    /// Links were created with another secret, or without one: two numbers would give the same code.
    #[error(
        "WEIR_LINK_SECRET has changed (numbering {known} before, {ours} now): restore the earlier secret"
    )]
    Numbering {
        /// The numbering in the cold store.
        known: String,
        /// The configured numbering.
        ours: String,
    },
}

/// All parts of links. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct Links {
    parts: Arc<Parts>,
    /// Receivers of link changes.
    receivers: Vec<Outbox>,
    /// Finds orders attributed to clicks.
    orders: Option<Arc<dyn Orders>>,
}

struct Parts {
    store: LinkStore,
    redis: Redis,
    records: LinkRecords,
    log: LinkLog,
    allocator: Allocator,
    creator: Creator,
    finder: Finder,
    editor: Editor,
    #[cfg(feature = "imports")]
    importer: Importer,
    quota: Quota,
    states: States,
    passwords: Passwords,
    shared: SharedReports,
    cold: ColdLinks,
    publisher: Publisher,
    cleaner: Cleaner,
    capacity: CapacityGauge,
    domains: SharedDomains,
    metrics: LinkMetrics,
    /// The request header with the client's country code.
    country_header: Option<String>,
    /// Keys that sign click ids.
    click_keys: Option<KeyRing>,
    clock: Clock,
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts").finish_non_exhaustive()
    }
}

impl Links {
    /// Opens the log, and stores domains and numbering in the cold store. No link can be created before
    /// [`Links::spawn`].
    ///
    /// # Errors
    /// See [`OpenError`].
    pub async fn open(
        settings: Settings,
        database: Database,
        redis: Redis,
        metrics: LinkMetrics,
    ) -> Result<Self, OpenError> {
        let store = LinkStore::new(database);
        check_numbering(&settings, &store).await?;
        let clock = settings.clock.clone();
        let domains = SharedDomains::open(store.clone(), &settings.domains, clock).await?;
        let store = match settings.sinks.has_any() {
            true => {
                let shared = domains.clone();
                let url = move |id: &LinkId| {
                    let existing = shared.get();
                    let domain = existing.domains.by_id(id.domain.as_str());
                    domain.map(|domain| domain.url(&id.code))
                };
                store.telling(settings.sinks, Arc::new(url))
            }
            false => store,
        };
        let log = LinkLog::open(&settings.log, settings.sync, settings.log_limits)?;
        let parts = Parts::new(settings, domains, log, store, redis, metrics);
        Ok(Self {
            parts: Arc::new(parts),
            receivers: Vec::new(),
            orders: None,
        })
    }

    /// Adds a receiver of link changes. [`Settings::sinks`] must contain its name, otherwise no changes are written for
    /// it.
    #[must_use]
    pub fn with_receiver(
        mut self,
        name: SinkName,
        sink: Arc<dyn Sink>,
        times: OutboxTimes,
    ) -> Self {
        let (queue, meter) = (self.store().outbox(), Arc::new(self.metrics().clone()));
        let outbox = Outbox::new(name, sink, queue, meter, times);
        self.receivers.push(outbox);
        self
    }

    /// Connects the source of orders attributed to clicks.
    #[must_use]
    pub fn with_orders(mut self, orders: Arc<dyn Orders>) -> Self {
        self.orders = Some(orders);
        self
    }

    /// The source of orders attributed to clicks; `None`: clicks have no ids here.
    pub fn conversions(&self) -> Option<&Arc<dyn Orders>> {
        self.orders.as_ref()
    }

    /// Verifies and decodes a click id.
    pub fn read_click(&self, name: &[u8]) -> Option<ClickTag> {
        ClickTag::read(self.parts.click_keys.as_ref()?, name).ok()
    }

    /// A signed id for a click on a tracked link; `None` without a signing key.
    pub fn click_tag(&self, id: &LinkId) -> Option<String> {
        let tag = ClickTag {
            link: id.clone(),
            at_ms: self.now_ms(),
            click: ColdLinks::new_click(),
        };
        Some(tag.sign(self.parts.click_keys.as_ref()?))
    }

    /// Starts the background jobs, which run until `stop`.
    pub fn spawn(&self, stop: &CancellationToken) -> Vec<JoinHandle<()>> {
        let parts = &self.parts;
        let (log, store, metrics) = (&parts.log, &parts.store, &parts.metrics);
        let drain = drain::run(log.clone(), store.clone(), metrics.clone(), stop.clone());
        let fill = |length| tokio::spawn(parts.allocator.clone().run(length, stop.clone()));
        let mut tasks: Vec<_> = Length::ALL.into_iter().map(fill).collect();
        tasks.push(tokio::spawn(drain));
        tasks.push(tokio::spawn(parts.publisher.clone().run(stop.clone())));
        tasks.push(tokio::spawn(parts.cleaner.clone().run(stop.clone())));
        tasks.push(tokio::spawn(parts.capacity.clone().run(stop.clone())));
        for outbox in self.receivers.iter().cloned() {
            tasks.push(tokio::spawn(outbox.run(stop.clone())));
        }
        tasks
    }

    /// Starts to count clicks until `stop`; `geo` locates them.
    ///
    /// # Errors
    /// If the operating system provides no random numbers.
    pub fn spawn_counter(
        &self,
        geo: Geo,
        stop: &CancellationToken,
    ) -> Result<JoinHandle<()>, NoName> {
        let counter = self.click_counter(geo, consumer_name()?);
        Ok(tokio::spawn(counter.run(stop.clone())))
    }

    /// Creates a click counter to be [run](ClickCounter::run) once. `name` is its consumer name in the stream; it must
    /// be unique among running consumers.
    pub fn click_counter(&self, geo: Geo, name: String) -> ClickCounter {
        let parts = &self.parts;
        let (store, redis) = (parts.store.clone(), parts.redis.clone());
        ClickCounter::new(store, redis, geo, parts.metrics.clone(), name)
    }

    /// The current domains.
    pub fn domains(&self) -> Arc<StoredDomains> {
        self.parts.domains.get()
    }

    /// The domains, with methods to change them.
    pub fn shared_domains(&self) -> &SharedDomains {
        &self.parts.domains
    }

    /// The cold store.
    pub fn store(&self) -> &LinkStore {
        &self.parts.store
    }

    /// The links in Redis.
    pub fn records(&self) -> &LinkRecords {
        &self.parts.records
    }

    /// The log of new links.
    pub fn log(&self) -> &LinkLog {
        &self.parts.log
    }

    /// The allocator of codes.
    pub fn allocator(&self) -> &Allocator {
        &self.parts.allocator
    }

    /// The creator of links.
    pub fn creator(&self) -> &Creator {
        &self.parts.creator
    }

    /// The finder of links.
    pub fn finder(&self) -> &Finder {
        &self.parts.finder
    }

    /// The editor of links.
    pub fn editor(&self) -> &Editor {
        &self.parts.editor
    }

    /// The importer of links from files.
    #[cfg(feature = "imports")]
    pub fn importer(&self) -> &Importer {
        &self.parts.importer
    }

    /// The link quotas of tenants.
    pub fn quota(&self) -> &Quota {
        &self.parts.quota
    }

    /// Reads the state of links.
    pub fn states(&self) -> &States {
        &self.parts.states
    }

    /// Hashes and verifies passwords.
    pub fn passwords(&self) -> &Passwords {
        &self.parts.passwords
    }

    /// Reads shared reports.
    pub fn shared_reports(&self) -> &SharedReports {
        &self.parts.shared
    }

    /// Answers gateways when Redis does not have a link.
    pub fn cold(&self) -> &ColdLinks {
        &self.parts.cold
    }

    /// Writes changes from the cold store to Redis.
    pub fn publisher(&self) -> &Publisher {
        &self.parts.publisher
    }

    /// Deletes ended links.
    pub fn cleaner(&self) -> &Cleaner {
        &self.parts.cleaner
    }

    /// Measures how many numbers are left.
    pub fn capacity(&self) -> &CapacityGauge {
        &self.parts.capacity
    }

    /// Metrics of links.
    pub fn metrics(&self) -> &LinkMetrics {
        &self.parts.metrics
    }

    /// The country of a client in a gateway's request, if known.
    pub fn country(&self, headers: &HeaderMap) -> Option<Country> {
        let value = headers.get(self.parts.country_header.as_deref()?)?;
        Country::read(value.as_bytes())
    }

    /// The current time, in milliseconds since the Unix epoch.
    pub fn now_ms(&self) -> u64 {
        (self.parts.clock)()
    }
}

impl Parts {
    fn new(
        settings: Settings,
        domains: SharedDomains,
        log: LinkLog,
        store: LinkStore,
        redis: Redis,
        metrics: LinkMetrics,
    ) -> Self {
        let (times, clock) = (settings.times, settings.clock);
        let records = LinkRecords::new(redis.clone());
        let country_header = settings.country_header;
        let click_keys = settings.click_keys;
        let shared = domains.clone();
        let allocator = Allocator::new(AllocatorDeps {
            store: store.clone(),
            records: records.clone(),
            numbering: settings.numbering,
            plans: settings.plans,
            times,
            domains: Arc::new(move || shared.snapshot().ever),
            metrics: metrics.clone(),
            clock: clock.clone(),
        });
        let finder = Finder::new(store.clone(), records.clone(), log.clone());
        let publisher = Publisher {
            store: store.clone(),
            records: records.clone(),
            domains: domains.clone(),
            metrics: metrics.clone(),
            clock: clock.clone(),
            mark_ms: Arc::default(),
            written: Arc::default(),
        };
        let passwords = Passwords::new(metrics.clone(), clock.clone());
        let creator = Creator {
            store: store.clone(),
            records: records.clone(),
            passwords: passwords.clone(),
            log: log.clone(),
            allocator: allocator.clone(),
            domains: domains.clone(),
            metrics: metrics.clone(),
            clock: clock.clone(),
        };
        let states = States {
            store: store.clone(),
            records: records.clone(),
            clock: clock.clone(),
        };
        let editor = Editor {
            store: store.clone(),
            finder: finder.clone(),
            passwords: passwords.clone(),
            publisher: publisher.clone(),
            states: states.clone(),
            domains: domains.clone(),
            clock: clock.clone(),
        };
        let quota = Quota::new(store.clone());
        #[cfg(feature = "imports")]
        let importer = Importer {
            creator: creator.clone(),
            finder: finder.clone(),
            store: store.clone(),
            domains: domains.clone(),
            quota: quota.clone(),
            clock: clock.clone(),
        };
        let cold = ColdLinks {
            store: store.clone(),
            redis: redis.clone(),
            records: records.clone(),
            finder: finder.clone(),
            publisher: publisher.clone(),
            metrics: metrics.clone(),
            breaker: cold::new_breaker(),
            clock: clock.clone(),
        };
        let cleaner = Cleaner {
            store: store.clone(),
            records: records.clone(),
            publisher: publisher.clone(),
            allocator: allocator.clone(),
            domains: domains.clone(),
            metrics: metrics.clone(),
            quarantine_ms: times.quarantine_ms,
            clock: clock.clone(),
        };
        let capacity = CapacityGauge {
            store: store.clone(),
            allocator: allocator.clone(),
            domains: domains.clone(),
            metrics: metrics.clone(),
            quarantine_ms: times.quarantine_ms,
            clock: clock.clone(),
        };
        Self {
            store,
            redis,
            records,
            log,
            allocator,
            creator,
            finder,
            editor,
            #[cfg(feature = "imports")]
            importer,
            quota,
            states,
            passwords,
            shared: SharedReports::default(),
            cold,
            publisher,
            cleaner,
            capacity,
            domains,
            metrics,
            country_header,
            click_keys,
            clock,
        }
    }
}

/// Checks that numbers still become the same codes as before.
async fn check_numbering(settings: &Settings, store: &LinkStore) -> Result<(), OpenError> {
    let ours = settings.numbering.fingerprint();
    let existing = store.segments().numbering(&ours).await?;
    match existing == ours {
        true => Ok(()),
        false => Err(OpenError::Numbering {
            known: existing,
            ours,
        }),
    }
}
