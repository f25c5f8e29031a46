//! An engine behind a lock, and the only place that applies effects.
//!
//! A thread with an event locks the engine host and passes the event to the engine. Workers bring requests, the engine
//! host's own thread brings ticks, and the main thread brings HTTP responses. Effects for the event's own request
//! return to the hook that brought it. The hook applies them after it releases the lock, because Envoy may run further
//! hooks of the stream before it returns. Effects for other streams go to their [slots](crate::slot), and those
//! streams' threads apply them.
//!
//! Redis replies and turns wait at the engine host for a worker's next event loop round, as in WebAssembly. The engine
//! host wakes the worker of a waiting stream, which runs the engine after all requests that are already queued. If the
//! engine host's own thread ran the engine immediately, it would send only the few requests read so far, and batches
//! would be small.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::mpsc::UnboundedSender;
use weir_engine::event::{FetchResponse, PlainEnd};
use weir_engine::redis::Reply;
use weir_engine::{
    Answer, BatchId, EarlyDecision, Effect, Effects, Event, FetchId, Level, StreamId,
};
use weir_envoy_abi as abi;
use weir_registry::Filter;
use weir_registry::engines::{AnyEngine, make};

use crate::fast_path::counts::FastPathCounts;
use crate::fetches::Fetches;
use crate::metrics::Counts;
use crate::service::{Call, Order};
use crate::shared::{ProcessHost, now_ms};
use crate::slot::Slot;
use crate::worker_redis;

/// Tick interval for an engine that needs no ticks, in milliseconds.
const IDLE_TICK_MS: u64 = 1_000;

/// State shared by all engine hosts of one filter configuration.
pub struct Common {
    /// The filter in the registry.
    pub filter: &'static Filter,
    /// The engine's configuration, to create a new engine after a panic.
    pub json: Vec<u8>,
    /// HTTP requests that wait for the main thread.
    pub fetches: Fetches,
    /// Calls the main thread, until the configuration is dropped.
    pub main: Mutex<Option<abi::ConfigScheduler>>,
    /// Caught panics that are not reported yet.
    pub panics: AtomicU64,
    /// Whether Redis has ever replied.
    pub has_answered: AtomicBool,
    /// Fast path counts that are not reported yet.
    pub fast_path: FastPathCounts,
    /// The worker socket of each Redis that has one.
    pub worker_sockets: Vec<Option<String>>,
    /// Redis calls that are not reported yet.
    pub calls: CallCounts,
}

/// Calls to Redis by the thread that sent them.
#[derive(Debug, Default)]
pub struct CallCounts {
    /// Sent by a worker.
    pub worker: AtomicU64,
    /// Sent by the engine host's own thread.
    pub module: AtomicU64,
}

impl Common {
    /// Calls the main thread.
    pub fn call_main(&self) {
        if let Some(main) = &*self.main() {
            main.call();
        }
    }

    /// Writes a line to Envoy's log, unless the configuration is dropped: Envoy itself may be ending then.
    fn log(&self, level: abi::Level, text: &str) {
        // The lock delays the thread that drops the configuration.
        if self.main().is_some() {
            abi::log(level, text);
        }
    }

    fn main(&self) -> MutexGuard<'_, Option<abi::ConfigScheduler>> {
        self.main.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The origin of an HTTP request: an engine host, an engine and a request ID.
#[derive(Clone, Copy, Debug)]
pub struct FetchOf {
    /// The engine host's index in the configuration.
    engine_host: usize,
    generation: u32,
    id: FetchId,
}

impl FetchOf {
    /// The engine host's index in the configuration.
    pub fn engine_host(&self) -> usize {
        self.engine_host
    }
}

/// An engine behind a lock.
pub struct EngineHost {
    this: Weak<Self>,
    index: usize,
    common: Arc<Common>,
    state: Mutex<State>,
    service: UnboundedSender<Order>,
    /// Tick interval, in milliseconds.
    tick_ms: AtomicU64,
}

struct State {
    engine: Box<dyn AnyEngine>,
    /// The number of this engine among those of the engine host. Replies for earlier engines are dropped.
    generation: u32,
    effects: Effects,
    /// Buffer for the effects being applied, reused to avoid allocations.
    applying: Vec<Effect>,
    /// Calls to send once the lock is released, because sending may end earlier calls.
    calls: Vec<Call>,
    /// The streams that wait, in order of arrival.
    slots: BTreeMap<StreamId, Arc<Slot>>,
    next_stream: StreamId,
    /// Redis replies that the engine has not received yet.
    replies: Vec<(BatchId, Reply)>,
    /// Whether the engine requested a turn that has not run yet.
    wants_turn: bool,
    /// Whether a thread was woken that has not run the engine yet.
    is_rung: bool,
}

/// The effects for the request of an event, for the hook that brought the event.
#[derive(Debug, Default)]
pub struct RequestEffects {
    /// The effects.
    pub effects: Vec<Effect>,
    /// The slot for later effects, if the stream waits.
    pub slot: Option<Arc<Slot>>,
}

/// The result of an effect that the engine needs to receive.
enum Feedback {
    NotSent(BatchId),
    NotFetched(FetchId),
    Undelivered(StreamId),
}

impl Feedback {
    fn event(self) -> Event<'static> {
        let now_ms = now_ms();
        match self {
            Self::NotSent(batch) => Event::NotSent { batch },
            Self::NotFetched(fetch) => Event::FetchDone {
                fetch,
                response: None,
                now_ms,
            },
            Self::Undelivered(stream) => Event::Undelivered { stream, now_ms },
        }
    }
}

impl EngineHost {
    /// Creates an engine host. Its thread receives orders through `service`.
    pub fn new(
        index: usize,
        common: Arc<Common>,
        engine: Box<dyn AnyEngine>,
        service: UnboundedSender<Order>,
    ) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            this: Weak::clone(this),
            index,
            common,
            tick_ms: AtomicU64::new(engine.tick_ms().unwrap_or(IDLE_TICK_MS)),
            state: Mutex::new(State {
                engine,
                generation: 0,
                effects: Effects::new(),
                applying: Effects::list(),
                calls: Vec::new(),
                slots: BTreeMap::new(),
                next_stream: 0,
                replies: Vec::new(),
                wants_turn: false,
                is_rung: false,
            }),
            service,
        })
    }

    /// The state shared by all engine hosts of the configuration.
    pub fn common(&self) -> &Common {
        &self.common
    }

    /// The current tick interval, in milliseconds.
    pub fn tick_ms(&self) -> u64 {
        self.tick_ms.load(Ordering::Relaxed)
    }

    // --- events of streams, on their threads

    /// A request's headers arrived. `wait` creates the slot of a stream that waits. Returns the stream's ID and the
    /// effects.
    pub fn on_request(
        &self,
        request: &dyn weir_engine::Request,
        wait: impl FnOnce() -> Slot,
    ) -> (StreamId, RequestEffects) {
        let mut state = self.lock();
        let stream = state.next_stream;
        state.next_stream = stream.wrapping_add(1);
        let event = Event::Request { stream, request };
        let effects = self.run(&mut state, event, Some(stream));
        let own = Self::settle(&mut state, stream, effects, None, wait);
        self.ring(&mut state, own.slot.as_deref());
        self.release(state);
        (stream, own)
    }

    /// The body that the engine requested is complete. `None`: it is longer than the engine's limit.
    pub fn on_body(
        &self,
        stream: StreamId,
        body: Option<&[u8]>,
        slot: Option<Arc<Slot>>,
        wait: impl FnOnce() -> Slot,
    ) -> RequestEffects {
        let mut state = self.lock();
        let now_ms = now_ms();
        let event = Event::Body {
            stream,
            body,
            now_ms,
        };
        let effects = self.run(&mut state, event, Some(stream));
        let own = Self::settle(&mut state, stream, effects, slot, wait);
        self.ring(&mut state, own.slot.as_deref());
        self.release(state);
        own
    }

    /// The response to a continued request is about to be sent. Returns the effects for it.
    pub fn on_response(&self, stream: StreamId) -> Vec<Effect> {
        let mut state = self.lock();
        let effects = self.run(&mut state, Event::Response { stream }, Some(stream));
        self.ring(&mut state, None);
        self.release(state);
        effects
    }

    /// A stream ended. `undelivered`: an effect for it was not applied.
    pub fn on_closed(
        &self,
        stream: StreamId,
        undelivered: bool,
        end: Option<&dyn weir_engine::StreamEnd>,
    ) {
        let mut state = self.lock();
        state.slots.remove(&stream);
        if undelivered {
            self.run(
                &mut state,
                Feedback::Undelivered(stream).event(),
                Some(stream),
            );
        }
        let unknown = PlainEnd {
            response_status: None,
            now_ms: now_ms(),
        };
        let end = end.unwrap_or(&unknown);
        self.run(&mut state, Event::Closed { stream, end }, Some(stream));
        self.ring(&mut state, None);
        self.release(state);
    }

    /// As [`weir_engine::Engine::decide_early`].
    pub fn decide_early(
        &self,
        request: &dyn weir_engine::Request,
        trusts_user: bool,
    ) -> EarlyDecision {
        self.lock().engine.decide_early(request, trusts_user)
    }

    // --- events of the engine host's own thread and of the main thread

    /// A tick.
    pub fn tick(&self) {
        let mut state = self.lock();
        state.wants_turn = true;
        self.work_on(&mut state);
        self.release(state);
    }

    /// Passes waiting replies and turns to the engine. Called by the thread that was woken.
    pub fn work(&self) {
        let mut state = self.lock();
        self.work_on(&mut state);
        self.release(state);
    }

    fn work_on(&self, state: &mut State) {
        state.is_rung = false;
        for (batch, reply) in std::mem::take(&mut state.replies) {
            let now_ms = now_ms();
            let event = Event::RedisReply {
                batch,
                reply,
                now_ms,
            };
            self.run(state, event, None);
        }
        if std::mem::take(&mut state.wants_turn) {
            let now_ms = now_ms();
            self.run(state, Event::Tick { now_ms }, None);
        }
        self.ring(state, None);
    }

    /// A Redis call ended.
    pub fn on_reply(&self, generation: u32, batch: BatchId, reply: Reply) {
        let mut state = self.lock();
        if reply.is_ok() && !self.common.has_answered.swap(true, Ordering::Relaxed) {
            let name = state.engine.name();
            let line = format!("{name}: Redis answers");
            self.common.log(abi::Level::Info, &line);
        }
        if state.generation == generation {
            state.replies.push((batch, reply));
            self.ring(&mut state, None);
        }
    }

    /// An HTTP request ended.
    pub fn on_fetched(&self, of: FetchOf, response: Option<FetchResponse>) {
        let mut state = self.lock();
        if state.generation == of.generation {
            let event = Event::FetchDone {
                fetch: of.id,
                response,
                now_ms: now_ms(),
            };
            self.run(&mut state, event, None);
            self.ring(&mut state, None);
        }
        self.release(state);
    }

    /// Returns the counts since the last call.
    pub fn collect(&self) -> Counts {
        let mut state = self.lock();
        let metrics = state.engine.metrics();
        let mut counted = Vec::new();
        metrics.collect(|index, count| counted.push((index, count)));
        let mut names: HashMap<usize, &str> = HashMap::new();
        if !counted.is_empty() {
            names.extend(metrics.counters().enumerate());
        }
        let name = |(index, count)| Some(((*names.get(&index)?).to_owned(), count));
        counted.into_iter().filter_map(name).collect()
    }

    /// Recovers from a panic inside the engine. All waiting streams get `answer`, and a new engine replaces the old
    /// one.
    pub fn recover(&self, answer: &Arc<Answer>) {
        let mut state = self.lock();
        let Common { filter, json, .. } = &*self.common;
        if let Ok(created) = make(filter, json, &ProcessHost, true) {
            state.engine = created.engine;
        }
        state.generation = state.generation.wrapping_add(1);
        state.effects = Effects::new();
        state.applying = Effects::list();
        // The replies and calls belong to the old engine.
        state.replies.clear();
        state.calls.clear();
        for (stream, slot) in std::mem::take(&mut state.slots) {
            let answer = Arc::clone(answer);
            // A stream that ended needs no answer.
            let _ = slot.put(Effect::Respond { stream, answer });
        }
        state.wants_turn = true;
        self.ring(&mut state, None);
    }

    /// Releases the lock, and then sends the calls that the event caused.
    fn release(&self, mut state: MutexGuard<'_, State>) {
        let mut calls = std::mem::take(&mut state.calls);
        drop(state);
        for call in calls.drain(..) {
            self.send(call);
        }
    }

    /// Sends a call on this worker's own connections, or on the engine host's thread.
    fn send(&self, call: Call) {
        let socket = self.common.worker_sockets.get(call.redis);
        let call = match (socket.and_then(Option::as_deref), self.this.upgrade()) {
            (Some(socket), Some(this)) => worker_redis::send(socket, &this, call),
            _ => Err(call),
        };
        let counts = &self.common.calls;
        match call {
            Ok(()) => {
                counts.worker.fetch_add(1, Ordering::Relaxed);
            }
            Err(call) => {
                counts.module.fetch_add(1, Ordering::Relaxed);
                let batch = call.batch;
                if self.service.send(Order::Call(call)).is_err() {
                    let mut state = self.lock();
                    self.run(&mut state, Feedback::NotSent(batch).event(), None);
                }
            }
        }
    }

    // --- events and effects

    fn lock(&self) -> MutexGuard<'_, State> {
        // `recover` repairs the state after a panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes an event to the engine and applies its effects. Returns the effects for the stream `own` instead of
    /// applying them.
    fn run(&self, state: &mut State, event: Event<'_>, own: Option<StreamId>) -> Vec<Effect> {
        let mut own_effects = Vec::new();
        let mut feedback = VecDeque::new();
        #[cfg(feature = "test-panics")]
        test_panics::panic_if_asked(&event);
        state.engine.handle(event, &mut state.effects);
        self.apply_all(state, own, &mut own_effects, &mut feedback);
        while let Some(next) = feedback.pop_front() {
            state.engine.handle(next.event(), &mut state.effects);
            self.apply_all(state, own, &mut own_effects, &mut feedback);
        }
        let tick_ms = state.engine.tick_ms().unwrap_or(IDLE_TICK_MS);
        if self.tick_ms.swap(tick_ms, Ordering::Relaxed) > tick_ms {
            self.order(Order::Hurry);
        }
        own_effects
    }

    fn apply_all(
        &self,
        state: &mut State,
        own: Option<StreamId>,
        own_effects: &mut Vec<Effect>,
        feedback: &mut VecDeque<Feedback>,
    ) {
        if state.effects.as_slice().is_empty() {
            return;
        }
        let mut applying = std::mem::take(&mut state.applying);
        state.effects.take_into(&mut applying);
        let mut undelivered = None;
        for effect in applying.drain(..) {
            match stream_of(&effect) {
                Some(stream) if Some(stream) == own => own_effects.push(effect),
                Some(stream) if Some(stream) == undelivered => {}
                Some(stream) => {
                    if !put(state, stream, effect) {
                        undelivered = Some(stream);
                        feedback.push_back(Feedback::Undelivered(stream));
                    }
                }
                None => feedback.extend(self.apply(state, effect)),
            }
        }
        state.applying = applying;
        state.effects.clear_bytes();
    }

    /// Applies an effect that is not for a stream.
    fn apply(&self, state: &mut State, effect: Effect) -> Option<Feedback> {
        match effect {
            Effect::Call {
                batch,
                redis,
                body,
                timeout_ms,
                ..
            } => {
                let call = Call {
                    generation: state.generation,
                    batch,
                    redis: usize::from(redis.0),
                    body: state.effects.bytes(&body).to_vec(),
                    timeout_ms,
                };
                state.calls.push(call);
            }
            Effect::Fetch { id, fetch } => {
                if self.common.main().is_none() {
                    return Some(Feedback::NotFetched(id));
                }
                let of = FetchOf {
                    engine_host: self.index,
                    generation: state.generation,
                    id,
                };
                self.common.fetches.wait(of, fetch);
                self.common.call_main();
            }
            Effect::Wake => state.wants_turn = true,
            Effect::Log(level, text) => {
                let name = state.engine.name();
                self.common.log(level_of(level), &format!("{name}: {text}"));
            }
            // All other effects are for streams.
            _ => {}
        }
        None
    }

    /// Wakes a thread to run the engine, if there is work and none was woken. It prefers the worker of the event's own
    /// stream, if that waits, then the worker of the stream that has waited longest. If no stream waits, it wakes the
    /// engine host's own thread.
    fn ring(&self, state: &mut State, own: Option<&Slot>) {
        let has_work = state.wants_turn || !state.replies.is_empty();
        if !has_work || std::mem::replace(&mut state.is_rung, true) {
            return;
        }
        // A stream that has ended but not reported it yet cannot be woken.
        let mut slots = own.into_iter().chain(state.slots.values().map(Arc::as_ref));
        if !slots.any(Slot::ring) {
            self.order(Order::Work);
        }
    }

    fn order(&self, order: Order) {
        // The thread ends only with the configuration, which then serves no streams.
        let _ = self.service.send(order);
    }

    /// Registers the slot of a stream that was neither answered nor continued, before any other thread can have effects
    /// for it.
    fn settle(
        state: &mut State,
        stream: StreamId,
        effects: Vec<Effect>,
        slot: Option<Arc<Slot>>,
        wait: impl FnOnce() -> Slot,
    ) -> RequestEffects {
        if effects.iter().any(ends_waiting) {
            state.slots.remove(&stream);
            return RequestEffects {
                effects,
                slot: None,
            };
        }
        let slot = slot.unwrap_or_else(|| Arc::new(wait()));
        state.slots.insert(stream, Arc::clone(&slot));
        let slot = Some(slot);
        RequestEffects { effects, slot }
    }
}

/// Puts an effect into the slot of a waiting stream. Returns `false` if the stream no longer waits.
fn put(state: &mut State, stream: StreamId, effect: Effect) -> bool {
    let is_last = ends_waiting(&effect);
    let is_put = state
        .slots
        .get(&stream)
        .is_some_and(|slot| slot.put(effect));
    if is_last || !is_put {
        state.slots.remove(&stream);
    }
    is_put
}

/// Whether a stream stops waiting after this effect.
fn ends_waiting(effect: &Effect) -> bool {
    matches!(effect, Effect::Respond { .. } | Effect::Continue { .. })
}

/// The stream of an effect.
fn stream_of(effect: &Effect) -> Option<StreamId> {
    match *effect {
        Effect::Respond { stream, .. }
        | Effect::RemoveRequestHeader { stream, .. }
        | Effect::AddRequestHeader { stream, .. }
        | Effect::SetPath { stream, .. }
        | Effect::ReadBody { stream, .. }
        | Effect::Continue { stream, .. }
        | Effect::SetResponseHeader { stream, .. }
        | Effect::AddResponseHeader { stream, .. } => Some(stream),
        _ => None,
    }
}

fn level_of(level: Level) -> abi::Level {
    match level {
        Level::Debug => abi::Level::Debug,
        Level::Info => abi::Level::Info,
        Level::Warn => abi::Level::Warn,
        Level::Error => abi::Level::Error,
    }
}

/// Panics on demand while the engine host is locked, for the test that Envoy survives it.
#[cfg(feature = "test-panics")]
mod test_panics {
    use weir_engine::Event;

    #[allow(clippy::panic)] // That is what it is for.
    pub(super) fn panic_if_asked(event: &Event<'_>) {
        if let Event::Request { request, .. } = event
            && request.header("x-weir-test-panic").is_some()
        {
            panic!("a test has asked for it");
        }
    }
}
