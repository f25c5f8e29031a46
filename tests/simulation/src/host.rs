//! Gateways: a real engine in a small host, several workers each.
//!
//! The host applies effects as the Proxy-Wasm one does (`crates/proxy-kit/src/worker.rs`): in order, with feedback for
//! what could not be sent or delivered. What leaves a worker is in [`WorkerEffect`]; the world does it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use weir_base::shared_data::LocalData;
use weir_engine::event::{FetchResponse, PlainEnd, PlainRequest};
use weir_engine::redis::Reply;
use weir_engine::{Answer, BatchId, Effect, Effects, Engine, Event, Fetch, FetchId, StreamId};

use crate::network::Network;
use crate::plan::{Caller, RedisFate};

/// One request of a client.
pub(crate) type RequestId = u64;

/// An engine that knows which streams it remembers.
pub(crate) trait TracksStreams: Engine {
    /// How many streams it remembers.
    fn open_streams(&self) -> usize;
}

/// One gateway: workers that share memory.
#[derive(Debug)]
pub(crate) struct Gateway<E> {
    pub(crate) workers: Vec<Worker<E>>,
    /// What they share.
    pub(crate) data: Rc<LocalData>,
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
pub(crate) struct WorkerLife {
    pub(crate) gateway: usize,
    pub(crate) life: u64,
    pub(crate) worker: usize,
}

/// What leaves a worker.
#[derive(Debug)]
pub(crate) enum WorkerEffect {
    Call {
        batch: BatchId,
        bytes: Rc<[u8]>,
        timeout_ms: u64,
        fate: Option<RedisFate>,
    },
    Fetch {
        id: FetchId,
        fetch: Fetch,
    },
    Answered {
        request: RequestId,
        stream: StreamId,
        answer: Arc<Answer>,
    },
    WentOn {
        request: RequestId,
        stream: StreamId,
        headers: Vec<(&'static str, String)>,
    },
    Wake,
    /// The engine was told that an effect could not be applied: of which kind.
    FedBack(&'static str),
    /// The engine has broken a rule of hosts.
    Wrong(String),
}

/// One worker: its engine, and the one place that applies effects.
pub(crate) struct Worker<E> {
    pub(crate) engine: E,
    /// How many have died in its place, in this life of its gateway.
    pub(crate) incarnation: u64,
    effects: Effects,
    streams: BTreeMap<StreamId, Stream>,
    next_stream: StreamId,
    /// Calls under way, with their commands.
    calls: BTreeMap<BatchId, Rc<[u8]>>,
    /// Requests of the engine's own under way.
    fetches: BTreeSet<FetchId>,
    /// Whether a call can go at once.
    is_connected: bool,
    /// How far apart ticks are, and how often that has changed.
    pub(crate) tick_ms: Option<u64>,
    pub(crate) tick_changes: u64,
}

impl<E> std::fmt::Debug for Worker<E> {
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
    out: Vec<WorkerEffect>,
    undelivered: BTreeSet<StreamId>,
    feedback: VecDeque<Feedback>,
}

impl<E: TracksStreams> Gateway<E> {
    /// A gateway in its first life, and the memory that its workers share.
    pub(crate) fn of(workers: Vec<Worker<E>>, data: Rc<LocalData>) -> Self {
        Self {
            workers,
            data,
            life: 1,
            is_alive: true,
            paused_until_us: 0,
            pauses: 0,
            clock_off_ms: 0,
        }
    }

    /// Begins another life: with workers that know nothing.
    pub(crate) fn restart(&mut self, workers: Vec<Worker<E>>, data: Rc<LocalData>) {
        self.workers = workers;
        self.data = data;
        self.life += 1;
        self.is_alive = true;
    }

    pub(crate) fn die(&mut self) {
        self.is_alive = false;
        self.workers.clear();
    }
}

impl<E: TracksStreams> Worker<E> {
    pub(crate) fn new(engine: E) -> Self {
        Self {
            engine,
            incarnation: 0,
            effects: Effects::new(),
            streams: BTreeMap::new(),
            next_stream: 1,
            calls: BTreeMap::new(),
            fetches: BTreeSet::new(),
            is_connected: false,
            tick_ms: None,
            tick_changes: 0,
        }
    }

    /// A worker in the place of one that has died. What is still under way for that one reaches nobody: numbers go on.
    pub(crate) fn after(dead: &mut Self, engine: E) -> Self {
        let mut effects = std::mem::take(&mut dead.effects);
        effects.take_into(&mut Vec::new());
        effects.clear_bytes();
        Self {
            effects,
            incarnation: dead.incarnation + 1,
            next_stream: dead.next_stream,
            tick_changes: dead.tick_changes + 1,
            ..Self::new(engine)
        }
    }

    // --- events

    pub(crate) fn open(
        &mut self,
        request: RequestId,
        head: &PlainRequest,
        network: &RefCell<Network>,
    ) -> (StreamId, Vec<WorkerEffect>) {
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
        let event = Event::Request {
            stream,
            request: head,
        };
        let out = self.run(event, head.now_ms, network);
        // As the Proxy-Wasm host: it does not tell of a stream that its own event has answered.
        let is_answered = |stream: &Stream| stream.state == StreamState::Answered;
        if self.streams.get(&stream).is_some_and(is_answered) {
            self.streams.remove(&stream);
        }
        (stream, out)
    }

    pub(crate) fn tick(&mut self, now_ms: u64, network: &RefCell<Network>) -> Vec<WorkerEffect> {
        self.run(Event::Tick { now_ms }, now_ms, network)
    }

    /// A call has ended, unless it has ended before.
    pub(crate) fn hear(
        &mut self,
        batch: BatchId,
        reply: Reply,
        now_ms: u64,
        network: &RefCell<Network>,
    ) -> Vec<WorkerEffect> {
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

    /// A request of the engine's own has ended, unless it has ended before.
    pub(crate) fn fetched(
        &mut self,
        fetch: FetchId,
        response: Option<FetchResponse>,
        now_ms: u64,
        network: &RefCell<Network>,
    ) -> Vec<WorkerEffect> {
        if !self.fetches.remove(&fetch) {
            return vec![];
        }
        let event = Event::FetchDone {
            fetch,
            response,
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
    ) -> Vec<WorkerEffect> {
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
        self.engine.open_streams() + self.streams.len()
    }

    /// How far apart ticks must be from now on, if that has changed.
    pub(crate) fn changed_tick(&mut self) -> Option<u64> {
        let tick_ms = self.engine.tick_ms();
        if tick_ms == self.tick_ms {
            return None;
        }
        self.tick_ms = tick_ms;
        self.tick_changes += 1;
        tick_ms
    }

    // --- effects

    fn run(
        &mut self,
        event: Event<'_>,
        now_ms: u64,
        network: &RefCell<Network>,
    ) -> Vec<WorkerEffect> {
        let mut callback = Callback::default();
        self.engine.handle(event, &mut self.effects);
        self.apply_all(&mut callback, network);
        while let Some(feedback) = callback.feedback.pop_front() {
            let (kind, event) = match feedback {
                Feedback::NotSent(batch) => ("not sent", Event::NotSent { batch }),
                Feedback::Deferred(batch) => ("deferred", Event::Deferred { batch }),
                Feedback::Undelivered(stream) => {
                    ("undelivered", Event::Undelivered { stream, now_ms })
                }
            };
            callback.out.push(WorkerEffect::FedBack(kind));
            self.engine.handle(event, &mut self.effects);
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
            Effect::Wake => callback.out.push(WorkerEffect::Wake),
            Effect::Respond { stream, .. }
            | Effect::RemoveRequestHeader { stream, .. }
            | Effect::AddRequestHeader { stream, .. }
            | Effect::SetPath { stream, .. }
            | Effect::Continue { stream, .. }
            | Effect::SetResponseHeader { stream, .. }
            | Effect::AddResponseHeader { stream, .. } => {
                self.apply_to(stream, effect, callback);
            }
            Effect::Fetch { id, fetch } => {
                self.fetches.insert(id);
                callback.out.push(WorkerEffect::Fetch { id, fetch });
            }
            Effect::Log(..) => {}
            // None of the engines that run here asks for a body.
            Effect::ReadBody { stream, .. } => panic!("stream {stream} has no body"),
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
        callback.out.push(WorkerEffect::Call {
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
            return callback.out.push(WorkerEffect::Wrong(wrong));
        }
        callback.out.extend(found.take(stream, effect));
    }
}

impl Stream {
    /// What leaves the gateway with an effect for this stream.
    fn take(&mut self, stream: StreamId, effect: Effect) -> Option<WorkerEffect> {
        let request = self.request;
        match effect {
            Effect::Respond { answer, .. } => {
                self.state = StreamState::Answered;
                Some(WorkerEffect::Answered {
                    request,
                    stream,
                    answer,
                })
            }
            Effect::Continue { .. } => {
                self.state = StreamState::WentOn;
                Some(WorkerEffect::WentOn {
                    request,
                    stream,
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
