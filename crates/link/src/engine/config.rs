//! Parses and checks the JSON configuration.

use alloc::string::String;
use alloc::vec::Vec;

use crate::cache::Limits;
use serde::Deserialize;
use weir_base::key::KeyRing;
use weir_base::{FieldError, breaker};
use weir_engine::config::{Environment, RedisConfig, check_breaker, within};
use weir_engine::keys::{KeyConfig, ring};
use weir_limit::rules::LimitConfig;
use weir_limit::{Algorithm, Quota};

/// Default time that a request waits for Redis, in milliseconds.
pub(crate) const DEADLINE_MS: u64 = 100;

/// Short link redirects. Only `redis` is required.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Connection to Redis.
    pub redis: RedisConfig,
    /// Circuit breaker for Redis.
    #[serde(default)]
    pub breaker: breaker::Settings,
    /// Origin lookups for links that are not in Redis.
    #[serde(default)]
    pub origin: OriginConfig,
    /// Link cache of each worker.
    #[serde(default)]
    pub cache: CacheConfig,
    /// Click counting.
    #[serde(default)]
    pub clicks: ClicksConfig,
    /// Name, in lower case, of the request header in which a trusted proxy sends the client's two-letter country
    /// code. Default: country unknown.
    #[serde(default)]
    pub country_header: Option<String>,
    /// Signed click ids for links with `conversion`. Default: off, and no orders are attributed.
    #[serde(default)]
    pub conversion: Option<ConversionConfig>,
    /// Interval of reads of edits and domains from Redis, 50 to 60,000. Default: 250.
    #[serde(default = "default_poll_interval_ms")]
    pub poll_interval_ms: u64,
    /// Share of its lifetime after which a click renews a link, per thousand, 1 to 1,000. Default: 100; a 30-day
    /// link is then renewed at most every three days.
    #[serde(default = "default_renew_permille")]
    pub renew_permille: u32,
}

/// Signed click ids.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConversionConfig {
    /// Keys shared by gateways and origin; the first one signs.
    pub keys: Vec<KeyConfig>,
}

/// Origin lookups.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OriginConfig {
    /// Envoy cluster of the origin's public port. Default: `weir_origin`.
    pub cluster: String,
    /// Timeout of a lookup, 1 to 60,000. Default: 2,000.
    pub timeout_ms: u64,
    /// Lookup rate per worker. Default: 100 per second, burst 200.
    pub limit: LimitConfig,
    /// Maximum requests waiting for lookups per worker, 1 to 1,000,000. Default: 1,000.
    pub waiting_max: usize,
}

/// Link cache of each worker.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CacheConfig {
    /// Maximum links, 0 to 10,000,000. Default: 50,000.
    pub entries_max: usize,
    /// Approximate maximum size in bytes, 0 to 1 GiB. Default: 32 MiB.
    pub bytes_max: usize,
    /// Age at which a link is refreshed in the background, 1,000 to a day. Default: a minute. Polls show edits
    /// sooner.
    pub fresh_ms: u64,
    /// The same for links from an origin lookup, 100 to a day. Default: 10,000. During a Redis outage, edits take
    /// up to this long.
    pub origin_fresh_ms: u64,
    /// Maximum unknown codes, 0 to 1,000,000. Default: 10,000.
    pub unknown_max: usize,
    /// Lifetime of an unknown code, 100 to an hour. Default: 5,000.
    pub unknown_ms: u64,
}

/// Click counting.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClicksConfig {
    /// Count clicks. Default: true.
    pub enabled: bool,
    /// Interval between batches, 100 to 60,000. Default: 1,000. A crash loses the clicks of one interval.
    pub flush_ms: u64,
    /// Number of your own proxies before this gateway, 0 to 16. The client address is then the `X-Forwarded-For`
    /// entry before theirs; 0 is the last entry, which Envoy appends with `use_remote_address: true`. Saves 1 µs
    /// per click. Default, and without the header: Envoy's `source.address`.
    pub trusted_hops: Option<usize>,
    /// Maximum batches that a worker keeps during a Redis outage, 1 to 1,000. Default: 64. A batch has up to 512
    /// rows and 200 kB.
    pub batches_max: usize,
}

/// The checked configuration.
#[derive(Clone, Debug)]
pub struct CheckedConfig {
    /// The connection to Redis.
    pub redis: RedisConfig,
    /// The circuit breaker for Redis.
    pub breaker: breaker::Settings,
    /// Origin lookups.
    pub origin: OriginConfig,
    /// Rate limit of origin lookups.
    pub lookups: Quota,
    /// Limits of the cache.
    pub limits: Limits,
    /// Click counting; `None` if disabled.
    pub clicks: Option<ClicksConfig>,
    /// The request header with the client's country.
    pub country_header: Option<String>,
    /// Signed click IDs; `None` if disabled.
    pub conversion: Option<ConversionConfig>,
    /// The interval between polls, in milliseconds.
    pub poll_interval_ms: u64,
}

impl CheckedConfig {
    /// The keys that sign click IDs, if configured.
    ///
    /// # Errors
    /// If a key is invalid, with its path.
    pub fn click_keys(&self, environment: Environment<'_>) -> Result<Option<KeyRing>, FieldError> {
        let keys = self.conversion.as_ref().map(|conversion| &conversion.keys);
        let ring = keys.map(|keys| ring("conversion.keys", keys, environment));
        ring.transpose()
    }
}

/// More proxies than this are a typing error.
const HOPS_MAX: u64 = 16;

const DAY_MS: u64 = 24 * 60 * 60 * 1_000;
const HOUR_MS: u64 = 60 * 60 * 1_000;

impl Config {
    /// Checks the bounds that the types do not express.
    ///
    /// # Errors
    /// If a field is invalid, with its path.
    pub fn checked(self) -> Result<CheckedConfig, FieldError> {
        self.redis.check("redis")?;
        check_breaker("breaker", &self.breaker)?;
        let lookups = self.origin.checked()?;
        within("poll_interval_ms", self.poll_interval_ms, 50, 60_000)?;
        within("renew_permille", self.renew_permille.into(), 1, 1_000)?;
        self.clicks.check()?;
        if !self.country_header.as_deref().is_none_or(is_header) {
            let problem = "must be a header name in lower case, such as x-geo-country";
            return Err(FieldError::new("country_header", problem));
        }
        Ok(CheckedConfig {
            country_header: self.country_header,
            conversion: self.conversion,
            limits: self.cache.checked(self.renew_permille)?,
            redis: self.redis,
            breaker: self.breaker,
            origin: self.origin,
            lookups,
            clicks: self.clicks.enabled.then_some(self.clicks),
            poll_interval_ms: self.poll_interval_ms,
        })
    }
}

/// Whether a request header may have this name. Pseudo-headers (`:path`) cannot contain a country.
fn is_header(name: &str) -> bool {
    let is_token = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
    (1..=64).contains(&name.len()) && name.bytes().all(is_token)
}

impl OriginConfig {
    /// The rate limit.
    fn checked(&self) -> Result<Quota, FieldError> {
        if self.cluster.is_empty() {
            let problem = "must name an Envoy cluster";
            return Err(FieldError::new("origin.cluster", problem));
        }
        within("origin.timeout_ms", self.timeout_ms, 1, 60_000)?;
        within("origin.waiting_max", self.waiting_max as u64, 1, 1_000_000)?;
        self.limit.quota(Algorithm::Gcra, "origin.limit")
    }
}

impl CacheConfig {
    fn checked(&self, renew_permille: u32) -> Result<Limits, FieldError> {
        let entries_max = self.entries_max as u64;
        within("cache.entries_max", entries_max, 0, 10_000_000)?;
        within("cache.bytes_max", self.bytes_max as u64, 0, 1 << 30)?;
        within("cache.fresh_ms", self.fresh_ms, 1_000, DAY_MS)?;
        within("cache.origin_fresh_ms", self.origin_fresh_ms, 100, DAY_MS)?;
        within("cache.unknown_max", self.unknown_max as u64, 0, 1_000_000)?;
        within("cache.unknown_ms", self.unknown_ms, 100, HOUR_MS)?;
        Ok(Limits {
            entries_max: self.entries_max,
            bytes_max: self.bytes_max,
            unknown_max: self.unknown_max,
            fresh_ms: self.fresh_ms,
            origin_fresh_ms: self.origin_fresh_ms,
            unknown_ms: self.unknown_ms,
            renew_permille,
        })
    }
}

impl ClicksConfig {
    fn check(&self) -> Result<(), FieldError> {
        within("clicks.flush_ms", self.flush_ms, 100, 60_000)?;
        let hops = self.trusted_hops.unwrap_or(0) as u64;
        within("clicks.trusted_hops", hops, 0, HOPS_MAX)?;
        within("clicks.batches_max", self.batches_max as u64, 1, 1_000)
    }
}

impl Default for OriginConfig {
    fn default() -> Self {
        Self {
            cluster: "weir_origin".into(),
            timeout_ms: 2_000,
            limit: LimitConfig::per_second(100, 200),
            waiting_max: 1_000,
        }
    }
}

impl Default for CacheConfig {
    fn default() -> Self {
        Self {
            entries_max: 50_000,
            bytes_max: 32 << 20,
            fresh_ms: 60_000,
            origin_fresh_ms: 10_000,
            unknown_max: 10_000,
            unknown_ms: 5_000,
        }
    }
}

impl Default for ClicksConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            flush_ms: 1_000,
            trusted_hops: None,
            batches_max: 64,
        }
    }
}

fn default_poll_interval_ms() -> u64 {
    250
}

fn default_renew_permille() -> u32 {
    100
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use weir_engine::config::parse;

    fn checked(json: &str) -> Result<CheckedConfig, FieldError> {
        parse::<Config>(json.as_bytes()).and_then(Config::checked)
    }

    #[test]
    fn all_settings_except_redis_have_defaults() {
        let config = checked(r#"{"redis":{}}"#).unwrap();
        assert_eq!(config.origin.cluster, "weir_origin");
        let (links, bytes) = (config.limits.entries_max, config.limits.bytes_max);
        assert_eq!((links, bytes), (50_000, 33_554_432));
        assert_eq!(config.lookups, Quota::per_second(100, 200));
        assert_eq!(config.limits.renew_permille, 100);
        assert_eq!(config.clicks.unwrap().flush_ms, 1_000);
        let config = checked(r#"{"redis":{},"clicks":{"enabled":false}}"#).unwrap();
        assert!(config.clicks.is_none());
        assert_eq!(checked("{}").unwrap_err().path, ".");
    }

    #[test]
    fn maximum_of_each_number_is_allowed() {
        for (part, name, max) in [
            ("origin", "timeout_ms", 60_000_u64),
            ("origin", "waiting_max", 1_000_000),
            ("cache", "entries_max", 10_000_000),
            ("cache", "bytes_max", 1_073_741_824),
            ("cache", "fresh_ms", 86_400_000),
            ("cache", "origin_fresh_ms", 86_400_000),
            ("cache", "unknown_max", 1_000_000),
            ("cache", "unknown_ms", 3_600_000),
            ("clicks", "flush_ms", 60_000),
            ("clicks", "trusted_hops", 16),
            ("clicks", "batches_max", 1_000),
        ] {
            let set = |value: u64| {
                let json = format!(r#"{{"redis":{{}},"{part}":{{"{name}":{value}}}}}"#);
                checked(&json).map(|_| ()).map_err(|error| error.path)
            };
            assert_eq!(set(max), Ok(()), "{name}");
            assert_eq!(set(max + 1), Err(format!("{part}.{name}")));
        }
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
        check(r#""country_header":"CF-IPCountry""#, "country_header");
        check(r#""country_header":"""#, "country_header");
        check(r#""renew_permille":0"#, "renew_permille");
        check(r#""renew_permille":1001"#, "renew_permille");
        check(r#""origin":{"cluster":""}"#, "origin.cluster");
        check(r#""origin":{"timeout_ms":0}"#, "origin.timeout_ms");
        check(
            r#""origin":{"limit":{"rate":0,"per":"1s"}}"#,
            "origin.limit.rate",
        );
        check(
            r#""origin":{"limit":{"rate":1,"per":"1s","burst":0}}"#,
            "origin.limit.burst",
        );
        check(
            r#""origin":{"limit":{"rate":1,"per":1000}}"#,
            "origin.limit.per",
        );
        check(r#""origin":{"per_second":1}"#, "origin.per_second");
        check(r#""origin":{"waiting_max":0}"#, "origin.waiting_max");
        check(r#""origin":{"colour":1}"#, "origin.colour");
        check(r#""cache":{"entries_max":10000001}"#, "cache.entries_max");
        check(r#""cache":{"bytes_max":1073741825}"#, "cache.bytes_max");
        check(r#""cache":{"fresh_ms":999}"#, "cache.fresh_ms");
        check(r#""cache":{"origin_fresh_ms":99}"#, "cache.origin_fresh_ms");
        check(r#""cache":{"unknown_max":1000001}"#, "cache.unknown_max");
        check(r#""cache":{"unknown_ms":99}"#, "cache.unknown_ms");
        check(r#""clicks":{"flush_ms":99}"#, "clicks.flush_ms");
        check(r#""clicks":{"trusted_hops":17}"#, "clicks.trusted_hops");
        check(r#""clicks":{"batches_max":0}"#, "clicks.batches_max");
        let error = checked(r#"{"redis":{"deadline_ms":0}}"#).unwrap_err();
        assert_eq!(error.path, "redis.deadline_ms");
    }
}
