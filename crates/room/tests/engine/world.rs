//! Gateways and visitors on one clock. Each gateway applies effects like Envoy, and checks each of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value as Json;
use weir_base::shared_data::LocalData;
use weir_engine::event::{PlainEnd, PlainRequest};
use weir_engine::pump::BATCH_MAX;
use weir_engine::redis::{DefiniteFailure, Failure, UnknownFailure};
use weir_engine::{
    Answer, BatchId, EarlyDecision, Effect, Effects, Engine, Event, Headers, StreamId,
};
use weir_room::engine::WaitingRoom;
use weir_room::engine::config::Config;

use crate::redis::Redis;

pub const START_MS: u64 = 1_700_000_000_000;

type Data = Arc<SharedCell>;

/// Shared data with the `Send` and `Sync` bounds of the engine's type, although these tests use one thread.
#[derive(Default)]
pub struct SharedCell(std::sync::Mutex<LocalData>);

impl weir_base::shared_data::SharedData for SharedCell {
    fn get(&self, key: &str) -> Option<(Vec<u8>, u32)> {
        self.0.lock().unwrap().get(key)
    }

    fn set(&self, key: &str, value: &[u8], version: u32) -> bool {
        self.0.lock().unwrap().set(key, value, version)
    }
}

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RoomState {
    /// It passed to the origin; the response had these headers.
    Passed(Vec<(String, String)>),
    /// The engine answered it.
    Answered(Arc<Answer>),
}

pub struct Gateway {
    pub engine: WaitingRoom<Data>,
    effects: Effects,
    is_woken: bool,
    calls: BTreeMap<BatchId, Vec<u8>>,
    open: BTreeSet<StreamId>,
    observed: BTreeMap<StreamId, RoomState>,
    response: Vec<(String, String)>,
    next_stream: StreamId,
    metrics: BTreeMap<String, u64>,
    pub log: Vec<String>,
}

/// The state of the connection to Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    Up,
    /// Calls cannot be sent.
    Down,
    /// Calls run, but their replies are lost.
    Mute,
    /// Redis is full.
    Full,
}

pub struct World {
    pub gateways: Vec<Gateway>,
    pub redis: Redis,
    pub now_ms: u64,
    pub link: Link,
    /// Whether gateways try to decide before their HTTP stack.
    pub is_early: bool,
    /// The requests that were answered before the HTTP stack.
    pub early_answers: usize,
    config: String,
    names: u64,
}

/// A visitor: the state of a browser.
#[derive(Clone, Debug, Default)]
pub struct Visitor {
    pub cookie: Option<String>,
    pub user: Option<String>,
    pub address: String,
}

impl Visitor {
    pub fn new(number: usize) -> Self {
        Self {
            address: format!("192.0.{}.{}:7", number / 250, number % 250),
            ..Self::default()
        }
    }

    pub fn user(name: &str) -> Self {
        Self {
            user: Some(name.into()),
            ..Self::new(1)
        }
    }
}

fn make(config: &str, name: String, data: Data) -> WaitingRoom<Data> {
    let environment = |name: &str| match name {
        "KEY" => Some(vec![7; 32]),
        "OTHER" => Some(vec![8; 32]),
        _ => None,
    };
    let config: Config = weir_engine::config::parse(config.as_bytes()).unwrap();
    WaitingRoom::new(config.checked(&environment).unwrap(), data, name)
}

/// The configuration of one room, with these fields.
pub fn config(room: &str) -> String {
    format!(
        r#"{{"redis":{{}},"user_header":"x-user","keys":[{{"secret":{{"env":"KEY"}}}}],
            "rooms":[{{"name":"shop","match":{{"path":{{"prefix":"/shop"}}}},"except":[{{"path":{{"prefix":"/shop/static"}}}}],
            "session":"20s","claim":"6s","poll":{{"min_ms":500}} {room}}}]}}"#
    )
}

impl World {
    /// Gateways whose room is in use.
    pub fn new(gateways: usize, room: &str) -> Self {
        Self::of(gateways, config(room))
    }

    pub fn of(gateways: usize, config: String) -> Self {
        let mut world = Self::unsettled(gateways, config);
        world.advance(2_500);
        world
    }

    /// Gateways that have just started.
    pub fn unsettled(gateways: usize, config: String) -> Self {
        let mut world = Self {
            gateways: Vec::new(),
            redis: Redis::default(),
            now_ms: START_MS,
            link: Link::Up,
            is_early: false,
            early_answers: 0,
            config,
            names: 0,
        };
        for _ in 0..gateways {
            let gateway = world.gateway();
            world.gateways.push(gateway);
        }
        for at in 0..gateways {
            // The first request starts its polls.
            world.visit(at, &mut Visitor::new(9_999));
        }
        world
    }

    fn gateway(&mut self) -> Gateway {
        self.names += 1;
        Gateway {
            engine: make(&self.config, format!("g{}", self.names), Data::default()),
            effects: Effects::new(),
            is_woken: false,
            calls: BTreeMap::new(),
            open: BTreeSet::new(),
            observed: BTreeMap::new(),
            response: Vec::new(),
            next_stream: 1,
            metrics: BTreeMap::new(),
            log: Vec::new(),
        }
    }

    /// A gateway crashes, and another one without state replaces it.
    pub fn replace(&mut self, at: usize) {
        self.gateways[at] = self.gateway();
    }

    /// Advances the clock and runs the gateways' ticks.
    pub fn advance(&mut self, ms: u64) {
        let end_ms = self.now_ms + ms;
        while self.now_ms < end_ms {
            self.now_ms += 50.min(end_ms - self.now_ms);
            for at in 0..self.gateways.len() {
                self.gateways[at].is_woken = true;
                self.run(at);
            }
        }
    }

    fn run(&mut self, at: usize) {
        let now_ms = self.now_ms;
        let gateway = &mut self.gateways[at];
        loop {
            if std::mem::take(&mut gateway.is_woken) {
                gateway.handle(Event::Tick { now_ms }, self.link);
            } else if let Some((batch, body)) = gateway.calls.pop_first() {
                let mut run = || self.redis.run(&body, now_ms);
                let reply = match self.link {
                    Link::Up => Ok(run()),
                    Link::Down => Err(Failure::Definite(DefiniteFailure::NotSent)),
                    Link::Mute => {
                        run();
                        Err(Failure::Unknown(UnknownFailure::Timeout))
                    }
                    Link::Full => Ok(b"-OOM command not allowed\r\n".to_vec()),
                };
                let event = Event::RedisReply {
                    batch,
                    reply,
                    now_ms,
                };
                gateway.handle(event, self.link);
            } else {
                return;
            }
        }
    }

    /// A browser's request for `/shop`.
    pub fn visit(&mut self, at: usize, visitor: &mut Visitor) -> RoomState {
        self.ask(at, visitor, "/shop", "text/html,*/*")
    }

    /// A page's position request.
    pub fn status(&mut self, at: usize, visitor: &mut Visitor) -> Json {
        let observed = self.ask(at, visitor, "/.weir/room/shop", "application/json");
        json(&observed)
    }

    pub fn ask(&mut self, at: usize, visitor: &mut Visitor, path: &str, accept: &str) -> RoomState {
        let mut headers = vec![(":method", "GET"), (":path", path), ("accept", accept)];
        headers.push((":scheme", "https"));
        if let Some(cookie) = &visitor.cookie {
            headers.push(("cookie", cookie));
        }
        if let Some(user) = &visitor.user {
            headers.push(("x-user", user));
        }
        let observed = self.send(at, &headers, &visitor.address.clone());
        let cookies = match &observed {
            RoomState::Passed(headers) => headers.clone(),
            RoomState::Answered(answer) => texts(&answer.headers),
        };
        for (_, value) in cookies.iter().filter(|(name, _)| name == "set-cookie") {
            assert!(
                value.ends_with("; HttpOnly; SameSite=Lax; Secure"),
                "{value}"
            );
            visitor.cookie = value.split(';').next().map(Into::into);
        }
        observed
    }

    /// Any request.
    pub fn send(&mut self, at: usize, headers: &[(&str, &str)], address: &str) -> RoomState {
        let early = match self.is_early {
            true => self.decide_early(at, headers, address, true),
            false => EarlyDecision::Undecided,
        };
        if let EarlyDecision::Answer(answer) = early {
            self.early_answers += 1;
            return RoomState::Answered(answer);
        }
        let stream = self.begin(at, headers, address);
        self.run(at);
        let observed = self.outcome(at, stream);
        if let EarlyDecision::NotConcerned = early {
            assert_eq!(observed, RoomState::Passed(Vec::new()), "{headers:?}");
        }
        observed
    }

    /// A decision before the HTTP stack.
    pub fn decide_early(
        &mut self,
        at: usize,
        headers: &[(&str, &str)],
        address: &str,
        trusts_user: bool,
    ) -> EarlyDecision {
        let request = self.request(headers, address);
        self.gateways[at].engine.decide_early(&request, trusts_user)
    }

    fn request(&self, headers: &[(&str, &str)], address: &str) -> PlainRequest {
        PlainRequest {
            headers: Headers::new(headers),
            peer_address: address.into(),
            now_ms: self.now_ms,
        }
    }

    /// The outcome of a request.
    pub fn outcome(&mut self, at: usize, stream: StreamId) -> RoomState {
        let link = self.link;
        let gateway = &mut self.gateways[at];
        let observed = gateway.observed.remove(&stream);
        let observed = observed.unwrap_or_else(|| panic!("{stream} has no answer"));
        match observed {
            RoomState::Passed(_) => RoomState::Passed(gateway.respond(stream, link)),
            observed => observed,
        }
    }

    /// Sends a request only.
    pub fn begin(&mut self, at: usize, headers: &[(&str, &str)], address: &str) -> StreamId {
        let request = self.request(headers, address);
        let link = self.link;
        let gateway = &mut self.gateways[at];
        let stream = gateway.next_stream;
        gateway.next_stream += 1;
        gateway.open.insert(stream);
        let request = &request;
        gateway.handle(Event::Request { stream, request }, link);
        stream
    }

    /// A client leaves.
    pub fn leave(&mut self, at: usize, stream: StreamId) {
        let end = &PlainEnd::default();
        let link = self.link;
        self.gateways[at].open.remove(&stream);
        self.gateways[at].handle(Event::Closed { stream, end }, link);
    }

    /// A counter over all gateways.
    pub fn metric(&mut self, name: &str) -> u64 {
        self.gateways
            .iter_mut()
            .map(|gateway| gateway.metric(name))
            .sum()
    }
}

impl Gateway {
    fn metric(&mut self, name: &str) -> u64 {
        let name = format!("weir_room_{name}");
        let names: Vec<_> = self.engine.metrics().counters().collect();
        assert!(names.contains(&name.as_str()), "{name} of {names:?}");
        self.metrics().get(&name).copied().unwrap_or(0)
    }

    /// All counters that are not 0.
    pub fn metrics(&mut self) -> &BTreeMap<String, u64> {
        let metrics = self.engine.metrics();
        let names: Vec<String> = metrics.counters().map(Into::into).collect();
        let counts = &mut self.metrics;
        metrics.collect(|index, count| *counts.entry(names[index].clone()).or_default() += count);
        counts
    }

    fn respond(&mut self, stream: StreamId, link: Link) -> Vec<(String, String)> {
        self.handle(Event::Response { stream }, link);
        let end = &PlainEnd::default();
        self.handle(Event::Closed { stream, end }, link);
        std::mem::take(&mut self.response)
    }

    fn handle(&mut self, event: Event<'_>, link: Link) {
        self.engine.handle(event, &mut self.effects);
        let mut list = vec![];
        self.effects.take_into(&mut list);
        let is_answer =
            |effect: &&Effect| matches!(effect, Effect::Respond { .. } | Effect::Continue { .. });
        assert!(list.iter().filter(is_answer).count() <= BATCH_MAX);
        let apply = |effect| self.apply(effect, link);
        let feedback: Vec<_> = list.into_iter().filter_map(apply).collect();
        self.effects.clear_bytes();
        for event in feedback {
            self.handle(event, link);
        }
    }

    fn apply(&mut self, effect: Effect, link: Link) -> Option<Event<'static>> {
        match effect {
            Effect::Respond { stream, answer } => {
                assert!(self.open.remove(&stream), "an answer to {stream}");
                self.observed.insert(stream, RoomState::Answered(answer));
            }
            Effect::Continue { stream, .. } => {
                assert!(self.open.remove(&stream), "{stream} goes on");
                self.observed.insert(stream, RoomState::Passed(Vec::new()));
            }
            Effect::Call { batch, at_once, .. } if at_once => {
                return Some(Event::Deferred { batch });
            }
            Effect::Call { batch, .. } if link == Link::Down => {
                return Some(Event::NotSent { batch });
            }
            Effect::Call { batch, body, .. } => {
                self.calls.insert(batch, self.effects.bytes(&body).to_vec());
            }
            Effect::AddResponseHeader { name, value, .. }
            | Effect::SetResponseHeader { name, value, .. } => {
                self.response.push((name.into(), value));
            }
            Effect::RemoveRequestHeader { name, .. } => assert_eq!(name, "x-weir-room"),
            Effect::Wake => self.is_woken = true,
            Effect::Log(_, text) => self.log.push(text),
            other => panic!("{other:?}"),
        }
        None
    }
}

impl RoomState {
    pub fn has_passed(&self) -> bool {
        matches!(self, Self::Passed(_))
    }

    pub fn answer(&self) -> &Answer {
        match self {
            Self::Answered(answer) => answer,
            Self::Passed(_) => panic!("it passed"),
        }
    }

    pub fn header(&self, name: &str) -> Option<String> {
        let headers = match self {
            Self::Answered(answer) => texts(&answer.headers),
            Self::Passed(headers) => headers.clone(),
        };
        let mut headers = headers.into_iter();
        headers
            .find(|(existing, _)| existing == name)
            .map(|(_, value)| value)
    }

    /// The state in a page or JSON.
    pub fn state(&self) -> String {
        let Self::Answered(answer) = self else {
            return "passed".into();
        };
        let text = String::from_utf8(answer.body.clone()).unwrap();
        match text.split_once("data-state=\"{{") {
            Some(_) => panic!("{text}"),
            None => match text.split_once("<main id=\"room\" data-state=\"") {
                Some((_, behind)) => behind.split('"').next().unwrap().into(),
                None => json(self)["state"].as_str().unwrap().into(),
            },
        }
    }
}

pub fn json(state: &RoomState) -> Json {
    serde_json::from_slice(&state.answer().body).unwrap()
}

fn texts(headers: &Headers) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    headers
        .iter()
        .map(|(name, value)| (text(name), text(value)))
        .collect()
}
