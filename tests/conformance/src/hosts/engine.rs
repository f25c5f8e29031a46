//! The engines without a gateway: events in, effects out, and Redis over one connection. Vectors expect the results of
//! this host.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the tests, and must stop them"
)]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result, anyhow, ensure};
use tokio::runtime::Runtime;
use weir_base::shared_data::{LocalData, SharedData};
use weir_engine::event::{FetchResponse, PlainEnd, PlainRequest};
use weir_engine::setup;
use weir_engine::{Answer, BatchId, Effect, Effects, Event, Fetch, FetchId, StreamId};
use weir_registry::Filter;
use weir_registry::engines::{AnyConfigured, AnyEngine, make};
use weir_scripts::gateway_report;

use crate::host::{self, Host, Replay};
use crate::store::{Store, changes};
use crate::text::{escape, unescape};
use crate::vector::{Changes, Headers, OriginAnswer, Outcome, RedisKeys, Vector};

/// The name of this host.
pub const NAME: &str = "engine";

/// The cluster name that reaches Redis; every other name is unreachable.
pub const REDIS_CLUSTER: &str = "weir_redis";

/// How long before the first step the engine starts, in milliseconds.
pub const STARTS_BEFORE_MS: u64 = 100;

/// The maximum time that an engine may hold a request that needs only time: until it gives up its first poll.
pub const HOLDS_MS: u64 = 1_000;

/// A poll may announce more documents, which the next one reads; there is no third.
const TICKS_MAX: usize = 4;

/// Hosts use different unique names and seeds. Nothing that vectors observe may depend on them.
const UNIQUE_NAME: &str = "conformance";
const SEED: u64 = 7;

/// The engines and a Redis.
pub struct EngineHost {
    store: Store,
}

impl EngineHost {
    /// Starts the Redis.
    ///
    /// # Errors
    /// Redis does not start.
    pub fn start(runtime: &Runtime) -> Result<Self> {
        let store = Store::start(runtime)?;
        Ok(Self { store })
    }

    /// Replays one vector.
    ///
    /// # Errors
    /// It cannot be replayed.
    pub fn replay_one(&mut self, vector: &Vector) -> Result<Replay> {
        let first_ms = vector.steps.first().context("no steps")?.at_ms;
        self.store.clear()?;
        self.store.set_time(first_ms)?;
        self.store.load(&vector.stored)?;
        let filter = filter(&vector.engine)?;
        let json = vector.config.to_string();
        let host = VectorHost {
            vector,
            data: Arc::default(),
        };
        let created = make(filter, json.as_bytes(), &host, sees_responses(vector));
        let created = created.map_err(|error| anyhow!("the configuration is refused: {error}"))?;
        self.run(created, vector)
    }

    fn run(&mut self, configured: AnyConfigured, vector: &Vector) -> Result<Replay> {
        let prefix = vector.key_prefix();
        let mut before = dump(&mut self.store, prefix)?;
        let mut runner = Runner {
            engine: configured.engine,
            effects: Effects::new(),
            store: &mut self.store,
            clusters: configured.redis_clusters,
            vector,
            now_ms: 0,
            calls: VecDeque::new(),
            calls_made: 0,
            fetches: VecDeque::new(),
            needs_turn: false,
            stream: Stream::default(),
        };
        let mut outcomes = Vec::new();
        for (index, step) in vector.steps.iter().enumerate() {
            runner.store.set_time(step.at_ms)?;
            runner.store.change(&step.stored)?;
            apply(&step.stored, &mut before);
            if index == 0 {
                runner.start(step.at_ms)?;
            } else if runner.now_ms != step.at_ms {
                runner.now_ms = step.at_ms;
                let polls = runner.pass_time()?;
                let response = step.polls;
                ensure!(
                    polls == response,
                    "step {index} has {polls} polls and not {response}"
                );
            }
            let id = StreamId::try_from(index)? + 1;
            let outcome = runner.step(id)?.to_method(&step.request.method);
            outcomes.push(outcome.sorted());
        }
        let after = dump(&mut self.store, prefix)?;
        Ok(Replay {
            outcomes,
            effect: changes(&before, &after),
        })
    }
}

/// Whether a call is the report of what the engine runs, which depends on the host.
fn is_report(body: &[u8]) -> bool {
    let script = gateway_report::SCRIPT.source.as_bytes();
    body.windows(script.len()).any(|part| part == script)
}

/// The keys of a vector in Redis.
///
/// # Errors
/// Redis does not answer.
pub fn dump(store: &mut Store, prefix: Option<&str>) -> Result<RedisKeys> {
    prefix.map_or_else(|| Ok(RedisKeys::new()), |prefix| store.dump(prefix))
}

/// Applies another party's changes to the expected contents of Redis.
pub fn apply(changes: &Changes, stored: &mut RedisKeys) {
    for (key, entry) in changes {
        match entry {
            Some(entry) => stored.insert(key.clone(), entry.clone()),
            None => stored.remove(key),
        };
    }
}

/// The filter of a vector's module.
fn filter(module: &str) -> Result<&'static Filter> {
    Filter::of_module(module).with_context(|| format!("there is no engine {module}"))
}

/// Whether the filter needs Envoy to pass it the bodies of requests that it holds.
pub fn reads_bodies(engine: &str) -> bool {
    Filter::of_module(engine).is_some_and(|filter| filter.reads_bodies)
}

/// Whether the filter receives responses.
pub fn sees_responses(vector: &Vector) -> bool {
    let engine = &vector.engine;
    Filter::of_module(engine).is_some_and(|filter| filter.sees_responses(engine))
}

/// The environment for creating a vector's engine.
struct VectorHost<'a> {
    vector: &'a Vector,
    data: Arc<Data>,
}

/// Shared data of one engine, implemented as a multi-threaded host would.
#[derive(Default)]
struct Data(Mutex<LocalData>);

impl SharedData for Data {
    fn get(&self, key: &str) -> Option<(Vec<u8>, u32)> {
        self.0.lock().ok()?.get(key)
    }

    fn set(&self, key: &str, value: &[u8], version: u32) -> bool {
        let data = self.0.lock();
        data.is_ok_and(|data| data.set(key, value, version))
    }
}

impl setup::Host for VectorHost<'_> {
    type Data = Arc<Data>;

    fn data(&self) -> Self::Data {
        Arc::clone(&self.data)
    }

    fn variable(&self, name: &str) -> Option<Vec<u8>> {
        let secret = self.vector.secrets.get(name);
        secret.map(|secret| secret.clone().into_bytes())
    }

    fn unique_name(&self) -> String {
        UNIQUE_NAME.into()
    }

    fn unguessable(&self) -> u64 {
        SEED
    }

    fn tells_routes(&self) -> bool {
        true
    }
}

impl Host for EngineHost {
    fn name(&self) -> &'static str {
        NAME
    }

    fn cannot(&self, _vector: &Vector) -> Option<&'static str> {
        None
    }

    fn replay(&mut self, vectors: &[Vector]) -> Result<Vec<Result<Replay>>> {
        Ok(vectors
            .iter()
            .map(|vector| self.replay_one(vector))
            .collect())
    }
}

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// The state of the current request.
#[derive(Default)]
struct Stream {
    headers: Pairs,
    reads: Option<usize>,
    answer: Option<Arc<Answer>>,
    /// After the request continued: whether the engine has finished with it.
    went_on: Option<bool>,
    response: Headers,
}

struct Runner<'a> {
    engine: Box<dyn AnyEngine>,
    effects: Effects,
    store: &'a mut Store,
    clusters: Vec<String>,
    vector: &'a Vector,
    now_ms: u64,
    calls: VecDeque<(BatchId, Vec<u8>)>,
    calls_made: usize,
    fetches: VecDeque<(FetchId, Fetch)>,
    needs_turn: bool,
    stream: Stream,
}

impl Runner<'_> {
    /// Reads the documents before the first step. The second poll follows soon after the first, independent of the
    /// interval.
    fn start(&mut self, at_ms: u64) -> Result<()> {
        for now_ms in [at_ms - STARTS_BEFORE_MS, at_ms] {
            self.now_ms = now_ms;
            self.pass_time()?;
        }
        Ok(())
    }

    /// Ticks until the engine reads nothing more; returns the number of reads.
    fn pass_time(&mut self) -> Result<usize> {
        let at_first = self.calls_made;
        for _ in 0..TICKS_MAX {
            let before = self.calls_made;
            self.tick();
            self.settle()?;
            if self.calls_made == before {
                break;
            }
        }
        Ok(self.calls_made - at_first)
    }

    fn step(&mut self, id: StreamId) -> Result<Outcome> {
        let vector = self.vector;
        let step = &vector.steps[usize::try_from(id)? - 1];
        let headers = request_headers(&step.request)?;
        self.stream = Stream {
            headers: headers.clone(),
            ..Stream::default()
        };
        let request = PlainRequest {
            headers: weir_engine::Headers::new(&headers),
            peer_address: step.request.from.clone().into_bytes(),
            now_ms: self.now_ms,
        };
        self.handle(Event::Request {
            stream: id,
            request: &request,
        });
        if let Some(bytes_max) = self.stream.reads.take() {
            let body = unescape(&step.request.body)?;
            self.handle(Event::Body {
                stream: id,
                body: (body.len() <= bytes_max).then_some(&body),
                now_ms: self.now_ms,
            });
        }
        self.settle()?;
        if self.stream.answer.is_none() && self.stream.went_on.is_none() {
            self.now_ms += HOLDS_MS;
            self.pass_time()?;
        }
        if let Some(answer) = &self.stream.answer {
            return Ok(answered(answer));
        }
        let Some(is_over) = self.stream.went_on else {
            return Ok(Outcome::Unknown);
        };
        // The request headers when it continues: later changes have no effect.
        let observed = text(&self.stream.headers);
        let origin = vector.origin_answer(&step.request.path);
        self.respond(id, is_over, &origin)?;
        let mut actual = origin.headers.clone();
        actual.append(&mut self.stream.response);
        Ok(host::went_on(&text(&headers), observed, &origin, actual))
    }

    /// The origin answers, and the stream ends.
    fn respond(&mut self, stream: StreamId, is_over: bool, origin: &OriginAnswer) -> Result<()> {
        if sees_responses(self.vector) {
            self.handle(Event::Response { stream });
        }
        if !is_over {
            let end = PlainEnd {
                response_status: Some(origin.status),
                now_ms: self.now_ms,
            };
            self.handle(Event::Closed { stream, end: &end });
        }
        self.settle()
    }

    fn tick(&mut self) {
        self.needs_turn = false;
        let now_ms = self.now_ms;
        self.handle(Event::Tick { now_ms });
    }

    /// Runs turns and replies until nothing more happens.
    fn settle(&mut self) -> Result<()> {
        loop {
            let now_ms = self.now_ms;
            if self.needs_turn {
                self.tick();
            } else if let Some((batch, body)) = self.calls.pop_front() {
                let reply = Ok(self.store.run(&body)?);
                self.handle(Event::RedisReply {
                    batch,
                    reply,
                    now_ms,
                });
            } else if let Some((id, fetch)) = self.fetches.pop_front() {
                let response = Some(self.fetched(&fetch)?);
                self.handle(Event::FetchDone {
                    fetch: id,
                    response,
                    now_ms,
                });
            } else {
                return Ok(());
            }
        }
    }

    fn fetched(&self, fetch: &Fetch) -> Result<FetchResponse> {
        let path = fetch.headers.iter().find(|(name, _)| *name == ":path");
        let (_, path) = path.context("a request without a path")?;
        let answer = self.vector.origin_answer(path);
        Ok(FetchResponse {
            status: answer.status,
            headers: answer.headers,
            body: unescape(&answer.body)?,
        })
    }

    fn handle(&mut self, event: Event<'_>) {
        self.engine.handle(event, &mut self.effects);
        let mut feedback = self.apply_all();
        while let Some(event) = feedback.pop_front() {
            self.engine.handle(event, &mut self.effects);
            feedback.extend(self.apply_all());
        }
    }

    fn apply_all(&mut self) -> VecDeque<Event<'static>> {
        let mut list = Vec::new();
        self.effects.take_into(&mut list);
        let feedback = list
            .into_iter()
            .filter_map(|effect| self.apply(effect))
            .collect();
        self.effects.clear_bytes();
        feedback
    }

    /// Applies an effect. Returns the resulting event, if any.
    fn apply(&mut self, effect: Effect) -> Option<Event<'static>> {
        match effect {
            Effect::Call {
                batch,
                redis,
                body,
                at_once,
                ..
            } => {
                let cluster = self.clusters.get(usize::from(redis.0));
                if cluster.is_none_or(|cluster| cluster != REDIS_CLUSTER) {
                    return Some(match at_once {
                        true => Event::Deferred { batch },
                        false => Event::NotSent { batch },
                    });
                }
                let body = self.effects.bytes(&body).to_vec();
                self.calls_made += usize::from(!is_report(&body));
                self.calls.push_back((batch, body));
            }
            Effect::Fetch { id, fetch } => self.fetches.push_back((id, fetch)),
            Effect::Wake => self.needs_turn = true,
            Effect::Log(..) => {}
            effect => self.apply_to_stream(effect),
        }
        None
    }

    /// Only one request is in flight, so the effect is for it.
    fn apply_to_stream(&mut self, effect: Effect) {
        let stream = &mut self.stream;
        match effect {
            Effect::Respond { answer, .. } => stream.answer = Some(answer),
            Effect::Continue { is_over, .. } => stream.went_on = Some(is_over),
            Effect::ReadBody { bytes_max, .. } => stream.reads = Some(bytes_max),
            Effect::RemoveRequestHeader { name, .. } => {
                stream
                    .headers
                    .retain(|(existing, _)| existing != name.as_bytes());
            }
            Effect::AddRequestHeader { name, value, .. } => {
                stream.headers.push((name.into(), value.into_bytes()));
            }
            Effect::SetPath { path, .. } => {
                let of = stream.headers.iter_mut().find(|(name, _)| name == b":path");
                of.into_iter()
                    .for_each(|(_, value)| *value = path.clone().into_bytes());
            }
            Effect::SetResponseHeader { name, value, .. } => {
                stream.response.retain(|(existing, _)| existing != name);
                stream.response.push((name.into(), value));
            }
            Effect::AddResponseHeader { name, value, .. } => {
                stream.response.push((name.into(), value));
            }
            _ => {}
        }
    }
}

/// The request headers, with pseudo-headers, as a host passes them.
///
/// # Errors
/// A value is not valid vector text.
pub fn request_headers(request: &crate::vector::Request) -> Result<Pairs> {
    let mut headers = vec![
        (b":method".to_vec(), request.method.clone().into_bytes()),
        (b":path".to_vec(), unescape(&request.path)?),
        (b":authority".to_vec(), unescape(&request.host)?),
    ];
    for (name, value) in &request.headers {
        headers.push((name.to_ascii_lowercase().into_bytes(), unescape(value)?));
    }
    if !request.body.is_empty() {
        let length = unescape(&request.body)?.len();
        headers.push((b"content-length".to_vec(), length.to_string().into_bytes()));
    }
    Ok(headers)
}

/// Converts headers to a vector's form.
pub fn text(headers: &Pairs) -> Headers {
    let text = |(name, value): &(Vec<u8>, Vec<u8>)| (escape(name), escape(value));
    headers.iter().map(text).collect()
}

/// Converts an answer to the form that clients receive.
fn answered(answer: &Answer) -> Outcome {
    let pair = |(name, value): (&[u8], &[u8])| (escape(name), escape(value));
    let headers = answer.headers.iter().map(pair).collect();
    match answer.grpc_status {
        Some(status) => host::answered_in_grpc(status.into(), headers, &answer.body),
        None => host::answered(answer.status, headers, &answer.body),
    }
}
