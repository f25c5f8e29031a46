//! Parses and checks the JSON configuration.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::{Cluster, Plan};
use serde::Deserialize;
use weir_base::{FieldError, breaker};
use weir_engine::config::{RedisConfig, check_breaker, within};
use weir_limit::rules::LimitConfig;
use weir_limit::{Algorithm, Quota};

/// Default timeout of a call to Redis, in milliseconds.
pub(crate) const DEADLINE_MS: u64 = 100;

/// Maximum additional Redis servers.
const CLUSTERS_MAX: usize = 15;

/// Vehicle fitment queries. Only `redis` is required.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Home Redis, which has the vehicle map and the routes.
    pub redis: RedisConfig,
    /// Additional Redis servers: the origin's name for each, and the Envoy cluster of its bridge. Other settings as
    /// in `redis`. Default: none.
    #[serde(default)]
    pub clusters: BTreeMap<String, String>,
    /// Layout of relations in Redis; must match the origin. Default: `directory`.
    #[serde(default)]
    pub plan: PlanConfig,
    /// Circuit breaker for each Redis.
    #[serde(default)]
    pub breaker: breaker::Settings,
    /// Origin queries for SKUs that are not in Redis.
    #[serde(default)]
    pub origin: OriginConfig,
    /// Maximum SKUs per worker whose location is cached, about 150 bytes each, 0 to 10,000,000. Default: 50,000.
    #[serde(default = "default_places_max")]
    pub places_max: usize,
    /// Maximum vehicles per worker in memory, about 12 bytes each, 1 to 50,000,000. Default: 1,000,000. Queries for
    /// further vehicles go to the origin.
    #[serde(default = "default_vehicles_max")]
    pub vehicles_max: u32,
    /// Interval of vehicle reads from Redis, 50 to 60,000. Default: 1,000.
    #[serde(default = "default_poll_interval_ms")]
    pub poll_interval_ms: u64,
}

/// Layout of relations in Redis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanConfig {
    /// A directory of SKUs; few vehicles as a set, many as bitmaps.
    #[default]
    Directory,
    /// Bitmaps of all segments; about 60 times the memory.
    Bitmaps,
}

/// Origin queries.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OriginConfig {
    /// Query rate per worker. Default: 100 per second, burst 200. Beyond it, SKUs that are not in Redis are
    /// answered as unknown.
    pub limit: LimitConfig,
}

/// The checked configuration.
#[derive(Clone, Debug)]
pub struct CheckedConfig {
    /// The connection to the home Redis.
    pub redis: RedisConfig,
    /// The other servers: name, and Envoy cluster of the bridge.
    pub clusters: Vec<(Cluster, String)>,
    /// The layout of relations in Redis.
    pub plan: Plan,
    /// The circuit breakers.
    pub breaker: breaker::Settings,
    /// The rate limit of origin queries.
    pub origin_quota: Quota,
    /// Maximum cached locations of SKUs.
    pub places_max: usize,
    /// Maximum vehicles in memory.
    pub vehicles_max: u32,
    /// The interval between vehicle reads, in milliseconds.
    pub poll_interval_ms: u64,
}

impl Config {
    /// Checks the bounds that the types do not express.
    ///
    /// # Errors
    /// If a field is invalid, with its path.
    pub fn checked(self) -> Result<CheckedConfig, FieldError> {
        self.redis.check("redis")?;
        check_breaker("breaker", &self.breaker)?;
        within("places_max", self.places_max as u64, 0, 10_000_000)?;
        within("vehicles_max", self.vehicles_max.into(), 1, 50_000_000)?;
        within("poll_interval_ms", self.poll_interval_ms, 50, 60_000)?;
        Ok(CheckedConfig {
            clusters: clusters(&self.clusters)?,
            origin_quota: self.origin.limit.quota(Algorithm::Gcra, "origin.limit")?,
            plan: match self.plan {
                PlanConfig::Directory => Plan::Directory,
                PlanConfig::Bitmaps => Plan::Bitmaps,
            },
            redis: self.redis,
            breaker: self.breaker,
            places_max: self.places_max,
            vehicles_max: self.vehicles_max,
            poll_interval_ms: self.poll_interval_ms,
        })
    }
}

impl CheckedConfig {
    /// The Envoy clusters of all bridges, the home Redis first.
    pub fn bridges(&self) -> Vec<String> {
        let further = self.clusters.iter().map(|(_, bridge)| bridge.clone());
        core::iter::once(self.redis.cluster.clone())
            .chain(further)
            .collect()
    }
}

fn clusters(named: &BTreeMap<String, String>) -> Result<Vec<(Cluster, String)>, FieldError> {
    within("clusters", named.len() as u64, 0, CLUSTERS_MAX as u64)?;
    let checked = |(name, bridge): (&String, &String)| {
        let path = format!("clusters.{name}");
        let cluster = Cluster::new(name).filter(|cluster| *cluster != Cluster::home());
        let Some(cluster) = cluster else {
            let problem = "must have names of 1 to 32 of a-z 0-9 -, except home";
            return Err(FieldError::new(path, problem));
        };
        if bridge.is_empty() {
            return Err(FieldError::new(path, "must name an Envoy cluster"));
        }
        Ok((cluster, bridge.clone()))
    };
    named.iter().map(checked).collect()
}

impl Default for OriginConfig {
    fn default() -> Self {
        Self {
            limit: LimitConfig::per_second(100, 200),
        }
    }
}

fn default_places_max() -> usize {
    50_000
}

fn default_vehicles_max() -> u32 {
    1_000_000
}

fn default_poll_interval_ms() -> u64 {
    1_000
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_engine::config::parse;

    fn checked(json: &str) -> Result<CheckedConfig, FieldError> {
        parse::<Config>(json.as_bytes()).and_then(Config::checked)
    }

    #[test]
    fn all_settings_except_redis_have_defaults() {
        let config = checked(r#"{"redis":{}}"#).unwrap();
        assert_eq!(config.bridges(), ["weir_redis"]);
        assert_eq!(
            (config.plan, config.vehicles_max),
            (Plan::Directory, 1_000_000)
        );
        assert_eq!(checked("{}").unwrap_err().path, ".");
        let config = checked(
            r#"{"redis":{},"plan":"bitmaps","clusters":{"pop-a":"redis_a","own":"redis_b"}}"#,
        );
        let config = config.unwrap();
        assert_eq!(config.bridges(), ["weir_redis", "redis_b", "redis_a"]);
        assert_eq!(config.plan, Plan::Bitmaps);
    }

    #[test]
    fn invalid_field_is_refused_by_its_path() {
        let check = |fields: &str, path: &str| {
            let error = checked(&format!(r#"{{"redis":{{}},{fields}}}"#)).unwrap_err();
            assert_eq!(error.path, path, "{error}");
        };
        check(r#""colour":1"#, "colour");
        check(r#""breaker":{"probes":0}"#, "breaker.probes");
        check(r#""poll_interval_ms":49"#, "poll_interval_ms");
        check(r#""places_max":10000001"#, "places_max");
        check(r#""vehicles_max":0"#, "vehicles_max");
        check(r#""plan":"roaring""#, "plan");
        check(
            r#""origin":{"limit":{"rate":0,"per":"1s"}}"#,
            "origin.limit.rate",
        );
        check(r#""origin":{"colour":1}"#, "origin.colour");
        check(r#""clusters":{"home":"x"}"#, "clusters.home");
        check(r#""clusters":{"A":"x"}"#, "clusters.A");
        check(r#""clusters":{"a":""}"#, "clusters.a");
        let many: Vec<_> = (0..16).map(|i| format!(r#""c{i}":"x""#)).collect();
        let many = format!(r#""clusters":{{{}}}"#, many.join(","));
        check(&many, "clusters");
        let error = checked(r#"{"redis":{"deadline_ms":0}}"#).unwrap_err();
        assert_eq!(error.path, "redis.deadline_ms");
    }
}
