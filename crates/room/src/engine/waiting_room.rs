//! The engine: its events and responses.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::redis::room_ask::{self, VisitorRequest, VisitorStatus};
use crate::redis::room_tick;
use crate::state::Status;
use crate::{Pass, PassError, Visitor};
use weir_base::key::KeyRing;
use weir_base::language::Language;
use weir_base::resp::Value;
use weir_base::shared_data::SharedData;
use weir_engine::pump::{CompletedBatch, Counts, Pending, Pump};
use weir_engine::redis::{Failure, UnknownFailure};
use weir_engine::refusals::Refusals;
use weir_engine::{
    Answer, Description, EarlyDecision, Effect, Effects, Engine, Event, Level, Metrics, Request,
    StreamId,
};
use weir_limit::rules::Request as _;

use crate::engine::NAME;
use crate::engine::answer::{self, Form, PASS_HEADER};
use crate::engine::config::{CheckedConfig, CheckedRoom, DEADLINE_MS};
use crate::engine::job::{ByRoom, Job, Kind};
use crate::engine::metrics::{Outcome, PREFIX};
use crate::engine::room::{Decision, Room};
use crate::engine::visit::Head;

mod early;

/// The engine of waiting rooms.
#[derive(Debug)]
pub struct WaitingRoom<D> {
    keys: KeyRing,
    rooms: Vec<Room<D>>,
    user_header: Option<String>,
    status_path: String,
    script: Arc<Answer>,
    trusted_hops: Option<usize>,
    address_seed: u64,
    /// IDs of new visitors derive from it and from a sequence number.
    unique_name: String,
    visitors: u64,
    pump: Pump<ByRoom>,
    waiting: BTreeMap<StreamId, Visit>,
    /// Passed requests, with the token that the response will carry.
    entered: BTreeMap<StreamId, Visit>,
    is_serving: bool,
    key_prefix: String,
    metrics: Metrics,
}

/// A request and its visitor's token.
#[derive(Clone, Copy, Debug)]
struct Visit {
    room: usize,
    pass: Pass,
    form: Form,
    /// The language of the answer. It is read from the request only if the visitor may have to wait.
    language: Language,
    is_secure: bool,
}

/// A queue token of a client, as read.
#[derive(Clone, Copy, Debug)]
struct PresentedToken {
    content: Result<Pass, PassError>,
    /// Whether it came in the header.
    is_header: bool,
}

/// A request for a room, which the room has not noted yet.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    visit: Visit,
    token: Option<PresentedToken>,
    /// Whether the visitor's ID is the next unused one.
    is_new: bool,
}

impl<D: SharedData + Clone> Engine for WaitingRoom<D> {
    const NAME: &'static str = NAME;

    fn handle(&mut self, event: Event<'_>, effects: &mut Effects) {
        match event {
            Event::Request { stream, request } => self.on_request(stream, request, effects),
            Event::Response { stream } => self.on_response(stream, effects),
            Event::Closed { stream, .. } | Event::Undelivered { stream, .. } => {
                self.entered.remove(&stream);
                if self.waiting.remove(&stream).is_some() {
                    self.pump.forget(stream);
                }
            }
            Event::Tick { now_ms } => self.on_tick(now_ms, effects),
            Event::RedisReply {
                batch,
                reply,
                now_ms,
            } => {
                let completed = self.pump.on_reply(batch, reply, now_ms, effects);
                self.apply(completed.unwrap_or_default(), now_ms, effects);
            }
            Event::NotSent { batch } => {
                self.pump.not_sent(batch, effects);
            }
            Event::Deferred { batch } => {
                self.pump.deferred(batch, effects);
            }
            Event::Body { .. } | Event::FetchDone { .. } => {}
        }
    }

    fn decide_early(&mut self, request: &dyn Request, trusts_user: bool) -> EarlyDecision {
        self.early_decision(request, trusts_user)
    }

    fn tick_ms(&self) -> Option<u64> {
        let polls = self.rooms.iter().map(|room| room.schedule.tick_ms());
        let poll_ms = polls.min()?;
        match self.is_serving {
            true => Some(poll_ms.min(self.pump.tick_ms())),
            false => Some(poll_ms),
        }
    }

    fn metrics(&mut self) -> &mut Metrics {
        &mut self.metrics
    }

    fn describe(&self) -> Option<Description> {
        Some(Description {
            key_prefix: self.key_prefix.clone(),
            items: self.rooms.iter().map(|room| room.config.item()).collect(),
        })
    }
}

impl<D: SharedData + Clone> WaitingRoom<D> {
    /// Creates an engine without room state. `unique_name` must differ between engines.
    pub fn new(config: CheckedConfig, data: D, unique_name: String) -> Self {
        let mut metrics = Metrics::new();
        let counts = Counts::new(&mut metrics, PREFIX);
        let refusals = Refusals::new(&mut metrics, PREFIX, &config.redis.cluster);
        let settings = config.redis.pump_settings(DEADLINE_MS);
        let prefix = config.redis.key_prefix;
        let interval_ms = config.poll_interval_ms;
        let room = |room| Room::new(room, data.clone(), &prefix, interval_ms, &mut metrics);
        Self {
            rooms: config.rooms.into_iter().map(room).collect(),
            address_seed: config.keys.seed("room-address"),
            keys: config.keys,
            user_header: config.user_header,
            status_path: config.status_path,
            script: Arc::new(answer::script()),
            trusted_hops: config.trusted_hops,
            unique_name,
            visitors: 0,
            pump: Pump::new(settings, ByRoom, counts, refusals),
            waiting: BTreeMap::new(),
            entered: BTreeMap::new(),
            is_serving: false,
            key_prefix: prefix,
            metrics,
        }
    }

    /// The number of requests that wait for Redis, and of passed requests without a response yet.
    pub fn open(&self) -> (usize, usize) {
        (self.waiting.len(), self.entered.len())
    }

    // --- requests

    fn on_request(&mut self, stream: StreamId, request: &dyn Request, effects: &mut Effects) {
        let head = Head::new(request);
        if let Some(name) = self.status_of(head.path()) {
            return match self.status_answer(&name, &head, request.now_ms()) {
                Some(answer) => effects.respond(stream, answer),
                None => effects.let_go(stream),
            };
        }
        let Some(room) = self.room_of(&head) else {
            return effects.let_go(stream);
        };
        if !core::mem::replace(&mut self.is_serving, true) {
            self.rooms
                .iter_mut()
                .for_each(|room| room.schedule.poll_soon());
            effects.wake();
        }
        let now_ms = request.now_ms();
        let Some(arrival) = self.arrival(room, &head, now_ms) else {
            return effects.let_go(stream);
        };
        self.note(&arrival);
        if arrival.token.is_some_and(|token| token.is_header) {
            effects.remove_header(stream, PASS_HEADER);
        }
        self.admit(stream, arrival.visit, &head, now_ms, effects);
    }

    /// The index of the room that handles a request.
    fn room_of(&self, head: &Head<'_>) -> Option<usize> {
        let is_its = |room: &Room<D>| {
            room.config.matching.is_met(head)
                && !room.config.except.iter().any(|except| except.is_met(head))
        };
        self.rooms.iter().position(is_its)
    }

    /// Reads a request for a room, without effects.
    fn arrival(&self, room: usize, head: &Head<'_>, now_ms: u64) -> Option<Arrival> {
        let user = self
            .user_header
            .as_deref()
            .and_then(|name| head.header(name))
            // An authentication filter that always sets the header leaves it empty for anonymous users.
            .filter(|user| !user.is_empty());
        let user = user.map(|user| Visitor::of_user(&user));
        let token = self.presented_token(self.rooms.get(room)?, head, now_ms);
        let presented = token.and_then(|token| token.content.ok());
        let presented = presented.map(|pass| pass.in_force(now_ms));
        let is_new = presented.is_none() && user.is_none();
        let pass = match (presented, user) {
            // The visitor has signed in as another user since: that user's position counts.
            (Some(pass), Some(user)) if pass.visitor != user => Pass::newcomer(user, now_ms),
            (Some(pass), _) => pass,
            (None, Some(user)) => Pass::newcomer(user, now_ms),
            (None, None) => Pass::newcomer(self.next_visitor(), now_ms),
        };
        let form = match head.wants_page() {
            true => Form::Page,
            false => Form::Json,
        };
        let is_secure = head.is_secure();
        let visit = Visit {
            room,
            pass,
            form,
            language: Language::default(),
            is_secure,
        };
        Some(Arrival {
            visit,
            token,
            is_new,
        })
    }

    /// Notes an arrival in the room's state and counters, before the decision.
    fn note(&mut self, arrival: &Arrival) {
        self.visitors += u64::from(arrival.is_new);
        if let (Some(room), Some(token)) = (self.rooms.get_mut(arrival.visit.room), arrival.token) {
            room.note_token(token.content);
        }
    }

    fn presented_token(
        &self,
        room: &Room<D>,
        head: &Head<'_>,
        now_ms: u64,
    ) -> Option<PresentedToken> {
        let (text, is_header) = head.pass(&room.cookie)?;
        let life_ms = room.config.terms.life_ms;
        let content = Pass::read(&self.keys, &room.config.name, &text, now_ms, life_ms);
        Some(PresentedToken { content, is_header })
    }

    /// The ID of the next new visitor.
    fn next_visitor(&self) -> Visitor {
        let unique = format!("{}.{}", self.unique_name, self.visitors + 1);
        Visitor::new(self.keys.signer(), &unique)
    }

    fn admit(
        &mut self,
        stream: StreamId,
        visit: Visit,
        head: &Head<'_>,
        now_ms: u64,
        effects: &mut Effects,
    ) {
        let Some(room) = self.rooms.get_mut(visit.room) else {
            return effects.let_go(stream);
        };
        match room.decide(&visit.pass, now_ms) {
            Decision::Pass(outcome) => {
                room.counters.requests.increment(outcome);
                let renewed = match outcome {
                    Outcome::Inside => room.renewed(&visit.pass, now_ms),
                    _ => None,
                };
                match renewed {
                    Some(pass) => self.enter(stream, Visit { pass, ..visit }, effects),
                    None => effects.let_go(stream),
                }
            }
            Decision::Enter(outcome) => {
                room.counters.requests.increment(outcome);
                let pass = room.inside(&visit.pass, now_ms);
                self.enter(stream, Visit { pass, ..visit }, effects);
            }
            Decision::Wait(outcome) => {
                let visit = visit.in_language_of(&room.config, head);
                self.answer_outside(stream, &visit, outcome, now_ms, effects)
            }
            Decision::Ask { order } => {
                let visit = visit.in_language_of(&room.config, head);
                let counts = room.config.terms.address_max > 0;
                let address = counts.then(|| head.address(self.address_seed, self.trusted_hops));
                self.ask(stream, visit, order, address, now_ms, effects);
            }
        }
    }

    fn ask(
        &mut self,
        stream: StreamId,
        visit: Visit,
        order: u64,
        address: Option<[u8; 8]>,
        now_ms: u64,
        effects: &mut Effects,
    ) {
        let Some(room) = self.rooms.get(visit.room) else {
            return;
        };
        let ask = VisitorRequest {
            visitor: visit.pass.visitor,
            place: visit.pass.place,
            order,
            joined_ms: visit.pass.joined_ms,
            address,
        };
        let job = Job {
            room: visit.room,
            keys: Arc::clone(&room.keys),
            context: room.call_context(&self.keys, now_ms),
            kind: Kind::Ask(ask),
        };
        match self.pump.enqueue(stream, job, now_ms, effects) {
            Ok(()) => {
                self.waiting.insert(stream, visit);
            }
            Err(_) => self.answer_outside(stream, &visit, unanswered(&visit), now_ms, effects),
        }
    }

    /// Passes a request whose response carries a new token.
    fn enter(&mut self, stream: StreamId, visit: Visit, effects: &mut Effects) {
        self.entered.insert(stream, visit);
        effects.go_on(stream);
    }

    fn on_response(&mut self, stream: StreamId, effects: &mut Effects) {
        let Some(entered) = self.entered.remove(&stream) else {
            return;
        };
        let Some(room) = self.rooms.get(entered.room) else {
            return;
        };
        let pass = entered.pass.mint(&self.keys, &room.config.name);
        let value = answer::cookie(&room.config, &pass, entered.is_secure);
        effects.push(Effect::AddResponseHeader {
            stream,
            name: "set-cookie",
            value,
        });
        if entered.form == Form::Json {
            let (name, value) = (PASS_HEADER, pass);
            effects.push(Effect::SetResponseHeader {
                stream,
                name,
                value,
            });
        }
    }

    /// Answers a visitor who is not admitted.
    fn answer_outside(
        &self,
        stream: StreamId,
        visit: &Visit,
        outcome: Outcome,
        now_ms: u64,
        effects: &mut Effects,
    ) {
        if let Some(room) = self.rooms.get(visit.room) {
            effects.respond(stream, self.queue_answer(room, visit, outcome, now_ms));
        }
    }

    /// Counts a visitor who is not admitted, and returns the answer.
    fn queue_answer(
        &self,
        room: &Room<D>,
        visit: &Visit,
        outcome: Outcome,
        now_ms: u64,
    ) -> Arc<Answer> {
        let counted = match visit.form {
            Form::Status => Outcome::Status,
            Form::Page | Form::Json => outcome,
        };
        room.counters.requests.increment(counted);
        let mut queue = room.queue_answer(&visit.pass, outcome, visit.language, now_ms);
        // A refused visitor gets no token.
        if !matches!(outcome, Outcome::Full | Outcome::Address | Outcome::Closed) {
            let pass = room.outside(&visit.pass);
            queue.pass = Some(pass.mint(&self.keys, &room.config.name));
        }
        let answer = answer::queue_reply(&room.config, &queue, visit.form, visit.is_secure);
        Arc::new(answer)
    }

    // --- pages that ask for their position

    /// The room whose position is requested, or the script.
    fn status_of(&self, path: &[u8]) -> Option<Vec<u8>> {
        let path = path.split(|b| *b == b'?').next()?;
        let name = path.strip_prefix(self.status_path.as_bytes())?;
        Some(name.strip_prefix(b"/")?.into())
    }

    /// The index of the room with this name.
    fn room_named(&self, name: &[u8]) -> Option<usize> {
        let is_it = |room: &Room<D>| room.config.name.as_str().as_bytes() == name;
        self.rooms.iter().position(is_it)
    }

    /// The answer to a position request, or the script; `None` for an unknown room.
    fn status_answer(&mut self, name: &[u8], head: &Head<'_>, now_ms: u64) -> Option<Arc<Answer>> {
        if name == b"room.js" {
            return Some(Arc::clone(&self.script));
        }
        let index = self.room_named(name)?;
        let token = self.presented_token(self.rooms.get(index)?, head, now_ms);
        let room = self.rooms.get_mut(index)?;
        if let Some(token) = token {
            room.note_token(token.content);
        }
        let pass = token.and_then(|token| token.content.ok());
        let pass = pass.map(|pass| pass.in_force(now_ms));
        let Some(pass) = pass.filter(|pass| pass.place > 0 && !pass.is_inside(now_ms)) else {
            room.counters.requests.increment(Outcome::Status);
            let state = if pass.is_some() { "inside" } else { "none" };
            return Some(Arc::new(answer::no_place(state)));
        };
        let outcome = match room.decide(&pass, now_ms) {
            Decision::Wait(outcome) => outcome,
            // It is the visitor's turn: the page reloads.
            Decision::Pass(_) | Decision::Enter(_) | Decision::Ask { .. } => Outcome::Hold,
        };
        let visit = Visit {
            room: index,
            pass,
            form: Form::Status,
            language: Language::default(),
            is_secure: head.is_secure(),
        };
        let room = self.rooms.get(index)?;
        let visit = visit.in_language_of(&room.config, head);
        Some(self.queue_answer(room, &visit, outcome, now_ms))
    }

    // --- Redis

    fn on_tick(&mut self, now_ms: u64, effects: &mut Effects) {
        for (index, room) in self.rooms.iter_mut().enumerate() {
            let Some(renewed) = room.due(now_ms) else {
                continue;
            };
            let job = Job {
                room: index,
                keys: Arc::clone(&room.keys),
                context: room.call_context(&self.keys, now_ms),
                kind: Kind::Tick(renewed),
            };
            self.pump.enqueue_unowned(job, now_ms, effects);
        }
        let completed = self.pump.flush(now_ms, effects);
        self.apply(completed, now_ms, effects);
    }

    fn apply(&mut self, completed: Vec<CompletedBatch<Job>>, now_ms: u64, effects: &mut Effects) {
        for call in completed {
            let is_tick = |pending: &Pending<Job>| matches!(pending.job.kind, Kind::Tick(_));
            match call.requests.iter().any(is_tick) {
                true => self.ticked(&call, now_ms, effects),
                false => self.complete_ask(call, now_ms, effects),
            }
        }
    }

    fn ticked(&mut self, call: &CompletedBatch<Job>, now_ms: u64, effects: &mut Effects) {
        let outcome = call.outcome.as_ref().map_err(Clone::clone);
        let read =
            |value: &Value| room_tick::parse(value).map_err(|_| UnknownFailure::Garbled.into());
        let outcome: Result<_, Failure> = outcome.and_then(read);
        for pending in &call.requests {
            let Some(room) = self.rooms.get_mut(pending.job.room) else {
                continue;
            };
            let name = &room.config.name;
            match (&outcome, &pending.job.kind) {
                (Ok(snapshot), _) => {
                    let text = format!("room \"{name}\": state can be read again");
                    if room.ticked(*snapshot, now_ms) {
                        effects.log(Level::Info, text);
                    }
                }
                (Err(failure), Kind::Tick(renewed)) => {
                    let text = format!("room \"{name}\": cannot read the state: {failure}");
                    if room.tick_failed(renewed, now_ms) {
                        effects.log(Level::Warn, text);
                    }
                }
                (Err(_), Kind::Ask(_)) => {}
            }
        }
    }

    fn complete_ask(&mut self, call: CompletedBatch<Job>, now_ms: u64, effects: &mut Effects) {
        let count = call.requests.len();
        let read = |value: Value| {
            room_ask::parse(&value, count).map_err(|_| Failure::from(UnknownFailure::Garbled))
        };
        let room = call.requests.first().map(|pending| pending.job.room);
        let room = room.and_then(|room| self.rooms.get_mut(room));
        let reply = match (call.outcome.and_then(read), room) {
            (Ok((snapshot, reply)), Some(room)) => {
                room.apply_snapshot(snapshot, now_ms);
                reply
            }
            _ => Vec::new(),
        };
        let mut reply = reply.into_iter();
        for pending in call.requests {
            let reply = reply.next();
            let visit = pending
                .stream
                .and_then(|stream| self.waiting.remove(&stream));
            let (Some(stream), Some(visit)) = (pending.stream, visit) else {
                continue;
            };
            match reply {
                Some(reply) => self.answered(stream, visit, reply, now_ms, effects),
                None => self.answer_outside(stream, &visit, unanswered(&visit), now_ms, effects),
            }
        }
    }

    /// Handles the reply of Redis for a visitor.
    fn answered(
        &mut self,
        stream: StreamId,
        visit: Visit,
        (status, place): VisitorStatus,
        now_ms: u64,
        effects: &mut Effects,
    ) {
        let Some(room) = self.rooms.get(visit.room) else {
            return;
        };
        let mut pass = visit.pass;
        if place > 0 && place != pass.place {
            let counters = &room.counters;
            match pass.place {
                0 => counters.joined.increment(),
                _ => {
                    counters.rejoined.increment();
                    pass.joined_ms = now_ms;
                }
            }
            pass.place = place;
        }
        let visit = Visit { pass, ..visit };
        let outcome = match status {
            Status::Inside => {
                room.counters.requests.increment(Outcome::Entered);
                let pass = room.inside(&pass, now_ms);
                return self.enter(stream, Visit { pass, ..visit }, effects);
            }
            Status::Waiting => match room.is_lobby(now_ms) {
                true => Outcome::Lobby,
                false => Outcome::Waiting,
            },
            Status::Hold => Outcome::Hold,
            Status::Settling => Outcome::Unplaced,
            Status::Full => Outcome::Full,
            Status::Address => Outcome::Address,
            Status::Closed => Outcome::Closed,
        };
        self.answer_outside(stream, &visit, outcome, now_ms, effects);
    }
}

impl Visit {
    /// The visit with the language of the room, or else of the client.
    fn in_language_of(self, room: &CheckedRoom, head: &Head<'_>) -> Self {
        let language = room.language.unwrap_or_else(|| head.language());
        Self { language, ..self }
    }
}

/// The outcome for a visitor without a reply from Redis.
fn unanswered(visit: &Visit) -> Outcome {
    match visit.pass.place {
        0 => Outcome::Unplaced,
        _ => Outcome::Hold,
    }
}
