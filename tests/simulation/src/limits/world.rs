//! A running schedule of limits.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the simulation, and must stop it"
)]

use std::collections::BTreeMap;
use std::rc::Rc;

use weir_base::shared_data::LocalData;
use weir_engine::config::parse;
use weir_engine::{Answer, Engine as _, Fetch, FetchId, Headers, StreamId};
use weir_limit::Algorithm;
use weir_limit::engine::Limiter;
use weir_limit::engine::config::{CheckedConfig, Config};

use super::plan::{Client, OutageMode, Plan, Rule, Second};
use super::redis::{Arrival, Redis};
use super::witness::Witness;
use crate::host::{RequestId, TracksStreams, WorkerLife};
use crate::network::Link;
use crate::stage::fault::Fault;
use crate::stage::requests::Requests;
use crate::stage::{DEADLINE_MS, Decision, POLL_MS, ScheduledEvent, Simulation, Stage};
use crate::{Options, Report};

/// The engine of a worker.
pub(super) type Engine = Limiter<Rc<LocalData>>;

/// The seed of hashes of keys.
const SEED: u64 = 5;

/// The counter of requests that the rule decided without Redis.
const FALLBACKS: &str = "weir_ratelimit_fallback_total.rule.r";

/// The time limit for decisions (`docs/ratelimit.md`): a deadline, the time to the next tick, which is a quarter of it
/// here, and the lateness of this host's clocks.
const DECIDED_WITHIN_US: u64 = (DEADLINE_MS + DEADLINE_MS / 4 + 30) * 1_000;

impl TracksStreams for Engine {
    fn open_streams(&self) -> usize {
        Limiter::open_streams(self)
    }
}

/// Events specific to limits.
#[derive(Debug)]
pub(super) enum LimitsEvent {
    Comes(usize),
    HangsUp(RequestId),
    /// The end of a passed request.
    Ends {
        request: RequestId,
        place: WorkerLife,
        stream: StreamId,
    },
}

/// An answer to a client.
#[derive(Clone, Debug)]
pub(super) enum LimitsAnswer {
    Passed {
        request: RequestId,
        place: WorkerLife,
        stream: StreamId,
    },
    Refused {
        retry_after_s: u64,
    },
    Unavailable,
    Nothing,
}

/// The complete state.
pub(super) struct World {
    pub(super) plan: Plan,
    stage: Stage<Engine, LimitsEvent>,
    pub(super) redis: Redis,
    config: CheckedConfig,
    requested: BTreeMap<RequestId, Client>,
    pub(super) received: BTreeMap<RequestId, LimitsAnswer>,
    pub(super) witness: Witness,
}

impl World {
    pub(super) fn new(plan: &Plan, options: &Options) -> Self {
        let mut world = Self {
            stage: Stage::new(plan.seed, plan.crew, &plan.faults, options),
            redis: Redis::new(plan.loses_data(), options.mutation),
            config: config(plan),
            requested: BTreeMap::new(),
            received: BTreeMap::new(),
            witness: Witness::new(plan),
            plan: plan.clone(),
        };
        if plan.reloads {
            world.set_rules(0);
        }
        world.begin();
        for (n, client) in plan.clients.iter().enumerate() {
            let comes = ScheduledEvent::Own(LimitsEvent::Comes(n));
            world.stage.queue.at(client.at_ms * 1_000, comes);
        }
        world
    }

    pub(super) fn set_rules(&mut self, document: u32) {
        let json = format!("{{\"rules\":[{}]}}", rules(&self.plan, document));
        self.redis.set_rules(&json);
    }

    /// A client sends a request to a worker, which may decide it immediately.
    pub(super) fn ask(&mut self, place: WorkerLife, client: Client) -> RequestId {
        let id = self.stage.next_id();
        self.requested.insert(id, client);
        let (user, cost) = (client.user.to_string(), client.cost.to_string());
        let headers = Headers::new(&[
            (":method", "GET"),
            (":path", "/"),
            ("x-user-id", &user),
            ("x-cost", &cost),
        ]);
        self.open(place, headers)
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
            let comes = ScheduledEvent::Own(LimitsEvent::Comes(n));
            return self.stage.queue.at(until_us, comes);
        }
        let id = self.ask(place, client);
        if let Some(after_us) = client.leaves_after_us {
            let hangs_up = ScheduledEvent::Own(LimitsEvent::HangsUp(id));
            self.stage.queue.after(after_us, hangs_up);
        }
    }

    /// A passed request has ended.
    pub(super) fn end(&mut self, request: RequestId, place: WorkerLife, stream: StreamId) {
        self.witness.end(request);
        self.stream_ends(place, stream);
    }

    fn refused(&mut self, answer: &Answer) -> LimitsAnswer {
        let seconds = answer.headers.get("retry-after").unwrap_or_default();
        let seconds = std::str::from_utf8(&seconds).ok();
        let seconds = seconds.and_then(|text| text.parse().ok());
        match (answer.status, seconds) {
            (429, Some(retry_after_s)) => LimitsAnswer::Refused { retry_after_s },
            (503, Some(_)) if self.plan.rule.without == OutageMode::Closed => {
                LimitsAnswer::Unavailable
            }
            other => {
                self.stage.violate(format!("an answer of {other:?}"));
                LimitsAnswer::Nothing
            }
        }
    }

    pub(super) fn into_report(self) -> Report {
        self.stage.into_report(self.plan.seed)
    }
}

impl Simulation for World {
    type Engine = Engine;
    type Event = LimitsEvent;

    fn stage(&mut self) -> &mut Stage<Engine, LimitsEvent> {
        &mut self.stage
    }

    fn engine(&mut self, _worker: u32, data: &Rc<LocalData>) -> Engine {
        Limiter::new(self.config.clone(), Rc::clone(data), SEED)
    }

    fn happen(&mut self, own: LimitsEvent) {
        match own {
            LimitsEvent::Comes(n) => self.comes(n),
            LimitsEvent::HangsUp(request) => self.hang_up(request),
            LimitsEvent::Ends {
                request,
                place,
                stream,
            } => {
                // A paused gateway is informed later.
                let until_us = self.stage.gateways[place.gateway].paused_until_us;
                if until_us > self.stage.queue.now_us() {
                    return self.stage.queue.at(until_us, ScheduledEvent::Own(own));
                }
                self.end(request, place, stream);
            }
        }
    }

    fn run_redis(
        &mut self,
        place: WorkerLife,
        bytes: &[u8],
        most: u64,
        is_repeat: bool,
    ) -> Vec<u8> {
        let arrival = Arrival {
            now_us: self.stage.queue.now_us(),
            gateway_ms: self.stage.gateway_ms(place.gateway),
            most,
            is_repeat,
        };
        self.redis.run(bytes, arrival)
    }

    fn lose(&mut self, back_us: Option<u64>) {
        let now_us = self.stage.queue.now_us();
        self.redis.restart(back_us, now_us);
    }

    fn decided(&mut self, request: RequestId, decision: Decision) {
        let client = self.requested[&request];
        let received = match decision {
            Decision::WentOn { place, stream } => {
                let now_us = self.stage.queue.now_us();
                let (user, cost) = (client.user, client.cost);
                let wrong = self.witness.pass(request, user, cost, now_us, &self.redis);
                if let Some(subject) = wrong {
                    self.stage.violate(subject);
                }
                let ends = LimitsEvent::Ends {
                    request,
                    place,
                    stream,
                };
                if client.for_ms > 0 {
                    self.stage
                        .queue
                        .after(client.for_ms * 1_000, ScheduledEvent::Own(ends));
                }
                LimitsAnswer::Passed {
                    request,
                    place,
                    stream,
                }
            }
            Decision::Answered(answer) => self.refused(&answer),
            Decision::Broken | Decision::Left => LimitsAnswer::Nothing,
        };
        let (word, done) = match &received {
            LimitsAnswer::Passed { .. } => ("passed", "passed"),
            LimitsAnswer::Refused { .. } => ("refused", "refused"),
            LimitsAnswer::Unavailable => ("unavailable", "unavailable"),
            LimitsAnswer::Nothing => ("nothing", "unheard"),
        };
        self.stage.stats.add_answer(word);
        *self.stage.stats.done.entry(done).or_default() += 1;
        self.stage.trace.mix_bytes(word.as_bytes());
        let now_us = self.stage.queue.now_us();
        self.stage
            .trace
            .line(now_us, || format!("request {request}: {received:?}"));
        self.received.insert(request, received);
    }

    fn fetch(&mut self, _place: WorkerLife, _id: FetchId, _fetch: Fetch) {
        self.stage.violate("the limiter fetches".into());
    }

    fn fault_begins(&mut self, fault: Fault) {
        if let Fault::Rules { document } = fault {
            self.set_rules(document);
        }
    }

    fn after_event(&mut self, place: WorkerLife) {
        let Some(worker) = self.stage.worker(place) else {
            return;
        };
        let metrics = worker.engine.metrics();
        let index = metrics.counters().position(|name| name == FALLBACKS);
        metrics.collect(|at, count| {
            if Some(at) == index {
                self.witness.fallbacks += count;
            }
        });
    }

    fn decided_within_us(&self) -> u64 {
        DECIDED_WITHIN_US
    }
}

// --- rules as they are written

fn config(plan: &Plan) -> CheckedConfig {
    let json = format!(
        r#"{{
            "rules": [{rules}],
            "reload": {reloads}, "poll_interval_ms": {POLL_MS},
            "user_header": "x-user-id",
            "redis": {{ "deadline_ms": {DEADLINE_MS}, "batches_max": 3 }},
            "breaker": {{ "window_ms": 2000, "min_requests": 4, "failure_percent": 60, "open_ms": 300, "probes": 2 }}
        }}"#,
        rules = rules(plan, 0),
        reloads = plan.reloads,
    );
    let config: Config = parse(json.as_bytes()).expect("the configuration is JSON");
    let nothing = |_: &str| None;
    config
        .checked(false, &nothing)
        .expect("the configuration makes sense")
}

/// The rules of a document.
fn rules(plan: &Plan, document: u32) -> String {
    let rule = rule(plan.rule.of(document));
    let second = |store: &str| {
        format!(
            r#"{rule}, {{ "name": "s", {store} "limit": {{ "rate": 12, "per": "1s" }}, "slots": 16 }}"#
        )
    };
    match plan.second {
        Second::None => rule,
        Second::Here => second(""),
        Second::InRedis => second(r#""store": "redis", "on_store_error": "open","#),
    }
}

fn rule(rule: Rule) -> String {
    let Rule {
        rate,
        per_ms,
        cost_max,
        ..
    } = rule;
    let (algorithm, burst) = match rule.algorithm {
        Algorithm::Gcra => ("gcra", format!(r#", "burst": {}"#, rule.burst)),
        Algorithm::SlidingWindow => ("sliding_window", String::new()),
        Algorithm::FixedWindow => ("fixed_window", String::new()),
        Algorithm::Concurrency => ("concurrency", String::new()),
    };
    let without = match rule.without {
        OutageMode::Open => "open",
        OutageMode::Closed => "closed",
        OutageMode::Local => "local",
    };
    let lease = rule.lease.map_or_else(String::new, |lease| {
        let (max, lasts_ms) = (lease.max, lease.lasts_ms);
        format!(r#""lease": {{ "max": {max}, "lasts": "{lasts_ms}ms" }},"#)
    });
    format!(
        r#"{{
            "name": "r", "key": ["user"], "store": "redis", "algorithm": "{algorithm}", {lease}
            "on_store_error": "{without}", "cost_header": {{ "name": "x-cost", "max": {cost_max} }},
            "limit": {{ "rate": {rate}, "per": "{per_ms}ms"{burst} }}, "slots": 16
        }}"#
    )
}
