//! Gateways: real engines in a small host, with several workers each.
//!
//! The host applies effects like the Proxy-Wasm host (`crates/proxy-kit/src/worker.rs`): in order, with feedback for
//! effects that failed. [`WorkerEffect`] is the output of a worker, which the world processes.

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

/// An engine that reports the number of its streams.
pub(crate) trait TracksStreams: Engine {
    /// The number of streams in its memory.
    fn open_streams(&self) -> usize;
}

/// One gateway: workers that share memory.
#[derive(Debug)]
pub(crate) struct Gateway<E> {
    pub(crate) workers: Vec<Worker<E>>,
    /// The shared memory.
    pub(crate) data: Rc<LocalData>,
    /// The number of restarts: messages for an earlier life are dropped.
    pub(crate) life: u64,
    pub(crate) is_alive: bool,
    /// The end of a pause, and the number of pauses.
    pub(crate) paused_until_us: u64,
    pub(crate) pauses: u64,
    /// The error of its clock.
    pub(crate) clock_off_ms: i64,
}

/// A worker of a gateway in one of its lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WorkerLife {
    pub(crate) gateway: usize,
    pub(crate) life: u64,
    pub(crate) worker: usize,
}

/// The output of a worker.
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
    /// The engine received feedback of this kind about a failed effect.
    FedBack(&'static str),
    /// The engine has violated a host rule.
    Wrong(String),
}

/// One worker: its engine, and the only place that applies effects.
pub(crate) struct Worker<E> {
    pub(crate) engine: E,
    /// The number of its predecessors in this life of its gateway.
    pub(crate) incarnation: u64,
    effects: Effects,
    streams: BTreeMap<StreamId, Stream>,
    next_stream: StreamId,
    /// Calls in flight, with their commands.
    calls: BTreeMap<BatchId, Rc<[u8]>>,
    /// The engine's HTTP requests in flight.
    fetches: BTreeSet<FetchId>,
    /// Whether a call can be sent immediately.
    is_connected: bool,
    /// The tick interval, and the number of its changes.
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
    /// Whether the client has gone, so that effects fail.
    is_gone: bool,
    /// Headers added to the request.
    headers: Vec<(&'static str, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamState {
    Waits,
    Answered,
    WentOn,
}

/// Feedback for the engine after all effects are applied.
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

    /// Begins another life, with workers without memory.
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

    /// Replaces a worker that has died. Messages for the old one are dropped: numbers continue.
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
        // Like the Proxy-Wasm host, it does not report a stream that its own event has answered.
        let is_answered = |stream: &Stream| stream.state == StreamState::Answered;
        if self.streams.get(&stream).is_some_and(is_answered) {
            self.streams.remove(&stream);
        }
        (stream, out)
    }

    pub(crate) fn tick(&mut self, now_ms: u64, network: &RefCell<Network>) -> Vec<WorkerEffect> {
        self.run(Event::Tick { now_ms }, now_ms, network)
    }

    /// A call has ended, unless it ended before.
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

    /// An HTTP request of the engine has ended, unless it ended before.
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

    /// The commands of a call in flight.
    pub(crate) fn call(&self, batch: BatchId) -> Option<Rc<[u8]>> {
        self.calls.get(&batch).cloned()
    }

    /// The client of a stream has gone; the engine is informed later. Returns whether the stream still existed.
    pub(crate) fn client_gone(&mut self, stream: StreamId) -> bool {
        let found = self.streams.get_mut(&stream);
        found.map(|stream| stream.is_gone = true).is_some()
    }

    /// Ends a stream, with the status that its client got.
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

    /// Whether the stream still waits for a decision and its client is present.
    pub(crate) fn waits(&self, stream: StreamId) -> bool {
        let stream = self.streams.get(&stream);
        stream.is_some_and(|stream| stream.state == StreamState::Waits && !stream.is_gone)
    }

    /// Whether the stream exists.
    pub(crate) fn has(&self, stream: StreamId) -> bool {
        self.streams.contains_key(&stream)
    }

    /// The number of streams in the memory of engine and host.
    pub(crate) fn remembered(&self) -> usize {
        self.engine.open_streams() + self.streams.len()
    }

    /// The new tick interval, if it has changed.
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
            // None of the simulated engines requests a body.
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
    /// The gateway's output for an effect of this stream.
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
