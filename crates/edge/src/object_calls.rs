//! Calls to objects: an engine's Redis calls go to the object with the data, and its reply returns as an event.
//!
//! A missing reply is *unknown*, as at a gateway. Each request has an engine of its own while its calls are in flight;
//! the engine is then reused.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use weir_base::FieldError;
use weir_engine::event::PlainEnd;
use weir_engine::redis::{Failure, Reply};
use weir_engine::{Answer, BatchId, Effect, Effects, Engine, Event, Request, StreamId};
use weir_link::engine::Links;
use weir_sale::engine::Gate;

use crate::edge::{Data, Pairs};
use crate::engine_slot::Make;
use crate::shard::ObjectCommands;

/// An engine has one request at a time.
const STREAM: StreamId = 1;

/// Maximum idle engines; others are dropped.
const IDLE_MAX: usize = 64;

/// Maximum turns in which an engine runs without an object.
const TURNS_MAX: usize = 8;

/// Commands to one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectCall {
    id: AskId,
    /// The common key prefix of the commands, which is the object's name.
    pub object: String,
    /// The commands.
    pub commands: ObjectCommands,
    /// Timeout of the replies, in milliseconds.
    pub timeout_ms: u64,
}

/// Identifies a call of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AskId {
    batch: BatchId,
    part: usize,
}

/// A request with calls to objects.
pub enum PendingRequest {
    /// It buys from stock in objects.
    Buys(Box<Run<Gate<Data>>>),
    /// It clicks a link whose clicks an object counts.
    Clicks(Box<Run<Links>>),
}

impl PendingRequest {
    /// Takes the calls to send now, concurrently. Report each with [`Edge::answered`](crate::Edge::answered) once.
    pub fn take_asks(&mut self) -> Vec<ObjectCall> {
        match self {
            Self::Buys(run) => core::mem::take(&mut run.asks),
            Self::Clicks(run) => core::mem::take(&mut run.asks),
        }
    }

    /// Whether claims or clicks must still be returned: call [`Edge::ended`](crate::Edge::ended) again after a while.
    pub fn owes(&self) -> bool {
        match self {
            Self::Buys(_) => false,
            Self::Clicks(run) => run.engine.unused() > 0,
        }
    }
}

/// The result of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EngineReply {
    /// It answers the request.
    Answer(Arc<Answer>),
    /// The request passes, with the engine's changes.
    GoesOn,
}

/// A part of a call.
pub(crate) enum CallPart {
    /// The edge has the replies.
    Known(Vec<u8>),
    /// An object must be called.
    Of {
        object: String,
        commands: ObjectCommands,
    },
}

/// Routes engine calls to the edge's data or to objects.
pub(crate) trait CallRouter {
    /// Splits a call into parts for one object each; `None` if it needs data that is not available here.
    fn parts(&self, body: &[u8], now_ms: u64) -> Option<Vec<CallPart>>;
}

/// Idle engines.
pub(crate) struct Pool<E> {
    make: Make<E>,
    idle: Vec<E>,
}

impl<E: Engine> Pool<E> {
    /// # Errors
    /// If the configuration is invalid.
    pub(crate) fn new(make: Make<E>) -> Result<Self, FieldError> {
        Ok(Self {
            idle: Vec::from([make()?]),
            make,
        })
    }

    /// Starts a request; `None` if there is no engine for it.
    pub(crate) fn begin(
        &mut self,
        request: &dyn Request,
        knows: &dyn CallRouter,
    ) -> Option<Run<E>> {
        // The same configuration was valid before.
        let engine = self.idle.pop().or_else(|| (self.make)().ok())?;
        let mut run = Run {
            engine,
            effects: Effects::new(),
            calls: BTreeMap::new(),
            asks: Vec::new(),
            now_ms: request.now_ms(),
            needs_turn: true,
            is_unsure: false,
            reply: None,
            changes: Changes::default(),
        };
        run.settle(knows);
        let stream = STREAM;
        run.handle(Event::Request { stream, request }, knows);
        run.settle(knows);
        Some(run)
    }

    /// Returns the engine to the pool, unless it still waits for a reply or has other work.
    pub(crate) fn finish(&mut self, run: Run<E>, waits: impl FnOnce(&E) -> bool) {
        let is_idle = run.calls.is_empty() && !waits(&run.engine);
        if is_idle && self.idle.len() < IDLE_MAX {
            self.idle.push(run.engine);
        }
    }

    /// Drops idle engines, whose caches are outdated.
    pub(crate) fn clear(&mut self) {
        self.idle.clear();
    }
}

/// A request in progress.
pub struct Run<E> {
    engine: E,
    effects: Effects,
    /// The parts of calls in flight, each with its replies once they have arrived.
    calls: BTreeMap<BatchId, Vec<Option<Reply>>>,
    asks: Vec<ObjectCall>,
    now_ms: u64,
    needs_turn: bool,
    /// Whether a reply with an uncertain result is missing.
    is_unsure: bool,
    reply: Option<EngineReply>,
    changes: Changes,
}

/// The engine's changes to the request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Changes {
    removed: Vec<String>,
    added: Pairs,
}

impl Changes {
    /// Applies the changes to the headers of a passed request.
    pub(crate) fn apply(&self, mut headers: Pairs) -> Pairs {
        headers.retain(|(name, _)| !self.removed.contains(name));
        headers.extend(self.added.iter().cloned());
        headers
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.added.iter().any(|(added, _)| added == name)
    }
}

impl<E: Engine> Run<E> {
    pub(crate) fn reply(&self) -> Option<&EngineReply> {
        self.reply.as_ref()
    }

    pub(crate) fn changes(&self) -> &Changes {
        &self.changes
    }

    /// Whether a reply with an uncertain result was missing.
    pub(crate) fn is_unsure(&self) -> bool {
        self.is_unsure
    }

    /// See [`Edge::answered`](crate::Edge::answered).
    pub(crate) fn answered(
        &mut self,
        ask: &ObjectCall,
        reply: Reply,
        now_ms: u64,
        knows: &dyn CallRouter,
    ) {
        self.now_ms = now_ms;
        self.is_unsure |= matches!(reply, Err(Failure::Unknown(_)));
        if let Some(event) = self.collect(ask.id, reply) {
            self.handle(event, knows);
            self.settle(knows);
        }
    }

    /// Handles the end of the stream.
    pub(crate) fn closed(
        &mut self,
        response_status: Option<u16>,
        now_ms: u64,
        knows: &dyn CallRouter,
    ) {
        self.now_ms = now_ms;
        let end = PlainEnd {
            response_status,
            now_ms,
        };
        let closed = Event::Closed {
            stream: STREAM,
            end: &end,
        };
        self.handle(closed, knows);
        self.settle(knows);
    }

    /// Runs work that is due.
    pub(crate) fn advance(&mut self, now_ms: u64, knows: &dyn CallRouter) {
        self.now_ms = now_ms;
        self.needs_turn = true;
        self.settle(knows);
    }

    /// Runs turns until nothing more happens without an object.
    fn settle(&mut self, knows: &dyn CallRouter) {
        for _ in 0..TURNS_MAX {
            if !core::mem::take(&mut self.needs_turn) {
                return;
            }
            let now_ms = self.now_ms;
            self.handle(Event::Tick { now_ms }, knows);
        }
    }

    /// Handles one event and all that follow from it.
    fn handle(&mut self, event: Event<'_>, knows: &dyn CallRouter) {
        self.engine.handle(event, &mut self.effects);
        let mut events = self.apply_all(knows);
        while let Some(event) = events.pop_front() {
            self.engine.handle(event, &mut self.effects);
            events.extend(self.apply_all(knows));
        }
    }

    fn apply_all(&mut self, knows: &dyn CallRouter) -> VecDeque<Event<'static>> {
        let mut list = Vec::new();
        self.effects.take_into(&mut list);
        let events = list
            .into_iter()
            .filter_map(|effect| self.apply(effect, knows));
        let events = events.collect();
        self.effects.clear_bytes();
        events
    }

    fn apply(&mut self, effect: Effect, knows: &dyn CallRouter) -> Option<Event<'static>> {
        match effect {
            Effect::Respond { answer, .. } => self.reply = Some(EngineReply::Answer(answer)),
            Effect::Continue { .. } => self.reply = Some(EngineReply::GoesOn),
            Effect::RemoveRequestHeader { name, .. } => {
                self.changes.removed.push(name.into_owned());
            }
            Effect::AddRequestHeader { name, value, .. } => {
                self.changes.added.push((name.into(), value.into_bytes()));
            }
            Effect::Wake => self.needs_turn = true,
            Effect::Call {
                batch,
                body,
                timeout_ms,
                ..
            } => {
                let Some(parts) = knows.parts(self.effects.bytes(&body), self.now_ms) else {
                    return Some(Event::NotSent { batch });
                };
                return self.ask(batch, parts, timeout_ms);
            }
            // The engine would call the origin. If an object may have run the call, its effect must be returned: the
            // call stays unanswered, and the engine compensates. Otherwise a gateway decides.
            Effect::Fetch { id, .. } if self.is_unsure => {
                self.needs_turn = true;
                return Some(Event::FetchDone {
                    fetch: id,
                    response: None,
                    now_ms: self.now_ms,
                });
            }
            Effect::Fetch { .. } => self.reply = Some(EngineReply::GoesOn),
            _ => {}
        }
        None
    }

    /// Calls the objects. Returns the reply if no object is needed.
    fn ask(
        &mut self,
        batch: BatchId,
        parts: Vec<CallPart>,
        timeout_ms: u64,
    ) -> Option<Event<'static>> {
        let mut replies = Vec::new();
        for (part, content) in parts.into_iter().enumerate() {
            match content {
                CallPart::Known(reply) => replies.push(Some(Ok(reply))),
                CallPart::Of { object, commands } => {
                    replies.push(None);
                    self.asks.push(ObjectCall {
                        id: AskId { batch, part },
                        object,
                        commands,
                        timeout_ms,
                    });
                }
            }
        }
        self.calls.insert(batch, replies);
        self.whole(batch)
    }

    fn collect(&mut self, id: AskId, reply: Reply) -> Option<Event<'static>> {
        let part = self.calls.get_mut(&id.batch)?.get_mut(id.part)?;
        *part = Some(reply);
        self.whole(id.batch)
    }

    /// The call's replies, once all have arrived. It fails if one has failed.
    fn whole(&mut self, batch: BatchId) -> Option<Event<'static>> {
        if self.calls.get(&batch)?.iter().any(Option::is_none) {
            return None;
        }
        let parts = self.calls.remove(&batch)?.into_iter().flatten();
        let reply: Result<Vec<Vec<u8>>, Failure> = parts.collect();
        // A reply may create work for the next turn.
        self.needs_turn = true;
        Some(Event::RedisReply {
            batch,
            reply: reply.map(|parts| parts.concat()),
            now_ms: self.now_ms,
        })
    }
}
