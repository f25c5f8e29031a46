//! Calls to several Redis servers, each with its own batches and circuit breaker.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::Cluster;
use weir_base::breaker::Pass;
use weir_engine::breaker::CountedBreaker;
use weir_engine::pump::{
    BATCH_MAX, CompletedBatch, Counts, Pending, Plan, PlannedBatch, Pump, PumpFull,
};
use weir_engine::redis::Reply;
use weir_engine::refusals::Refusals;
use weir_engine::{BatchId, Effects, Metrics, RedisId, StreamId};
use weir_scripts::Call;

use crate::engine::config::{CheckedConfig, DEADLINE_MS};
use crate::engine::metrics::PREFIX;

/// One call.
#[derive(Debug)]
pub(crate) struct Job {
    call: Call,
    pub(crate) kind: Kind,
    /// The permit of the circuit breaker, on the first call of a group.
    pass: Option<Pass>,
}

/// The kind of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Reads new vehicles.
    Vehicles,
    /// Reads a page of SKUs.
    Page,
    /// Reads the routes of SKUs, by their indices in the query.
    Routes(Vec<usize>),
    /// Reads which SKUs of one product fit; one call of several.
    Fits {
        /// The index of the product in the query.
        ask: usize,
        /// The index of the call.
        call: usize,
    },
}

/// Each job is a separate call.
#[derive(Clone, Copy, Debug)]
struct OneByOne;

impl Plan for OneByOne {
    type Job = Job;

    fn plan(&self, requests: Vec<Pending<Job>>, _now_ms: u64) -> Vec<PlannedBatch<Job>> {
        let planned = |pending: Pending<Job>| PlannedBatch {
            call: pending.job.call.clone(),
            requests: Vec::from([pending]),
        };
        requests.into_iter().map(planned).collect()
    }
}

/// One Redis server.
#[derive(Debug)]
struct Store {
    cluster: Cluster,
    pump: Pump<OneByOne>,
    breaker: CountedBreaker,
}

/// All Redis servers; the first is the home Redis.
#[derive(Debug)]
pub(crate) struct Stores {
    all: Vec<Store>,
    /// The server that is served first.
    first: usize,
}

/// Why calls were refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallRejection {
    /// Too many calls wait.
    Full,
    /// This Redis does not answer, or does not exist.
    Unavailable,
}

impl Stores {
    pub(crate) fn new(config: &CheckedConfig, metrics: &mut Metrics) -> Self {
        let further = config.clusters.iter().cloned();
        let home = (Cluster::home(), config.redis.cluster.clone());
        let clusters = core::iter::once(home).chain(further);
        let settings = config.redis.pump_settings(DEADLINE_MS);
        let counts = Counts::new(metrics, PREFIX);
        let store = |(index, (cluster, bridge)): (u8, (Cluster, String))| {
            let refusals = Refusals::new(metrics, PREFIX, &bridge);
            let pump = Pump::new(settings, OneByOne, counts.clone(), refusals);
            let pump = pump.with_redis(RedisId(index));
            let name = match index {
                0 => format!("{PREFIX}_redis"),
                _ => format!("{PREFIX}_redis_{}", cluster.as_str().replace('-', "_")),
            };
            Store {
                breaker: CountedBreaker::new(config.breaker, metrics, &name),
                pump,
                cluster,
            }
        };
        Self {
            all: (0..).zip(clusters).map(store).collect(),
            first: 0,
        }
    }

    /// Whether the home Redis is the only one.
    pub(crate) fn is_one(&self) -> bool {
        self.all.len() == 1
    }

    /// Sends calls to `cluster` for `stream` as a group.
    ///
    /// # Errors
    /// If the calls were refused: none of them is sent.
    pub(crate) fn send(
        &mut self,
        cluster: &Cluster,
        stream: StreamId,
        calls: impl IntoIterator<Item = (Call, Kind)>,
        now_ms: u64,
        effects: &mut Effects,
    ) -> Result<(), CallRejection> {
        let mut stores = self.all.iter_mut();
        let store = stores.find(|store| store.cluster == *cluster);
        let store = store.ok_or(CallRejection::Unavailable)?;
        if store.pump.is_full() {
            return Err(CallRejection::Full);
        }
        let pass = store.breaker.permit(now_ms);
        let mut pass = Some(pass.map_err(|_| CallRejection::Unavailable)?);
        let jobs = calls.into_iter().map(|(call, kind)| Job {
            call,
            kind,
            pass: pass.take(),
        });
        let accepted = store.pump.enqueue_all(stream, jobs, now_ms, effects);
        accepted.map_err(|PumpFull| CallRejection::Full)
    }

    /// Reads the vehicle map.
    pub(crate) fn read_vehicles(&mut self, call: Call, now_ms: u64, effects: &mut Effects) {
        if let Some(home) = self.all.first_mut() {
            let (kind, pass) = (Kind::Vehicles, None);
            let job = Job { call, kind, pass };
            home.pump.enqueue_unowned(job, now_ms, effects);
        }
    }

    /// Returns completed calls by `now_ms`, in turn from each Redis, and at most as many as one event may answer.
    pub(crate) fn flush(&mut self, now_ms: u64, effects: &mut Effects) -> Vec<CompletedBatch<Job>> {
        let mut all = Vec::new();
        for _ in 0..self.all.len() {
            if all.len() >= BATCH_MAX {
                effects.wake();
                break;
            }
            let Some(store) = self.all.get_mut(self.first) else {
                break;
            };
            let completed = store.pump.flush(now_ms, effects);
            store.note(&completed, now_ms);
            all.extend(completed);
            self.first = (self.first + 1) % self.all.len();
        }
        all
    }

    /// Handles the end of a call. Returns the completed ones.
    pub(crate) fn on_reply(
        &mut self,
        batch: BatchId,
        reply: Reply,
        now_ms: u64,
        effects: &mut Effects,
    ) -> Vec<CompletedBatch<Job>> {
        let mut stores = self.all.iter_mut();
        // Only one of them has the batch.
        let Some(store) = stores.find(|store| store.pump.has(batch)) else {
            return Vec::new();
        };
        let completed = store.pump.on_reply(batch, reply, now_ms, effects);
        let completed = completed.unwrap_or_default();
        store.note(&completed, now_ms);
        completed
    }

    pub(crate) fn not_sent(&mut self, batch: BatchId, effects: &mut Effects) {
        let mut stores = self.all.iter_mut();
        stores.any(|store| store.pump.not_sent(batch, effects));
    }

    pub(crate) fn deferred(&mut self, batch: BatchId, effects: &mut Effects) {
        let mut stores = self.all.iter_mut();
        stores.any(|store| store.pump.deferred(batch, effects));
    }

    pub(crate) fn tick_ms(&self) -> u64 {
        let ticks = self.all.iter().map(|store| store.pump.tick_ms());
        ticks.min().unwrap_or(u64::MAX)
    }
}

impl Store {
    fn note(&mut self, completed: &[CompletedBatch<Job>], now_ms: u64) {
        for call in completed {
            let passes = call.requests.iter().filter_map(|pending| pending.job.pass);
            for pass in passes {
                self.breaker.record(now_ms, pass, call.outcome.is_ok(), 1);
            }
        }
    }
}
