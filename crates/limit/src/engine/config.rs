//! The configuration.
//!
//! ```json
//! {
//!   "rules": [{ "name": "per-user", "key": ["user"], "limit": { "rate": 100, "per": "1s" } }],
//!   "user_header": "x-user-id"
//! }
//! ```
//!
//! The fields above are the most important ones; the others have defaults. See [`crate::rules::RuleConfig`] for rules.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::rules::{RuleConfig, Rules, RulesConfig};
use serde::Deserialize;
use weir_base::{FieldError, breaker};
use weir_engine::config::{Environment, RedisConfig, SecretSource, Topology};
use weir_engine::config::{check_breaker, content_type, header_name, within};
use weir_engine::edges::{Edges, EdgesConfig};

/// The default of `redis.deadline_ms`: how long a request waits for Redis, in milliseconds.
pub const DEADLINE_MS: u64 = 20;

/// The maximum body length of a refusal, in bytes: each refusal copies it.
const BODY_LEN_MAX: usize = 16 * 1_024;

/// The minimum length of the debug secret, in bytes.
const DEBUG_SECRET_LEN_MIN: usize = 16;

/// Rate limits. Every field has a default.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// At most 64 rules. With `reload`, they apply until Redis has rules.
    #[serde(default)]
    pub rules: Vec<RuleConfig>,
    /// Read rules from Redis, where they can change at any time. Default: false.
    #[serde(default)]
    pub reload: bool,
    /// Interval of rule reads, 50 to 60,000. Default: 250.
    #[serde(default = "default_poll_interval_ms")]
    pub poll_interval_ms: u64,
    /// Header that names the user; required for keys with `user`. An authentication filter before this one must set
    /// it, so that clients cannot forge it.
    #[serde(default)]
    pub user_header: Option<String>,
    /// Connection to Redis; required for rules with store `redis`, for `reload` and for `report`.
    #[serde(default)]
    pub redis: Option<RedisConfig>,
    /// Circuit breaker for Redis.
    #[serde(default)]
    pub breaker: breaker::Settings,
    /// Publish refusals per rule, and the top-k refused keys, to Redis. Default: false. Requires `redis`.
    #[serde(default)]
    pub report: bool,
    /// Quota headers for clients.
    #[serde(default)]
    pub headers: HeadersConfig,
    /// Answer to refused requests. Default: JSON with status 429, or `RESOURCE_EXHAUSTED` for gRPC.
    #[serde(default)]
    pub answer: Option<AnswerConfig>,
    /// Lets operators see which dry-run rules would have refused a request. Default: off. Requires the module
    /// `ratelimit-headers`.
    #[serde(default)]
    pub debug: Option<DebugConfig>,
    /// Edges that may report the client's address. Default: none.
    #[serde(default)]
    pub edges: Option<EdgesConfig>,
}

/// Quota headers. Refusals always have them.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HeadersConfig {
    /// Also send them with allowed requests. Default: false. Requires the module `ratelimit-headers`.
    pub on_allowed: bool,
    /// Also send the older `X-RateLimit-*` headers. Default: false.
    pub legacy: bool,
}

/// Answer to a refused request.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AnswerConfig {
    /// HTTP status, 400 to 599. Default: 429.
    #[serde(default = "default_status")]
    pub status: u16,
    /// Media type.
    pub content_type: String,
    /// Body, at most 16,384 bytes.
    pub body: String,
}

/// Authentication of operators.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DebugConfig {
    /// Required value of the request header `x-weir-debug`, at least 16 bytes.
    pub secret: SecretSource,
}

/// The validated configuration.
#[derive(Clone, Debug)]
pub struct CheckedConfig {
    /// The rules.
    pub rules: Rules,
    /// How to validate rules from Redis: see [`RulesConfig::checked`].
    pub one_slot_a_call: bool,
    /// The interval of rule reads in milliseconds; `None` without `reload`.
    pub poll_interval_ms: Option<u64>,
    /// In lower case.
    pub user_header: Option<String>,
    /// The connection to Redis, if configured.
    pub redis: Option<RedisConfig>,
    /// The circuit breaker's settings.
    pub breaker: breaker::Settings,
    /// See [`Config::report`].
    pub report: bool,
    /// Quota headers for clients.
    pub headers: HeadersConfig,
    /// The configured answer to refused requests, if any.
    pub answer: Option<AnswerConfig>,
    /// The debug secret, if configured.
    pub debug_secret: Option<Vec<u8>>,
    /// See [`Config::edges`].
    pub edges: Edges,
}

impl Config {
    /// Validates the configuration and reads the secret. `sees_responses`: whether the host passes responses to the
    /// engine ([`Event::Response`](weir_engine::Event::Response)).
    ///
    /// # Errors
    /// With the path of the invalid field.
    pub fn checked(
        self,
        sees_responses: bool,
        environment: Environment<'_>,
    ) -> Result<CheckedConfig, FieldError> {
        self.check(sees_responses)?;
        let topology = self.redis.as_ref().map(|redis| redis.topology);
        let one_slot_a_call = topology == Some(Topology::Cluster);
        let rules = RulesConfig { rules: self.rules };
        let rules = rules.checked(one_slot_a_call)?;
        check_needs(&rules, self.redis.is_some(), self.user_header.is_some())?;
        let user_header = self.user_header.as_deref();
        let debug = self.debug.as_ref();
        Ok(CheckedConfig {
            rules,
            one_slot_a_call,
            poll_interval_ms: self.reload.then_some(self.poll_interval_ms),
            user_header: user_header
                .map(|name| header_name("user_header", name))
                .transpose()?,
            redis: self.redis,
            breaker: self.breaker,
            report: self.report,
            headers: self.headers,
            answer: self.answer,
            edges: Edges::read(self.edges.as_ref(), environment)?,
            debug_secret: debug.map(|debug| debug.read(environment)).transpose()?,
        })
    }

    /// Checks each field separately.
    fn check(&self, sees_responses: bool) -> Result<(), FieldError> {
        within("poll_interval_ms", self.poll_interval_ms, 50, 60_000)?;
        check_breaker("breaker", &self.breaker)?;
        if let Some(redis) = &self.redis {
            redis.check("redis")?;
        }
        if let Some(answer) = &self.answer {
            answer.check()?;
        }
        if !sees_responses {
            refuse_if("headers.on_allowed", self.headers.on_allowed)?;
            refuse_if("debug", self.debug.is_some())?;
        }
        if self.reload && self.redis.is_none() {
            let problem = "needs `redis`, to read rules from it";
            return Err(FieldError::new("reload", problem));
        }
        if self.report && self.redis.is_none() {
            let problem = "needs `redis`, to publish reports";
            return Err(FieldError::new("report", problem));
        }
        Ok(())
    }
}

impl CheckedConfig {
    /// The key prefix of reports, if enabled.
    pub fn report_to(&self) -> Option<&str> {
        let redis = self.redis.as_ref().filter(|_| self.report);
        redis.map(|redis| redis.key_prefix.as_str())
    }
}

/// Rejects a field that needs responses.
fn refuse_if(field: &str, is_wanted: bool) -> Result<(), FieldError> {
    if !is_wanted {
        return Ok(());
    }
    let problem = "needs the module ratelimit-headers.wasm instead of ratelimit.wasm";
    Err(FieldError::new(field, problem))
}

/// Rejects rules that need a missing setting.
///
/// # Errors
/// With the rule's path.
pub fn check_needs(rules: &Rules, has_redis: bool, has_user: bool) -> Result<(), FieldError> {
    for (index, rule) in rules.iter().enumerate() {
        if rule.needs_redis() && !has_redis {
            let problem = "needs the filter's `redis`";
            return Err(FieldError::new(format!("rules[{index}].store"), problem));
        }
        if rule.needs_user() && !has_user {
            let problem = "needs the filter's `user_header`";
            return Err(FieldError::new(format!("rules[{index}].key"), problem));
        }
    }
    Ok(())
}

impl AnswerConfig {
    fn check(&self) -> Result<(), FieldError> {
        within("answer.status", u64::from(self.status), 400, 599)?;
        content_type("answer.content_type", &self.content_type)?;
        let length = self.body.len() as u64;
        within("answer.body's length", length, 0, BODY_LEN_MAX as u64)
    }
}

impl DebugConfig {
    fn read(&self, environment: Environment<'_>) -> Result<Vec<u8>, FieldError> {
        let secret = self.secret.read("debug.secret", environment)?;
        match secret.len() {
            DEBUG_SECRET_LEN_MIN.. => Ok(secret),
            length => {
                let problem = format!("has {length} bytes, needs at least {DEBUG_SECRET_LEN_MIN}");
                Err(FieldError::new("debug.secret", problem))
            }
        }
    }
}

fn default_poll_interval_ms() -> u64 {
    250
}

fn default_status() -> u16 {
    429
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_engine::config::parse;

    /// The environment: `SHORT` contains a secret that is too short.
    fn variable(name: &str) -> Option<Vec<u8>> {
        match name {
            "SHORT" => Some(b"0.1.0".into()),
            "LONG" => Some(b"0123456789abcdef".into()),
            _ => None,
        }
    }

    fn read(json: &str, sees_responses: bool) -> Result<CheckedConfig, FieldError> {
        let config = parse::<Config>(json.as_bytes())?;
        config.checked(sees_responses, &variable)
    }

    fn checked(json: &str) -> Result<CheckedConfig, FieldError> {
        read(json, false)
    }

    #[test]
    fn empty_filter_configuration_is_valid_without_rules() {
        let config = checked("{}").unwrap();
        assert_eq!(
            (config.rules.iter().count(), config.poll_interval_ms),
            (0, None)
        );
    }

    #[test]
    fn invalid_field_is_refused_by_its_path() {
        let check = |json: &str, path: &str| {
            let error = checked(json).unwrap_err();
            assert_eq!(error.path, path, "{error}");
        };
        let rule = |fields: &str| {
            format!(r#"{{"rules":[{{"name":"a","limit":{{"rate":1,"per":"1s"}}{fields}}}]}}"#)
        };
        check(r#"{"colour":1}"#, "colour");
        check(&rule(r#","limits":1"#), "rules[0].limits");
        check(&rule(r#","cost":2"#), "rules[0].cost");
        check(&rule(r#","store":"redis""#), "rules[0].store");
        check(&rule(r#","key":["method","user"]"#), "rules[0].key");
        check(r#"{"reload":true}"#, "reload");
        check(r#"{"poll_interval_ms":49}"#, "poll_interval_ms");
        check(r#"{"user_header":"a b"}"#, "user_header");
        check(r#"{"redis":{"deadline_ms":0}}"#, "redis.deadline_ms");
        check(r#"{"breaker":{"probes":0}}"#, "breaker.probes");
        check(r#"{"headers":{"colour":1}}"#, "headers.colour");
        let answer = |fields: &str| format!(r#"{{"answer":{{"body":"no",{fields}}}}}"#);
        check(
            &answer(r#""status":200,"content_type":"a/b""#),
            "answer.status",
        );
        check(&answer(r#""content_type":"""#), "answer.content_type");
        check(
            &answer(r#""content_type":"a\r\nb: c""#),
            "answer.content_type",
        );
        let long = format!(
            r#"{{"answer":{{"content_type":"a/b","body":"{}"}}}}"#,
            "x".repeat(16_385)
        );
        check(&long, "answer.body's length");
        check(r#"{"debug":{"secret":"hush"}}"#, "debug.secret");
    }

    #[test]
    fn bounds_of_answer_and_poll_interval_are_inclusive() {
        let answer = |status: u64, length: usize| {
            let body = "x".repeat(length);
            let json = format!(
                r#"{{"answer":{{"status":{status},"content_type":"a/b","body":"{body}"}}}}"#
            );
            checked(&json).map(|_| ()).map_err(|error| error.path)
        };
        assert_eq!((answer(400, 0), answer(599, 16_384)), (Ok(()), Ok(())));
        for status in [399, 600] {
            assert_eq!(answer(status, 0), Err("answer.status".into()));
        }
        let polls = |ms: u64| checked(&format!(r#"{{"poll_interval_ms":{ms}}}"#)).is_ok();
        let allowed = [49, 50, 60_000, 60_001].map(polls);
        assert_eq!(allowed, [false, true, true, false]);
    }

    #[test]
    fn invalid_debug_secret_is_refused() {
        let with = |name: &str| {
            let json = format!(r#"{{"debug":{{"secret":{{"env":"{name}"}}}}}}"#);
            read(&json, true)
        };
        assert_eq!(with("NONE").unwrap_err().path, "debug.secret.env");
        assert_eq!(with("SHORT").unwrap_err().path, "debug.secret");
        let secret = with("LONG").unwrap().debug_secret;
        assert_eq!(secret.as_deref(), Some(&b"0123456789abcdef"[..]));
    }

    #[test]
    fn response_rules_are_refused_when_host_reports_no_responses() {
        for (json, path) in [
            (r#"{"headers":{"on_allowed":true}}"#, "headers.on_allowed"),
            (r#"{"debug":{"secret":{"env":"LONG"}}}"#, "debug"),
        ] {
            assert_eq!(read(json, false).unwrap_err().path, path);
            assert!(read(json, true).is_ok());
        }
    }

    #[test]
    fn on_a_cluster_two_rules_in_redis_are_refused() {
        let rule = |name: &str| {
            format!(r#"{{"name":"{name}","store":"redis","limit":{{"rate":1,"per":"1s"}}}}"#)
        };
        let with = |topology: &str| {
            let rules = [rule("a"), rule("b")].join(",");
            checked(&format!(
                r#"{{"redis":{{"topology":"{topology}"}},"rules":[{rules}]}}"#
            ))
        };
        assert!(with("single").is_ok());
        assert_eq!(with("cluster").unwrap_err().path, "rules[1].store");
    }
}
