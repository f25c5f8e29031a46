//! The JSON form of rules.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use serde::Deserialize;
use weir_base::FieldError;
use weir_base::duration::Duration;

use super::rule::Rules;
use crate::{Algorithm, Quota, QuotaError};

/// All rules: a JSON object, in the filter's configuration or in Redis.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RulesConfig {
    /// At most [`RULES_MAX`](super::RULES_MAX), each with a name of its own.
    pub rules: Vec<RuleConfig>,
}

/// One rule.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleConfig {
    /// Name in metrics and headers: 1 to 64 of `a-z A-Z 0-9 _ -`.
    pub name: String,
    /// Requests that the rule applies to. Default: all.
    #[serde(default, rename = "match")]
    pub matching: MatchConfig,
    /// Parts of the key: requests with equal parts share a limit. Default: one limit for all requests.
    #[serde(default)]
    pub key: Vec<KeyPart>,
    /// Allowed rate.
    pub limit: LimitConfig,
    /// Default: `gcra`.
    #[serde(default)]
    pub algorithm: Algorithm,
    /// Default: `local`.
    #[serde(default)]
    pub store: Store,
    /// Default: `enforce`.
    #[serde(default)]
    pub mode: Mode,
    /// Only for store `redis`. Default: `local`.
    #[serde(default)]
    pub on_store_error: Option<OnStoreError>,
    /// Units that a request consumes, 1 to the burst. Default: 1.
    #[serde(default)]
    pub cost: Option<u32>,
    /// Reads the cost from a header, instead of `cost`.
    #[serde(default)]
    pub cost_header: Option<CostHeaderConfig>,
    /// Different limits for some keys.
    #[serde(default)]
    pub overrides: Vec<OverrideConfig>,
    /// Keys that are exempt from the rule.
    #[serde(default)]
    pub allow: Vec<Vec<String>>,
    /// Keys whose requests are always refused.
    #[serde(default)]
    pub deny: Vec<Vec<String>>,
    /// Takes slices of the limit from Redis and spends them locally. Only for store `redis`.
    #[serde(default)]
    pub lease: Option<LeaseConfig>,
    /// Local table size: 8 keys per slot, 1 to 65,536. Default: 4,096. Rules in Redis use it during an outage.
    #[serde(default = "default_slots")]
    pub slots: u32,
}

/// Conditions on a request; all must hold. The filter checks them in this order.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MatchConfig {
    /// Any of these methods, in capitals. Default: every method.
    pub methods: Vec<String>,
    /// Path without the query.
    pub path: Option<PathConfig>,
    /// Headers that must be present or absent.
    pub headers: Vec<HeaderConfig>,
}

/// Condition on a path.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum PathConfig {
    /// This path.
    Exact(String),
    /// A path with this prefix: `/api` matches `/api/x`, and also `/apix`.
    Prefix(String),
    /// A path of these segments; `{name}` matches any segment: `/users/{id}/orders`.
    Template(String),
}

/// Condition on a header.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeaderConfig {
    /// Header name.
    pub name: String,
    /// Whether the header must be present (`true`, the default) or absent.
    #[serde(default = "default_present")]
    pub present: bool,
}

/// Part of a key. All requests without the part share one limit, so omitting it gains nothing.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum KeyPart {
    /// Client address from Envoy, or its IPv6 /64 network.
    Address,
    /// Client address from `X-Forwarded-For`.
    Forwarded(ForwardedConfig),
    /// User from the filter's `user_header`.
    User,
    /// HTTP method.
    Method,
    /// This header.
    Header(String),
    /// First query parameter with this name, percent-decoded.
    Query(String),
    /// This cookie.
    Cookie(String),
    /// Path segment with this index, percent-decoded; the first is 0.
    Segment(usize),
}

/// Which address of `X-Forwarded-For` to use.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForwardedConfig {
    /// Number of trusted proxies before this gateway that append an address, 1 to 16. With `use_remote_address:
    /// true` Envoy appends its peer first: 1 selects the last address but one.
    pub trusted_hops: usize,
}

/// An allowed rate.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitConfig {
    /// Requests per period, 1 to 1,000,000; for `concurrency`, concurrent requests.
    pub rate: u32,
    /// Period; for `concurrency`, the time after which a request without an end no longer counts.
    pub per: Duration,
    /// Burst size, only for `gcra`. Default: `rate`.
    #[serde(default)]
    pub burst: Option<u32>,
}

impl LimitConfig {
    /// The limit of `rate` requests per second and `burst` at once.
    pub const fn per_second(rate: u32, burst: u32) -> Self {
        Self {
            rate,
            per: Duration::SECOND,
            burst: Some(burst),
        }
    }

    /// The quota. `at`: the path of this limit.
    ///
    /// # Errors
    /// When a number is out of its bounds, with its path.
    pub fn quota(self, algorithm: Algorithm, at: &str) -> Result<Quota, FieldError> {
        if algorithm != Algorithm::Gcra && self.burst.is_some() {
            let problem = "only the algorithm gcra supports a burst";
            return Err(FieldError::new(format!("{at}.burst"), problem));
        }
        let burst = self.burst.unwrap_or(self.rate);
        Quota::new(algorithm, self.rate, self.per.ms, burst).map_err(|error| {
            let field = match error {
                QuotaError::Rate => "rate",
                QuotaError::Per(_) => "per",
                QuotaError::Burst | QuotaError::Ticks => "burst",
            };
            FieldError::new(format!("{at}.{field}"), error)
        })
    }
}

/// Where a rule counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Store {
    /// In this Envoy; its workers share the limit.
    #[default]
    Local,
    /// In Redis; all gateways share the limit.
    Redis,
}

/// Whether a rule refuses requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Refuse requests beyond the limit.
    #[default]
    Enforce,
    /// Dry run: count them, and let them pass.
    Shadow,
}

/// Behaviour during a Redis outage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnStoreError {
    /// Requests pass.
    Open,
    /// Requests are refused with 503.
    Closed,
    /// Each gateway counts locally.
    #[default]
    Local,
}

/// Cost from a header, which a trusted party must set, not the client.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CostHeaderConfig {
    /// Header name. Without a whole number in it, a request costs 1.
    pub name: String,
    /// Maximum cost, 1 to the burst.
    pub max: u32,
}

/// A different limit for one key.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OverrideConfig {
    /// Values of the key's parts, in order.
    pub key: Vec<String>,
    /// Limit for this key.
    pub limit: LimitConfig,
}

/// Slices of a limit.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeaseConfig {
    /// Maximum requests per slice, 2 to the burst. Each worker of each gateway can hold one slice per key.
    pub max: u32,
    /// Lifetime of a slice, at most the period. Default: `100ms`.
    #[serde(default = "default_lease_for")]
    pub lasts: Duration,
}

impl RulesConfig {
    /// Validates the rules and prepares them for use. `one_slot_a_call`: whether Redis is a cluster, where one script
    /// call must stay in one slot.
    ///
    /// # Errors
    /// When a field is out of its bounds or contradicts another one.
    pub fn checked(self, one_slot_a_call: bool) -> Result<Rules, FieldError> {
        Rules::new(self.rules, one_slot_a_call)
    }
}

fn default_slots() -> u32 {
    4_096
}

fn default_present() -> bool {
    true
}

fn default_lease_for() -> Duration {
    Duration { ms: 100 }
}
