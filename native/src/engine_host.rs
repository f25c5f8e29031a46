//! An engine behind a lock, and the one place that applies effects.
//!
//! A thread with an event locks the engine host and passes the event to the engine: a worker that has a request, the engine host's own thread that has
//! a tick, the main thread that has an HTTP response. Effects for the request of that very event go back to the hook that has
//! brought it, which applies them when the lock is free again: Envoy may run further hooks of the stream before it returns.
//! Effects for other streams go to their [slots](crate::slot), and are applied by those streams' own threads.
//!
//! Replies of Redis and turns wait at the engine host for a worker's next round, as they do in WebAssembly: a worker that has a stream
//! which waits is rung, and runs the engine when it has taken all the requests that are there. If the engine host's own thread ran it
//! at once, it would send whatever few requests the worker has taken by then, and batches would be small.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc::UnboundedSender;
use weir_engine::event::{FetchResponse, PlainEnd};
use weir_engine::redis::Reply;
use weir_engine::{
    Answer, BatchId, EarlyDecision, Effect, Effects, Event, FetchId, Level, StreamId,
};
use weir_envoy_abi as abi;
use weir_registry::Filter;
use weir_registry::engines::{AnyEngine, make};

use crate::fetches::Fetches;
use crate::metrics::Counts;
use crate::service::{Call, Order};
use crate::shared::{ProcessHost, now_ms};
use crate::slot::Slot;

/// How far apart ticks are for an engine that needs none, in milliseconds.
const IDLE_TICK_MS: u64 = 1_000;

/// What all engine hosts of one filter's configuration share.
pub struct Common {
    /// Which filter it is.
    pub filter: &'static Filter,
    /// The engine's configuration, for a fresh one.
    pub json: Vec<u8>,
    /// HTTP requests that wait for the main thread.
    pub fetches: Fetches,
    /// Calls the main thread, until the configuration is dropped.
    pub main: Mutex<Option<abi::ConfigScheduler>>,
    /// How many panics were caught and not told yet.
    pub panics: AtomicU64,
    /// Whether Redis has ever answered.
    pub has_answered: AtomicBool,
    /// What the fast path has counted and not reported yet.
    pub fast_path: FastPathCounts,
}

/// Requests at the fast path.
#[derive(Debug, Default)]
pub struct FastPathCounts {
    /// Requests that this filter's engine answered.
    pub answered: AtomicU64,
    /// Requests that continued to the HTTP stack, counted at the first filter of `ask`.
    pub passed: AtomicU64,
}

impl Common {
    /// Calls the main thread.
    pub fn call_main(&self) {
        if let Some(main) = &*self.main() {
            main.call();
        }
    }

    /// Writes a line into Envoy's log, unless the configuration is dropped: Envoy itself may be ending then.
    fn log(&self, level: abi::Level, text: &str) {
        // Whoever drops the configuration waits for the lock.
        if self.main().is_some() {
            abi::log(level, text);
        }
    }

    fn main(&self) -> MutexGuard<'_, Option<abi::ConfigScheduler>> {
        self.main.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whose an HTTP request is.
#[derive(Clone, Copy, Debug)]
pub struct FetchOf {
    /// The engine host's place among those of the configuration.
    engine_host: usize,
    generation: u32,
    id: FetchId,
}

impl FetchOf {
    /// The engine host's place among those of the configuration.
    pub fn engine_host(&self) -> usize {
        self.engine_host
    }
}

/// An engine behind a lock.
pub struct EngineHost {
    index: usize,
    common: Arc<Common>,
    state: Mutex<State>,
    service: UnboundedSender<Order>,
    /// How far apart ticks should be.
    tick_ms: AtomicU64,
}

struct State {
    engine: Box<dyn AnyEngine>,
    /// Which engine it is, of those that this engine host has had. What is under way when an engine goes is nobody's.
    generation: u32,
    effects: Effects,
    /// The effects that are being applied: memory that is used again.
    applying: Vec<Effect>,
    /// The streams that wait, in the order in which they came.
    slots: BTreeMap<StreamId, Arc<Slot>>,
    next_stream: StreamId,
    /// Replies of Redis that the engine was not given yet.
    replies: Vec<(BatchId, Reply)>,
    /// Whether the engine asked for a turn that it has not had.
    wants_turn: bool,
    /// Whether somebody was rung who has not worked yet.
    is_rung: bool,
}

/// What is to be done with the request of an event, by the hook that has brought the event.
#[derive(Debug, Default)]
pub struct RequestEffects {
    /// Its effects.
    pub effects: Vec<Effect>,
    /// Where others put what is to be done with it later, if it waits.
    pub slot: Option<Arc<Slot>>,
}

/// What came of an effect.
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
    /// An engine host with this engine, whose thread takes `service`'s orders.
    pub fn new(
        index: usize,
        common: Arc<Common>,
        engine: Box<dyn AnyEngine>,
        service: UnboundedSender<Order>,
    ) -> Self {
        Self {
            index,
            common,
            tick_ms: AtomicU64::new(engine.tick_ms().unwrap_or(IDLE_TICK_MS)),
            state: Mutex::new(State {
                engine,
                generation: 0,
                effects: Effects::new(),
                applying: Effects::list(),
                slots: BTreeMap::new(),
                next_stream: 0,
                replies: Vec::new(),
                wants_turn: false,
                is_rung: false,
            }),
            service,
        }
    }

    /// What all engine hosts of its configuration share.
    pub fn common(&self) -> &Common {
        &self.common
    }

    /// How far apart ticks should be now, in milliseconds.
    pub fn tick_ms(&self) -> u64 {
        self.tick_ms.load(Ordering::Relaxed)
    }

    // --- events of streams, on their threads

    /// The head of a request has come. `wait` makes the slot of a stream that waits. The stream's number, and what is to be done.
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
        (stream, own)
    }

    /// The body of a request is there, for which the engine has asked; `None` if it is longer than the engine wants.
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
        own
    }

    /// The response to a request that went on is about to go. What is to be done with it.
    pub fn on_response(&self, stream: StreamId) -> Vec<Effect> {
        let mut state = self.lock();
        let effects = self.run(&mut state, Event::Response { stream }, Some(stream));
        self.ring(&mut state, None);
        effects
    }

    /// A stream has ended. Something that was to be done with it was `undelivered`.
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
    }

    /// Gives the engine what waits for it: for whoever was rung.
    pub fn work(&self) {
        self.work_on(&mut self.lock());
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

    /// A call to Redis has ended.
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

    /// An HTTP request has ended.
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
    }

    /// What was counted since the last time.
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

    /// A panic has left the engine half way. All that wait get `answer`, and a fresh engine takes over.
    pub fn recover(&self, answer: &Arc<Answer>) {
        let mut state = self.lock();
        let Common { filter, json, .. } = &*self.common;
        if let Ok(made) = make(filter, json, &ProcessHost, true) {
            state.engine = made.engine;
        }
        state.generation = state.generation.wrapping_add(1);
        state.effects = Effects::new();
        state.applying = Effects::list();
        // To calls of the engine that has gone.
        state.replies.clear();
        for (stream, slot) in std::mem::take(&mut state.slots) {
            let answer = Arc::clone(answer);
            // One that has gone needs no answer.
            let _ = slot.put(Effect::Respond { stream, answer });
        }
        state.wants_turn = true;
        self.ring(&mut state, None);
    }

    // --- events and effects

    fn lock(&self) -> MutexGuard<'_, State> {
        // After a panic `recover` makes good what it has left.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the engine an event, and does what it wants, but for what is to be done with the stream `own`: that is returned.
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

    /// Applies an effect that is for no stream.
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
                let sent = self.service.send(Order::Call(call));
                return sent.is_err().then_some(Feedback::NotSent(batch));
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
            // All others are for streams.
            _ => {}
        }
        None
    }

    /// Calls somebody to work, if there is work and nobody was called: the worker of the event's own stream, if that waits;
    /// or else that of the stream that has waited longest; or else, as none does, the engine host's own thread.
    fn ring(&self, state: &mut State, own: Option<&Slot>) {
        let has_work = state.wants_turn || !state.replies.is_empty();
        if !has_work || std::mem::replace(&mut state.is_rung, true) {
            return;
        }
        // One that has gone and has not said so yet does not hear it.
        let mut slots = own.into_iter().chain(state.slots.values().map(Arc::as_ref));
        if !slots.any(Slot::ring) {
            self.order(Order::Work);
        }
    }

    fn order(&self, order: Order) {
        // The thread has gone only if the configuration has, and nobody is served by it any more.
        let _ = self.service.send(order);
    }

    /// Gives a stream that neither was answered nor goes on its slot, before anybody else can have anything for it.
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

/// Puts an effect where the thread of a stream that waits takes it. `false` if it waits no longer.
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

/// Whether a stream no longer waits when this is done.
fn ends_waiting(effect: &Effect) -> bool {
    matches!(effect, Effect::Respond { .. } | Effect::Continue { .. })
}

/// The stream that an effect is for.
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

/// Panics on demand, with the engine host locked: for the test that Envoy outlives it.
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
