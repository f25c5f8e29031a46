//! Runs one engine for one request.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use weir_base::FieldError;
use weir_engine::event::PlainEnd;
use weir_engine::{Answer, Effect, Effects, Engine, Event, Request, StreamId};

use crate::knowledge::Knowledge;
use crate::store::Store;

/// One request is in progress at a time.
const STREAM: StreamId = 1;

/// Maximum turns until an engine has read its documents: one detects another document, the next one reads it.
const TURNS_MAX: usize = 8;

/// An engine's verdict on a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EngineVerdict {
    /// It answers the request.
    Answer(Arc<Answer>),
    /// It passes the request.
    GoesOn,
    /// It needs data that the edge does not have.
    Undecided,
}

/// Creates an engine.
pub(crate) type Make<E> = Box<dyn Fn() -> Result<E, FieldError>>;

/// An engine. One whose call got no reply would wait for it, and eventually consider Redis down. It is dropped, and the
/// next request creates a new one.
pub(crate) struct EngineSlot<E> {
    make: Make<E>,
    engine: Option<E>,
    effects: Effects,
    /// The version of the edge's knowledge that the engine has read.
    changes: u64,
}

/// One request in an engine.
struct Run<'a, E, S> {
    engine: &'a mut E,
    effects: &'a mut Effects,
    knowledge: &'a Knowledge<S>,
    now_ms: u64,
    verdict: Option<EngineVerdict>,
    is_unanswered: bool,
    needs_turn: bool,
    /// Whether the engine expects the stream's end.
    is_open: bool,
}

impl<E: Engine> EngineSlot<E> {
    /// # Errors
    /// If the configuration is invalid.
    pub(crate) fn new(make: Make<E>) -> Result<Self, FieldError> {
        Ok(Self {
            engine: Some(make()?),
            make,
            effects: Effects::new(),
            changes: 0,
        })
    }

    /// Runs `request` in the engine. `is_known`: whether the edge's data is valid at this time; if not, the engine may
    /// only pass the request. `prepare` runs before the request, after the engine has read its documents.
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
        // The same configuration was valid before.
        let Some(mut engine) = self.engine.take().or_else(|| (self.make)().ok()) else {
            return EngineVerdict::Undecided;
        };
        let mut run = Run {
            engine: &mut engine,
            effects: &mut self.effects,
            knowledge,
            now_ms: request.now_ms(),
            verdict: None,
            is_unanswered: false,
            needs_turn: true,
            is_open: false,
        };
        run.settle();
        let is_blind = core::mem::take(&mut run.is_unanswered) || !is_known;
        prepare(run.engine);
        run.request(request);
        let (response, is_unanswered) = (run.verdict.take(), run.is_unanswered);
        match response {
            Some(EngineVerdict::Answer(_)) if is_blind => EngineVerdict::Undecided,
            Some(response) => {
                self.engine = (!is_unanswered).then_some(engine);
                response
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

    /// Ends a request that passes: the edge's engines hold no concurrency limit for it.
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

    /// Runs turns until nothing more happens or can happen.
    fn settle(&mut self) {
        for _ in 0..TURNS_MAX {
            if !core::mem::take(&mut self.needs_turn) {
                return;
            }
            let now_ms = self.now_ms;
            self.handle(Event::Tick { now_ms });
        }
    }

    /// Handles one event and all that follow from it.
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

    /// Header changes by an engine have no effect here. The forwarding code removes headers that clients may not send,
    /// and the gateway adds its own.
    fn apply(&mut self, effect: Effect) -> Option<Event<'static>> {
        match effect {
            // Without a reply, the engine would answer as for a broken Redis: ignore it.
            Effect::Respond { .. } | Effect::Continue { .. } if self.is_unanswered => {}
            Effect::Respond { answer, .. } => self.verdict = Some(EngineVerdict::Answer(answer)),
            Effect::Continue { is_over, .. } => {
                self.is_open = !is_over;
                self.verdict = Some(EngineVerdict::GoesOn);
            }
            Effect::Wake => self.needs_turn = true,
            Effect::Call { batch, body, .. } => {
                let now_ms = self.now_ms;
                let reply = self.knowledge.run(self.effects.bytes(&body), now_ms);
                self.is_unanswered |= reply.is_none();
                // A poll's reply may require another read.
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
