//! Validated rules.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::config::CostHeaderConfig;
use super::key::Parts;
use super::matching::{Matching, check_token};
use super::{LeaseConfig, Mode, OnStoreError, Request, RuleConfig, Store};
use sha2::{Digest, Sha256};
use weir_base::FieldError;
use weir_base::hash::stable_hash;

use crate::{Algorithm, Quota};

/// The maximum number of rules.
pub const RULES_MAX: usize = 64;

/// The maximum length of a rule's name, in bytes.
pub const NAME_LEN_MAX: usize = 64;

/// The maximum number of keys in each list of a rule.
pub const LISTED_MAX: usize = 10_000;

/// The maximum number of slots of a rule.
const SLOTS_MAX: u32 = 65_536;

/// All rules in the order of the configuration.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    rules: Vec<Rule>,
}

/// A rule.
#[derive(Clone, Debug)]
pub struct Rule {
    /// The name in metrics and header fields.
    pub name: String,
    /// Where it counts requests.
    pub store: Store,
    /// Whether it refuses requests.
    pub mode: Mode,
    /// Its behaviour during a Redis outage.
    pub on_store_error: OnStoreError,
    /// The quota of keys without an override.
    pub quota: Quota,
    /// The lease settings, if any.
    pub lease: Option<Lease>,
    /// The size of the local table: 8 keys per slot.
    pub slots: u32,
    matching: Matching,
    parts: Parts,
    cost: Cost,
    overrides: BTreeMap<Vec<u8>, Quota>,
    allow: BTreeSet<Vec<u8>>,
    deny: BTreeSet<Vec<u8>>,
    digest: u64,
}

/// The settings of leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The maximum number of requests per slice.
    pub max: u32,
    /// The lifetime of a slice, in milliseconds.
    pub lasts_ms: u64,
}

#[derive(Clone, Debug)]
enum Cost {
    Constant(u32),
    Header(CostHeaderConfig),
}

/// The match of a request before anything is counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleMatch {
    /// The rule does not apply.
    Not,
    /// The key is in the `deny` list.
    Denied,
    /// The request must be counted.
    Hit(Hit),
}

/// A request to count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hit {
    /// The key. It contains client values of any length, so use only its hash.
    pub key: Vec<u8>,
    /// The quota.
    pub quota: Quota,
    /// The cost: 1 to the burst.
    pub cost: u32,
}

impl Rules {
    pub(super) fn new(configs: Vec<RuleConfig>, one_slot_a_call: bool) -> Result<Self, FieldError> {
        if configs.len() > RULES_MAX {
            return refuse("rules", format!("must be at most {RULES_MAX}"));
        }
        let mut names = BTreeSet::new();
        let mut rules = Vec::new();
        for (index, config) in configs.into_iter().enumerate() {
            let path = format!("rules[{index}]");
            if !names.insert(config.name.clone()) {
                return refuse(&format!("{path}.name"), "another rule has this name");
            }
            rules.push(Rule::new(config, &path)?);
        }
        let rules = Self { rules };
        if one_slot_a_call {
            rules.check_one_slot()?;
        }
        Ok(rules)
    }

    /// On a cluster a script is restricted to one slot, but two keys of one request may be in two. Whether two rules
    /// match the same request is unknown in advance, so with a cluster only one rule may use Redis.
    fn check_one_slot(&self) -> Result<(), FieldError> {
        let is_in_redis = |(_, rule): &(usize, &Rule)| rule.needs_redis();
        let mut in_redis = self.rules.iter().enumerate().filter(is_in_redis);
        let Some((_, first)) = in_redis.next() else {
            return Ok(());
        };
        match in_redis.next() {
            None => Ok(()),
            Some((index, second)) => refuse(
                &format!("rules[{index}].store"),
                format!(
                    "with topology cluster only one rule can have store redis: the keys of {} and {} are in different slots, so a request could be charged to one rule and refused by the other; make one of them local, or use a single Redis for rate limits",
                    first.name, second.name
                ),
            ),
        }
    }

    /// The rules.
    pub fn iter(&self) -> impl Iterator<Item = &Rule> {
        self.rules.iter()
    }

    /// The rule at `index`.
    pub fn get(&self, index: usize) -> Option<&Rule> {
        self.rules.get(index)
    }
}

impl Rule {
    pub(super) fn new(config: RuleConfig, at: &str) -> Result<Self, FieldError> {
        let digest = stable_hash(format!("{config:?}").as_bytes());
        check_token(&config.name, &format!("{at}.name"))?;
        check_name(&config.name, &format!("{at}.name"))?;
        let quota = config
            .limit
            .quota(config.algorithm, &format!("{at}.limit"))?;
        check_store(&config, at)?;
        let parts = Parts::new(config.key, &format!("{at}.key"))?;
        let listed = |list: Vec<Vec<String>>, field: &str| {
            check_count(list.len(), &format!("{at}.{field}"))?;
            let keys = list.iter().enumerate();
            let named = |(index, values): (usize, &Vec<String>)| {
                parts.named(values, &format!("{at}.{field}[{index}]"))
            };
            keys.map(named).collect::<Result<BTreeSet<_>, _>>()
        };
        let (allow, deny) = (listed(config.allow, "allow")?, listed(config.deny, "deny")?);
        if allow.intersection(&deny).next().is_some() {
            return refuse(
                &format!("{at}.deny"),
                "has a key that is also in allow: list it only once",
            );
        }
        check_count(config.overrides.len(), &format!("{at}.overrides"))?;
        let mut overrides = BTreeMap::new();
        for (index, other) in config.overrides.iter().enumerate() {
            let path = format!("{at}.overrides[{index}]");
            let key = parts.named(&other.key, &format!("{path}.key"))?;
            let quota = other
                .limit
                .quota(config.algorithm, &format!("{path}.limit"))?;
            if overrides.insert(key, quota).is_some() {
                return refuse(&format!("{path}.key"), "another override has this key");
            }
        }
        let least = overrides.values().chain([&quota]).map(Quota::burst).min();
        let least = least.unwrap_or(1);
        if !(1..=SLOTS_MAX).contains(&config.slots) {
            return refuse(&format!("{at}.slots"), format!("must be 1 to {SLOTS_MAX}"));
        }
        Ok(Self {
            cost: cost(config.cost, config.cost_header, least, at)?,
            lease: config
                .lease
                .map(|lease| self::lease(lease, &quota, at))
                .transpose()?,
            matching: Matching::new(config.matching, &format!("{at}.match"))?,
            name: config.name,
            store: config.store,
            mode: config.mode,
            on_store_error: config.on_store_error.unwrap_or_default(),
            quota,
            slots: config.slots,
            parts,
            overrides,
            allow,
            deny,
            digest,
        })
    }

    /// Whether it counts in Redis.
    pub fn needs_redis(&self) -> bool {
        self.store == Store::Redis
    }

    /// A hash of all its settings: rules of several gateways are equal if their hashes are.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// Whether its key contains the user.
    pub fn needs_user(&self) -> bool {
        self.parts.have_user()
    }

    /// The `key` of a [`Hit`] for operators: at most 64 characters of each part. Headers, cookies and parameters, which
    /// may contain passwords, appear only as a hash.
    pub fn describe_key(&self, key: &[u8]) -> String {
        self.parts.describe_key(key)
    }

    /// Matches a request.
    pub fn apply(&self, request: &impl Request) -> RuleMatch {
        if !self.matching.is_met(request) {
            return RuleMatch::Not;
        }
        let key = self.parts.for_request(request);
        if self.allow.contains(&key) {
            return RuleMatch::Not;
        }
        if self.deny.contains(&key) {
            return RuleMatch::Denied;
        }
        RuleMatch::Hit(Hit {
            quota: self.overrides.get(&key).copied().unwrap_or(self.quota),
            cost: self.cost.for_request(request),
            key,
        })
    }
}

impl Hit {
    /// The key's digest in Redis, of fixed length: the first half of its SHA-256, which is collision-resistant.
    pub fn digest(&self) -> [u8; 16] {
        let digest: [u8; 32] = Sha256::digest(&self.key).into();
        let [half @ .., _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _] = digest;
        half
    }
}

impl Cost {
    fn for_request(&self, request: &impl Request) -> u32 {
        let header = match self {
            Self::Constant(cost) => return *cost,
            Self::Header(header) => header,
        };
        let value = request.header(&header.name).unwrap_or_default();
        let number = core::str::from_utf8(&value)
            .ok()
            .and_then(|text| text.trim().parse::<u64>().ok());
        let cost = u32::try_from(number.unwrap_or(1)).unwrap_or(u32::MAX);
        cost.clamp(1, header.max)
    }
}

fn refuse<T>(path: &str, problem: impl Into<String>) -> Result<T, FieldError> {
    Err(FieldError {
        path: path.into(),
        problem: problem.into(),
    })
}

/// A name is part of metric names and of quoted strings.
fn check_name(name: &str, at: &str) -> Result<(), FieldError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if name.len() <= NAME_LEN_MAX && name.bytes().all(is_plain) {
        return Ok(());
    }
    refuse(
        at,
        format!("must be 1 to {NAME_LEN_MAX} of a-z A-Z 0-9 _ -"),
    )
}

fn check_count(count: usize, at: &str) -> Result<(), FieldError> {
    match count <= LISTED_MAX {
        true => Ok(()),
        false => refuse(at, format!("must have at most {LISTED_MAX} keys")),
    }
}

/// Rejects settings without effect on a local rule, because their author expects one.
fn check_store(config: &RuleConfig, at: &str) -> Result<(), FieldError> {
    if config.store == Store::Redis {
        return Ok(());
    }
    if config.on_store_error.is_some() {
        return refuse(
            &format!("{at}.on_store_error"),
            "only for rules with store redis",
        );
    }
    if config.lease.is_some() {
        return refuse(&format!("{at}.lease"), "only for rules with store redis");
    }
    Ok(())
}

/// `least`: the lowest burst of any key of the rule.
fn cost(
    constant: Option<u32>,
    header: Option<CostHeaderConfig>,
    least: u32,
    at: &str,
) -> Result<Cost, FieldError> {
    let (cost, value, field) = match (constant, header) {
        (Some(_), Some(_)) => {
            return refuse(
                &format!("{at}.cost_header"),
                "cost is also set: set only one of them",
            );
        }
        (constant, None) => {
            let value = constant.unwrap_or(1);
            (Cost::Constant(value), value, "cost")
        }
        (None, Some(mut header)) => {
            check_token(&header.name, &format!("{at}.cost_header.name"))?;
            header.name.make_ascii_lowercase();
            let max = header.max;
            (Cost::Header(header), max, "cost_header.max")
        }
    };
    if (1..=least).contains(&value) {
        return Ok(cost);
    }
    let problem =
        format!("must be 1 to {least}, the rule's lowest burst: a higher cost could never pass");
    refuse(&format!("{at}.{field}"), problem)
}

fn lease(config: LeaseConfig, quota: &Quota, at: &str) -> Result<Lease, FieldError> {
    if quota.algorithm() == Algorithm::Concurrency {
        let problem = "not supported with algorithm concurrency";
        return refuse(&format!("{at}.lease"), problem);
    }
    if !(2..=quota.burst()).contains(&config.max) {
        let problem = format!("must be 2 to {}, the burst", quota.burst());
        return refuse(&format!("{at}.lease.max"), problem);
    }
    if !(1..=quota.per_ms()).contains(&config.lasts.ms) {
        return refuse(
            &format!("{at}.lease.lasts"),
            "must be 1ms to the limit's period",
        );
    }
    Ok(Lease {
        max: config.max,
        lasts_ms: config.lasts.ms,
    })
}
