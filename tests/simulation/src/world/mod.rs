//! A running schedule: all participants on one virtual clock.
//!
//! | module | |
//! |---|---|
//! | here | the participants, and one step |
//! | `streams` | clients, and their requests in gateways and origins |
//! | `calls` | calls to Redis and SQL transactions, with their faults |
//! | `faults` | faults that do not wait for a call |

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the simulation, and must stop it"
)]

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use weir_base::id::SaleId;
use weir_base::shared_data::LocalData;
use weir_engine::redis::Reply;
use weir_engine::{BatchId, StreamId};
use weir_sale::engine::config::CheckedConfig;
use weir_sale::sale::{Band, Degrade, Sale, SaleState};
use weir_sale::shard::bucket;

use crate::client::{Person, user};
use crate::gateway::{self, Engine};
use crate::host::{Gateway, RequestId, Worker, WorkerEffect, WorkerLife};
use crate::mutation::Mutation;
use crate::network::Network;
use crate::origin::io::{Bus, Done, OpId, Response, TaskId, Transaction, Work};
use crate::origin::{ArrivedRequest, Origin};
use crate::plan::{Cut, Plan, SALE_LASTS_MS, SALE_STARTS_AT_MS, SqlFate};
use crate::queue::{Queue, START_MS};
use crate::random::Rng;
use crate::redis::Redis;
use crate::sql::{ClaimName, Sql};
use crate::stats::Stats;
use crate::trace::Trace;
use crate::witness::Witness;
use crate::{Options, USERS_AT_THE_END};

mod calls;
mod faults;
mod streams;

/// The maximum number of fences in one schedule.
const FENCES_MAX: u32 = 10;

/// The sale's name.
pub(crate) const SALE: &str = "s";

/// The kind of a client's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestKind {
    Buy,
    Pay(ClaimName),
    Cancel(ClaimName),
}

/// A request in flight or a finished one.
#[derive(Debug)]
struct Request {
    client: usize,
    kind: RequestKind,
    place: WorkerLife,
    stream: StreamId,
    /// Whether the client has its answer, or has disconnected.
    is_over: bool,
    /// Whether the origin's answer is lost.
    is_mute: bool,
}

/// The receiver of a reply of Redis.
#[derive(Clone, Copy, Debug)]
enum Caller {
    Gateway(WorkerLife, BatchId),
    Task(TaskId, OpId),
}

/// Commands in flight to Redis.
#[derive(Clone, Debug)]
struct RedisCall {
    caller: Caller,
    bytes: Rc<[u8]>,
    /// The number of commands to run; if not all, the connection breaks.
    most: u64,
    is_heard: bool,
}

/// A scheduled event.
enum ScheduledEvent {
    Tick {
        place: WorkerLife,
        change: u64,
    },
    Wake {
        place: WorkerLife,
    },
    ClientActs {
        client: usize,
        kind: RequestKind,
    },
    ClientForges {
        client: usize,
    },
    ClientLeaves {
        request: RequestId,
    },
    MustBeDecided {
        request: RequestId,
        pauses: u64,
    },
    StreamEnds {
        place: WorkerLife,
        stream: StreamId,
        status: Option<u16>,
    },
    StreamTimesOut {
        request: RequestId,
    },
    RedisArrives(RedisCall),
    GatewayHears {
        place: WorkerLife,
        batch: BatchId,
        reply: Reply,
    },
    OriginArrives {
        origin: usize,
        request: ArrivedRequest,
    },
    OriginAnswers {
        request: RequestId,
        response: Response,
    },
    SqlArrives {
        task: TaskId,
        op: OpId,
        transaction: Transaction,
        fate: Option<SqlFate>,
    },
    TaskHears {
        task: TaskId,
        op: OpId,
        done: Done,
    },
    FaultBegins(usize),
    GatewayStarts {
        gateway: usize,
    },
    OriginStarts {
        origin: usize,
    },
    RedisStarts {
        site: usize,
    },
}

/// An origin and the number of its life.
#[derive(Debug)]
struct OriginSlot {
    origin: Origin,
    is_alive: bool,
    clock_off_ms: i64,
}

struct Task {
    origin: usize,
    work: Work,
}

/// The complete state.
pub(crate) struct World {
    queue: Queue<ScheduledEvent>,
    pub(crate) plan: Plan,
    /// The Redis of each site.
    pub(crate) redis: Vec<Redis>,
    pub(crate) sql: Sql,
    /// Parties that do not reach each other: whether only replies are lost, and until when.
    cuts: Vec<(Cut, bool, u64)>,
    /// Whether clients come only to sites that sell.
    pub(crate) avoids_closed_sites: bool,
    /// SQL's state after each transaction, with its time, if the plan includes a failover.
    sql_copies: Vec<(u64, Sql)>,
    gateways: Vec<Gateway<Engine>>,
    origins: Vec<OriginSlot>,
    tasks: BTreeMap<TaskId, Task>,
    next_task: TaskId,
    /// The origin of every task there was.
    origins_of_tasks: Vec<usize>,
    /// The operations that tasks wait for.
    waited_for: BTreeSet<OpId>,
    pub(crate) bus: Rc<RefCell<Bus>>,
    network: Rc<RefCell<Network>>,
    clients: Vec<Person>,
    requests: BTreeMap<RequestId, Request>,
    next_request: RequestId,
    pub(crate) witness: Witness,
    pub(crate) trace: Trace,
    pub(crate) stats: Stats,
    config: CheckedConfig,
    mutation: Option<Mutation>,
}

impl World {
    pub(crate) fn new(plan: &Plan, options: &Options) -> Self {
        let setting = plan.setting;
        let config = gateway::config();
        let keys = gateway::keys();
        let bus = Rc::new(RefCell::new(Bus::new(setting.origins)));
        let sale = SaleId::new(SALE).expect("it is a name");
        let origins = (0..setting.origins as usize).map(|origin| OriginSlot {
            origin: Origin::new(
                &bus,
                (origin, origin % setting.sites as usize, setting.sites),
                &keys,
                &sale,
                options.mutation,
            ),
            is_alive: false,
            clock_off_ms: 0,
        });
        let gateways = (0..setting.gateways).map(|_| {
            let data = Rc::default();
            Gateway::of(workers(&config, setting.workers, &data), data)
        });
        let gateways = gateways.collect();
        let mut world = Self {
            queue: Queue::new(),
            redis: redis(plan, options.mutation),
            sql: sql(plan, options.mutation),
            cuts: vec![],
            avoids_closed_sites: false,
            sql_copies: vec![],
            gateways,
            origins: origins.collect(),
            tasks: BTreeMap::new(),
            next_task: 0,
            origins_of_tasks: vec![],
            waited_for: BTreeSet::new(),
            bus,
            network: Rc::new(RefCell::new(Network::new(plan.seed))),
            clients: vec![],
            requests: BTreeMap::new(),
            next_request: 0,
            witness: Witness::new(plan),
            trace: Trace::new(options.keeps_lines),
            stats: Stats::default(),
            config,
            mutation: options.mutation,
            plan: plan.clone(),
        };
        let numbers = (0..setting.users).chain(USERS_AT_THE_END);
        let buckets = numbers.map(|number| bucket(&user(number)));
        world.bus.borrow_mut().buckets = buckets.collect();
        world.begin();
        world
    }

    /// Starts all participants, and schedules the plan's events.
    fn begin(&mut self) {
        for origin in 0..self.origins.len() {
            self.start_origin(origin);
        }
        for gateway in 0..self.gateways.len() {
            self.start_ticks(gateway);
        }
        let clients = self.plan.clients.clone();
        for client in clients {
            self.add_client(client);
        }
        for (n, fault) in self.plan.faults.iter().enumerate() {
            self.queue
                .at(fault.at_ms * 1_000, ScheduledEvent::FaultBegins(n));
        }
    }

    pub(crate) fn now_us(&self) -> u64 {
        self.queue.now_us()
    }

    /// Runs all events for `ms`, or until a violation.
    pub(crate) fn run_ms(&mut self, ms: u64) {
        let end_us = self.now_us() + ms * 1_000;
        self.run_until(end_us, |_| false);
    }

    /// As [`World::run_ms`], until `end_us` or until `is_done`.
    pub(crate) fn run_until(&mut self, end_us: u64, is_done: impl Fn(&Self) -> bool) {
        while self.witness.violation.is_none() && !is_done(self) {
            let Some(event) = self.queue.pop(end_us) else {
                return;
            };
            self.step(event);
        }
    }

    fn step(&mut self, event: ScheduledEvent) {
        let now_us = self.now_us();
        if let Some(place) = event.place() {
            let until_us = self.gateways[place.gateway].paused_until_us;
            if until_us > now_us {
                return self.queue.at(until_us, event);
            }
        }
        self.stats.steps += 1;
        self.trace.mix(now_us);
        if self.is_news(&event) {
            self.trace.line(now_us, || event.text());
        }
        self.happen(event);
    }

    /// Whether to record an event as a line: not a tick, and not the end of a call that ended before.
    fn is_news(&self, event: &ScheduledEvent) -> bool {
        match event {
            ScheduledEvent::Tick { .. } | ScheduledEvent::Wake { .. } => false,
            ScheduledEvent::MustBeDecided { .. } => false,
            ScheduledEvent::TaskHears { op, .. } => self.waited_for.contains(op),
            ScheduledEvent::GatewayHears { place, batch, .. } => {
                let worker = self.gateways[place.gateway].workers.get(place.worker);
                worker.is_some_and(|worker| worker.call(*batch).is_some())
            }
            _ => true,
        }
    }

    fn happen(&mut self, event: ScheduledEvent) {
        match event {
            ScheduledEvent::Tick { place, change } => self.tick(place, change),
            ScheduledEvent::Wake { place } => self.turn(place),
            ScheduledEvent::ClientActs { client, kind } => self.client_acts(client, kind),
            ScheduledEvent::ClientForges { client } => self.client_forges(client),
            ScheduledEvent::ClientLeaves { request } => self.client_leaves(request),
            ScheduledEvent::MustBeDecided { request, pauses } => {
                self.must_be_decided(request, pauses)
            }
            ScheduledEvent::StreamEnds {
                place,
                stream,
                status,
            } => self.stream_ends(place, stream, status),
            ScheduledEvent::StreamTimesOut { request } => self.stream_times_out(request),
            ScheduledEvent::RedisArrives(call) => self.redis_arrives(call),
            ScheduledEvent::GatewayHears {
                place,
                batch,
                reply,
            } => self.gateway_hears(place, batch, reply),
            ScheduledEvent::OriginArrives { origin, request } => {
                self.origin_arrives(origin, request)
            }
            ScheduledEvent::OriginAnswers { request, response } => {
                self.origin_answers(request, response);
            }
            ScheduledEvent::SqlArrives {
                task,
                op,
                transaction,
                fate,
            } => self.sql_arrives(task, op, transaction, fate),
            ScheduledEvent::TaskHears { task, op, done } => self.task_hears(task, op, done),
            ScheduledEvent::FaultBegins(n) => self.fault_begins(n),
            ScheduledEvent::GatewayStarts { gateway } => self.start_gateway(gateway),
            ScheduledEvent::OriginStarts { origin } => self.start_origin(origin),
            ScheduledEvent::RedisStarts { site } => self.redis[site].is_up = true,
        }
    }

    // --- sites

    pub(crate) fn sites(&self) -> usize {
        self.redis.len()
    }

    /// The site of a gateway or an origin.
    pub(crate) fn site_of(&self, number: usize) -> usize {
        number % self.redis.len()
    }

    /// Whether messages between two parties are lost now; replies, if `is_reply`.
    fn is_cut(&self, between: Cut, is_reply: bool) -> bool {
        let now_us = self.now_us();
        self.cuts.iter().any(|&(cut, is_one_way, until_us)| {
            cut == between && until_us > now_us && (is_reply || !is_one_way)
        })
    }

    // --- clocks

    fn gateway_ms(&self, gateway: usize) -> u64 {
        let off_ms = self.gateways[gateway].clock_off_ms;
        (START_MS + self.now_us() / 1_000).saturating_add_signed(off_ms)
    }

    fn set_clocks(&self) {
        let now_ms = START_MS + self.now_us() / 1_000;
        let mut bus = self.bus.borrow_mut();
        for (clock, slot) in bus.clocks_ms.iter_mut().zip(&self.origins) {
            *clock = now_ms.saturating_add_signed(slot.clock_off_ms);
        }
    }

    // --- workers

    /// The worker, if it is still the same one.
    fn worker(&mut self, place: WorkerLife) -> Option<&mut Worker<Engine>> {
        let gateway = &mut self.gateways[place.gateway];
        let is_meant = gateway.is_alive && gateway.life == place.life;
        gateway.workers.get_mut(place.worker).filter(|_| is_meant)
    }

    /// Passes an event to a worker, and processes its output.
    fn at_worker(
        &mut self,
        place: WorkerLife,
        event: impl FnOnce(&mut Worker<Engine>, u64, &RefCell<Network>) -> Vec<WorkerEffect>,
    ) {
        let now_ms = self.gateway_ms(place.gateway);
        let network = Rc::clone(&self.network);
        let out = match self.worker(place) {
            Some(worker) => event(worker, now_ms, &network),
            None => vec![],
        };
        for out in out {
            self.leave(place, out);
        }
        self.mind_ticks(place);
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

    fn tick(&mut self, place: WorkerLife, change: u64) {
        let Some(worker) = self.worker(place) else {
            return;
        };
        if worker.tick_changes != change {
            return;
        }
        if let Some(tick_ms) = worker.tick_ms {
            let next = ScheduledEvent::Tick { place, change };
            self.queue.after(tick_ms * 1_000, next);
        }
        self.turn(place);
    }

    fn turn(&mut self, place: WorkerLife) {
        self.at_worker(place, |worker, now_ms, network| {
            worker.tick(now_ms, network)
        });
    }

    fn start_ticks(&mut self, gateway: usize) {
        let life = self.gateways[gateway].life;
        for worker in 0..self.gateways[gateway].workers.len() {
            self.mind_ticks(WorkerLife {
                gateway,
                life,
                worker,
            });
        }
    }

    // --- clients

    /// Adds a client that comes at the planned time. Returns its number.
    pub(crate) fn add_client(&mut self, client: crate::plan::Client) -> usize {
        let number = self.clients.len();
        let rng = Rng::new(self.plan.seed, 1_000 + number as u64);
        self.clients.push(Person::new(client, rng));
        let event = match client.then {
            crate::plan::FollowUp::Forge => ScheduledEvent::ClientForges { client: number },
            _ => ScheduledEvent::ClientActs {
                client: number,
                kind: RequestKind::Buy,
            },
        };
        self.queue.at(client.at_ms * 1_000, event);
        number
    }

    /// Forgets a client's last answer, and sends its request.
    pub(crate) fn ask(&mut self, client: usize, kind: RequestKind) {
        self.clients[client].last = None;
        self.queue
            .after(0, ScheduledEvent::ClientActs { client, kind });
    }

    pub(crate) fn client(&self, client: usize) -> &Person {
        &self.clients[client]
    }

    /// Ends all waiting faults, and corrects all clocks.
    pub(crate) fn end_faults(&mut self) {
        self.network.borrow_mut().disarm();
        for gateway in &mut self.gateways {
            gateway.clock_off_ms = 0;
        }
        for slot in &mut self.origins {
            slot.clock_off_ms = 0;
        }
    }

    /// The number of streams in gateways' memory.
    pub(crate) fn remembered_streams(&self) -> usize {
        let workers = self.gateways.iter().flat_map(|gateway| &gateway.workers);
        workers.map(Worker::remembered).sum()
    }

    pub(crate) fn open_requests(&self) -> usize {
        let open = |request: &&Request| !request.is_over;
        self.requests.values().filter(open).count()
    }
}

/// The workers of a starting gateway.
fn workers(config: &CheckedConfig, count: u32, data: &Rc<LocalData>) -> Vec<Worker<Engine>> {
    let worker = |_| Worker::new(Engine::new(config.clone(), data));
    (0..count).map(worker).collect()
}

/// The Redis of each site. A site may get a few fences.
fn redis(plan: &Plan, mutation: Option<Mutation>) -> Vec<Redis> {
    let setting = plan.setting;
    let fences = if setting.sites > 1 { FENCES_MAX } else { 1 };
    let keeps_history = plan.loses_data();
    let new = |_| Redis::new(setting.shards, fences, keeps_history, mutation);
    let mut servers: Vec<Redis> = (0..setting.sites).map(new).collect();
    if let Some(last) = servers.last_mut() {
        last.clock_off_us = setting.redis_ahead_ms * 1_000;
    }
    servers
}

/// The database of a plan: its sale, and reserved and blocked users.
fn sql(plan: &Plan, mutation: Option<Mutation>) -> Sql {
    let setting = plan.setting;
    let sale = Sale {
        id: SaleId::new(SALE).expect("it is a name"),
        starts_at_ms: START_MS + SALE_STARTS_AT_MS,
        ends_at_ms: START_MS + SALE_LASTS_MS,
        shards: setting.shards,
        first_shard: 0,
        user_cap: setting.user_cap,
        state: SaleState::Open,
        reservation: setting.is_reserved,
        token: false,
        challenge: None,
        degrade: Degrade::default(),
        sku: None,
        cold: false,
        band: Band::High,
        paused: false,
    };
    let mut sql = Sql::new(
        sale,
        setting.total,
        setting.payment,
        setting.sites,
        mutation,
    );
    if setting.is_first_user_blocked {
        sql.blocked.insert(user(0));
    }
    sql.is_other_sale_stuck = setting.is_other_sale_stuck;
    if setting.is_reserved {
        let even = (0..setting.users).filter(|number| number % 2 == 0);
        sql.reserved = even.chain(USERS_AT_THE_END).map(user).collect();
    }
    sql
}

impl ScheduledEvent {
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

    fn text(&self) -> String {
        match self {
            Self::Tick { place, .. } | Self::Wake { place } => format!("turn {place:?}"),
            Self::ClientActs { client, kind } => format!("client {client}: {kind:?}"),
            Self::ClientForges { client } => format!("client {client} forges"),
            Self::ClientLeaves { request } => format!("the client of {request} leaves"),
            Self::MustBeDecided { request, .. } => format!("{request} must be decided"),
            Self::StreamEnds {
                place,
                stream,
                status,
            } => format!("stream {stream} of {place:?} ends: {status:?}"),
            Self::StreamTimesOut { request } => format!("{request} times out"),
            Self::RedisArrives(call) => {
                let commands = crate::stage::commands::describe(&call.bytes);
                let received = if call.is_heard { "" } else { " (unheard)" };
                format!("Redis: {:?}{received} {commands}", call.caller)
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
            Self::OriginArrives { origin, request } => format!("origin {origin}: {request:?}"),
            Self::OriginAnswers { request, response } => format!("{request}: {response:?}"),
            Self::SqlArrives { task, fate, .. } => format!("SQL: task {task} {fate:?}"),
            Self::TaskHears { task, done, .. } => match done {
                Done::Replied(bytes) => {
                    let text = String::from_utf8_lossy(bytes).replace("\r\n", " ");
                    format!("task {task} hears {text}")
                }
                done => format!("task {task} hears {done:?}"),
            },
            Self::FaultBegins(n) => format!("fault {n}"),
            Self::GatewayStarts { gateway } => format!("gateway {gateway} starts"),
            Self::OriginStarts { origin } => format!("origin {origin} starts"),
            Self::RedisStarts { site } => format!("Redis {site} starts"),
        }
    }
}
