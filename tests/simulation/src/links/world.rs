//! A running schedule of links.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the simulation, and must stop it"
)]

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use weir_base::shared_data::LocalData;
use weir_engine::config::parse;
use weir_engine::event::FetchResponse;
use weir_engine::{Answer, Fetch, FetchId, Headers};
use weir_link::engine::Links;
use weir_link::engine::config::{CheckedConfig, Config};

use super::io::{Bus, Done, Io, OpId, TaskId, Transaction, Work};
use super::origin::{Origin, link_keys};
use super::plan::{Client, Kind, LIMITED, Plan};
use super::redis::Redis;
use super::sql::{Sql, code_name};
use super::witness::{ClickAnswer, Witness};
use crate::host::{RequestId, TracksStreams, WorkerLife};
use crate::mutation::Mutation;
use crate::network::Link;
use crate::stage::fault::{Fault, FetchFate};
use crate::stage::requests::Requests;
use crate::stage::{DEADLINE_MS, Decision, POLL_MS, ScheduledEvent, Simulation, Stage};
use crate::{Options, Report};

/// The gateway's timeout for a lookup.
const FETCH_TIMEOUT_MS: u64 = 600;

/// The time limit for decisions: Redis, another request's lookup, Redis again, and an own lookup, with turns in
/// between.
const DECIDED_WITHIN_US: u64 =
    (2 * (DEADLINE_MS + DEADLINE_MS / 4 + 30) + 2 * (FETCH_TIMEOUT_MS + 30) + 300) * 1_000;

impl TracksStreams for Links {
    fn open_streams(&self) -> usize {
        self.waiting()
    }
}

/// Events specific to links.
pub(super) enum LinksEvent {
    Comes(usize),
    HangsUp(RequestId),
    OwnerEdits(usize),
    OriginArrives {
        place: WorkerLife,
        fetch: FetchId,
        path: String,
        is_mute: bool,
    },
    Fetched {
        place: WorkerLife,
        fetch: FetchId,
        response: Option<FetchResponse>,
    },
    /// A call of the origin to Redis.
    OriginCalls {
        task: TaskId,
        op: OpId,
        bytes: Vec<u8>,
    },
    SqlArrives {
        task: TaskId,
        op: OpId,
        transaction: Transaction,
    },
    TaskHears {
        task: TaskId,
        op: OpId,
        done: Done,
    },
    OriginGoesOn,
    OriginStarts,
}

impl std::fmt::Debug for LinksEvent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Comes(n) => write!(f, "client {n} comes"),
            Self::HangsUp(request) => write!(f, "the client of {request} leaves"),
            Self::OwnerEdits(n) => write!(f, "edit {n}"),
            Self::OriginArrives { place, path, .. } => write!(f, "{place:?} asks for {path}"),
            Self::Fetched {
                place,
                fetch,
                response,
            } => {
                let body = response.as_ref().map(|response| {
                    let body = String::from_utf8_lossy(&response.body).into_owned();
                    (response.status, body)
                });
                write!(f, "{place:?} hears {fetch:?}: {body:?}")
            }
            Self::OriginCalls { task, bytes, .. } => {
                let commands = crate::stage::commands::describe(bytes);
                write!(f, "Redis: task {task} {commands}")
            }
            Self::SqlArrives { task, .. } => write!(f, "SQL: task {task}"),
            Self::TaskHears { task, done, .. } => write!(f, "task {task} hears {done:?}"),
            Self::OriginGoesOn => f.write_str("the origin goes on"),
            Self::OriginStarts => f.write_str("the origin starts"),
        }
    }
}

/// A request and its worker.
#[derive(Clone, Copy, Debug)]
struct OpenClick {
    client: Client,
    place: WorkerLife,
    incarnation: u64,
    at_us: u64,
}

/// The complete state.
pub(super) struct World {
    pub(super) plan: Plan,
    pub(super) stage: Stage<Links, LinksEvent>,
    pub(super) redis: Redis,
    pub(super) sql: Sql,
    pub(super) sql_away_until_us: u64,
    pub(super) origin: Origin,
    pub(super) is_origin_up: bool,
    pub(super) origin_stalls_until_us: u64,
    /// Messages that arrived at the origin while it stalls.
    pub(super) before_origin: VecDeque<LinksEvent>,
    pub(super) bus: Rc<RefCell<Bus>>,
    pub(super) tasks: BTreeMap<TaskId, Work>,
    pub(super) next_task: TaskId,
    pub(super) waited_for: BTreeSet<OpId>,
    pub(super) fetch_fates: VecDeque<FetchFate>,
    pub(super) config: CheckedConfig,
    /// The number of created engines: each has its own name and click IDs.
    pub(super) engines: u64,
    requested: BTreeMap<RequestId, OpenClick>,
    pub(super) received: BTreeMap<RequestId, ClickAnswer>,
    pub(super) witness: Witness,
}

impl World {
    pub(super) fn new(plan: &Plan, options: &Options) -> Self {
        let bus = Rc::new(RefCell::new(Bus::default()));
        let io = Io {
            bus: Rc::clone(&bus),
            mutation: options.mutation,
        };
        let mut world = Self {
            stage: Stage::new(plan.seed, plan.crew, &plan.faults, options),
            redis: Redis::new(plan.loses_data(), options.mutation),
            sql: Sql::new(plan.clicks_max, options.mutation),
            sql_away_until_us: 0,
            origin: Origin::new(io),
            is_origin_up: false,
            origin_stalls_until_us: 0,
            before_origin: VecDeque::new(),
            bus,
            tasks: BTreeMap::new(),
            next_task: 0,
            waited_for: BTreeSet::new(),
            fetch_fates: VecDeque::new(),
            config: config(),
            engines: 0,
            requested: BTreeMap::new(),
            received: BTreeMap::new(),
            witness: Witness::new(plan),
            plan: plan.clone(),
        };
        world.begin();
        world.start_origin();
        for (n, client) in plan.clients.iter().enumerate() {
            world.at_ms(client.at_ms, LinksEvent::Comes(n));
        }
        for (n, edit) in plan.edits.iter().enumerate() {
            world.at_ms(edit.at_ms, LinksEvent::OwnerEdits(n));
        }
        world
    }

    fn at_ms(&mut self, at_ms: u64, own: LinksEvent) {
        self.stage.queue.at(at_ms * 1_000, ScheduledEvent::Own(own));
    }

    pub(super) fn after_us(&mut self, after_us: u64, own: LinksEvent) {
        self.stage.queue.after(after_us, ScheduledEvent::Own(own));
    }

    pub(super) fn delay_us(&mut self, link: Link) -> u64 {
        self.stage.network.borrow_mut().delay_us(link)
    }

    // --- clients

    /// A client sends a request to a worker, which may decide it immediately.
    pub(super) fn ask(&mut self, place: WorkerLife, client: Client) -> RequestId {
        let id = self.stage.next_id();
        let incarnation = self.incarnation(place);
        let click = OpenClick {
            client,
            place,
            incarnation,
            at_us: self.stage.queue.now_us(),
        };
        self.requested.insert(id, click);
        let path = format!("/{}", code_name(client.code));
        let (method, agent) = match client.kind {
            Kind::Click => ("GET", "Mozilla/5.0 (X11; Linux x86_64) Firefox/130.0"),
            Kind::Head => ("HEAD", "curl/8"),
            Kind::Bot => ("GET", "WhatsApp/2.23"),
        };
        let headers = Headers::new(&[
            (":method", method),
            (":path", &path),
            (":authority", "s.example"),
            ("user-agent", agent),
        ]);
        let opened = self.open(place, headers);
        let is_led_on = matches!(self.received.get(&opened), Some(ClickAnswer::LedOn(_)));
        if is_led_on {
            // The worker answered from memory.
            self.witness.hold(place, incarnation, client.code);
        }
        opened
    }

    /// A unique number for each worker, including replacements.
    fn incarnation(&mut self, place: WorkerLife) -> u64 {
        let worker = self.stage.worker(place);
        place.life * 1_000 + worker.map_or(0, |worker| worker.incarnation)
    }

    fn comes(&mut self, n: usize) {
        let client = self.plan.clients[n];
        let place = {
            let mut network = self.stage.network.borrow_mut();
            let rng = network.rng(Link::Client(n));
            let gateway = rng.below(self.plan.crew.gateways.into()) as usize;
            let worker = rng.below(self.plan.crew.workers.into()) as usize;
            WorkerLife {
                gateway,
                life: self.stage.gateways[gateway].life,
                worker,
            }
        };
        let until_us = self.stage.gateways[place.gateway].paused_until_us;
        if until_us > self.stage.queue.now_us() {
            let comes = ScheduledEvent::Own(LinksEvent::Comes(n));
            return self.stage.queue.at(until_us, comes);
        }
        let id = self.ask(place, client);
        if let Some(after_us) = client.leaves_after_us {
            self.after_us(after_us, LinksEvent::HangsUp(id));
        }
    }

    fn heard_of(&mut self, answer: &Answer) -> ClickAnswer {
        match answer.status {
            302 => {
                let location = answer.headers.get("location").unwrap_or_default();
                ClickAnswer::LedOn(String::from_utf8_lossy(&location).into_owned())
            }
            404 => ClickAnswer::Unknown,
            410 => ClickAnswer::Gone,
            503 => ClickAnswer::Unavailable,
            other => {
                self.stage.violate(format!("status {other}"));
                ClickAnswer::Nothing
            }
        }
    }

    /// Whether a stalled origin delays this event.
    fn waits_for_origin(&self, own: &LinksEvent) -> bool {
        matches!(
            own,
            LinksEvent::OriginArrives { .. }
                | LinksEvent::TaskHears { .. }
                | LinksEvent::OwnerEdits(_)
        ) && self.origin_stalls_until_us > self.stage.queue.now_us()
    }

    /// Ends all waiting faults.
    pub(super) fn end_own_faults(&mut self) {
        self.fetch_fates.clear();
    }

    pub(super) fn into_report(self) -> Report {
        self.stage.into_report(self.plan.seed)
    }
}

impl Simulation for World {
    type Engine = Links;
    type Event = LinksEvent;

    fn stage(&mut self) -> &mut Stage<Links, LinksEvent> {
        &mut self.stage
    }

    fn engine(&mut self, _worker: u32, _data: &Rc<LocalData>) -> Links {
        self.engines += 1;
        let name = format!("{}-{}", self.plan.seed, self.engines);
        Links::new(self.config.clone(), &name, 7)
    }

    fn happen(&mut self, own: LinksEvent) {
        if self.waits_for_origin(&own) {
            return self.before_origin.push_back(own);
        }
        match own {
            LinksEvent::Comes(n) => self.comes(n),
            LinksEvent::HangsUp(request) => self.hang_up(request),
            LinksEvent::OwnerEdits(n) => {
                if !self.is_origin_up {
                    return self.after_us(300_000, own);
                }
                let work = self.origin.edit(self.plan.edits[n]);
                self.start_task(work);
            }
            LinksEvent::OriginArrives {
                place,
                fetch,
                path,
                is_mute,
            } => self.origin_arrives(place, fetch, &path, is_mute),
            LinksEvent::Fetched {
                place,
                fetch,
                response,
            } => {
                let until_us = self.stage.gateways[place.gateway].paused_until_us;
                if until_us > self.stage.queue.now_us() {
                    let fetched = LinksEvent::Fetched {
                        place,
                        fetch,
                        response,
                    };
                    return self.stage.queue.at(until_us, ScheduledEvent::Own(fetched));
                }
                self.at_worker(place, |worker, now_ms, network| {
                    worker.fetched(fetch, response, now_ms, network)
                });
            }
            LinksEvent::OriginCalls { task, op, bytes } => self.origin_calls(task, op, &bytes),
            LinksEvent::SqlArrives {
                task,
                op,
                transaction,
            } => self.sql_arrives(task, op, transaction),
            LinksEvent::TaskHears { task, op, done } => self.task_hears(task, op, done),
            LinksEvent::OriginGoesOn => {
                for own in std::mem::take(&mut self.before_origin) {
                    self.happen(own);
                }
            }
            LinksEvent::OriginStarts => self.start_origin(),
        }
    }

    fn run_redis(
        &mut self,
        _place: WorkerLife,
        bytes: &[u8],
        most: u64,
        _is_repeat: bool,
    ) -> Vec<u8> {
        let now_us = self.stage.queue.now_us();
        self.redis.run(bytes, most, now_us)
    }

    fn lose(&mut self, back_us: Option<u64>) {
        let now_us = self.stage.queue.now_us();
        let keys = LIMITED.map(|code| (code, link_keys(code)));
        let before = keys.clone().map(|(_, keys)| self.redis.clicks_used(&keys));
        self.redis.restart(back_us, now_us);
        for ((code, keys), before) in keys.into_iter().zip(before) {
            let counted = self.sql.clicks(code);
            let has = self.redis.clicks_used(&keys).unwrap_or(counted);
            self.witness.lose_clicks(code, before, has);
        }
    }

    fn decided(&mut self, request: RequestId, decision: Decision) {
        let OpenClick {
            client,
            place,
            incarnation,
            at_us,
        } = self.requested[&request];
        let received = match decision {
            Decision::WentOn { place, stream } => {
                self.stage
                    .queue
                    .after(1_000, ScheduledEvent::StreamEnds { place, stream });
                ClickAnswer::Passed
            }
            Decision::Answered(answer) => self.heard_of(&answer),
            Decision::Broken => ClickAnswer::Nothing,
            Decision::Left => ClickAnswer::Left,
        };
        let code = client.code;
        let wrong = self.witness.hear(code, client.kind, &received, &self.sql);
        if let Some(subject) = wrong {
            self.stage.violate(subject);
        }
        let is_held = self.witness.caches(place, incarnation, code);
        if is_held && matches!(received, ClickAnswer::Unavailable | ClickAnswer::Passed) {
            let subject =
                format!("{place:?} holds code {code}, and asked since {at_us}: {received:?}");
            self.stage.violate(subject);
        }
        let word = match &received {
            ClickAnswer::LedOn(_) => "led on",
            ClickAnswer::Gone => "gone",
            ClickAnswer::Unknown => "unknown",
            ClickAnswer::Unavailable => "unavailable",
            ClickAnswer::Passed => "passed",
            ClickAnswer::Nothing => "nothing",
            ClickAnswer::Left => "left",
        };
        self.stage.stats.add_answer(word);
        self.stage.trace.mix_bytes(word.as_bytes());
        let now_us = self.stage.queue.now_us();
        self.stage.trace.line(now_us, || {
            format!("request {request} {client:?}: {received:?}")
        });
        self.received.insert(request, received);
    }

    fn fetch(&mut self, place: WorkerLife, id: FetchId, fetch: Fetch) {
        let path = fetch.headers.into_iter().find(|(name, _)| *name == ":path");
        let (_, path) = path.expect("it has a path");
        if !self.stage.has(Mutation::TimeoutForgotten) {
            let timeout = LinksEvent::Fetched {
                place,
                fetch: id,
                response: None,
            };
            self.after_us(fetch.timeout_ms * 1_000, timeout);
        }
        self.send_fetch(place, id, path);
    }

    fn fault_begins(&mut self, fault: Fault) {
        let now_us = self.stage.queue.now_us();
        match fault {
            Fault::Fetch { fate } => self.fetch_fates.push_back(fate),
            Fault::StallOrigin { for_ms } => {
                let until_us = now_us + for_ms * 1_000;
                self.origin_stalls_until_us = self.origin_stalls_until_us.max(until_us);
                self.stage.queue.at(
                    self.origin_stalls_until_us,
                    ScheduledEvent::Own(LinksEvent::OriginGoesOn),
                );
            }
            Fault::KillOrigin { for_ms } => {
                if !std::mem::replace(&mut self.is_origin_up, false) {
                    return;
                }
                // Requested operations run, but without a reply. The owner of an edit retries.
                self.tasks.clear();
                self.waited_for.clear();
                self.after_us(for_ms * 1_000, LinksEvent::OriginStarts);
            }
            Fault::SqlAway { for_ms } => {
                let until_us = now_us + for_ms * 1_000;
                self.sql_away_until_us = self.sql_away_until_us.max(until_us);
            }
            _ => {}
        }
    }

    fn decided_within_us(&self) -> u64 {
        DECIDED_WITHIN_US
    }
}

fn config() -> CheckedConfig {
    let json = format!(
        r#"{{
            "redis": {{ "deadline_ms": {DEADLINE_MS}, "batches_max": 3 }},
            "breaker": {{ "window_ms": 2000, "min_requests": 4, "failure_percent": 60, "open_ms": 300, "probes": 2 }},
            "origin": {{ "timeout_ms": {FETCH_TIMEOUT_MS}, "limit": {{ "rate": 20, "per": "1s", "burst": 10 }} }},
            "cache": {{ "unknown_ms": 1000, "origin_fresh_ms": 1000 }},
            "clicks": {{ "flush_ms": 200 }},
            "poll_interval_ms": {POLL_MS}
        }}"#
    );
    let config: Config = parse(json.as_bytes()).expect("the configuration is JSON");
    config.checked().expect("the configuration makes sense")
}
