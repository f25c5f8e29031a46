//! A host for tests: it applies effects as `weir-proxy-kit` does, and checks that they are valid.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;

use weir_base::shared_data::LocalData;
use weir_engine::config::parse;
use weir_engine::event::{PlainEnd, PlainRequest};
use weir_engine::redis::{DefiniteFailure, Failure, Reply, UnknownFailure};
use weir_engine::{Answer, Headers};

use super::super::*;
use super::fake_redis::{FakeRedis, charges_back};
use crate::engine::config::Config;

pub const NOW_MS: u64 = 1_700_000_000_000;

pub const SECRET: &str = "0123456789abcdef";

pub struct Host {
    pub limiter: Limiter<Rc<LocalData>>,
    pub redis: FakeRedis,
    pub connectivity: RedisConnectivity,
    pub now_ms: u64,
    pub streams: BTreeMap<StreamId, State>,
    /// Streams that have ended without an event: effects for them fail.
    pub closed: BTreeSet<StreamId>,
    /// Sent and unanswered calls.
    pub calls: VecDeque<(BatchId, Vec<u8>)>,
    pub log: Vec<(Level, String)>,
    /// Whether it tries to decide before its HTTP stack.
    pub is_early: bool,
    /// The requests that were answered before the HTTP stack.
    pub early_answers: usize,
    /// Charges of requests in flight that never reached the engine.
    pub orphans: u64,
    /// Charges that the engine failed to undo.
    pub retained: u64,
    effects: Effects,
    is_woken: bool,
    next_stream: StreamId,
    counts: BTreeMap<String, u64>,
}

/// The state of the connection to Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RedisConnectivity {
    Open,
    /// Calls need a turn.
    Closed,
    /// Calls cannot be sent.
    Down,
}

/// The outcome of a call.
#[derive(Clone, Copy, Debug)]
pub enum CallOutcome {
    Answered,
    /// It runs, and its replies are lost.
    Lost,
    /// It runs, and its replies are damaged.
    Garbled,
    /// It does not run, and the engine cannot know.
    TimedOut,
    /// It does not run, and the engine receives the refusal.
    Refused,
}

/// The state of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    Waiting,
    /// It passed; its response has these headers.
    Passed(Vec<(&'static str, String)>),
    Answered(Arc<Answer>),
    Closed,
}

impl Host {
    pub fn new(rules: &[&str], fields: &str) -> Self {
        let comma = if fields.is_empty() { "" } else { "," };
        let rules = rules.join(",");
        let json = format!(r#"{{"user_header":"x-user-id","rules":[{rules}]{comma}{fields}}}"#);
        Self::with_data(&json, Rc::default())
    }

    pub fn with_data(json: &str, data: Rc<LocalData>) -> Self {
        let config = parse::<Config>(json.as_bytes()).unwrap();
        let secret = |_: &str| Some(SECRET.into());
        let config = config.checked(true, &secret).unwrap();
        Self {
            limiter: Limiter::new(config, data, 7),
            redis: FakeRedis::default(),
            connectivity: RedisConnectivity::Open,
            now_ms: NOW_MS,
            streams: BTreeMap::new(),
            closed: BTreeSet::new(),
            calls: VecDeque::new(),
            log: Vec::new(),
            is_early: false,
            early_answers: 0,
            orphans: 0,
            retained: 0,
            effects: Effects::new(),
            is_woken: false,
            next_stream: 1,
            counts: BTreeMap::new(),
        }
    }

    // --- events

    /// Sends a request of this user. Redis does not answer yet.
    pub fn request(&mut self, user: &str) -> StreamId {
        self.request_with(&[("x-user-id", user)])
    }

    pub fn request_with(&mut self, headers: &[(&str, &str)]) -> StreamId {
        let stream = self.next_stream;
        self.next_stream += 1;
        self.streams.insert(stream, State::Waiting);
        let early = match self.is_early {
            true => self.decide_early(headers, true),
            false => EarlyDecision::Undecided,
        };
        if let EarlyDecision::Answer(answer) = early {
            self.early_answers += 1;
            self.streams.insert(stream, State::Answered(answer));
            return stream;
        }
        let request = self.plain_request(headers);
        self.handle(Event::Request {
            stream,
            request: &request,
        });
        if let EarlyDecision::NotConcerned = early {
            let has_work = self.limiter.streams.contains_key(&stream);
            assert!(self.is_passed(stream) && !has_work, "{headers:?}");
        }
        stream
    }

    /// A decision before the HTTP stack.
    pub fn decide_early(&mut self, headers: &[(&str, &str)], trusts_user: bool) -> EarlyDecision {
        let request = self.plain_request(headers);
        self.limiter.decide_early(&request, trusts_user)
    }

    fn plain_request(&self, headers: &[(&str, &str)]) -> PlainRequest {
        let head = [(":method", "GET"), (":path", "/api/things")];
        PlainRequest {
            headers: Headers::new(&[&head, headers].concat()),
            peer_address: b"192.0.2.1:1".into(),
            now_ms: self.now_ms,
        }
    }

    /// Sends a request of this user and processes all pending events.
    pub fn ask(&mut self, user: &str) -> StreamId {
        let stream = self.request(user);
        self.settle();
        stream
    }

    /// The number of passed requests among `count` consecutive ones.
    pub fn passed(&mut self, user: &str, count: usize) -> usize {
        let requests = (0..count).map(|_| self.ask(user)).collect::<Vec<_>>();
        let passed = requests.iter().filter(|stream| self.is_passed(**stream));
        passed.count()
    }

    pub fn respond(&mut self, stream: StreamId) {
        if matches!(self.streams[&stream], State::Passed(_)) {
            self.handle(Event::Response { stream });
        }
    }

    pub fn close(&mut self, stream: StreamId) {
        if matches!(self.streams[&stream], State::Closed) {
            return;
        }
        self.streams.insert(stream, State::Closed);
        let end = PlainEnd {
            response_status: None,
            now_ms: self.now_ms,
        };
        self.handle(Event::Closed { stream, end: &end });
    }

    /// Runs a requested turn.
    pub fn turn(&mut self) {
        if mem::take(&mut self.is_woken) {
            self.tick();
        }
    }

    pub fn tick(&mut self) {
        let now_ms = self.now_ms;
        self.handle(Event::Tick { now_ms });
    }

    /// Ends the sent call at this index.
    pub fn end_call(&mut self, index: usize, fate: CallOutcome) {
        let Some((batch, body)) = self.calls.remove(index) else {
            return;
        };
        let before = self.redis.charged_in_flight;
        let reply: Reply = match fate {
            CallOutcome::Answered => Ok(self.redis.run(&body, self.now_ms)),
            CallOutcome::Lost | CallOutcome::Garbled => {
                self.redis.run(&body, self.now_ms);
                self.orphans += self.redis.charged_in_flight - before;
                match fate {
                    CallOutcome::Lost => Err(UnknownFailure::Lost.into()),
                    _ => Ok(b"+OK\r\n".into()),
                }
            }
            CallOutcome::TimedOut => self.not_run(&body, UnknownFailure::Timeout.into()),
            CallOutcome::Refused => {
                self.not_run(&body, DefiniteFailure::Refused("refused: no".into()).into())
            }
        };
        self.reply(batch, reply);
    }

    fn not_run(&mut self, body: &[u8], failure: Failure) -> Reply {
        self.retained += charges_back(body);
        Err(failure)
    }

    pub fn reply(&mut self, batch: BatchId, reply: Reply) {
        let now_ms = self.now_ms;
        self.handle(Event::RedisReply {
            batch,
            reply,
            now_ms,
        });
    }

    /// Runs turns and answers calls until no event is pending.
    pub fn settle(&mut self) {
        for _ in 0..10_000 {
            self.turn();
            self.end_call(0, CallOutcome::Answered);
            if !self.is_woken && self.calls.is_empty() {
                return;
            }
        }
        panic!("it never ends");
    }

    // --- results

    pub fn is_passed(&self, stream: StreamId) -> bool {
        matches!(self.streams[&stream], State::Passed(_))
    }

    /// Whether the client still waits for a response.
    pub fn is_waiting(&self, stream: StreamId) -> bool {
        matches!(self.streams[&stream], State::Waiting)
    }

    pub fn answer(&self, stream: StreamId) -> &Answer {
        match &self.streams[&stream] {
            State::Answered(answer) => answer,
            other => panic!("{other:?}"),
        }
    }

    /// A header of the answer to a refused request.
    pub fn header(&self, stream: StreamId, name: &str) -> Option<String> {
        let value = self.answer(stream).headers.get(name)?;
        Some(String::from_utf8(value.into_owned()).unwrap())
    }

    /// A header of the response to a passed request.
    pub fn response_header(&mut self, stream: StreamId, name: &str) -> Option<String> {
        self.respond(stream);
        let State::Passed(headers) = &self.streams[&stream] else {
            panic!("{:?}", self.streams[&stream])
        };
        let found = headers.iter().find(|(existing, _)| *existing == name);
        found.map(|(_, value)| value.clone())
    }

    /// A counter of one rule.
    pub fn count(&mut self, subject: &str, rule: &str) -> u64 {
        self.metric(&format!("weir_ratelimit_{subject}_total.rule.{rule}"))
    }

    pub fn metric(&mut self, name: &str) -> u64 {
        self.metrics().get(name).copied().unwrap_or(0)
    }

    /// All counters that are not 0.
    pub fn metrics(&mut self) -> &BTreeMap<String, u64> {
        let metrics = self.limiter.metrics();
        let names: Vec<String> = metrics.counters().map(Into::into).collect();
        let counts = &mut self.counts;
        metrics.collect(|index, count| {
            *counts.entry(names[index].clone()).or_default() += count;
        });
        counts
    }

    pub fn has_logged(&self, text: &str) -> bool {
        self.log.iter().any(|(_, line)| line.contains(text))
    }

    /// Whether the engine has no streams and no waiting jobs.
    pub fn is_at_rest(&self) -> bool {
        let pump = self.limiter.pump.as_ref();
        let waiting = pump.map_or(0, |pump| pump.waiting());
        self.limiter.streams.is_empty() && waiting == 0 && self.calls.is_empty()
    }

    // --- effects

    fn handle(&mut self, event: Event<'_>) {
        self.limiter.handle(event, &mut self.effects);
        let mut feedback = VecDeque::new();
        let mut undelivered = BTreeSet::new();
        self.apply_all(&mut feedback, &mut undelivered);
        while let Some(event) = feedback.pop_front() {
            self.limiter.handle(event, &mut self.effects);
            self.apply_all(&mut feedback, &mut undelivered);
        }
    }

    fn apply_all(
        &mut self,
        feedback: &mut VecDeque<Event<'static>>,
        undelivered: &mut BTreeSet<StreamId>,
    ) {
        let mut list = Vec::new();
        self.effects.take_into(&mut list);
        for effect in list {
            match effect {
                Effect::Call {
                    batch,
                    body,
                    at_once,
                    ..
                } => {
                    let body = self.effects.bytes(&body).to_vec();
                    feedback.extend(self.send(batch, body, at_once));
                }
                Effect::Wake => self.is_woken = true,
                Effect::Log(level, text) => self.log.push((level, text)),
                Effect::Respond { stream, .. }
                | Effect::Continue { stream, .. }
                | Effect::SetResponseHeader { stream, .. } => {
                    if undelivered.contains(&stream) {
                        continue;
                    }
                    if self.closed.contains(&stream) {
                        undelivered.insert(stream);
                        let now_ms = self.now_ms;
                        feedback.push_back(Event::Undelivered { stream, now_ms });
                    } else {
                        self.apply(stream, effect);
                    }
                }
                other => panic!("{other:?}"),
            }
        }
        self.effects.clear_bytes();
    }

    fn send(&mut self, batch: BatchId, body: Vec<u8>, at_once: bool) -> Option<Event<'static>> {
        match self.connectivity {
            RedisConnectivity::Open => {
                self.calls.push_back((batch, body));
                None
            }
            RedisConnectivity::Closed if !at_once => {
                self.calls.push_back((batch, body));
                None
            }
            _ if at_once => Some(Event::Deferred { batch }),
            _ => {
                self.retained += charges_back(&body);
                Some(Event::NotSent { batch })
            }
        }
    }

    /// Applies an effect to a stream in a valid state.
    fn apply(&mut self, stream: StreamId, effect: Effect) {
        let state = self.streams.get_mut(&stream).unwrap();
        match (&mut *state, effect) {
            (State::Waiting, Effect::Respond { answer, .. }) => *state = State::Answered(answer),
            (State::Waiting, Effect::Continue { .. }) => *state = State::Passed(Vec::new()),
            (State::Passed(headers), Effect::SetResponseHeader { name, value, .. }) => {
                headers.push((name, value));
            }
            (state, effect) => panic!("{effect:?} to a stream that is {state:?}"),
        }
    }
}
