//! The rate limits: common ones in short form, others as the limiter's rules.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use serde::Deserialize;
use weir_base::headers::{EVENT_KEY, VISITOR};
use weir_base::{FieldError, breaker};
use weir_engine::config::{RedisConfig, check_breaker};
use weir_limit::Algorithm;
use weir_limit::engine::config::{CheckedConfig, Config, HeadersConfig};
use weir_limit::rules::{
    ForwardedConfig, HeaderConfig, KeyPart, LimitConfig, MatchConfig, Mode, RuleConfig, Store,
};

/// Default memory of each limit: this number times 8 keys.
const SLOTS: u32 = 4_096;

/// Rate limits of event requests. A request counts once, however many events it has; it is charged to all its
/// limits or to none.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LimitsConfig {
    /// Limit per write key.
    pub per_key: Option<LimitConfig>,
    /// Limit per visitor of a key; requests without a visitor are exempt.
    pub per_visitor: Option<LimitConfig>,
    /// Limit per address, or IPv6 /64 network.
    pub per_address: Option<LimitConfig>,
    /// Store of these three limits. Default: `local`.
    pub store: Store,
    /// Further rules, as in the rate limiter. They can use the headers `x-weir-event-key` (key name) and
    /// `x-weir-visitor`.
    pub rules: Vec<RuleConfig>,
    /// Connection to Redis; required for store `redis` and for `report`.
    pub redis: Option<RedisConfig>,
    /// Publish refusals per limit, and the top-k refused keys, to Redis. Default: false.
    pub report: bool,
    /// Circuit breaker for Redis.
    pub breaker: breaker::Settings,
}

impl LimitsConfig {
    /// Converts to the limiter's configuration.
    pub(super) fn checked(
        self,
        user_header: &str,
        trusted_hops: Option<usize>,
    ) -> Result<CheckedConfig, FieldError> {
        check_breaker("limits.breaker", &self.breaker)?;
        let store = self.store;
        let key = || KeyPart::Header(EVENT_KEY.into());
        let usual = [
            ("per_key", "events-key", self.per_key, vec![key()]),
            (
                "per_visitor",
                "events-visitor",
                self.per_visitor,
                vec![key(), KeyPart::Header(VISITOR.into())],
            ),
            (
                "per_address",
                "events-address",
                self.per_address,
                vec![address(trusted_hops)],
            ),
        ];
        let mut rules = Vec::new();
        for (field, name, limit, parts) in usual {
            let Some(limit) = limit else { continue };
            // Checked here; otherwise the error would name a generated rule.
            limit.quota(Algorithm::Gcra, &alloc::format!("limits.{field}"))?;
            if store == Store::Redis && self.redis.is_none() {
                let problem = "needs limits.redis";
                return Err(FieldError::new("limits.store", problem));
            }
            rules.push(rule(name, limit, parts, store));
        }
        // The configured rules come first, so that errors contain their index.
        let mut all = self.rules;
        all.extend(rules);
        let config = Config {
            rules: all,
            reload: false,
            report: self.report,
            poll_interval_ms: 250,
            user_header: Some(user_header.into()),
            redis: self.redis,
            breaker: self.breaker,
            headers: HeadersConfig::default(),
            answer: None,
            debug: None,
            edges: None,
        };
        config.checked(false, &|_| None).map_err(|error| {
            FieldError::new(alloc::format!("limits.{}", error.path), error.problem)
        })
    }
}

fn address(trusted_hops: Option<usize>) -> KeyPart {
    match trusted_hops {
        // Without proxies before this gateway, the last entry of the chain is the peer.
        None | Some(0) => KeyPart::Address,
        Some(trusted_hops) => KeyPart::Forwarded(ForwardedConfig { trusted_hops }),
    }
}

fn rule(name: &str, limit: LimitConfig, key: Vec<KeyPart>, store: Store) -> RuleConfig {
    let has_visitor = key.len() > 1;
    let visitor = HeaderConfig {
        name: String::from(VISITOR),
        present: true,
    };
    RuleConfig {
        name: name.into(),
        matching: MatchConfig {
            headers: has_visitor.then_some(visitor).into_iter().collect(),
            ..MatchConfig::default()
        },
        key,
        limit,
        algorithm: Algorithm::Gcra,
        store,
        mode: Mode::Enforce,
        on_store_error: None,
        cost: None,
        cost_header: None,
        overrides: vec![],
        allow: vec![],
        deny: vec![],
        lease: None,
        slots: SLOTS,
    }
}
