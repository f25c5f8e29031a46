//! A host of the engine: it applies effects like Envoy, and checks each of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use weir_base::headers::{LINK, LINK_UNKNOWN};
use weir_engine::config::parse;
use weir_engine::event::{FetchResponse, PlainEnd, PlainRequest};
use weir_engine::pump::BATCH_MAX;
use weir_engine::redis::{Failure, Reply, UnknownFailure};
use weir_engine::{
    Answer, BatchId, Effect, Effects, Engine, Event, Fetch, FetchId, Headers, StreamId,
};
use weir_link::click::decode;
use weir_link::engine::Links;
use weir_link::engine::config::Config;
use weir_link::record::Link;
use weir_link::redis::document;
use weir_link::redis::keys::LinkKeys;
use weir_link::redis::link_read::Read;
use weir_link::routes::{LINK_RECORD, link_purpose};

use crate::redis::{PREFIX, Redis};

pub const DOMAINS: &str = r#"{"version":1,"domains":[
    {"id":"s","hosts":["s.example.com"],"not_found_page":"<p>nothing of s"}]}"#;

/// The client's address, as the host gives it.
pub const ADDRESS: &str = "192.0.2.1:1";

/// A call to Redis under way.
pub struct Call {
    body: Vec<u8>,
    /// The replies, once it has run.
    replies: Option<Vec<u8>>,
}

/// A lookup in flight.
pub struct Lookup {
    pub fetch: Fetch,
    /// The response, once the origin has created it.
    response: Option<FetchResponse>,
}

pub struct Host {
    pub engine: Links,
    effects: Effects,
    pub now_ms: u64,
    pub redis: Redis,
    /// Links at the origin, in addition to those in Redis.
    pub cold: BTreeMap<String, Link>,
    /// Links that expired without clicks, which only the origin has.
    pub ended: BTreeMap<String, Link>,
    pub calls: BTreeMap<BatchId, Call>,
    pub lookups: BTreeMap<FetchId, Lookup>,
    /// Whether calls to Redis can be sent at all.
    pub is_connected: bool,
    /// Whether they can be sent without a turn.
    pub is_ready: bool,
    /// Whether lookups can be sent.
    pub has_origin: bool,
    is_woken: bool,
    /// Streams whose clients have left, without a notification to the engine.
    pub closed: BTreeSet<StreamId>,
    open: BTreeSet<StreamId>,
    answers: BTreeMap<StreamId, Arc<Answer>>,
    /// Streams whose method is `GET`.
    gets: BTreeSet<StreamId>,
    passed: BTreeSet<StreamId>,
    next_stream: StreamId,
    metrics: BTreeMap<String, u64>,
    pub log: Vec<String>,
    /// Timed-out calls that Redis still runs.
    late: Vec<Vec<u8>>,
}

impl Host {
    /// A host whose engine has its domains.
    pub fn new() -> Self {
        Self::with(r#"{"redis":{}}"#)
    }

    pub fn with(config: &str) -> Self {
        let mut host = Self::unaware(config);
        host.redis.domains = DOMAINS.to_owned();
        host.advance(50);
        assert_eq!(host.metric("domains_loaded_total"), 1);
        host
    }

    /// A host whose engine has no domains yet.
    pub fn unaware(config: &str) -> Self {
        let config = parse::<Config>(config.as_bytes()).and_then(Config::checked);
        Self {
            engine: Links::new(config.unwrap(), "test", 7),
            effects: Effects::new(),
            now_ms: 1_700_000_000_000,
            redis: Redis::default(),
            cold: BTreeMap::new(),
            ended: BTreeMap::new(),
            calls: BTreeMap::new(),
            lookups: BTreeMap::new(),
            is_connected: true,
            is_ready: true,
            has_origin: true,
            is_woken: false,
            closed: BTreeSet::new(),
            open: BTreeSet::new(),
            answers: BTreeMap::new(),
            gets: BTreeSet::new(),
            passed: BTreeSet::new(),
            next_stream: 0,
            metrics: BTreeMap::new(),
            log: vec![],
            late: vec![],
        }
    }

    // --- events

    pub fn click(&mut self, path: &str) -> StreamId {
        self.request("GET", path, &[])
    }

    pub fn request(&mut self, method: &str, path: &str, more: &[(&str, &str)]) -> StreamId {
        let head = [
            (":method", method),
            (":path", path),
            (":authority", "s.example.com"),
        ];
        self.send(method, &[&head, more].concat())
    }

    pub fn request_to(&mut self, host: &str, path: &str) -> StreamId {
        let headers = [(":method", "GET"), (":path", path), (":authority", host)];
        self.send("GET", &headers)
    }

    fn send(&mut self, method: &str, headers: &[(&str, &str)]) -> StreamId {
        let request = PlainRequest {
            headers: Headers::new(headers),
            peer_address: ADDRESS.into(),
            now_ms: self.now_ms,
        };
        let stream = self.next_stream;
        self.next_stream += 1;
        self.open.insert(stream);
        if method == "GET" {
            self.gets.insert(stream);
        }
        self.handle(Event::Request {
            stream,
            request: &request,
        });
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

    /// Notifies the engine that an answer did not arrive.
    pub fn undeliver(&mut self, stream: StreamId) {
        let now_ms = self.now_ms;
        self.handle(Event::Undelivered { stream, now_ms });
    }

    pub fn tick(&mut self) {
        self.is_woken = false;
        let now_ms = self.now_ms;
        self.handle(Event::Tick { now_ms });
    }

    /// Redis runs a call; its reply is still in flight.
    pub fn run_call(&mut self, batch: BatchId) {
        let call = self.calls.get_mut(&batch).unwrap();
        if call.replies.is_none() {
            call.replies = Some(self.redis.run(&call.body));
        }
    }

    /// The reply to a call arrives.
    pub fn reply(&mut self, batch: BatchId) {
        self.run_call(batch);
        let replies = self.calls.remove(&batch).unwrap().replies;
        self.end_call(batch, Ok(replies.unwrap()));
    }

    /// A call times out before Redis has run it: see [`Host::run_late`].
    pub fn lose_unrun(&mut self, batch: BatchId) {
        let call = &self.calls[&batch];
        if call.replies.is_none() {
            self.late.push(call.body.clone());
        }
        self.lose(batch);
    }

    /// Redis runs the timed-out calls.
    pub fn run_late(&mut self) {
        for body in std::mem::take(&mut self.late) {
            self.redis.run(&body);
        }
    }

    /// The reply to a call is lost, whether it has run or not.
    pub fn lose(&mut self, batch: BatchId) {
        self.calls.remove(&batch).unwrap();
        self.end_call(batch, Err(Failure::Unknown(UnknownFailure::Timeout)));
    }

    /// A call gets this reply without running.
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

    /// The origin answers a lookup; its response is still in flight.
    pub fn run_lookup(&mut self, fetch: FetchId) {
        let lookup = self.lookups.get_mut(&fetch).unwrap();
        if lookup.response.is_none() {
            let path = header(&lookup.fetch, ":path").unwrap();
            let (id, query) = path.split_once('?').unwrap();
            let id = id.strip_prefix(LINK_RECORD).unwrap();
            let purpose = link_purpose(query).unwrap();
            if let Some(link) = self.cold.get(id) {
                let records = &mut self.redis.records;
                records.entry(id.to_owned()).or_insert(link.clone());
            }
            let keys = LinkKeys::new(PREFIX, &id.parse().unwrap());
            let mark = purpose.click().map(|click| keys.mark(click));
            let found = self.redis.read(id, mark);
            lookup.response = Some(match (found, self.ended.get(id)) {
                (None, Some(link)) => response_with(link, Some(0), None),
                (found, _) => response_of(found),
            });
        }
    }

    /// The response to a lookup arrives.
    pub fn respond(&mut self, fetch: FetchId) {
        self.run_lookup(fetch);
        let response = self.lookups.remove(&fetch).unwrap().response;
        self.end_lookup(fetch, response);
    }

    /// A lookup ends without a response.
    pub fn fail(&mut self, fetch: FetchId) {
        self.lookups.remove(&fetch).unwrap();
        self.end_lookup(fetch, None);
    }

    fn end_lookup(&mut self, fetch: FetchId, response: Option<FetchResponse>) {
        let now_ms = self.now_ms;
        self.handle(Event::FetchDone {
            fetch,
            response,
            now_ms,
        });
    }

    /// Delivers the first requested turn, all replies and all responses, until nothing more happens.
    pub fn run(&mut self) {
        loop {
            if self.is_woken {
                self.tick();
            } else if let Some((&batch, _)) = self.calls.first_key_value() {
                self.reply(batch);
            } else if let Some((&fetch, _)) = self.lookups.first_key_value() {
                self.respond(fetch);
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

    // --- effects

    fn handle(&mut self, event: Event<'_>) {
        self.engine.handle(event, &mut self.effects);
        let mut list = vec![];
        self.effects.take_into(&mut list);
        let answers = list
            .iter()
            .filter(|effect| matches!(effect, Effect::Respond { .. }));
        assert!(
            answers.count() <= BATCH_MAX,
            "too many answers in one event"
        );
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
            Effect::Respond { stream, .. } if self.closed.contains(&stream) => {
                let now_ms = self.now_ms;
                return Some(Event::Undelivered { stream, now_ms });
            }
            Effect::Respond { stream, answer } => {
                assert!(
                    self.open.contains(&stream),
                    "an answer to {stream}, which has gone"
                );
                let first = self.answers.insert(stream, answer);
                assert!(first.is_none(), "a second answer to {stream}");
            }
            Effect::Continue { stream, .. } => assert!(self.passed.insert(stream)),
            Effect::Call {
                batch,
                at_once: true,
                ..
            } if !(self.is_ready && self.is_connected) => {
                return Some(Event::Deferred { batch });
            }
            Effect::Call { batch, .. } if !self.is_connected => {
                return Some(Event::NotSent { batch });
            }
            Effect::Call { batch, body, .. } => {
                let body = self.effects.bytes(&body).to_vec();
                let replies = None;
                self.calls.insert(batch, Call { body, replies });
            }
            Effect::Fetch { id, .. } if !self.has_origin => {
                return Some(Event::FetchDone {
                    fetch: id,
                    response: None,
                    now_ms: self.now_ms,
                });
            }
            Effect::Fetch { id, fetch } => {
                let response = None;
                self.lookups.insert(id, Lookup { fetch, response });
            }
            Effect::Wake => self.is_woken = true,
            Effect::Log(_, text) => self.log.push(text),
            other => panic!("{other:?}"),
        }
        None
    }

    // --- results

    pub fn answer(&self, stream: StreamId) -> Option<&Answer> {
        self.answers.get(&stream).map(Arc::as_ref)
    }

    /// The response status of a stream; 0 if it waits.
    pub fn status(&self, stream: StreamId) -> u16 {
        self.answer(stream).map_or(0, |answer| answer.status)
    }

    pub fn has_passed(&self, stream: StreamId) -> bool {
        self.passed.contains(&stream)
    }

    /// The redirect target of a stream.
    pub fn location(&self, stream: StreamId) -> String {
        self.header(stream, "location")
            .unwrap_or_else(|| panic!("{:?}", self.answer(stream)))
    }

    pub fn header(&self, stream: StreamId, name: &str) -> Option<String> {
        let value = self.answer(stream)?.headers.get(name)?;
        Some(String::from_utf8(value.into_owned()).unwrap())
    }

    pub fn open(&self) -> impl Iterator<Item = StreamId> {
        self.open.iter().copied()
    }

    /// How many streams were answered.
    pub fn answered(&self) -> u64 {
        self.answers.len() as u64
    }

    /// How many clicks were redirected.
    pub fn gets_redirected(&self) -> u64 {
        let gets = self.gets.iter();
        gets.filter(|stream| self.status(**stream) == 302).count() as u64
    }

    /// A counter, by its name without the common prefix.
    pub fn metric(&mut self, name: &str) -> u64 {
        let metrics = self.engine.metrics();
        let names: Vec<String> = metrics.counters().map(str::to_owned).collect();
        let existing = &mut self.metrics;
        metrics.collect(|index, count| *existing.entry(names[index].clone()).or_default() += count);
        let name = format!("weir_shortlink_{name}");
        assert!(names.contains(&name), "there is no {name}");
        existing.get(&name).copied().unwrap_or_default()
    }

    /// Whether the call is a poll.
    pub fn is_poll(&self, batch: BatchId) -> bool {
        let body = &self.calls[&batch].body;
        body.windows(6).any(|word| word == b"STRLEN")
    }

    /// The number of clicks in the stream. A duplicate batch counts once.
    pub fn clicks(&self) -> u64 {
        let batches: BTreeMap<_, _> = self.redis.batches.iter().cloned().collect();
        let rows = batches
            .values()
            .flat_map(|payload| decode(payload).unwrap());
        rows.map(|row| u64::from(row.clicks)).sum()
    }
}

/// A link to `target`.
pub fn link(target: &str) -> Link {
    Link::to(target)
}

/// A header of a lookup.
pub fn header<'a>(fetch: &'a Fetch, name: &str) -> Option<&'a str> {
    let mut headers = fetch.headers.iter();
    headers
        .find(|(existing, _)| *existing == name)
        .map(|(_, value)| value.as_str())
}

/// The origin's response for a link with this many clicks left, or for an unknown link.
pub fn response_of(found: Option<(Link, Option<u64>)>) -> FetchResponse {
    let Some((link, clicks_left)) = found else {
        return FetchResponse {
            status: 404,
            headers: vec![(LINK.to_owned(), LINK_UNKNOWN.to_owned())],
            body: vec![],
        };
    };
    response_with(&link, None, clicks_left)
}

fn response_with(link: &Link, left_ms: Option<u64>, clicks_left: Option<u64>) -> FetchResponse {
    let read = Read {
        record: link.encode(),
        left_ms,
        clicks_left,
    };
    FetchResponse {
        status: 200,
        headers: vec![],
        body: document::write(&read),
    }
}
