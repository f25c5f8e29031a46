//! A running schedule of a waiting room.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the simulation, and must stop it"
)]

use std::collections::BTreeMap;
use std::rc::Rc;

use serde_json::Value;
use weir_base::shared_data::LocalData;
use weir_engine::config::parse;
use weir_engine::{Answer, Fetch, FetchId, Headers};
use weir_room::engine::WaitingRoom;
use weir_room::engine::config::{CheckedConfig, Config};
use weir_room::{Mode, Pass, RoomName, Setting};

use super::plan::{Plan, Room};
use super::redis::Redis;
use super::witness::Witness;
use crate::host::{RequestId, TracksStreams, WorkerLife};
use crate::network::Link;
use crate::stage::fault::Fault;
use crate::stage::requests::Requests;
use crate::stage::{DEADLINE_MS, Decision, POLL_MS, ScheduledEvent, Simulation, Stage};
use crate::{Options, Report};

/// The engine of a worker.
pub(super) type Engine = WaitingRoom<Rc<LocalData>>;

/// How long an admitted position waits, in milliseconds: the lowest valid setting.
pub(super) const CLAIM_MS: u64 = 5_000;

/// How long a request stays behind the gateway, in microseconds.
const BEHIND_US: u64 = 5_000;

/// As for limits: a deadline, the time to the next tick, and the lateness of this host's clocks.
const DECIDED_WITHIN_US: u64 = (DEADLINE_MS + DEADLINE_MS / 4 + 30) * 1_000;

/// The maximum number of disconnects per visitor.
const LEAVES_MAX: u32 = 3;

const SECRET: [u8; 32] = [7; 32];

impl TracksStreams for Engine {
    fn open_streams(&self) -> usize {
        let (waiting, entered) = self.open();
        waiting + entered
    }
}

/// Events specific to waiting rooms.
#[derive(Debug)]
pub(super) enum RoomsEvent {
    Comes(usize),
    HangsUp(RequestId),
}

/// The state of a visitor.
#[derive(Clone, Debug, Default)]
struct Progress {
    pass: Option<Vec<u8>>,
    requested: u32,
}

/// The complete state.
pub(super) struct World {
    pub(super) plan: Plan,
    stage: Stage<Engine, RoomsEvent>,
    pub(super) redis: Redis,
    config: CheckedConfig,
    name: RoomName,
    engines: u64,
    settings: u64,
    /// Whether the operator has reduced the plan's capacity.
    pub(super) is_narrow: bool,
    requested: BTreeMap<RequestId, usize>,
    visitors: Vec<Progress>,
    pub(super) witness: Witness,
}

impl World {
    pub(super) fn new(plan: &Plan, options: &Options) -> Self {
        let mut world = Self {
            stage: Stage::new(plan.seed, plan.crew, &plan.faults, options),
            redis: Redis::new(plan.loses_data(), options.mutation),
            config: config(plan.room),
            name: RoomName::new("shop").expect("a room's name"),
            engines: 0,
            settings: 0,
            is_narrow: false,
            requested: BTreeMap::new(),
            visitors: vec![Progress::default(); plan.visitors.len()],
            witness: Witness::new(plan),
            plan: plan.clone(),
        };
        world.set_mode(Mode::Open);
        world.begin();
        for (n, visitor) in plan.visitors.iter().enumerate() {
            let comes = ScheduledEvent::Own(RoomsEvent::Comes(n));
            world.stage.queue.at(visitor.at_ms * 1_000, comes);
        }
        world
    }

    /// An operator sets the mode.
    pub(super) fn set_mode(&mut self, mode: Mode) {
        self.set(mode, self.plan.room.active_max);
        self.is_narrow = false;
    }

    /// An operator reduces the capacity to one visitor.
    fn narrow(&mut self) {
        self.set(Mode::Open, 1);
        self.is_narrow = true;
    }

    fn set(&mut self, mode: Mode, active_max: u64) {
        self.settings += 1;
        let per_minute = self.plan.room.per_minute;
        self.redis.set(Setting {
            version: self.settings,
            mode,
            per_minute,
            active_max,
            opens_at_ms: 0,
        });
    }

    /// Whether the visitor has stopped polling.
    pub(super) fn is_gone(&self, visitor: usize) -> bool {
        let gives_up = self.plan.visitors[visitor].gives_up_after;
        gives_up.is_some_and(|most| self.visitors[visitor].requested >= most)
    }

    fn comes(&mut self, visitor: usize) {
        if self.is_gone(visitor) || self.witness.entered.contains(&visitor) {
            return;
        }
        let place = {
            let mut network = self.stage.network.borrow_mut();
            let rng = network.rng(Link::Client(visitor));
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
            let comes = ScheduledEvent::Own(RoomsEvent::Comes(visitor));
            return self.stage.queue.at(until_us, comes);
        }
        let id = self.ask(place, visitor);
        let leaves = self.plan.visitors[visitor].leaves_after_us;
        if let Some(after_us) = leaves.filter(|_| self.visitors[visitor].requested <= LEAVES_MAX) {
            self.stage
                .queue
                .after(after_us, ScheduledEvent::Own(RoomsEvent::HangsUp(id)));
        }
    }

    fn ask(&mut self, place: WorkerLife, visitor: usize) -> RequestId {
        let id = self.stage.next_id();
        self.requested.insert(id, visitor);
        self.witness.arrived.insert(visitor);
        self.visitors[visitor].requested += 1;
        let user = format!("user-{visitor}");
        let pass = self.visitors[visitor].pass.clone().unwrap_or_default();
        let pass = String::from_utf8_lossy(&pass).into_owned();
        let mut headers = vec![
            (":method", "GET"),
            (":path", "/"),
            ("accept", "application/json"),
            ("x-user-id", user.as_str()),
        ];
        if !pass.is_empty() {
            headers.push((weir_base::headers::ROOM, &pass));
        }
        self.open(place, Headers::new(&headers))
    }

    /// Handles a waiting visitor's answer; returns its state.
    fn waits(&mut self, visitor: usize, answer: &Answer) -> String {
        let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        let state = body["state"].as_str().unwrap_or("no state").to_owned();
        let Some(text) = answer.headers.get(weir_base::headers::ROOM) else {
            return state;
        };
        let now_ms = self.stage.now_ms();
        let pass = Pass::read(
            &self.config.keys,
            &self.name,
            &text,
            now_ms,
            u64::from(u32::MAX),
        );
        self.visitors[visitor].pass = Some(text.to_vec());
        let Ok(Pass { place, .. }) = pass else {
            self.stage
                .violate(format!("a pass does not count: {pass:?}"));
            return state;
        };
        let is_held = state == "hold";
        let mut wrong = (place > 0)
            .then(|| self.witness.place(visitor, place, is_held))
            .flatten();
        if let Some(position) = body["position"].as_u64() {
            let worse = self.witness.position(visitor, place, position);
            wrong = wrong.or(worse);
        }
        if let Some(subject) = wrong {
            self.stage.violate(subject);
        }
        state
    }

    pub(super) fn into_report(self) -> Report {
        self.stage.into_report(self.plan.seed)
    }
}

impl Simulation for World {
    type Engine = Engine;
    type Event = RoomsEvent;

    fn stage(&mut self) -> &mut Stage<Engine, RoomsEvent> {
        &mut self.stage
    }

    fn engine(&mut self, _worker: u32, data: &Rc<LocalData>) -> Engine {
        self.engines += 1;
        let name = format!("engine-{}", self.engines);
        WaitingRoom::new(self.config.clone(), Rc::clone(data), name)
    }

    fn happen(&mut self, own: RoomsEvent) {
        match own {
            RoomsEvent::Comes(visitor) => self.comes(visitor),
            RoomsEvent::HangsUp(request) => self.hang_up(request),
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
        let replies = self.redis.run(bytes, most, now_us);
        let (joined, missed) = (self.redis.last.joined, self.redis.last.missed);
        if let Some(subject) = self.witness.counted(joined, missed) {
            self.stage.violate(subject);
        }
        replies
    }

    fn lose(&mut self, back_us: Option<u64>) {
        let now_us = self.stage.queue.now_us();
        self.redis.restart(back_us, now_us);
        // Settings are in SQL, from which the origin restores them.
        self.set_mode(Mode::Open);
    }

    fn decided(&mut self, request: RequestId, decision: Decision) {
        let visitor = self.requested[&request];
        let now_us = self.stage.queue.now_us();
        let word = match decision {
            Decision::WentOn { place, stream } => {
                if let Some(subject) = self.witness.enter(visitor, now_us) {
                    self.stage.violate(subject);
                }
                let ends = ScheduledEvent::StreamEnds { place, stream };
                self.stage.queue.after(BEHIND_US, ends);
                "entered".to_owned()
            }
            Decision::Answered(answer) => self.waits(visitor, &answer),
            Decision::Broken | Decision::Left => "nothing".to_owned(),
        };
        self.stage.stats.add_answer(&word);
        if word == "entered" {
            *self.stage.stats.done.entry("entered").or_default() += 1;
        }
        self.stage.trace.mix_bytes(word.as_bytes());
        self.stage
            .trace
            .line(now_us, || format!("visitor {visitor}: {word}"));
        let after_us = self.plan.visitors[visitor].asks_after_ms * 1_000;
        let comes = ScheduledEvent::Own(RoomsEvent::Comes(visitor));
        self.stage.queue.after(after_us, comes);
    }

    fn fetch(&mut self, _place: WorkerLife, _id: FetchId, _fetch: Fetch) {
        self.stage.violate("a waiting room fetches".into());
    }

    fn fault_begins(&mut self, fault: Fault) {
        if let Fault::Rules { document } = fault {
            match document {
                0 => self.set_mode(Mode::Paused),
                1 => self.set_mode(Mode::Open),
                _ => self.narrow(),
            }
        }
    }

    fn decided_within_us(&self) -> u64 {
        DECIDED_WITHIN_US
    }
}

fn config(room: Room) -> CheckedConfig {
    let Room {
        per_minute,
        active_max,
    } = room;
    let claim_s = CLAIM_MS / 1_000;
    let json = format!(
        r#"{{
            "redis": {{ "deadline_ms": {DEADLINE_MS}, "batches_max": 3 }},
            "keys": [{{ "secret": {{ "env": "KEY" }} }}],
            "user_header": "x-user-id", "poll_interval_ms": {POLL_MS},
            "rooms": [{{
                "name": "shop", "session": "10m", "claim": "{claim_s}s", "poll": {{ "min_ms": 500, "max_ms": 1000 }},
                "per_address": {{ "places": 0 }}, "per_minute": {per_minute}, "active_max": {active_max} }}]
        }}"#
    );
    let config: Config = parse(json.as_bytes()).expect("the configuration is JSON");
    let environment = |name: &str| (name == "KEY").then(|| SECRET.to_vec());
    config
        .checked(&environment)
        .expect("the configuration makes sense")
}
