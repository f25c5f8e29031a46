//! The filter's configuration.
//!
//! ```json
//! {
//!   "rules": [{ "name": "per-user", "key": ["user"], "limit": { "rate": 100, "per": "1s" } }],
//!   "user_header": "x-user-id"
//! }
//! ```
//!
//! The fields above are the ones to know; the others have defaults. Rules are told in
//! [`weir_limit::rules::RuleConfig`].

use serde::Deserialize;
use weir_base::breaker;
use weir_filter_kit::config::{FieldError, SecretSource, check_breaker, header_name, within};
use weir_filter_kit::redis_config::{RedisConfig, Topology};
use weir_limit::rules::{RuleConfig, Rules, RulesConfig};

/// How long a request waits for Redis, in milliseconds, unless `redis.deadline_ms` is set.
pub const DEADLINE_MS: u64 = 20;

/// The longest body of a refusal, in bytes: it is copied for each.
const BODY_LEN_MAX: usize = 16 * 1_024;

/// The fewest bytes of the operators' secret.
const DEBUG_SECRET_LEN_MIN: usize = 16;

/// Whether this module is called back for responses: a variant of its own, see `Cargo.toml`.
const SEES_RESPONSES: bool = cfg!(feature = "response-headers");

/// The configuration as it is written.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The rules, at most 64. With `reload`, those that count until Redis has others.
    #[serde(default)]
    pub rules: Vec<RuleConfig>,
    /// Whether rules are read from Redis, where they may change at any time: not unless set.
    #[serde(default)]
    pub reload: bool,
    /// How often they are read, in milliseconds: 250 unless set, 50 to 60,000.
    #[serde(default = "default_poll_interval_ms")]
    pub poll_interval_ms: u64,
    /// The header that names the user: one that a client cannot forge, as an authentication filter in front
    /// of this one sets it. Needed for keys with `user`.
    #[serde(default)]
    pub user_header: Option<String>,
    /// Redis: needed for rules with store `redis`, and for `reload`.
    #[serde(default)]
    pub redis: Option<RedisConfig>,
    /// When Redis is left in peace.
    #[serde(default)]
    pub breaker: breaker::Settings,
    /// What clients are told of their quota.
    #[serde(default)]
    pub headers: HeadersConfig,
    /// What a refused request is answered: JSON with status 429, and `RESOURCE_EXHAUSTED` to gRPC, unless
    /// set.
    #[serde(default)]
    pub answer: Option<AnswerConfig>,
    /// Lets operators see which rules in shadow would have refused their request: not unless set. Needs the
    /// module `ratelimit-headers`.
    #[serde(default)]
    pub debug: Option<DebugConfig>,
}

/// What clients are told of their quota. Refusals always say it.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HeadersConfig {
    /// Whether requests that pass are told too: not unless set. Needs the module `ratelimit-headers`.
    pub on_allowed: bool,
    /// Whether the older `X-RateLimit-*` are sent besides: not unless set.
    pub legacy: bool,
}

/// The answer to a refused request.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AnswerConfig {
    /// The HTTP status, 400 to 599: 429 unless set.
    #[serde(default = "default_status")]
    pub status: u16,
    /// The `content-type`.
    pub content_type: String,
    /// The body, at most 16,384 bytes.
    pub body: String,
}

/// How an operator is known.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DebugConfig {
    /// What the request header `x-weir-debug` must hold: at least 16 bytes.
    pub secret: SecretSource,
}

/// The configuration, checked.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The rules.
    pub rules: Rules,
    /// How rules in Redis are checked: see [`RulesConfig::checked`].
    pub one_slot_a_call: bool,
    /// How often rules are read from Redis, in milliseconds, if they are.
    pub poll_interval_ms: Option<u64>,
    /// In lower case.
    pub user_header: Option<String>,
    /// Redis, if there is one.
    pub redis: Option<RedisConfig>,
    /// When it is left in peace.
    pub breaker: breaker::Settings,
    /// What clients are told.
    pub headers: HeadersConfig,
    /// The answer to refused requests, if it is not the default.
    pub answer: Option<AnswerConfig>,
    /// The operators' secret, if they have one.
    pub debug_secret: Option<Vec<u8>>,
}

impl Config {
    /// Checks what types alone do not say, and fetches the secret.
    ///
    /// # Errors
    /// With the path of the field that is wrong.
    pub fn checked(self) -> Result<Checked, FieldError> {
        within("poll_interval_ms", self.poll_interval_ms, 50, 60_000)?;
        check_breaker("breaker", &self.breaker)?;
        if let Some(redis) = &self.redis {
            redis.check("redis")?;
        }
        if let Some(answer) = &self.answer {
            answer.check()?;
        }
        check_module("headers.on_allowed", self.headers.on_allowed)?;
        check_module("debug", self.debug.is_some())?;
        let topology = self.redis.as_ref().map(|redis| redis.topology);
        let one_slot_a_call = topology == Some(Topology::Cluster);
        let rules = RulesConfig { rules: self.rules };
        let rules = rules.checked(one_slot_a_call)?;
        check_needs(&rules, self.redis.is_some(), self.user_header.is_some())?;
        if self.reload && self.redis.is_none() {
            let problem = "rules are read from Redis, but there is no `redis`";
            return Err(FieldError::new("reload", problem));
        }
        let user_header = self.user_header.as_deref();
        Ok(Checked {
            rules,
            one_slot_a_call,
            poll_interval_ms: self.reload.then_some(self.poll_interval_ms),
            user_header: user_header
                .map(|name| header_name("user_header", name))
                .transpose()?,
            redis: self.redis,
            breaker: self.breaker,
            headers: self.headers,
            answer: self.answer,
            debug_secret: self.debug.map(|debug| debug.read()).transpose()?,
        })
    }
}

/// Refuses what this module cannot do.
fn check_module(field: &str, is_wanted: bool) -> Result<(), FieldError> {
    if SEES_RESPONSES || !is_wanted {
        return Ok(());
    }
    let problem =
        "adds to responses that pass: load ratelimit-headers.wasm in place of ratelimit.wasm";
    Err(FieldError::new(field, problem))
}

/// Refuses rules that need what is not configured.
///
/// # Errors
/// With the rule's path.
pub fn check_needs(rules: &Rules, has_redis: bool, has_user: bool) -> Result<(), FieldError> {
    for (index, rule) in rules.iter().enumerate() {
        if rule.needs_redis() && !has_redis {
            let problem = "counts in Redis, but the filter has no `redis`";
            return Err(FieldError::new(format!("rules[{index}].store"), problem));
        }
        if rule.needs_user() && !has_user {
            let problem = "tells users apart, but the filter has no `user_header`";
            return Err(FieldError::new(format!("rules[{index}].key"), problem));
        }
    }
    Ok(())
}

impl AnswerConfig {
    fn check(&self) -> Result<(), FieldError> {
        within("answer.status", u64::from(self.status), 400, 599)?;
        let is_text = |b: u8| b == b' ' || b.is_ascii_graphic();
        if self.content_type.is_empty() || !self.content_type.bytes().all(is_text) {
            let problem = "must be a content type, such as text/html";
            return Err(FieldError::new("answer.content_type", problem));
        }
        let length = self.body.len() as u64;
        within("answer.body's length", length, 0, BODY_LEN_MAX as u64)
    }
}

impl DebugConfig {
    fn read(&self) -> Result<Vec<u8>, FieldError> {
        let secret = self.secret.read("debug.secret")?;
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
    use weir_filter_kit::config::parse;

    fn checked(json: &str) -> Result<Checked, FieldError> {
        parse::<Config>(json.as_bytes()).and_then(Config::checked)
    }

    #[test]
    fn a_filter_without_rules_is_one_that_waits_for_them() {
        let config = checked("{}").unwrap();
        assert_eq!(
            (config.rules.iter().count(), config.poll_interval_ms),
            (0, None)
        );
    }

    #[test]
    fn every_bad_field_is_refused_by_its_path() {
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
    fn a_bad_secret_is_refused() {
        for (name, path) in [
            ("WEIR_NO_SUCH", "debug.secret.env"),
            ("CARGO_PKG_VERSION", "debug.secret"),
        ] {
            let secret = format!(r#"{{"secret":{{"env":"{name}"}}}}"#);
            let debug = parse::<DebugConfig>(secret.as_bytes()).unwrap();
            assert_eq!(debug.read().unwrap_err().path, path);
        }
    }

    #[test]
    fn what_needs_responses_is_refused_by_the_module_that_does_not_see_them() {
        for (json, path) in [
            (r#"{"headers":{"on_allowed":true}}"#, "headers.on_allowed"),
            (r#"{"debug":{"secret":{"env":"PATH"}}}"#, "debug"),
        ] {
            match checked(json) {
                Err(error) if !SEES_RESPONSES => assert_eq!(error.path, path, "{error}"),
                result => assert!(SEES_RESPONSES && result.is_ok(), "{result:?}"),
            }
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
