//! A host of the engine: it applies effects like `weir-proxy-kit`, and checks that they are valid.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use weir_base::shared_data::LocalData;
use weir_engine::config::parse;
use weir_engine::event::{FetchResponse, PlainEnd, PlainRequest};
use weir_engine::{
    Answer, BatchId, Effect, Effects, Engine, Event, Fetch, FetchId, Headers, Level, StreamId,
};
use weir_event::batch::Batch;
use weir_event::engine::Events;
use weir_event::engine::config::Config;
use weir_event::event::Event as SentEvent;
use weir_event::stamps::{StampError, Stamps};

pub const NOW_MS: u64 = 1_700_000_000_000;
pub const SECRET: &str = "0123456789abcdef";
pub const WEB_KEY: &str = "wk_shop_web";
pub const PAGE: &str = "https://shop.example";

/// Two keys, and these fields.
pub fn config(fields: &str) -> String {
    format!(
        r#"{{"keys":[{{"name":"shop-web","kind":"browser","key":"{WEB_KEY}","origins":["{PAGE}"]}},
        {{"name":"erp","kind":"server","secret":{{"env":"ERP"}}}}],{fields}}}"#
    )
}

pub struct Host {
    pub engine: Events<Rc<LocalData>>,
    pub now_ms: u64,
    streams: BTreeMap<StreamId, Stream>,
    /// Calls to Redis in flight.
    pub calls: VecDeque<BatchId>,
    /// The engine's own requests in flight.
    pub fetches: VecDeque<(FetchId, Fetch)>,
    pub log: Vec<(Level, String)>,
    effects: Effects,
    is_woken: bool,
    next_stream: StreamId,
    counts: BTreeMap<String, u64>,
}

/// A request and its result.
#[derive(Clone, Debug)]
pub struct Stream {
    headers: Vec<(String, String)>,
    pub state: State,
    pub response: BTreeMap<&'static str, String>,
}

#[derive(Clone, Debug)]
pub enum State {
    Waiting,
    GoesOn { is_over: bool },
    Answered(Arc<Answer>),
    Closed,
}

impl Stream {
    /// All current values of a request header.
    pub fn sent(&self, name: &str) -> Vec<&str> {
        let headers = self.headers.iter().filter(|(existing, _)| existing == name);
        headers.map(|(_, value)| value.as_str()).collect()
    }

    /// The metadata as the origin parses it.
    pub fn stamps(&self) -> Result<Stamps, StampError> {
        Stamps::read(|name| match &self.sent(name)[..] {
            [] => None,
            [one] => Some(one.as_bytes()),
            many => panic!("{name}: {many:?}"),
        })
    }

    pub fn goes_on(&self) -> bool {
        matches!(self.state, State::GoesOn { .. })
    }

    pub fn answer(&self) -> &Answer {
        match &self.state {
            State::Answered(answer) => answer,
            other => panic!("{other:?}"),
        }
    }

    /// Status and body of the answer.
    pub fn answered(&self) -> (u16, &str) {
        let answer = self.answer();
        (answer.status, std::str::from_utf8(&answer.body).unwrap())
    }

    /// A header of the answer.
    pub fn header(&self, name: &str) -> Option<String> {
        let value = self.answer().headers.get(name)?;
        Some(String::from_utf8(value.into_owned()).unwrap())
    }
}

impl Host {
    pub fn new(fields: &str) -> Self {
        Self::with(&config(fields))
    }

    pub fn with(json: &str) -> Self {
        let config = parse::<Config>(json.as_bytes()).unwrap();
        let config = config.checked(&|_| Some(SECRET.into())).unwrap();
        Self {
            engine: Events::new(config, Rc::default(), "1.7", 7),
            now_ms: NOW_MS,
            streams: BTreeMap::new(),
            calls: VecDeque::new(),
            fetches: VecDeque::new(),
            log: Vec::new(),
            effects: Effects::new(),
            is_woken: false,
            next_stream: 1,
            counts: BTreeMap::new(),
        }
    }

    // --- events

    /// Sends a request with these headers; empty ones are omitted.
    pub fn request(&mut self, headers: &[(&str, &str)]) -> StreamId {
        let stream = self.next_stream;
        self.next_stream += 1;
        let there = headers.iter().filter(|(_, value)| !value.is_empty());
        let headers: Vec<(String, String)> = there
            .map(|(name, value)| ((*name).into(), (*value).into()))
            .collect();
        let request = PlainRequest {
            headers: Headers::new(&headers),
            peer_address: b"203.0.113.7:4711".into(),
            now_ms: self.now_ms,
        };
        let state = Stream {
            headers,
            state: State::Waiting,
            response: BTreeMap::new(),
        };
        self.streams.insert(stream, state);
        self.handle(Event::Request {
            stream,
            request: &request,
        });
        stream
    }

    /// Sends a valid request with events, with these headers added or replaced.
    pub fn post(&mut self, other: &[(&str, &str)]) -> &Stream {
        let usual = [
            (":method", "POST"),
            (":path", "/events"),
            ("content-type", "application/json"),
            ("content-length", "42"),
            ("x-weir-write-key", WEB_KEY),
        ];
        let is_other = |name: &str| other.iter().any(|(existing, _)| *existing == name);
        let usual = usual.into_iter().filter(|(name, _)| !is_other(name));
        let headers: Vec<_> = usual.chain(other.iter().copied()).collect();
        let stream = self.request(&headers);
        &self.streams[&stream]
    }

    /// Sends a request for a product page.
    pub fn view(&mut self, sku: &str, other: &[(&str, &str)]) -> StreamId {
        let path = format!("/products/{sku}");
        let usual = [(":method", "GET"), (":path", &*path)];
        self.request(&[&usual, other].concat())
    }

    /// Sends a request for a product page, and its response.
    pub fn viewed(&mut self, sku: &str, other: &[(&str, &str)]) {
        let stream = self.view(sku, other);
        self.end(stream, Some(200));
    }

    pub fn respond(&mut self, stream: StreamId) -> &Stream {
        assert!(self.streams[&stream].goes_on());
        self.handle(Event::Response { stream });
        &self.streams[&stream]
    }

    /// Ends the stream. Hosts do not report the end of streams that the engine has released.
    pub fn end(&mut self, stream: StreamId, response_status: Option<u16>) {
        let state = &mut self.streams.get_mut(&stream).unwrap().state;
        let is_told = matches!(state, State::Waiting | State::GoesOn { is_over: false });
        *state = State::Closed;
        if is_told {
            let end = PlainEnd {
                response_status,
                now_ms: self.now_ms,
            };
            self.handle(Event::Closed { stream, end: &end });
        }
    }

    pub fn advance(&mut self, ms: u64) {
        self.now_ms += ms;
        self.tick();
    }

    pub fn tick(&mut self) {
        self.is_woken = false;
        let now_ms = self.now_ms;
        self.handle(Event::Tick { now_ms });
    }

    /// The origin answers the oldest request; `None`: no response.
    pub fn answer_fetch(&mut self, response: Option<FetchResponse>) {
        let (fetch, _) = self.fetches.pop_front().expect("a request");
        let now_ms = self.now_ms;
        self.handle(Event::FetchDone {
            fetch,
            response,
            now_ms,
        });
    }

    /// The only request in flight, and its events.
    pub fn batch(&self) -> (&Fetch, Vec<SentEvent>) {
        assert_eq!(self.fetches.len(), 1, "one at a time");
        let fetch = &self.fetches[0].1;
        let batch = Batch::read(&fetch.body).unwrap();
        let events = batch.events.iter().map(|sent| sent.read().unwrap());
        (fetch, events.collect())
    }

    // --- results

    pub fn stream(&self, stream: StreamId) -> &Stream {
        &self.streams[&stream]
    }

    pub fn count(&mut self, name: &str) -> u64 {
        let metrics = self.engine.metrics();
        let names: Vec<String> = metrics.counters().map(Into::into).collect();
        let counts = &mut self.counts;
        metrics.collect(|index, count| {
            *counts.entry(names[index].clone()).or_default() += count;
        });
        assert!(names.iter().any(|existing| existing == name), "{name}");
        self.counts.get(name).copied().unwrap_or(0)
    }

    pub fn has_logged(&self, text: &str) -> bool {
        self.log.iter().any(|(_, line)| line.contains(text))
    }

    // --- effects

    pub fn handle(&mut self, event: Event<'_>) {
        self.engine.handle(event, &mut self.effects);
        let mut feedback = self.apply_all();
        while let Some(event) = feedback.pop_front() {
            self.engine.handle(event, &mut self.effects);
            feedback.extend(self.apply_all());
        }
    }

    fn apply_all(&mut self) -> VecDeque<Event<'static>> {
        let mut list = Vec::new();
        let mut feedback = VecDeque::new();
        self.effects.take_into(&mut list);
        for effect in list {
            match effect {
                Effect::Call {
                    batch,
                    at_once: true,
                    ..
                } => feedback.push_back(Event::Deferred { batch }),
                Effect::Call { batch, .. } => self.calls.push_back(batch),
                Effect::Fetch { id, fetch } => self.fetches.push_back((id, fetch)),
                Effect::Wake => self.is_woken = true,
                Effect::Log(level, text) => self.log.push((level, text)),
                effect => self.apply(effect),
            }
        }
        self.effects.clear_bytes();
        feedback
    }

    /// Applies an effect to a stream, which must be in a matching state.
    fn apply(&mut self, effect: Effect) {
        let (Effect::Respond { stream, .. }
        | Effect::RemoveRequestHeader { stream, .. }
        | Effect::AddRequestHeader { stream, .. }
        | Effect::SetPath { stream, .. }
        | Effect::Continue { stream, .. }
        | Effect::SetResponseHeader { stream, .. }) = effect
        else {
            panic!("{effect:?}")
        };
        let stream = self.streams.get_mut(&stream).unwrap();
        match (&stream.state, effect) {
            (State::Waiting, Effect::Respond { answer, .. }) => {
                stream.state = State::Answered(answer)
            }
            (State::Waiting, Effect::Continue { is_over, .. }) => {
                stream.state = State::GoesOn { is_over }
            }
            (State::Waiting, Effect::RemoveRequestHeader { name, .. }) => {
                stream.headers.retain(|(existing, _)| *existing != name);
            }
            (State::Waiting, Effect::AddRequestHeader { name, value, .. }) => {
                stream.headers.push((name.into(), value));
            }
            (State::Waiting, Effect::SetPath { path, .. }) => {
                stream.headers.retain(|(existing, _)| existing != ":path");
                stream.headers.push((":path".into(), path));
            }
            (State::GoesOn { .. }, Effect::SetResponseHeader { name, value, .. }) => {
                stream.response.insert(name, value);
            }
            (state, effect) => panic!("{effect:?} to a stream that is {state:?}"),
        }
    }
}

/// The origin's response to a batch with these numbers of verdicts.
pub fn verdicts_response(accepted: usize, rejected: usize) -> Option<FetchResponse> {
    let mut verdicts = String::new();
    for _ in 0..rejected {
        let comma = if verdicts.is_empty() { "" } else { "," };
        verdicts += &format!(
            r#"{comma}{{"verdict":"rejected","reason":"unknown_type","message":"view is unknown"}}"#
        );
    }
    let body = format!(
        r#"{{"accepted":{accepted},"duplicates":0,"rejected":{rejected},"verdicts":[{verdicts}]}}"#
    );
    status(202, &body)
}

pub fn status(status: u16, body: &str) -> Option<FetchResponse> {
    Some(FetchResponse {
        status,
        headers: vec![],
        body: body.into(),
    })
}
