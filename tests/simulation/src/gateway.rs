//! Gateways: the real gate engine in a small host.
//!
//! The host applies effects as the Proxy-Wasm one does (`crates/proxy-kit/src/worker.rs`): in order, with feedback for
//! what could not be sent or delivered. What leaves a worker is in [`Out`]; the world does it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use weir_base::key::KeyRing;
use weir_base::shared_data::LocalData;
use weir_engine::config::parse;
use weir_engine::event::{PlainEnd, PlainRequest};
use weir_engine::redis::Reply;
use weir_engine::{Answer, BatchId, Effect, Effects, Engine, Event, Headers, StreamId};
use weir_engine_gate::config::Checked;
use weir_engine_gate::{Config, Gate};

use crate::network::Network;
use crate::plan::{Caller, RedisFate};
use crate::world::RequestId;

/// How long a claim is held, a request waits for Redis, and for an origin.
pub(crate) const CLAIM_TTL_MS: u64 = 2_000;
pub(crate) const DEADLINE_MS: u64 = 250;
pub(crate) const ORIGIN_TIMEOUT_MS: u64 = 1_500;

/// The most calls to Redis that one request waits for, each at most two deadlines and a tick: three claims, and two
/// rebalances of up to seven.
const CALLS_MAX: u64 = 3 + 2 * 7;

/// Within so long every request is answered or goes on.
pub(crate) const DECIDED_WITHIN_US: u64 = CALLS_MAX * (2 * DEADLINE_MS + 100) * 1_000;

const SECRET: &[u8] = b"a secret of the simulation, 32 bytes or more";

/// Small breakers, so that few clients are enough to open them.
const CONFIG: &str = r#"{
    "routes": [{ "path": "/sales/{sale}/orders" }],
    "identify_prefixes": ["/orders/"],
    "user_header": "x-user-id",
    "claim": { "ttl_ms": 2000, "keys": [{ "secret": { "env": "SECRET" } }] },
    "redis": { "deadline_ms": 250 },
    "overload": {
        "redis_breaker": { "window_ms": 2000, "min_requests": 4, "failure_percent": 60, "open_ms": 300 },
        "origin_breaker": { "window_ms": 2000, "min_requests": 4, "failure_percent": 60, "open_ms": 300 }
    }
}"#;

/// The configuration of every gateway.
pub(crate) fn config() -> Checked {
    let config: Config = parse(CONFIG.as_bytes()).expect("the configuration is JSON");
    let environment = |_: &str| Some(SECRET.to_vec());
    config
        .checked(&environment)
        .expect("the configuration makes sense")
}

/// The keys that gateways and origins share.
pub(crate) fn keys() -> Rc<KeyRing> {
    Rc::new(config().claim_keys)
}

/// One gateway: workers that share memory.
#[derive(Debug)]
pub(crate) struct Gateway {
    pub(crate) workers: Vec<Worker>,
    /// How often it has died: what is meant for an earlier life reaches nobody.
    pub(crate) life: u64,
    pub(crate) is_alive: bool,
    /// Until when it stands still; and how often it has.
    pub(crate) paused_until_us: u64,
    pub(crate) pauses: u64,
    /// By how much its clock is off.
    pub(crate) clock_off_ms: i64,
}

/// A worker of a gateway, in one life of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) gateway: usize,
    pub(crate) life: u64,
    pub(crate) worker: usize,
}

/// What leaves a worker.
#[derive(Debug)]
pub(crate) enum Out {
    Call {
        batch: BatchId,
        bytes: Rc<[u8]>,
        timeout_ms: u64,
        fate: Option<RedisFate>,
    },
    Answered {
        request: RequestId,
        stream: StreamId,
        answer: Rc<Answer>,
    },
    WentOn {
        request: RequestId,
        headers: Vec<(&'static str, String)>,
    },
    Wake,
    /// The engine was told that an effect could not be applied: of which kind.
    FedBack(&'static str),
    /// The engine has broken a rule of hosts.
    Wrong(String),
}

/// One worker: its engine, and the one place that applies effects.
pub(crate) struct Worker {
    gate: Gate<Rc<LocalData>>,
    effects: Effects,
    streams: BTreeMap<StreamId, Stream>,
    next_stream: StreamId,
    /// Calls under way, with their commands.
    calls: BTreeMap<BatchId, Rc<[u8]>>,
    /// Whether a call can go at once.
    is_connected: bool,
    /// How far apart ticks are, and how often that has changed.
    pub(crate) tick_ms: Option<u64>,
    pub(crate) tick_changes: u64,
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker")
            .field("streams", &self.streams)
            .finish_non_exhaustive()
    }
}

/// A request in a worker.
#[derive(Debug)]
struct Stream {
    request: RequestId,
    state: StreamState,
    /// The client has gone, and effects find nobody.
    is_gone: bool,
    /// What was added to the request.
    headers: Vec<(&'static str, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamState {
    Waits,
    Answered,
    WentOn,
}

/// What the engine is to be told when all effects were applied.
enum Feedback {
    NotSent(BatchId),
    Deferred(BatchId),
    Undelivered(StreamId),
}

/// The effects of one event.
#[derive(Default)]
struct Callback {
    out: Vec<Out>,
    undelivered: BTreeSet<StreamId>,
    feedback: VecDeque<Feedback>,
}

impl Gateway {
    pub(crate) fn new(config: &Checked, workers: u32) -> Self {
        let mut gateway = Self {
            workers: vec![],
            life: 0,
            is_alive: false,
            paused_until_us: 0,
            pauses: 0,
            clock_off_ms: 0,
        };
        gateway.start(config, workers);
        gateway
    }

    /// Begins a life: workers that know nothing.
    pub(crate) fn start(&mut self, config: &Checked, workers: u32) {
        let data = Rc::new(LocalData::default());
        let worker = |_| Worker::new(Gate::new(config.clone(), &data));
        self.workers = (0..workers).map(worker).collect();
        self.life += 1;
        self.is_alive = true;
    }

    pub(crate) fn die(&mut self) {
        self.is_alive = false;
        self.workers.clear();
    }
}

impl Worker {
    fn new(gate: Gate<Rc<LocalData>>) -> Self {
        Self {
            gate,
            effects: Effects::new(),
            streams: BTreeMap::new(),
            next_stream: 1,
            calls: BTreeMap::new(),
            is_connected: false,
            tick_ms: None,
            tick_changes: 0,
        }
    }

    // --- events

    pub(crate) fn open(
        &mut self,
        request: RequestId,
        headers: Headers,
        now_ms: u64,
        network: &RefCell<Network>,
    ) -> (StreamId, Vec<Out>) {
        let stream = self.next_stream;
        self.next_stream += 1;
        self.streams.insert(
            stream,
            Stream {
                request,
                state: StreamState::Waits,
                is_gone: false,
                headers: vec![],
            },
        );
        let request = PlainRequest {
            headers,
            peer_address: b"192.0.2.1:5".to_vec(),
            now_ms,
        };
        let event = Event::Request {
            stream,
            request: &request,
        };
        let out = self.run(event, now_ms, network);
        // As the Proxy-Wasm host: it does not tell of a stream that its own event has answered.
        let is_answered = |stream: &Stream| stream.state == StreamState::Answered;
        if self.streams.get(&stream).is_some_and(is_answered) {
            self.streams.remove(&stream);
        }
        (stream, out)
    }

    pub(crate) fn tick(&mut self, now_ms: u64, network: &RefCell<Network>) -> Vec<Out> {
        self.run(Event::Tick { now_ms }, now_ms, network)
    }

    /// A call has ended, unless it has ended before.
    pub(crate) fn hear(
        &mut self,
        batch: BatchId,
        reply: Reply,
        now_ms: u64,
        network: &RefCell<Network>,
    ) -> Vec<Out> {
        if self.calls.remove(&batch).is_none() {
            return vec![];
        }
        self.is_connected &= reply.is_ok();
        let event = Event::RedisReply {
            batch,
            reply,
            now_ms,
        };
        self.run(event, now_ms, network)
    }

    /// The commands of a call that is under way.
    pub(crate) fn call(&self, batch: BatchId) -> Option<Rc<[u8]>> {
        self.calls.get(&batch).cloned()
    }

    /// The client of a stream has gone; the engine hears of it later. Whether the stream was still there.
    pub(crate) fn client_gone(&mut self, stream: StreamId) -> bool {
        let found = self.streams.get_mut(&stream);
        found.map(|stream| stream.is_gone = true).is_some()
    }

    /// A stream ends, with the status that its client got.
    pub(crate) fn close(
        &mut self,
        stream: StreamId,
        response_status: Option<u16>,
        now_ms: u64,
        network: &RefCell<Network>,
    ) -> Vec<Out> {
        if self.streams.remove(&stream).is_none() {
            return vec![];
        }
        let end = PlainEnd {
            response_status,
            now_ms,
        };
        self.run(Event::Closed { stream, end: &end }, now_ms, network)
    }

    /// Whether the stream still waits for a decision that somebody would hear.
    pub(crate) fn waits(&self, stream: StreamId) -> bool {
        let stream = self.streams.get(&stream);
        stream.is_some_and(|stream| stream.state == StreamState::Waits && !stream.is_gone)
    }

    /// Whether the stream is there.
    pub(crate) fn has(&self, stream: StreamId) -> bool {
        self.streams.contains_key(&stream)
    }

    /// Streams that engine and host remember.
    pub(crate) fn remembered(&self) -> usize {
        self.gate.open_streams() + self.streams.len()
    }

    /// How far apart ticks must be from now on, if that has changed.
    pub(crate) fn changed_tick(&mut self) -> Option<u64> {
        let tick_ms = self.gate.tick_ms();
        if tick_ms == self.tick_ms {
            return None;
        }
        self.tick_ms = tick_ms;
        self.tick_changes += 1;
        tick_ms
    }

    // --- effects

    fn run(&mut self, event: Event<'_>, now_ms: u64, network: &RefCell<Network>) -> Vec<Out> {
        let mut callback = Callback::default();
        self.gate.handle(event, &mut self.effects);
        self.apply_all(&mut callback, network);
        while let Some(feedback) = callback.feedback.pop_front() {
            let (kind, event) = match feedback {
                Feedback::NotSent(batch) => ("not sent", Event::NotSent { batch }),
                Feedback::Deferred(batch) => ("deferred", Event::Deferred { batch }),
                Feedback::Undelivered(stream) => {
                    ("undelivered", Event::Undelivered { stream, now_ms })
                }
            };
            callback.out.push(Out::FedBack(kind));
            self.gate.handle(event, &mut self.effects);
            self.apply_all(&mut callback, network);
        }
        callback.out
    }

    fn apply_all(&mut self, callback: &mut Callback, network: &RefCell<Network>) {
        let mut effects = Vec::new();
        self.effects.take_into(&mut effects);
        for effect in effects {
            self.apply(effect, callback, network);
        }
        self.effects.clear_bytes();
    }

    fn apply(&mut self, effect: Effect, callback: &mut Callback, network: &RefCell<Network>) {
        match effect {
            Effect::Call {
                batch,
                body,
                timeout_ms,
                at_once,
                ..
            } => {
                let bytes: Rc<[u8]> = self.effects.bytes(&body).into();
                self.send(batch, bytes, timeout_ms, at_once, callback, network);
            }
            Effect::Wake => callback.out.push(Out::Wake),
            Effect::Respond { stream, .. }
            | Effect::RemoveRequestHeader { stream, .. }
            | Effect::AddRequestHeader { stream, .. }
            | Effect::SetPath { stream, .. }
            | Effect::Continue { stream, .. }
            | Effect::SetResponseHeader { stream, .. } => {
                self.apply_to(stream, effect, callback);
            }
            Effect::Fetch { .. } => callback.out.push(Out::Wrong("the gate fetches".into())),
            Effect::Record { .. } | Effect::Log(..) => {}
        }
    }

    fn send(
        &mut self,
        batch: BatchId,
        bytes: Rc<[u8]>,
        timeout_ms: u64,
        at_once: bool,
        callback: &mut Callback,
        network: &RefCell<Network>,
    ) {
        if at_once && !self.is_connected {
            return callback.feedback.push_back(Feedback::Deferred(batch));
        }
        let fate = network.borrow_mut().redis_fate(Caller::Gateway);
        if fate == Some(RedisFate::Defer) {
            self.is_connected = false;
            return callback.feedback.push_back(match at_once {
                true => Feedback::Deferred(batch),
                false => Feedback::NotSent(batch),
            });
        }
        self.is_connected = true;
        self.calls.insert(batch, Rc::clone(&bytes));
        callback.out.push(Out::Call {
            batch,
            bytes,
            timeout_ms,
            fate,
        });
    }

    fn apply_to(&mut self, stream: StreamId, effect: Effect, callback: &mut Callback) {
        if callback.undelivered.contains(&stream) {
            return;
        }
        let Some(found) = self.streams.get_mut(&stream).filter(|found| !found.is_gone) else {
            callback.undelivered.insert(stream);
            return callback.feedback.push_back(Feedback::Undelivered(stream));
        };
        if found.state != StreamState::Waits {
            let wrong = format!("stream {stream} was decided before: {effect:?}");
            return callback.out.push(Out::Wrong(wrong));
        }
        callback.out.extend(found.take(stream, effect));
    }
}

impl Stream {
    /// What leaves the gateway with an effect for this stream.
    fn take(&mut self, stream: StreamId, effect: Effect) -> Option<Out> {
        let request = self.request;
        match effect {
            Effect::Respond { answer, .. } => {
                self.state = StreamState::Answered;
                Some(Out::Answered {
                    request,
                    stream,
                    answer,
                })
            }
            Effect::Continue { .. } => {
                self.state = StreamState::WentOn;
                Some(Out::WentOn {
                    request,
                    headers: std::mem::take(&mut self.headers),
                })
            }
            Effect::AddRequestHeader { name, value, .. } => {
                self.headers.push((name, value));
                None
            }
            _ => None,
        }
    }
}
