//! An example of a filter on Weir's kit: requests need an API key that Redis knows.
//!
//! Redis holds `<prefix>:api-key:<key>` with the name of the key's owner. A request with a known key goes on and tells the
//! upstream who its owner is, in `x-api-owner`. Without one it gets 401; if Redis does not answer, 503.
//!
//! The engine is a value: it takes events and returns effects, so it runs in any host and its tests need none. What
//! arrives in one round of the event loop goes to Redis in one call.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use weir_base::FieldError;
use weir_base::resp::{Value, encode_command};
use weir_engine::answer::Refusal;
use weir_engine::config::{RedisConfig, header_name, parse};
use weir_engine::metrics::Counter;
use weir_engine::redis::{Reply, read};
use weir_engine::{Answer, BatchId, Effects, Engine, Event, Metrics, Request, StreamId};
use weir_proxy_kit::{ConfiguredEngine, Filter};

/// Tells the upstream who has the key. A client's own copy is removed.
const OWNER: &str = "x-api-owner";

/// How long a request waits for Redis, in milliseconds, unless `redis.deadline_ms` is set.
const DEADLINE_MS: u64 = 100;

/// The longest key, so that memory is bounded for any request.
const KEY_LEN_MAX: usize = 256;

/// The configuration as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The request header with the key: `x-api-key` unless set.
    #[serde(default = "default_header")]
    pub header: String,
    /// How Redis is reached.
    pub redis: RedisConfig,
}

fn default_header() -> String {
    "x-api-key".into()
}

/// A request that waits for Redis.
#[derive(Debug)]
struct Waiting {
    stream: StreamId,
    key: Vec<u8>,
}

/// The engine.
#[derive(Debug)]
pub struct ApiKeys {
    header: String,
    config: RedisConfig,
    /// Not sent yet.
    waiting: Vec<Waiting>,
    /// Sent, in the order of the commands.
    sent: BTreeMap<BatchId, Vec<Waiting>>,
    metrics: Metrics,
    refused: Counter,
}

impl ApiKeys {
    /// An engine with a configuration.
    ///
    /// # Errors
    /// Names the field that is wrong.
    pub fn new(config: Config) -> Result<Self, FieldError> {
        config.redis.check("redis")?;
        let mut metrics = Metrics::new();
        Ok(Self {
            header: header_name("header", &config.header)?,
            config: config.redis,
            waiting: vec![],
            sent: BTreeMap::new(),
            refused: metrics.counter("weir_api_key_refused_total"),
            metrics,
        })
    }

    fn on_request(&mut self, stream: StreamId, request: &dyn Request, effects: &mut Effects) {
        let key = request.header(&self.header).unwrap_or_default();
        if key.is_empty() || key.len() > KEY_LEN_MAX {
            return self.refuse(stream, 401, "unknown_key", effects);
        }
        if self.waiting.len() >= self.config.waiting_max {
            return self.refuse(stream, 503, "overloaded", effects);
        }
        let key = key.into_owned();
        self.waiting.push(Waiting { stream, key });
        effects.wake();
    }

    /// Sends all that waits in one call.
    fn send(&mut self, now_ms: u64, effects: &mut Effects) {
        if self.waiting.is_empty() {
            return;
        }
        let waiting = std::mem::take(&mut self.waiting);
        let prefix = &self.config.key_prefix;
        let deadline_ms = self.config.deadline_ms.unwrap_or(DEADLINE_MS);
        let batch = effects.call(deadline_ms, now_ms, |out| {
            for one in &waiting {
                let key = [format!("{prefix}:api-key:").as_bytes(), &one.key].concat();
                encode_command(out, [b"GET".as_slice(), &key]);
            }
        });
        self.sent.insert(batch, waiting);
    }

    fn on_reply(&mut self, batch: BatchId, reply: Option<Reply>, effects: &mut Effects) {
        let Some(sent) = self.sent.remove(&batch) else {
            return;
        };
        let owners = reply.and_then(|reply| read(reply, sent.len()).ok());
        let mut owners = owners.into_iter().flatten();
        for Waiting { stream, .. } in sent {
            match owners.next() {
                Some(Value::Bulk(owner)) => {
                    let owner = String::from_utf8_lossy(&owner).into_owned();
                    effects.remove_header(stream, OWNER);
                    effects.add_header(stream, OWNER, owner);
                    effects.go_on(stream);
                }
                Some(Value::Null) => self.refuse(stream, 401, "unknown_key", effects),
                _ => self.refuse(stream, 503, "unavailable", effects),
            }
        }
    }

    fn refuse(&self, stream: StreamId, status: u16, error: &str, effects: &mut Effects) {
        self.refused.increment();
        let refusal = Refusal {
            status,
            error,
            message: "this request needs a valid API key",
            order: None,
        };
        effects.respond(stream, Arc::new(Answer::refusal(vec![], &refusal)));
    }

    /// A client has disconnected: its request gets no answer.
    fn forget(&mut self, stream: StreamId) {
        self.waiting.retain(|one| one.stream != stream);
        // What was sent keeps its place; an answer to a stream that has gone goes nowhere.
    }
}

impl Engine for ApiKeys {
    const NAME: &'static str = "api-key";

    fn handle(&mut self, event: Event<'_>, effects: &mut Effects) {
        match event {
            Event::Request { stream, request } => self.on_request(stream, request, effects),
            Event::Tick { now_ms } => self.send(now_ms, effects),
            Event::RedisReply { batch, reply, .. } => self.on_reply(batch, Some(reply), effects),
            Event::NotSent { batch } => self.on_reply(batch, None, effects),
            Event::Closed { stream, .. } => self.forget(stream),
            _ => {}
        }
    }

    /// Ticks end calls whose time is over.
    fn tick_ms(&self) -> Option<u64> {
        (!self.sent.is_empty()).then_some(DEADLINE_MS / 4)
    }

    fn metrics(&mut self) -> &mut Metrics {
        &mut self.metrics
    }
}

/// The filter: how the engine is made in Envoy.
#[derive(Debug)]
pub struct ApiKeyFilter;

impl Filter for ApiKeyFilter {
    type Engine = ApiKeys;

    fn configure(json: &[u8]) -> Result<ConfiguredEngine<ApiKeys>, FieldError> {
        let engine = ApiKeys::new(parse::<Config>(json)?)?;
        Ok(ConfiguredEngine {
            redis_clusters: vec![engine.config.cluster.clone()],
            rules: vec![],
            engine,
        })
    }
}

weir_proxy_kit::filter!(ApiKeyFilter);
