//! Rules as they are used.

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

use crate::{Algorithm, Quota};

/// The most rules.
pub const RULES_MAX: usize = 64;

/// The longest name of a rule, in bytes.
pub const NAME_LEN_MAX: usize = 64;

/// The most keys that a rule names, in each of its lists.
pub const LISTED_MAX: usize = 10_000;

/// The most slots of a rule.
const SLOTS_MAX: u32 = 65_536;

/// All rules, in the order in which they were written.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    rules: Vec<Rule>,
}

/// A rule.
#[derive(Clone, Debug)]
pub struct Rule {
    /// In metrics and header fields.
    pub name: String,
    /// Where it counts.
    pub store: Store,
    /// How requests beyond it are handled.
    pub mode: Mode,
    /// What counts while Redis does not answer.
    pub on_store_error: OnStoreError,
    /// What is allowed to keys that have no limit of their own.
    pub quota: Quota,
    /// Slices, if it takes any.
    pub lease: Option<Lease>,
    /// How much the gateway remembers: so many times 8 keys.
    pub slots: u32,
    matching: Matching,
    parts: Parts,
    cost: Cost,
    overrides: BTreeMap<Vec<u8>, Quota>,
    allow: BTreeSet<Vec<u8>>,
    deny: BTreeSet<Vec<u8>>,
}

/// How slices of a limit are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The most requests of one slice.
    pub max: u32,
    /// For how long it may be spent, in milliseconds.
    pub lasts_ms: u64,
}

#[derive(Clone, Debug)]
enum Cost {
    Constant(u32),
    Header(CostHeaderConfig),
}

/// What a rule says of a request before anything is counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleMatch {
    /// It does not concern it.
    Not,
    /// Its key is refused always.
    Denied,
    /// It is to be counted.
    Hit(Hit),
}

/// What is to be counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hit {
    /// Who shares the limit. It holds what the client sent, of any length: to be hashed.
    pub key: Vec<u8>,
    /// What is allowed.
    pub quota: Quota,
    /// As how many requests it counts: 1 to the burst.
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

    /// On a cluster a script stays in one slot, and two keys of one request are in two. Whether two rules
    /// can meet on a request is not known before it comes, so a cluster takes one that can.
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
        })
    }

    /// Whether it counts in Redis.
    pub fn needs_redis(&self) -> bool {
        self.store == Store::Redis
    }

    /// Whether it tells users apart.
    pub fn needs_user(&self) -> bool {
        self.parts.have_user()
    }

    /// Who `key` of a [`Hit`] is, for operators: at most 64 characters of each part. Of headers, cookies and parameters, which may be
    /// passwords, only a hash.
    pub fn shown(&self, key: &[u8]) -> String {
        self.parts.shown(key)
    }

    /// Looks at a request.
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
    /// A name for the key in Redis, of fixed length: SHA-256, its first half. Nobody finds two keys of which
    /// it is the same.
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

/// A name is a part of metrics' names and of quoted strings.
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

/// What would do nothing for a rule that counts here is refused: somebody expects it to.
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

/// `least`: the lowest burst that a key of the rule can have.
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
