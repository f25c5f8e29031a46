//! Gateways and Redis on one virtual clock, for the simulations of limits, links and waiting rooms.
//!
//! | module | |
//! |---|---|
//! | here | the stage, and one step on it |
//! | [`fault`] | faults, and how schedules contain them |
//! | [`calls`] | calls to Redis with their faults |
//! | [`requests`] | clients' requests in gateways |
//! | [`history`] | earlier states of Redis, so that data can be lost |
//! | [`commands`] | parses commands and writes replies as Redis does |
//!
//! Implementations of [`Simulation`] provide the specific parts: the model of Redis, the origin, clients and
//! invariants.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the simulation, and must stop it"
)]

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use weir_base::shared_data::LocalData;
use weir_engine::redis::Reply;
use weir_engine::{Answer, BatchId, Fetch, FetchId, StreamId};

use crate::host::{Gateway, RequestId, TracksStreams, Worker, WorkerEffect, WorkerLife};
use crate::mutation::Mutation;
use crate::network::Network;
use crate::queue::{Queue, START_MS};
use crate::stats::Stats;
use crate::trace::Trace;
use crate::witness::Violation;
use crate::{Options, Report};

pub(crate) mod calls;
pub(crate) mod commands;
pub(crate) mod fault;
pub(crate) mod history;
pub(crate) mod requests;

use calls::RedisCall;
use fault::{Faults, TimedFault};
use requests::{Request, Requests};

/// A request's timeout for Redis, in all engines.
pub(crate) const DEADLINE_MS: u64 = 250;

/// The polling interval of engines.
pub(crate) const POLL_MS: u64 = 250;

/// The gateways of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Crew {
    pub(crate) gateways: u32,
    /// Workers per gateway.
    pub(crate) workers: u32,
}

/// The common state of all simulations.
pub(crate) struct Stage<E, H> {
    pub(crate) queue: Queue<ScheduledEvent<H>>,
    pub(crate) gateways: Vec<Gateway<E>>,
    pub(crate) crew: Crew,
    pub(crate) network: Rc<RefCell<Network>>,
    pub(crate) faults: Vec<TimedFault>,
    requests: BTreeMap<RequestId, Request>,
    next_request: RequestId,
    is_redis_up: bool,
    /// The end of Redis' stall, and the calls queued since.
    redis_stalls_until_us: u64,
    before_redis: VecDeque<RedisCall>,
    pub(crate) mutation: Option<Mutation>,
    pub(crate) violation: Option<Violation>,
    pub(crate) trace: Trace,
    pub(crate) stats: Stats,
}

/// The state of Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RedisState {
    Up,
    Down,
    StallsUntil(u64),
}

/// A scheduled event.
#[derive(Debug)]
pub(crate) enum ScheduledEvent<H> {
    Tick {
        place: WorkerLife,
        change: u64,
    },
    Wake {
        place: WorkerLife,
    },
    StreamEnds {
        place: WorkerLife,
        stream: StreamId,
    },
    MustBeDecided {
        request: RequestId,
        upsets: u64,
    },
    RedisArrives(RedisCall),
    RedisGoesOn,
    RedisStarts,
    GatewayHears {
        place: WorkerLife,
        batch: BatchId,
        reply: Reply,
    },
    FaultBegins(usize),
    GatewayStarts {
        gateway: usize,
    },
    /// An event specific to the simulation.
    Own(H),
}

/// The outcome of a request in a gateway.
#[derive(Clone, Debug)]
pub(crate) enum Decision {
    /// The gateway answered.
    Answered(Arc<Answer>),
    /// The request continued, and its stream stays open.
    WentOn { place: WorkerLife, stream: StreamId },
    /// The gateway is missing, or dies.
    Broken,
    /// The client disconnected before.
    Left,
}

/// The specific part of a simulation.
pub(crate) trait Simulation: Sized {
    type Engine: TracksStreams;
    type Event: std::fmt::Debug;

    fn stage(&mut self) -> &mut Stage<Self::Engine, Self::Event>;

    /// Creates the engine of a worker.
    fn engine(&mut self, worker: u32, data: &Rc<LocalData>) -> Self::Engine;

    /// Handles a specific event.
    fn happen(&mut self, own: Self::Event);

    /// Redis runs the first `most` commands in `bytes`, and writes its replies. `is_repeat`: whether it has run them
    /// before.
    fn run_redis(&mut self, place: WorkerLife, bytes: &[u8], most: u64, is_repeat: bool)
    -> Vec<u8>;

    /// Restores Redis' state of `back_us` ago; an empty one if `None`.
    fn lose(&mut self, back_us: Option<u64>);

    /// Handles a request's decision.
    fn decided(&mut self, request: RequestId, decision: Decision);

    /// Handles an engine's HTTP request.
    fn fetch(&mut self, place: WorkerLife, id: FetchId, fetch: Fetch);

    /// Starts a fault specific to this simulation.
    fn fault_begins(&mut self, fault: fault::Fault);

    /// Called after a worker has handled an event.
    fn after_event(&mut self, _place: WorkerLife) {}

    /// The time limit for a request's decision while its gateway is undisturbed.
    fn decided_within_us(&self) -> u64;

    // --- time

    fn now_us(&mut self) -> u64 {
        self.stage().queue.now_us()
    }

    /// Runs all events for `ms`, or until a violation.
    fn run_ms(&mut self, ms: u64) {
        let end_us = self.now_us() + ms * 1_000;
        self.run_until(end_us, |_| false);
    }

    /// As [`Simulation::run_ms`], until `end_us` or until `is_done`.
    fn run_until(&mut self, end_us: u64, is_done: impl Fn(&Self) -> bool) {
        while self.stage().violation.is_none() && !is_done(self) {
            let Some(event) = self.stage().queue.pop(end_us) else {
                return;
            };
            self.step(event);
        }
    }

    fn step(&mut self, event: ScheduledEvent<Self::Event>) {
        let stage = self.stage();
        let now_us = stage.queue.now_us();
        if let Some(place) = event.place() {
            let until_us = stage.gateways[place.gateway].paused_until_us;
            if until_us > now_us {
                return stage.queue.at(until_us, event);
            }
        }
        stage.stats.steps += 1;
        stage.trace.mix(now_us);
        if event.is_news() {
            stage.trace.line(now_us, || event.text());
        }
        match event {
            ScheduledEvent::Tick { place, change } => self.tick(place, change),
            ScheduledEvent::Wake { place } => self.turn(place),
            ScheduledEvent::StreamEnds { place, stream } => self.stream_ends(place, stream),
            ScheduledEvent::MustBeDecided { request, upsets } => {
                self.must_be_decided(request, upsets)
            }
            ScheduledEvent::RedisArrives(call) => self.redis_arrives(call),
            ScheduledEvent::RedisGoesOn => self.redis_goes_on(),
            ScheduledEvent::RedisStarts => self.stage().is_redis_up = true,
            ScheduledEvent::GatewayHears {
                place,
                batch,
                reply,
            } => self.gateway_hears(place, batch, reply),
            ScheduledEvent::FaultBegins(n) => self.begin_fault(n),
            ScheduledEvent::GatewayStarts { gateway } => self.start_gateway(gateway),
            ScheduledEvent::Own(own) => self.happen(own),
        }
    }

    // --- workers

    /// Passes an event to a worker, and processes its output.
    fn at_worker(
        &mut self,
        place: WorkerLife,
        event: impl FnOnce(&mut Worker<Self::Engine>, u64, &RefCell<Network>) -> Vec<WorkerEffect>,
    ) {
        let stage = self.stage();
        let now_ms = stage.gateway_ms(place.gateway);
        let network = Rc::clone(&stage.network);
        let Some(worker) = stage.worker(place) else {
            return;
        };
        let out = event(worker, now_ms, &network);
        self.after_event(place);
        for out in out {
            self.leave(place, out);
        }
        self.stage().mind_ticks(place);
    }

    fn leave(&mut self, place: WorkerLife, out: WorkerEffect) {
        match out {
            WorkerEffect::Call {
                batch,
                bytes,
                timeout_ms,
                fate,
            } => self
                .stage()
                .call_redis(place, batch, bytes, timeout_ms, fate),
            WorkerEffect::Wake => self.stage().queue.after(10, ScheduledEvent::Wake { place }),
            WorkerEffect::Fetch { id, fetch } => self.fetch(place, id, fetch),
            WorkerEffect::Answered {
                request,
                stream,
                answer,
            } => {
                let ends = ScheduledEvent::StreamEnds { place, stream };
                self.stage().queue.after(60, ends);
                self.decide(request, Decision::Answered(answer));
            }
            WorkerEffect::WentOn {
                request, stream, ..
            } => self.decide(request, Decision::WentOn { place, stream }),
            WorkerEffect::FedBack(kind) => {
                *self.stage().stats.feedback.entry(kind).or_default() += 1
            }
            WorkerEffect::Wrong(violation) => self.stage().violate(violation),
        }
    }

    fn tick(&mut self, place: WorkerLife, change: u64) {
        let stage = self.stage();
        let Some(worker) = stage.worker(place) else {
            return;
        };
        if worker.tick_changes != change {
            return;
        }
        if let Some(tick_ms) = worker.tick_ms {
            let next = ScheduledEvent::Tick { place, change };
            stage.queue.after(tick_ms * 1_000, next);
        }
        self.turn(place);
    }

    fn turn(&mut self, place: WorkerLife) {
        self.at_worker(place, |worker, now_ms, network| {
            worker.tick(now_ms, network)
        });
    }

    fn start_gateway(&mut self, gateway: usize) {
        let mut created = Vec::new();
        let data = Rc::default();
        for worker in 0..self.stage().crew.workers {
            created.push(Worker::new(self.engine(worker, &data)));
        }
        let stage = self.stage();
        match stage.gateways.get_mut(gateway) {
            Some(gateway) => gateway.restart(created, data),
            None => stage.gateways.push(Gateway::of(created, data)),
        }
        stage.start_ticks(gateway);
    }

    /// Starts gateways, and schedules faults.
    fn begin(&mut self) {
        for gateway in 0..self.stage().crew.gateways as usize {
            self.start_gateway(gateway);
        }
        let stage = self.stage();
        for (n, fault) in stage.faults.iter().enumerate() {
            stage
                .queue
                .at(fault.at_ms * 1_000, ScheduledEvent::FaultBegins(n));
        }
    }
}

impl<E: TracksStreams, H> Stage<E, H> {
    pub(crate) fn new(seed: u64, crew: Crew, faults: &[TimedFault], options: &Options) -> Self {
        Self {
            queue: Queue::new(),
            gateways: vec![],
            crew,
            network: Rc::new(RefCell::new(Network::new(seed))),
            faults: faults.to_vec(),
            requests: BTreeMap::new(),
            next_request: 0,
            is_redis_up: true,
            redis_stalls_until_us: 0,
            before_redis: VecDeque::new(),
            mutation: options.mutation,
            violation: None,
            trace: Trace::new(options.keeps_lines),
            stats: Stats::default(),
        }
    }

    /// The ID of the next request.
    pub(crate) fn next_id(&self) -> RequestId {
        self.next_request
    }

    /// Records a violation. Only the first counts.
    pub(crate) fn violate(&mut self, violation: String) {
        let at_us = self.queue.now_us();
        self.violation.get_or_insert(Violation {
            at_us,
            what: violation,
        });
    }

    pub(crate) fn redis_state(&self) -> RedisState {
        match self.redis_stalls_until_us {
            _ if !self.is_redis_up => RedisState::Down,
            until_us if until_us > self.queue.now_us() => RedisState::StallsUntil(until_us),
            _ => RedisState::Up,
        }
    }

    pub(crate) fn has(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    /// The time of Redis and the origin.
    pub(crate) fn now_ms(&self) -> u64 {
        START_MS + self.queue.now_us() / 1_000
    }

    pub(crate) fn gateway_ms(&self, gateway: usize) -> u64 {
        let off_ms = self.gateways[gateway].clock_off_ms;
        self.now_ms().saturating_add_signed(off_ms)
    }

    /// The worker, if it is still the same one.
    pub(crate) fn worker(&mut self, place: WorkerLife) -> Option<&mut Worker<E>> {
        let gateway = &mut self.gateways[place.gateway];
        let is_meant = gateway.is_alive && gateway.life == place.life;
        gateway.workers.get_mut(place.worker).filter(|_| is_meant)
    }

    /// All running workers.
    pub(crate) fn places(&self) -> Vec<WorkerLife> {
        let gateways = self.gateways.iter().enumerate();
        let places = gateways.flat_map(|(number, gateway)| {
            (0..gateway.workers.len()).map(move |worker| WorkerLife {
                gateway: number,
                life: gateway.life,
                worker,
            })
        });
        places.collect()
    }

    fn mind_ticks(&mut self, place: WorkerLife) {
        let Some(worker) = self.worker(place) else {
            return;
        };
        if let Some(tick_ms) = worker.changed_tick() {
            let change = worker.tick_changes;
            self.queue
                .after(tick_ms * 1_000, ScheduledEvent::Tick { place, change });
        }
    }

    fn start_ticks(&mut self, gateway: usize) {
        let places = self.places().into_iter();
        for place in places.filter(|place| place.gateway == gateway) {
            self.mind_ticks(place);
        }
    }

    /// The number of streams in workers' memory.
    pub(crate) fn remembered_streams(&self) -> usize {
        let workers = self.gateways.iter().flat_map(|gateway| &gateway.workers);
        workers.map(Worker::remembered).sum()
    }

    pub(crate) fn into_report(self, seed: u64) -> Report {
        Report {
            seed,
            violation: self.violation,
            trace_hash: self.trace.hash(),
            lines: self.trace.into_lines(),
            stats: Stats {
                schedules: 1,
                ..self.stats
            },
        }
    }
}

impl<H: std::fmt::Debug> ScheduledEvent<H> {
    /// The target worker: a paused one gets the event later.
    fn place(&self) -> Option<WorkerLife> {
        match self {
            Self::Tick { place, .. }
            | Self::Wake { place }
            | Self::StreamEnds { place, .. }
            | Self::GatewayHears { place, .. } => Some(*place),
            _ => None,
        }
    }

    /// Whether to record the event as a line.
    fn is_news(&self) -> bool {
        !matches!(
            self,
            Self::Tick { .. } | Self::Wake { .. } | Self::MustBeDecided { .. }
        )
    }

    fn text(&self) -> String {
        match self {
            Self::RedisArrives(call) => {
                format!(
                    "Redis: {:?} {}",
                    call.place,
                    commands::describe(&call.bytes)
                )
            }
            Self::GatewayHears {
                place,
                batch,
                reply,
            } => {
                let reply = reply.as_ref();
                let reply = reply.map(|bytes| String::from_utf8_lossy(bytes).replace("\r\n", " "));
                format!("{place:?} hears {batch:?}: {reply:?}")
            }
            other => format!("{other:?}"),
        }
    }
}
