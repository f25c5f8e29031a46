//! A host of the engine: it applies effects like Envoy, and checks each of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value as Json;
use weir_engine::config::parse;
use weir_engine::event::{PlainEnd, PlainRequest};
use weir_engine::pump::BATCH_MAX;
use weir_engine::redis::{Failure, Reply, UnknownFailure};
use weir_engine::{Answer, BatchId, Effect, Effects, Engine, Event, Headers, StreamId};
use weir_fitment::engine::Fitment;
use weir_fitment::engine::config::{CheckedConfig, Config};
use weir_fitment::{Cluster, Offset, Placement, Sku, Spu, VehicleId};

use crate::redis::Redis;

/// The default configuration of tests.
pub const CONFIG: &str =
    r#"{"redis":{"deadline_ms":100},"origin":{"limit":{"rate":1,"per":"1s","burst":3}}}"#;

pub struct Call {
    cluster: String,
    body: Vec<u8>,
}

pub struct Host {
    pub engine: Fitment,
    effects: Effects,
    pub now_ms: u64,
    pub redis: Redis,
    /// Calls in flight.
    pub calls: BTreeMap<BatchId, Call>,
    /// Whether calls can be sent at all.
    pub is_connected: bool,
    is_woken: bool,
    clusters: Vec<String>,
    /// Streams whose clients have left, without a notification to the engine.
    pub closed: BTreeSet<StreamId>,
    open: BTreeSet<StreamId>,
    /// Streams whose bodies the engine reads, with the maximum length in bytes.
    reading: BTreeMap<StreamId, usize>,
    answers: BTreeMap<StreamId, Arc<Answer>>,
    passed: BTreeSet<StreamId>,
    next_stream: StreamId,
    next_version: u64,
    metrics: BTreeMap<String, u64>,
    pub log: Vec<String>,
}

pub fn sku(name: &str) -> Sku {
    Sku::new(name).unwrap()
}

pub fn home(spu: &str) -> Placement {
    Placement {
        cluster: Cluster::home(),
        spu: Spu::new(spu).unwrap(),
    }
}

pub fn offsets(numbers: &[u32]) -> Vec<Offset> {
    numbers
        .iter()
        .map(|number| Offset::new(*number).unwrap())
        .collect()
}

/// The vehicle with this offset: 1000001 has the first.
pub fn vehicle(offset: u32) -> VehicleId {
    VehicleId::from_number(1_000_000 + offset).unwrap()
}

pub fn question(vehicles: &[u32], skus: &[&str]) -> String {
    let vehicles: Vec<_> = vehicles
        .iter()
        .map(|offset| vehicle(*offset).to_string())
        .collect();
    serde_json::json!({ "vehicles": vehicles, "skus": skus }).to_string()
}

impl Host {
    /// A host whose engine has ten vehicles.
    pub fn new() -> Self {
        Self::with(CONFIG)
    }

    pub fn with(config: &str) -> Self {
        let mut host = Self::unaware(config);
        host.map(1, 10);
        host.request("GET", "/", "");
        host.learn();
        host
    }

    /// A host whose engine has no data yet.
    pub fn unaware(config: &str) -> Self {
        let config: CheckedConfig = parse::<Config>(config.as_bytes())
            .and_then(Config::checked)
            .unwrap();
        let further = config.clusters.iter().map(|(name, _)| name.to_string());
        let clusters = std::iter::once("home".to_owned()).chain(further);
        Self {
            clusters: clusters.collect(),
            engine: Fitment::new(config),
            effects: Effects::new(),
            now_ms: 1_700_000_000_000,
            redis: Redis::default(),
            calls: BTreeMap::new(),
            is_connected: true,
            is_woken: false,
            closed: BTreeSet::new(),
            open: BTreeSet::new(),
            reading: BTreeMap::new(),
            answers: BTreeMap::new(),
            passed: BTreeSet::new(),
            next_stream: 0,
            next_version: 0,
            metrics: BTreeMap::new(),
            log: vec![],
        }
    }

    /// Replaces the vehicle map.
    pub fn map(&mut self, generation: u64, count: u32) {
        let vehicles: Vec<_> = (1..=count).map(|offset| Some(vehicle(offset))).collect();
        self.redis
            .map
            .put(generation, 0, &vehicles, Some((count, generation)));
    }

    /// Stores a SKU that fits exactly the vehicles with these offsets.
    pub fn put(&mut self, name: &str, place: &Placement, fits: &[u32]) {
        self.next_version += 1;
        self.redis
            .put(self.next_version, &sku(name), place, &offsets(fits));
    }

    /// Reads the vehicle map.
    pub fn learn(&mut self) {
        for _ in 0..5 {
            self.advance(1_000);
        }
    }

    // --- events

    /// Sends a query. Returns its response if it has one already.
    pub fn ask(&mut self, body: &str) -> StreamId {
        self.request("POST", "/fitment/check", body)
    }

    /// Sends a query, and runs until nothing more happens.
    pub fn answer(&mut self, body: &str) -> (u16, Json) {
        let stream = self.ask(body);
        self.run();
        self.response(stream)
    }

    pub fn request(&mut self, method: &str, path: &str, body: &str) -> StreamId {
        self.request_with(method, path, &[], body)
    }

    pub fn request_with(
        &mut self,
        method: &str,
        path: &str,
        more: &[(&str, &str)],
        body: &str,
    ) -> StreamId {
        let head = [
            (":method", method),
            (":path", path),
            (":authority", "shop.example.com"),
        ];
        let request = PlainRequest {
            headers: Headers::new(&[&head, more].concat()),
            peer_address: b"192.0.2.1:1".into(),
            now_ms: self.now_ms,
        };
        let stream = self.next_stream;
        self.next_stream += 1;
        self.open.insert(stream);
        self.handle(Event::Request {
            stream,
            request: &request,
        });
        if let Some(bytes_max) = self.reading.remove(&stream) {
            let now_ms = self.now_ms;
            let body = (body.len() <= bytes_max).then_some(body.as_bytes());
            self.handle(Event::Body {
                stream,
                body,
                now_ms,
            });
        }
        stream
    }

    pub fn close(&mut self, stream: StreamId) {
        if self.open.remove(&stream) {
            let end = PlainEnd {
                response_status: None,
                now_ms: self.now_ms,
            };
            self.handle(Event::Closed { stream, end: &end });
        }
    }

    pub fn tick(&mut self) {
        self.is_woken = false;
        let now_ms = self.now_ms;
        self.handle(Event::Tick { now_ms });
    }

    /// Redis runs a call, and its reply arrives.
    pub fn reply(&mut self, batch: BatchId) {
        let call = self.calls.remove(&batch).unwrap();
        let replies = self.redis.run(&call.cluster, &call.body);
        self.end_call(batch, Ok(replies));
    }

    /// The reply to a call is lost.
    pub fn lose(&mut self, batch: BatchId) {
        self.calls.remove(&batch).unwrap();
        self.end_call(batch, Err(Failure::Unknown(UnknownFailure::Timeout)));
    }

    /// A call gets this reply.
    pub fn reply_with(&mut self, batch: BatchId, replies: &[u8]) {
        self.calls.remove(&batch).unwrap();
        self.end_call(batch, Ok(replies.to_vec()));
    }

    fn end_call(&mut self, batch: BatchId, reply: Reply) {
        let now_ms = self.now_ms;
        self.handle(Event::RedisReply {
            batch,
            reply,
            now_ms,
        });
    }

    /// Delivers requested turns and replies until nothing more happens.
    pub fn run(&mut self) {
        loop {
            if self.is_woken {
                self.tick();
            } else if let Some((&batch, _)) = self.calls.first_key_value() {
                self.reply(batch);
            } else {
                return;
            }
        }
    }

    /// Advances the clock and runs due ticks.
    pub fn advance(&mut self, ms: u64) {
        self.now_ms += ms;
        self.tick();
        self.run();
    }

    // --- results

    /// A client's response.
    pub fn response(&self, stream: StreamId) -> (u16, Json) {
        let answer = self.answers.get(&stream);
        let answer = answer.unwrap_or_else(|| panic!("{stream} was not answered"));
        let json = serde_json::from_slice(&answer.body).unwrap();
        (answer.status, json)
    }

    /// A header of a client's response.
    pub fn told_header(&self, stream: StreamId, name: &str) -> Option<String> {
        let value = self.answers[&stream].headers.get(name)?.into_owned();
        String::from_utf8(value).ok()
    }

    pub fn is_answered(&self, stream: StreamId) -> bool {
        self.answers.contains_key(&stream)
    }

    /// Whether a request passed to the origin.
    pub fn has_passed(&self, stream: StreamId) -> bool {
        self.passed.contains(&stream)
    }

    pub fn metric(&mut self, name: &str) -> u64 {
        let metrics = self.engine.metrics();
        let names: Vec<String> = metrics.counters().map(Into::into).collect();
        let counts = &mut self.metrics;
        metrics.collect(|index, count| {
            *counts.entry(names[index].clone()).or_default() += count;
        });
        let name = format!("weir_fitment_{name}");
        assert!(names.contains(&name), "{name} of {names:?}");
        self.metrics.get(&name).copied().unwrap_or(0)
    }

    // --- effects

    pub fn handle(&mut self, event: Event<'_>) {
        self.engine.handle(event, &mut self.effects);
        let mut list = vec![];
        self.effects.take_into(&mut list);
        let is_answer =
            |effect: &&Effect| matches!(effect, Effect::Respond { .. } | Effect::Continue { .. });
        assert!(list.iter().filter(is_answer).count() <= BATCH_MAX);
        let feedback: Vec<_> = list
            .into_iter()
            .filter_map(|effect| self.apply(effect))
            .collect();
        self.effects.clear_bytes();
        for event in feedback {
            self.handle(event);
        }
    }

    /// Applies an effect. Returns the event that follows from it, if any.
    fn apply(&mut self, effect: Effect) -> Option<Event<'static>> {
        match effect {
            Effect::Respond { stream, .. } | Effect::Continue { stream, .. }
                if self.closed.contains(&stream) =>
            {
                let now_ms = self.now_ms;
                return Some(Event::Undelivered { stream, now_ms });
            }
            Effect::Respond { stream, answer } => {
                assert!(self.open.remove(&stream), "an answer to {stream}");
                assert!(self.answers.insert(stream, answer).is_none());
            }
            Effect::Continue { stream, is_over } => {
                assert!(is_over && self.open.remove(&stream), "{stream} goes on");
                assert!(self.passed.insert(stream));
            }
            Effect::ReadBody { stream, bytes_max } => {
                assert!(self.reading.insert(stream, bytes_max).is_none());
            }
            Effect::Call { batch, at_once, .. } if at_once || !self.is_connected => {
                return Some(match at_once {
                    true => Event::Deferred { batch },
                    false => Event::NotSent { batch },
                });
            }
            Effect::Call {
                batch, redis, body, ..
            } => {
                let call = Call {
                    cluster: self.clusters[usize::from(redis.0)].clone(),
                    body: self.effects.bytes(&body).to_vec(),
                };
                self.calls.insert(batch, call);
            }
            Effect::Wake => self.is_woken = true,
            Effect::Log(_, text) => self.log.push(text),
            other => panic!("{other:?}"),
        }
        None
    }
}
