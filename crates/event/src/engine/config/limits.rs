//! How much may be sent: the limiter's rules, the usual ones in three words.

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

/// How much is remembered of each limit unless a rule says: so many times 8 keys.
const SLOTS: u32 = 4_096;

/// How much may be sent. A request is charged to all its limits or to none; a body of many events counts once.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LimitsConfig {
    /// So many requests of each write key.
    pub per_key: Option<LimitConfig>,
    /// So many requests of each visitor of a key; requests without a visitor do not count.
    pub per_visitor: Option<LimitConfig>,
    /// So many requests of each address; of an IPv6 address the network (/64) counts.
    pub per_address: Option<LimitConfig>,
    /// Where these are counted: `local` unless set.
    pub store: Store,
    /// Other rules, as the rate limiter has them. They see the key's name as the header `x-weir-event-key`, and the
    /// visitor as `x-weir-visitor`.
    pub rules: Vec<RuleConfig>,
    /// Redis: needed for limits with store `redis`, and for `report`.
    pub redis: Option<RedisConfig>,
    /// Whether operators are told, by Redis, which limits refuse and whom: not unless set.
    pub report: bool,
    /// When the circuit breaker on Redis opens.
    pub breaker: breaker::Settings,
}

impl LimitsConfig {
    /// As the limiter has them.
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
            // Here, or the error would name a rule that nobody wrote.
            limit.quota(Algorithm::Gcra, &alloc::format!("limits.{field}"))?;
            if store == Store::Redis && self.redis.is_none() {
                let problem = "counts in Redis, but there is no limits.redis";
                return Err(FieldError::new("limits.store", problem));
            }
            rules.push(rule(name, limit, parts, store));
        }
        // Their own rules stand first, so that an error names them by the place that they have.
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
        // With none before this gateway the last of the chain is the peer.
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
