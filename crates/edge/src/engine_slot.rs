//! One engine, asked for one request.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use weir_base::FieldError;
use weir_engine::event::PlainEnd;
use weir_engine::{Answer, Effect, Effects, Engine, Event, Request, StreamId};

use crate::knowledge::Knowledge;
use crate::store::Store;

/// Only one request is under way.
const STREAM: StreamId = 1;

/// Turns until an engine has read its documents: one tells that there is another document, the next one reads it.
const TURNS_MAX: usize = 8;

/// What an engine says of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EngineVerdict {
    /// It answers.
    Answer(Arc<Answer>),
    /// It lets it go on.
    GoesOn,
    /// It asks what is not known here.
    Undecided,
}

/// Makes an engine.
pub(crate) type Make<E> = Box<dyn Fn() -> Result<E, FieldError>>;

/// An engine. One whose question had no reply waits for it, and takes its Redis for broken sooner or later: it is thrown away,
/// and the next request gets a new one.
pub(crate) struct EngineSlot<E> {
    make: Make<E>,
    engine: Option<E>,
    effects: Effects,
    /// Which state of knowledge the engine has read.
    changes: u64,
}

/// One request on its way through an engine.
struct Run<'a, E, S> {
    engine: &'a mut E,
    effects: &'a mut Effects,
    knowledge: &'a Knowledge<S>,
    now_ms: u64,
    said: Option<EngineVerdict>,
    is_unanswered: bool,
    needs_turn: bool,
    /// Whether the engine wants to be told of the stream's end.
    is_open: bool,
}

impl<E: Engine> EngineSlot<E> {
    /// # Errors
    /// When the configuration is refused.
    pub(crate) fn new(make: Make<E>) -> Result<Self, FieldError> {
        Ok(Self {
            engine: Some(make()?),
            make,
            effects: Effects::new(),
            changes: 0,
        })
    }

    /// What the engine says of `request`. `is_known`: whether what is known counts at this time; if not, the engine may only let
    /// the request go on. `prepare` comes before the request, when the engine has read its documents.
    pub(crate) fn ask<S: Store>(
        &mut self,
        request: &dyn Request,
        knowledge: &Knowledge<S>,
        is_known: bool,
        prepare: impl FnOnce(&mut E),
    ) -> EngineVerdict {
        if self.changes != knowledge.changes() || !is_known {
            self.engine = None;
        }
        self.changes = knowledge.changes();
        // It was made before, of the same configuration.
        let Some(mut engine) = self.engine.take().or_else(|| (self.make)().ok()) else {
            return EngineVerdict::Undecided;
        };
        let mut run = Run {
            engine: &mut engine,
            effects: &mut self.effects,
            knowledge,
            now_ms: request.now_ms(),
            said: None,
            is_unanswered: false,
            needs_turn: true,
            is_open: false,
        };
        run.settle();
        let is_blind = core::mem::take(&mut run.is_unanswered) || !is_known;
        prepare(run.engine);
        run.request(request);
        let (said, is_unanswered) = (run.said.take(), run.is_unanswered);
        match said {
            Some(EngineVerdict::Answer(_)) if is_blind => EngineVerdict::Undecided,
            Some(said) => {
                self.engine = (!is_unanswered).then_some(engine);
                said
            }
            None => EngineVerdict::Undecided,
        }
    }
}

impl<E: Engine, S: Store> Run<'_, E, S> {
    fn request(&mut self, request: &dyn Request) {
        self.handle(Event::Request {
            stream: STREAM,
            request,
        });
        self.settle();
        if self.is_open {
            self.close();
        }
    }

    /// A request that goes on has ended for the edge's engines: they hold no limit of what is under way.
    fn close(&mut self) {
        let end = PlainEnd {
            response_status: None,
            now_ms: self.now_ms,
        };
        self.handle(Event::Closed {
            stream: STREAM,
            end: &end,
        });
    }

    /// Turns until nothing more happens, or nothing more can.
    fn settle(&mut self) {
        for _ in 0..TURNS_MAX {
            if !core::mem::take(&mut self.needs_turn) {
                return;
            }
            let now_ms = self.now_ms;
            self.handle(Event::Tick { now_ms });
        }
    }

    /// One event, and all that follow from it.
    fn handle(&mut self, event: Event<'_>) {
        self.engine.handle(event, self.effects);
        let mut events = self.apply_all();
        while let Some(event) = events.pop_front() {
            self.engine.handle(event, self.effects);
            events.extend(self.apply_all());
        }
    }

    fn apply_all(&mut self) -> VecDeque<Event<'static>> {
        let mut list = Vec::new();
        self.effects.take_into(&mut list);
        let events = list.into_iter().filter_map(|effect| self.apply(effect));
        let events = events.collect();
        self.effects.clear_bytes();
        events
    }

    /// Headers that an engine adds or takes away are nothing here: who sends the request on takes away what clients may not
    /// send, and the gateway adds its own.
    fn apply(&mut self, effect: Effect) -> Option<Event<'static>> {
        match effect {
            // What an engine says because it had no reply is what it says of a broken Redis.
            Effect::Respond { .. } | Effect::Continue { .. } if self.is_unanswered => {}
            Effect::Respond { answer, .. } => self.said = Some(EngineVerdict::Answer(answer)),
            Effect::Continue { is_over, .. } => {
                self.is_open = !is_over;
                self.said = Some(EngineVerdict::GoesOn);
            }
            Effect::Wake => self.needs_turn = true,
            Effect::Call { batch, body, .. } => {
                let now_ms = self.now_ms;
                let reply = self.knowledge.run(self.effects.bytes(&body), now_ms);
                self.is_unanswered |= reply.is_none();
                // What is told of a poll may be that there is more to be read.
                self.needs_turn |= reply.is_some();
                return Some(match reply {
                    Some(reply) => Event::RedisReply {
                        batch,
                        reply: Ok(reply),
                        now_ms,
                    },
                    None => Event::NotSent { batch },
                });
            }
            Effect::Fetch { .. } | Effect::ReadBody { .. } => self.is_unanswered = true,
            _ => {}
        }
        None
    }
}
