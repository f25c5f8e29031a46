//! Rules as they are written.

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
    /// In metrics and header fields: 1 to 64 of `a-z A-Z 0-9 _ -`.
    pub name: String,
    /// Which requests it concerns: all unless set.
    #[serde(default, rename = "match")]
    pub matching: MatchConfig,
    /// Who shares a limit: requests of which all these are the same. None: all requests.
    #[serde(default)]
    pub key: Vec<KeyPart>,
    /// How much is allowed.
    pub limit: LimitConfig,
    /// How it is counted: `gcra` unless set.
    #[serde(default)]
    pub algorithm: Algorithm,
    /// Where it is counted: `local` unless set.
    #[serde(default)]
    pub store: Store,
    /// How requests beyond the limit are handled: `enforce` unless set.
    #[serde(default)]
    pub mode: Mode,
    /// What counts while Redis does not answer: `local` unless set. For rules in Redis only.
    #[serde(default)]
    pub on_store_error: Option<OnStoreError>,
    /// As how many requests a request counts: 1 unless set, 1 to the burst.
    #[serde(default)]
    pub cost: Option<u32>,
    /// As how many requests a request counts, by a header: instead of `cost`.
    #[serde(default)]
    pub cost_header: Option<CostHeaderConfig>,
    /// Other limits for named keys.
    #[serde(default)]
    pub overrides: Vec<OverrideConfig>,
    /// Keys that the rule does not concern.
    #[serde(default)]
    pub allow: Vec<Vec<String>>,
    /// Keys whose requests are refused, whatever they have used.
    #[serde(default)]
    pub deny: Vec<Vec<String>>,
    /// Whether a gateway takes slices of the limit and spends them by itself. For rules in Redis only.
    #[serde(default)]
    pub lease: Option<LeaseConfig>,
    /// How much is remembered in the gateway: so many times 8 keys; 4,096 unless set, 1 to 65,536. A rule in
    /// Redis needs it for the time that Redis does not answer.
    #[serde(default = "default_slots")]
    pub slots: u32,
}

/// Which requests a rule concerns: those that meet every condition. They are looked at in this order, and
/// the first that is not met decides.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MatchConfig {
    /// Any of these methods; none: any at all.
    pub methods: Vec<String>,
    /// The path, without the query.
    pub path: Option<PathConfig>,
    /// Headers that must be there, or must not.
    pub headers: Vec<HeaderConfig>,
}

/// What a path must be.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum PathConfig {
    /// This path.
    Exact(String),
    /// A path that begins with this one: `/api` is the beginning of `/api/x`, and of `/apix`.
    Prefix(String),
    /// A path of these segments, where `{name}` stands for any one: `/users/{id}/orders`.
    Template(String),
}

/// What a header must be.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeaderConfig {
    /// Its name.
    pub name: String,
    /// Whether it must be there (as unless set) or must not.
    #[serde(default = "default_present")]
    pub present: bool,
}

/// A part of a key. What is not there is a value of its own: all requests without the header share one
/// limit, so that leaving it out helps nobody.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum KeyPart {
    /// The client's address as Envoy knows it; of an IPv6 address the network (/64).
    Address,
    /// The address that `X-Forwarded-For` names, so many trusted proxies away.
    Forwarded(ForwardedConfig),
    /// The user, as the header says that the filter's `user_header` names.
    User,
    /// The method.
    Method,
    /// A header.
    Header(String),
    /// A parameter of the query: the first of this name, percent-decoded.
    Query(String),
    /// A cookie.
    Cookie(String),
    /// A segment of the path, percent-decoded; the first is 0.
    Segment(usize),
}

/// Which address of `X-Forwarded-For` counts.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForwardedConfig {
    /// How many proxies before this gateway are trusted to have added the address that they saw: 1 to 16. As
    /// Envoy has added its peer's by then (with `use_remote_address: true`), with 1 it is the last but one.
    pub trusted_hops: usize,
}

/// How much is allowed.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitConfig {
    /// So many requests in each period; with `concurrency`, at once: 1 to 1,000,000.
    pub rate: u32,
    /// The period; with `concurrency`, after how long a request no longer counts that never ended.
    pub per: Duration,
    /// With `gcra`, so many at once: the rate unless set.
    #[serde(default)]
    pub burst: Option<u32>,
}

impl LimitConfig {
    /// So many requests a second, and so many at once.
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
            let problem = "only algorithm gcra has a burst";
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

/// Where requests are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Store {
    /// In this Envoy: its workers share the limit.
    #[default]
    Local,
    /// In Redis: all gateways share the limit.
    Redis,
}

/// How requests beyond the limit are handled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// They are refused.
    #[default]
    Enforce,
    /// They are counted, and pass.
    Shadow,
}

/// What counts while Redis does not answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnStoreError {
    /// Requests pass.
    Open,
    /// Requests are refused, with 503.
    Closed,
    /// Each gateway counts by itself.
    #[default]
    Local,
}

/// A cost that a header names. Who sets the header decides what it costs: not the client.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CostHeaderConfig {
    /// The header's name. Without it, or if it is not a whole number, a request counts as 1.
    pub name: String,
    /// The most that counts: 1 to the burst.
    pub max: u32,
}

/// Another limit for one key.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OverrideConfig {
    /// The values of the key's parts, in their order.
    pub key: Vec<String>,
    /// What counts for it.
    pub limit: LimitConfig,
}

/// How slices of a limit are taken.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeaseConfig {
    /// The most requests of one slice: 2 to the burst. Each worker of each gateway may hold one for a key.
    pub max: u32,
    /// For how long a slice may be spent, `100ms` unless set; at most the period.
    #[serde(default = "default_lease_for")]
    pub lasts: Duration,
}

impl RulesConfig {
    /// Checks the rules, and makes them ready for use. `one_slot_a_call`: whether Redis is a cluster, where
    /// one script call must stay in one slot.
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
