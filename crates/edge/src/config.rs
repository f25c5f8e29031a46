//! The configuration of an edge.
//!
//! ```json
//! {
//!   "edge": "fra-1",
//!   "keys": [{ "id": "e1", "secret": { "env": "WEIR_EDGE_SECRET" } }],
//!   "links": {},
//!   "gate": { "routes": [{ "path": "/sales/{sale}/orders" }], "user_header": "x-user-id" },
//!   "limits": { "rules": [{ "name": "coarse", "key": ["address"], "limit": { "rate": 100, "per": "1s" }, "store": "local" }] }
//! }
//! ```
//!
//! `links`, `gate` and `limits` are the configurations of the gateways' filters; each is optional. Settings of Redis
//! and claims are refused, because an edge has neither. Exceptions: with `stock_in_objects` the edge sells by itself,
//! and with `click_limits_in_objects` it counts clicks by itself.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use weir_base::FieldError;
use weir_base::id::SaleId;
use weir_base::key::{KeyRing, Purpose};
use weir_engine::config::{Environment, parse, within};
use weir_engine::keys::{KeyConfig, ring};

/// The variable in the place of the claim secret, which an edge does not have.
pub(crate) const NO_CLAIMS: &str = "WEIR_EDGE_HAS_NO_CLAIM_SECRET";

/// Default timeout of a call to an object that counts a click, in milliseconds.
const OBJECT_DEADLINE_MS: u64 = 1_000;

/// The key prefix that engines use for the nonexistent Redis.
pub(crate) const PREFIX: &str = "edge";

/// The JSON configuration.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The edge's name in its assertions: 1 to 64 of a-z, 0-9 and -.
    pub edge: String,
    /// The keys that edges and origin share: the first signs assertions, all verify feeds.
    pub keys: Vec<KeyConfig>,
    /// Short links, as in the filter `shortlink-redirect`.
    #[serde(default)]
    pub links: Option<Map<String, Value>>,
    /// Sales, as in the filter `seckill-gate`.
    #[serde(default)]
    pub gate: Option<Map<String, Value>>,
    /// Limits, as in the filter `ratelimit`. Each edge instance counts alone, so they are approximate.
    #[serde(default)]
    pub limits: Option<Map<String, Value>>,
    /// Limits with one shared counter for all instances, checked first. Only on platforms with such a counter.
    #[serde(default)]
    pub exact_limits: Option<Map<String, Value>>,
    /// Whether objects contain the stock of all sales. Then `gate` has `claim`, as at gateways, and may have `redis`
    /// with the `key_prefix` of gateways and origin. Only on platforms with objects.
    #[serde(default)]
    pub stock_in_objects: bool,
    /// Whether objects of the edge count clicks of links with a click limit: then `links` may have `redis` with the
    /// `key_prefix` of gateways and origin. Only on platforms that have such objects.
    #[serde(default)]
    pub click_limits_in_objects: bool,
    /// How long links are valid after the last response of the origin, in milliseconds, 1,000 to an hour. Default: a
    /// minute. Edits may take up to this long.
    #[serde(default = "default_links_fresh_ms")]
    pub links_fresh_ms: u64,
    /// Interval between reads of the sold-out feed, in milliseconds, 100 to 60,000. Default: 1,000.
    #[serde(default = "default_sales_every_ms")]
    pub sales_every_ms: u64,
    /// The same for links and domains. Default: 2,000.
    #[serde(default = "default_links_every_ms")]
    pub links_every_ms: u64,
}

/// The checked configuration. The engines check their parts.
#[derive(Clone, Debug)]
pub struct CheckedConfig {
    /// See [`Config::edge`].
    pub edge: String,
    /// See [`Config::keys`].
    pub keys: KeyRing,
    /// The JSON configuration of the engine of links.
    pub links: Option<Vec<u8>>,
    /// The JSON configuration of the gate.
    pub gate: Option<Vec<u8>>,
    /// The JSON configuration of the limiter.
    pub limits: Option<Vec<u8>>,
    /// See [`Config::exact_limits`].
    pub exact_limits: Option<Vec<u8>>,
    /// The configuration of the gate that sells from objects: see [`Config::stock_in_objects`].
    pub stock: Option<Vec<u8>>,
    /// The engine of links with a click limit that objects count: see [`Config::click_limits_in_objects`].
    pub click_limits: Option<Vec<u8>>,
    /// See [`Config::links_fresh_ms`].
    pub links_fresh_ms: u64,
    /// See [`Config::sales_every_ms`].
    pub sales_every_ms: u64,
    /// See [`Config::links_every_ms`].
    pub links_every_ms: u64,
}

impl Config {
    /// Parses and checks the configuration, and reads its secrets.
    ///
    /// # Errors
    /// If a field is invalid, with its path.
    pub fn read(json: &[u8], environment: Environment<'_>) -> Result<CheckedConfig, FieldError> {
        parse::<Self>(json)?.checked(environment)
    }

    fn checked(self, environment: Environment<'_>) -> Result<CheckedConfig, FieldError> {
        SaleId::new(&self.edge)
            .map_err(|_| FieldError::new("edge", "must be 1 to 64 of a-z, 0-9 and -"))?;
        within("links_fresh_ms", self.links_fresh_ms, 1_000, 3_600_000)?;
        within("sales_every_ms", self.sales_every_ms, 100, 60_000)?;
        within("links_every_ms", self.links_every_ms, 100, 60_000)?;
        let stock = match (self.stock_in_objects, &self.gate) {
            (false, _) => None,
            (true, Some(gate)) => Some(in_objects("gate", gate.clone())?),
            (true, None) => {
                let problem = "required when the edge sells from objects";
                return Err(FieldError::new("gate", problem));
            }
        };
        let click_limits = match (self.click_limits_in_objects, &self.links) {
            (false, _) => None,
            (true, Some(links)) => Some(click_limits(links.clone())?),
            (true, None) => {
                let problem = "required when the edge counts clicks in objects";
                return Err(FieldError::new("links", problem));
            }
        };
        let links_without_objects = self.links.map(|mut links| {
            if click_limits.is_some() {
                links.remove("redis");
            }
            links
        });
        let gate = self.gate.map(|mut gate| {
            if stock.is_some() {
                gate.retain(|name, _| name != "claim" && name != "redis");
            }
            gate
        });
        Ok(CheckedConfig {
            stock,
            click_limits,
            keys: ring("keys", &self.keys, environment)?,
            edge: self.edge,
            links: links_without_objects.map(links).transpose()?,
            gate: gate.map(without_claims).transpose()?,
            limits: self.limits.map(limits).transpose()?,
            exact_limits: self.exact_limits.map(exact_limits).transpose()?,
            links_fresh_ms: self.links_fresh_ms,
            sales_every_ms: self.sales_every_ms,
            links_every_ms: self.links_every_ms,
        })
    }
}

impl CheckedConfig {
    /// The placeholder for the claim secret: it is unknown outside, and nothing signed with it leaves the edge.
    pub(crate) fn no_claims(&self) -> Vec<u8> {
        let tag = self.keys.signer().tag(Purpose::Seed, NO_CLAIMS.as_bytes());
        hex::encode(tag).into_bytes()
    }
}

/// The configuration of links, with click counting off: gateways and origin count for the statistics.
fn links(mut config: Map<String, Value>) -> Result<Vec<u8>, FieldError> {
    has_none("links", &config, &["redis", "clicks", "origin"])?;
    config.insert("redis".to_owned(), no_redis());
    config.insert("clicks".to_owned(), json!({ "enabled": false }));
    Ok(Value::Object(config).to_string().into_bytes())
}

/// The engine of links with a click limit. Calls to an object take longer than calls to a Redis.
fn click_limits(mut config: Map<String, Value>) -> Result<Vec<u8>, FieldError> {
    has_none("links", &config, &["clicks", "origin"])?;
    config.insert("clicks".to_owned(), json!({ "enabled": false }));
    let redis = config.entry("redis").or_insert_with(|| json!({}));
    if let Some(redis) = redis.as_object_mut() {
        redis
            .entry("deadline_ms")
            .or_insert(json!(OBJECT_DEADLINE_MS));
    }
    in_objects("links", config)
}

/// A gateway's configuration, for a Redis whose calls each use one object.
fn in_objects(part: &str, mut config: Map<String, Value>) -> Result<Vec<u8>, FieldError> {
    let mut redis = match config.remove("redis") {
        Some(Value::Object(redis)) => redis,
        Some(_) => {
            let path = format!("{part}.redis");
            return Err(FieldError::new(path, "must be an object"));
        }
        None => Map::new(),
    };
    let of_objects = ["key_prefix", "deadline_ms"];
    if let Some(name) = redis.keys().find(|name| !of_objects.contains(&&***name)) {
        let problem = "not supported: an edge has no Redis; for its objects, set only key_prefix and deadline_ms";
        return Err(FieldError::new(format!("{part}.redis.{name}"), problem));
    }
    redis.insert("topology".to_owned(), json!("cluster"));
    config.insert("redis".to_owned(), Value::Object(redis));
    Ok(Value::Object(config).to_string().into_bytes())
}

fn without_claims(mut config: Map<String, Value>) -> Result<Vec<u8>, FieldError> {
    has_none("gate", &config, &["redis", "claim"])?;
    config.insert("redis".to_owned(), no_redis());
    let keys = json!([{ "id": "none", "secret": { "env": NO_CLAIMS } }]);
    config.insert("claim".to_owned(), json!({ "keys": keys }));
    Ok(Value::Object(config).to_string().into_bytes())
}

/// The configuration of limits. Rules in Redis are allowed, so that edges and gateways share a configuration: a request
/// that matches one passes.
fn limits(mut config: Map<String, Value>) -> Result<Vec<u8>, FieldError> {
    has_none("limits", &config, &["redis", "reload"])?;
    config.insert("redis".to_owned(), no_redis());
    Ok(Value::Object(config).to_string().into_bytes())
}

/// The configuration of exact limits. Rules in Redis are refused.
fn exact_limits(config: Map<String, Value>) -> Result<Vec<u8>, FieldError> {
    has_none("exact_limits", &config, &["redis", "reload"])?;
    Ok(Value::Object(config).to_string().into_bytes())
}

fn no_redis() -> Value {
    json!({ "key_prefix": PREFIX })
}

fn has_none(part: &str, config: &Map<String, Value>, names: &[&str]) -> Result<(), FieldError> {
    match names.iter().find(|name| config.contains_key(**name)) {
        None => Ok(()),
        Some(name) => {
            let problem = "not supported at an edge: leave it to the gateways";
            Err(FieldError::new(format!("{part}.{name}"), problem))
        }
    }
}

fn default_links_fresh_ms() -> u64 {
    60_000
}

fn default_sales_every_ms() -> u64 {
    1_000
}

fn default_links_every_ms() -> u64 {
    2_000
}
