//! Behaviour events: ingestion, storage, consumer groups and queries.
//!
//! | module | does |
//! |---|---|
//! | [`http`] | the public and the admin routes |
//! | [`model`] | plain types: log records, dead letters, event types, recently seen events |
//! | [`registry`] | the event types, stored in SQL and compiled in memory |
//! | [`collect`] | ingests events: one verdict each, after the append |
//! | [`pull`] | pulls events from other systems |
//! | [`log`] | the log, as its writers and readers see it |
//! | [`funnels`] | how many customers do one thing and then another |
//! | [`groups`] | the consumer groups: handlers, retries, dead letters |
//! | `archive` | the group `archive`: events as Parquet files (feature `archive`) |
//! | [`store`] | events, positions, retries and dead letters in SQL |
//! | [`admin`] | operator actions: status, seek, pause, resend of dead letters |
//! | [`segments`] | evaluates segments: customers by rules on their events |
//! | `jobs` | deletes expired data, measures the lag of groups |
//! | [`metrics`], [`config`] | metrics; flags and settings |

#![forbid(unsafe_code)]

pub mod admin;
#[cfg(feature = "archive")]
pub mod archive;
pub mod collect;
pub mod config;
pub mod funnels;
pub mod groups;
pub mod http;
mod jobs;
pub mod log;
pub mod metrics;
pub mod model;
pub mod pull;
pub mod registry;
pub mod segments;
pub mod store;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use axum::http::HeaderName;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use collect::Collector;
use groups::runner::{Runner, RunnerDeps};
use groups::status::Status;
use groups::store::StoreWork;
use groups::work::EventWork;
use groups::{GroupTimes, NewGroup};
use log::{EmbeddedLog, EventLog, LogError};
use metrics::EventMetrics;
use model::recent_events::RecentEvents;
use pull::Pull;
use registry::Registry;
use store::{EventStore, STORE_GROUP};
use weir_origin_core::sql::{Database, SqlError};

pub use config::{LogLocation, Settings};

/// SQL migrations of events.
pub const MIGRATIONS: weir_origin_core::sql::Migrations = weir_origin_core::migrations!(
    "events",
    (1, "baseline", "0001_baseline"),
    (2, "counts", "0002_counts"),
    (3, "segments", "0003_segments"),
);

/// Reads the clock: milliseconds since the Unix epoch.
pub type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Maximum length of a group name.
const GROUP_LEN_MAX: usize = 64;

/// Why events cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The log cannot be opened.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A SQL call failed.
    #[error(transparent)]
    Store(#[from] SqlError),
    /// A group name is invalid or duplicate.
    #[error(
        "{0:?} is not a valid consumer group name: use 1 to 64 of a-z, 0-9, - and _, and each name once"
    )]
    Group(String),
}

/// All parts of events. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct Events(Arc<Parts>);

struct Parts {
    store: EventStore,
    log: Arc<dyn EventLog>,
    registry: Arc<Registry>,
    collector: Arc<Collector>,
    groups: Vec<GroupHandle>,
    pulls: Vec<Pull>,
    runners: Mutex<Vec<AnyRunner>>,
    metrics: EventMetrics,
    user_header: HeaderName,
    dead_letters_kept_ms: u64,
    /// Signals that a segment was changed.
    segment_changes: Notify,
    clock: Clock,
}

/// A group as seen by other modules.
#[derive(Clone, Debug)]
pub struct GroupHandle {
    /// Its name.
    pub name: String,
    /// The runner's own report.
    pub status: Arc<Status>,
    /// Topics that it handles; `None`: all.
    pub topics: Option<BTreeSet<String>>,
    changed: Arc<Notify>,
}

enum AnyRunner {
    Store(Box<Runner<StoreWork>>),
    Events(Box<Runner<EventWork>>),
    #[cfg(feature = "archive")]
    Archive(Box<Runner<archive::ArchiveWork>>),
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts").finish_non_exhaustive()
    }
}

impl Events {
    /// Opens the log and reads the types. No event is handled before [`Events::spawn`].
    ///
    /// # Errors
    /// See [`OpenError`].
    pub async fn open(
        settings: Settings,
        database: Database,
        metrics: EventMetrics,
    ) -> Result<Self, OpenError> {
        check_names(&settings.groups)?;
        let log = open_log(&settings)?;
        Self::with_log(settings, log, database, metrics).await
    }

    /// Like [`Events::open`], with a given log.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub async fn with_log(
        settings: Settings,
        log: Arc<dyn EventLog>,
        database: Database,
        metrics: EventMetrics,
    ) -> Result<Self, OpenError> {
        check_names(&settings.groups)?;
        let (store, clock) = (EventStore::new(database), settings.clock.clone());
        let registry = Arc::new(Registry::open(store.clone(), clock.clone()).await?);
        let maker = RunnerFactory {
            log: log.clone(),
            store: store.clone(),
            metrics: metrics.clone(),
            times: settings.times,
            clock: clock.clone(),
        };
        let collector = Arc::new(Collector {
            registry: registry.clone(),
            log: log.clone(),
            observed: RecentEvents::new(settings.remembered),
            metrics: metrics.clone(),
            partitions: settings.partitions,
            clock: clock.clone(),
            is_failing: AtomicBool::new(false),
        });
        let (mut groups, mut runners) = (Vec::new(), Vec::new());
        // Create all runners before any of them runs: the log keeps records only for groups that it has registered.
        let (handle, runner) = maker.store_group(registry.clone())?;
        groups.push(handle);
        runners.push(runner);
        #[cfg(feature = "archive")]
        if let Some(archive) = settings.archive {
            let (handle, runner) = maker.archive_group(archive)?;
            groups.push(handle);
            runners.push(runner);
        }
        for group in settings.groups {
            let (handle, runner) = maker.group(group)?;
            groups.push(handle);
            runners.push(runner);
        }
        Ok(Self(Arc::new(Parts {
            store,
            log,
            registry,
            collector,
            groups,
            pulls: settings.pulls,
            runners: Mutex::new(runners),
            metrics,
            user_header: settings.user_header,
            dead_letters_kept_ms: settings.dead_letters_kept_ms,
            segment_changes: Notify::new(),
            clock,
        })))
    }

    /// Starts the background tasks, which run until `stop`. Call it once.
    pub fn spawn(&self, stop: &CancellationToken) -> Vec<JoinHandle<()>> {
        let runners = std::mem::take(
            &mut *self
                .0
                .runners
                .lock()
                // The whole value is taken at once.
                .unwrap_or_else(PoisonError::into_inner),
        );
        let run = |runner| match runner {
            AnyRunner::Store(runner) => tokio::spawn(runner.run(stop.clone())),
            AnyRunner::Events(runner) => tokio::spawn(runner.run(stop.clone())),
            #[cfg(feature = "archive")]
            AnyRunner::Archive(runner) => tokio::spawn(runner.run(stop.clone())),
        };
        let mut tasks: Vec<JoinHandle<()>> = runners.into_iter().map(run).collect();
        tasks.push(tokio::spawn(self.0.registry.clone().run(stop.clone())));
        for pull in self.pulls() {
            let run = pull::run(self.clone(), pull.clone(), stop.clone());
            tasks.push(tokio::spawn(run));
        }
        tasks.push(tokio::spawn(jobs::clean(self.clone(), stop.clone())));
        tasks.push(tokio::spawn(jobs::measure(self.clone(), stop.clone())));
        tasks.push(tokio::spawn(segments::run(self.clone(), stop.clone())));
        tasks
    }

    /// The collector of events.
    pub fn collector(&self) -> &Arc<Collector> {
        &self.0.collector
    }

    /// The registered event types.
    pub fn registry(&self) -> &Arc<Registry> {
        &self.0.registry
    }

    /// The events in SQL.
    pub fn store(&self) -> &EventStore {
        &self.0.store
    }

    /// The log.
    pub fn log(&self) -> &Arc<dyn EventLog> {
        &self.0.log
    }

    /// The groups, `store` first.
    pub fn groups(&self) -> &[GroupHandle] {
        &self.0.groups
    }

    /// Finds a group by name.
    pub fn group(&self, name: &str) -> Option<&GroupHandle> {
        self.0.groups.iter().find(|group| group.name == name)
    }

    /// The collectors that pull events.
    pub fn pulls(&self) -> &[Pull] {
        &self.0.pulls
    }

    /// Signals that a segment is due.
    pub(crate) fn segment_changes(&self) -> &Notify {
        &self.0.segment_changes
    }

    /// Metrics of events.
    pub fn metrics(&self) -> &EventMetrics {
        &self.0.metrics
    }

    /// The header that names the signed-in customer.
    pub fn user_header(&self) -> &HeaderName {
        &self.0.user_header
    }

    /// The current time, in milliseconds since the Unix epoch.
    pub fn now_ms(&self) -> u64 {
        (self.0.clock)()
    }

    /// State of ingestion: `ok`, `full`, or `failing` if the last append failed.
    pub fn state(&self) -> &'static str {
        if self.0.log.fill().is_full() {
            return "full";
        }
        match self.0.collector.is_failing.load(Ordering::Relaxed) {
            true => "failing",
            false => "ok",
        }
    }
}

impl GroupHandle {
    /// Makes the group check for due work immediately.
    pub fn wake(&self) {
        self.changed.notify_one();
    }
}

fn open_log(settings: &Settings) -> Result<Arc<dyn EventLog>, LogError> {
    let Settings {
        sync,
        limits,
        retention,
        ..
    } = *settings;
    Ok(match &settings.home {
        LogLocation::Folder(folder) => {
            Arc::new(EmbeddedLog::open(folder, sync, limits, retention)?)
        }
        #[cfg(feature = "kafka")]
        LogLocation::Kafka(kafka) => Arc::new(log::KafkaHome::open(kafka.clone())?),
    })
}

fn check_names(groups: &[NewGroup]) -> Result<(), OpenError> {
    let mut names = BTreeSet::from([STORE_GROUP]);
    #[cfg(feature = "archive")]
    names.insert(archive::ARCHIVE_GROUP);
    let is_of_name = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_');
    for group in groups {
        let is_sound = (1..=GROUP_LEN_MAX).contains(&group.name.len());
        if !is_sound || !group.name.bytes().all(is_of_name) || !names.insert(&group.name) {
            return Err(OpenError::Group(group.name.clone()));
        }
    }
    Ok(())
}

/// Creates runners.
struct RunnerFactory {
    log: Arc<dyn EventLog>,
    store: EventStore,
    metrics: EventMetrics,
    times: GroupTimes,
    clock: Clock,
}

impl RunnerFactory {
    fn handle(&self, name: &str, topics: Option<BTreeSet<String>>) -> (GroupHandle, RunnerDeps) {
        let handle = GroupHandle {
            name: name.to_owned(),
            status: Arc::default(),
            topics,
            changed: Arc::default(),
        };
        let deps = RunnerDeps {
            group: name.to_owned(),
            log: self.log.clone(),
            store: self.store.clone(),
            status: handle.status.clone(),
            changed: handle.changed.clone(),
            times: self.times,
            clock: self.clock.clone(),
        };
        (handle, deps)
    }

    fn store_group(&self, registry: Arc<Registry>) -> Result<(GroupHandle, AnyRunner), LogError> {
        let (handle, deps) = self.handle(STORE_GROUP, None);
        let work = StoreWork {
            store: self.store.clone(),
            registry,
            metrics: self.metrics.clone(),
            clock: self.clock.clone(),
        };
        Ok((handle, AnyRunner::Store(Box::new(Runner::new(deps, work)?))))
    }

    #[cfg(feature = "archive")]
    fn archive_group(
        &self,
        archive: archive::Archive,
    ) -> Result<(GroupHandle, AnyRunner), LogError> {
        let (handle, deps) = self.handle(archive::ARCHIVE_GROUP, None);
        let (store, metrics) = (self.store.clone(), self.metrics.clone());
        let work = archive::ArchiveWork::new(archive, store, metrics, self.clock.clone());
        let runner = AnyRunner::Archive(Box::new(Runner::new(deps, work)?));
        Ok((handle, runner))
    }

    fn group(&self, group: NewGroup) -> Result<(GroupHandle, AnyRunner), LogError> {
        let (handle, deps) = self.handle(&group.name, group.topics.clone());
        let (store, metrics) = (self.store.clone(), self.metrics.clone());
        let log = self.log.clone();
        let work = EventWork::new(group, log, store, metrics, self.times, self.clock.clone());
        Ok((
            handle,
            AnyRunner::Events(Box::new(Runner::new(deps, work)?)),
        ))
    }
}
