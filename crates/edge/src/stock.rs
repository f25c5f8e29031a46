//! Sales whose stock stands in objects beside the edge: the gate decides here, as at a gateway, and asks the shards.
//!
//! The gate asks in the words of Redis. What it polls of the catalogue is answered by what the edge knows; all else is of one shard
//! each, and the host brings it to that shard's object and the replies back. A reply that does not come is *unknown* here as it is
//! at a gateway: the client is told to come again, and is then given the claim that it has.
//!
//! Each request has an engine to itself while its questions are under way, and leaves it for the next one.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use weir_base::FieldError;
use weir_engine::event::PlainEnd;
use weir_engine::redis::{Failure, Reply};
use weir_engine::{Answer, BatchId, Effect, Effects, Engine, Event, Request, StreamId};
use weir_engine_gate::Gate;
use weir_engine_gate::route::{Route, RouteKind};
use weir_resp::{decode, encode_command};
use weir_scripts::keys::{self, ShardKeys};

use crate::edge::{Data, Pairs};
use crate::knowledge::{Knowledge, words};
use crate::part::Make;
use crate::store::Store;

/// An engine has one request at a time.
const STREAM: StreamId = 1;

/// Where the origin takes claims: gateways' routes lead there, too.
pub const ORDERS: &str = "/orders";

/// Engines that are kept for the next requests. What is beyond is made anew.
const IDLE_MAX: usize = 64;

/// Turns in which an engine gets by without a shard.
const TURNS_MAX: usize = 8;

/// Commands to one shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    id: AskId,
    /// What all keys of the shard begin with: the name of its object.
    pub shard: String,
    /// The commands.
    pub commands: Vec<u8>,
    /// How long the replies may take, in milliseconds.
    pub timeout_ms: u64,
}

/// Tells one ask of a request from the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AskId {
    batch: BatchId,
    part: usize,
}

/// What has become of a request to buy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Bought {
    /// The gate answers.
    Answer(Arc<Answer>),
    /// It goes on; with a claim, if there is a header of one.
    GoesOn,
}

/// A part of a call.
enum Part {
    /// The edge knows the replies.
    Known(Vec<u8>),
    /// A shard has to be asked.
    Of { shard: String, commands: Vec<u8> },
}

/// A request to buy on its way.
pub struct Buying {
    engine: Gate<Data>,
    effects: Effects,
    /// The parts of calls that are under way, each with its replies once they are there.
    calls: BTreeMap<BatchId, Vec<Option<Reply>>>,
    asks: Vec<Ask>,
    now_ms: u64,
    needs_turn: bool,
    said: Option<Bought>,
    changes: Changes,
}

/// What the gate changes of the request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Changes {
    removed: Vec<String>,
    added: Pairs,
}

impl Changes {
    /// The headers with which the request goes on.
    pub(crate) fn apply(&self, mut headers: Pairs) -> Pairs {
        headers.retain(|(name, _)| !self.removed.contains(name));
        headers.extend(self.added.iter().cloned());
        headers
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.added.iter().any(|(added, _)| added == name)
    }
}

/// The gate of sales in objects.
pub(crate) struct Stock {
    make: Make<Gate<Data>>,
    idle: Vec<Gate<Data>>,
    routes: Vec<Route>,
    key_prefix: String,
}

impl Stock {
    /// # Errors
    /// When the configuration is refused.
    pub(crate) fn new(
        make: Make<Gate<Data>>,
        routes: Vec<Route>,
        key_prefix: String,
    ) -> Result<Self, FieldError> {
        Ok(Self {
            idle: Vec::from([make()?]),
            make,
            routes,
            key_prefix,
        })
    }

    /// What the keys of its shards begin with.
    pub(crate) fn key_prefix(&self) -> &str {
        &self.key_prefix
    }

    /// Whether a request buys.
    pub(crate) fn is_asked(&self, method: &[u8], path: &[u8]) -> bool {
        let sale = |route: &Route| route.sale(method, path).map(RouteKind::Buy);
        self.routes.iter().find_map(sale).is_some()
    }

    /// Begins a request; `None` if there is no engine for it.
    pub(crate) fn begin<S: Store>(
        &mut self,
        request: &dyn Request,
        knowledge: &Knowledge<S>,
    ) -> Option<Buying> {
        // It was made before, of the same configuration.
        let engine = self.idle.pop().or_else(|| (self.make)().ok())?;
        let mut buying = Buying {
            engine,
            effects: Effects::new(),
            calls: BTreeMap::new(),
            asks: Vec::new(),
            now_ms: request.now_ms(),
            needs_turn: true,
            said: None,
            changes: Changes::default(),
        };
        let of = Of {
            knowledge,
            key_prefix: &self.key_prefix,
        };
        buying.settle(&of);
        buying.handle(
            Event::Request {
                stream: STREAM,
                request,
            },
            &of,
        );
        buying.settle(&of);
        Some(buying)
    }

    /// See [`Edge::answered`](crate::Edge::answered).
    pub(crate) fn answered<S: Store>(
        &self,
        buying: &mut Buying,
        (ask, reply): (&Ask, Reply),
        now_ms: u64,
        knowledge: &Knowledge<S>,
    ) {
        buying.now_ms = now_ms;
        let Some(event) = buying.collect(ask.id, reply) else {
            return;
        };
        let of = Of {
            knowledge,
            key_prefix: &self.key_prefix,
        };
        buying.handle(event, &of);
        buying.settle(&of);
    }

    /// See [`Edge::ended`](crate::Edge::ended).
    pub(crate) fn ended<S: Store>(
        &self,
        buying: &mut Buying,
        response_status: Option<u16>,
        now_ms: u64,
        knowledge: &Knowledge<S>,
    ) {
        buying.now_ms = now_ms;
        let end = PlainEnd {
            response_status,
            now_ms,
        };
        let of = Of {
            knowledge,
            key_prefix: &self.key_prefix,
        };
        let closed = Event::Closed {
            stream: STREAM,
            end: &end,
        };
        buying.handle(closed, &of);
        buying.settle(&of);
    }

    /// The engine is for the next one. One that still waits for a reply is not.
    pub(crate) fn finish(&mut self, buying: Buying) {
        let is_idle = buying.calls.is_empty() && buying.engine.open_streams() == 0;
        if is_idle && self.idle.len() < IDLE_MAX {
            self.idle.push(buying.engine);
        }
    }
}

/// What an engine is told without asking a shard.
struct Of<'a, S> {
    knowledge: &'a Knowledge<S>,
    key_prefix: &'a str,
}

impl<S: Store> Of<'_, S> {
    /// A call, in the parts that one shard answers each; `None` if it asks what nobody here knows.
    fn parts(&self, body: &[u8], now_ms: u64) -> Option<Vec<Part>> {
        let catalogue = keys::catalogue(self.key_prefix);
        let (mut rest, mut parts) = (body, Vec::new());
        while !rest.is_empty() {
            let (command, used) = decode(rest).ok()?;
            rest = rest.get(used..)?;
            let words = words(&command)?;
            if words.get(1).is_some_and(|key| *key == catalogue) {
                parts.push(Part::Known(self.knowledge.catalogue_reply(now_ms)?));
                continue;
            }
            let shard = ShardKeys::of_command(self.key_prefix, &words)?;
            match parts.last_mut() {
                Some(Part::Of {
                    shard: last,
                    commands,
                }) if last == shard => encode_command(commands, words),
                _ => {
                    let mut commands = Vec::new();
                    encode_command(&mut commands, words);
                    let shard = shard.into();
                    parts.push(Part::Of { shard, commands });
                }
            }
        }
        Some(parts)
    }
}

impl Buying {
    /// What is to be asked now, all at the same time. Each ask is [answered](crate::Edge::answered) once.
    pub fn take_asks(&mut self) -> Vec<Ask> {
        core::mem::take(&mut self.asks)
    }

    pub(crate) fn said(&self) -> Option<&Bought> {
        self.said.as_ref()
    }

    pub(crate) fn changes(&self) -> &Changes {
        &self.changes
    }

    /// Turns until nothing more happens without a shard.
    fn settle<S: Store>(&mut self, of: &Of<'_, S>) {
        for _ in 0..TURNS_MAX {
            if !core::mem::take(&mut self.needs_turn) {
                return;
            }
            let now_ms = self.now_ms;
            self.handle(Event::Tick { now_ms }, of);
        }
    }

    /// One event, and all that follow from it.
    fn handle<S: Store>(&mut self, event: Event<'_>, of: &Of<'_, S>) {
        self.engine.handle(event, &mut self.effects);
        let mut events = self.apply_all(of);
        while let Some(event) = events.pop_front() {
            self.engine.handle(event, &mut self.effects);
            events.extend(self.apply_all(of));
        }
    }

    fn apply_all<S: Store>(&mut self, of: &Of<'_, S>) -> VecDeque<Event<'static>> {
        let mut list = Vec::new();
        self.effects.take_into(&mut list);
        let events = list.into_iter().filter_map(|effect| self.apply(effect, of));
        let events = events.collect();
        self.effects.clear_bytes();
        events
    }

    fn apply<S: Store>(&mut self, effect: Effect, of: &Of<'_, S>) -> Option<Event<'static>> {
        match effect {
            Effect::Respond { answer, .. } => self.said = Some(Bought::Answer(answer)),
            Effect::Continue { .. } => self.said = Some(Bought::GoesOn),
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
                let Some(parts) = of.parts(self.effects.bytes(&body), self.now_ms) else {
                    return Some(Event::NotSent { batch });
                };
                return self.ask(batch, parts, timeout_ms);
            }
            _ => {}
        }
        None
    }

    /// Asks the shards; the reply, if there is none to be asked.
    fn ask(&mut self, batch: BatchId, parts: Vec<Part>, timeout_ms: u64) -> Option<Event<'static>> {
        let mut replies = Vec::new();
        for (part, content) in parts.into_iter().enumerate() {
            match content {
                Part::Known(reply) => replies.push(Some(Ok(reply))),
                Part::Of { shard, commands } => {
                    replies.push(None);
                    self.asks.push(Ask {
                        id: AskId { batch, part },
                        shard,
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

    /// The call's replies, if all are there. It has failed if one has.
    fn whole(&mut self, batch: BatchId) -> Option<Event<'static>> {
        if self.calls.get(&batch)?.iter().any(Option::is_none) {
            return None;
        }
        let parts = self.calls.remove(&batch)?.into_iter().flatten();
        let reply: Result<Vec<Vec<u8>>, Failure> = parts.collect();
        // A reply may bring work for the next turn.
        self.needs_turn = true;
        Some(Event::RedisReply {
            batch,
            reply: reply.map(|parts| parts.concat()),
            now_ms: self.now_ms,
        })
    }
}
