//! The rules that count now, with what they count in.

use std::rc::Rc;

use weir_filter_kit::table::{self, Decision, HostData, Table, decide_all, decide_one};
use weir_limit::rules::{Applied, Hit, Mode, Rule, Rules, Store};
use weir_limit::{Algorithm, Check};

use crate::metrics::RuleMetrics;
use crate::request::HostRequest;

/// Rules, each with its table and counters.
#[derive(Debug)]
pub(crate) struct Ruleset {
    rules: Rules,
    places: Vec<Place>,
}

#[derive(Debug)]
struct Place {
    table: Table<HostData>,
    metrics: RuleMetrics,
}

/// What a request asks of one rule.
#[derive(Clone, Debug)]
pub(crate) struct RuleHit {
    /// Which rule.
    pub(crate) rule: usize,
    pub(crate) hit: Hit,
}

/// What a request asks of all rules, by what becomes of it.
#[derive(Debug, Default)]
pub(crate) struct RuleHits {
    /// Enforced, counted here.
    pub(crate) local: Vec<RuleHit>,
    /// Enforced, counted in Redis.
    pub(crate) redis: Vec<RuleHit>,
    /// Only looked at, counted here.
    pub(crate) local_shadow: Vec<RuleHit>,
    /// Only looked at, counted in Redis.
    pub(crate) redis_shadow: Vec<RuleHit>,
}

impl RuleHits {
    /// The one rule that decides, if there is no more to it.
    pub(crate) fn only_one(&self) -> Option<&RuleHit> {
        let others = [&self.redis, &self.local_shadow, &self.redis_shadow];
        match self.local.as_slice() {
            [one] if others.iter().all(|list| list.is_empty()) => Some(one),
            _ => None,
        }
    }
}

impl Ruleset {
    /// `seed` is that of the tables' hashes: the same in all VMs.
    pub(crate) fn new(rules: Rules, seed: u64) -> Self {
        let place = |rule: &Rule| Place {
            table: Table::new(HostData, &table_name(rule), rule.slots, seed),
            metrics: RuleMetrics::define(&rule.name),
        };
        Self {
            places: rules.iter().map(place).collect(),
            rules,
        }
    }

    /// The rule at `index`, with its counters.
    pub(crate) fn rule(&self, index: usize) -> Option<(&Rule, &RuleMetrics)> {
        let metrics = &self.places.get(index)?.metrics;
        Some((self.rules.get(index)?, metrics))
    }

    /// What the request asks of which rules; or which rule refuses its key always.
    pub(crate) fn look(&self, request: &HostRequest<'_>) -> Result<RuleHits, usize> {
        let mut hits = RuleHits::default();
        for (index, (rule, place)) in self.rules.iter().zip(&self.places).enumerate() {
            let hit = match (rule.apply(request), rule.mode) {
                (Applied::Not, _) => continue,
                (Applied::Hit(hit), _) => hit,
                (Applied::Denied, Mode::Enforce) => return Err(index),
                (Applied::Denied, Mode::Shadow) => {
                    place.metrics.shadow_limited.increment();
                    continue;
                }
            };
            let list = match (rule.mode, rule.store) {
                (Mode::Enforce, Store::Local) => &mut hits.local,
                (Mode::Enforce, Store::Redis) => &mut hits.redis,
                (Mode::Shadow, Store::Local) => &mut hits.local_shadow,
                (Mode::Shadow, Store::Redis) => &mut hits.redis_shadow,
            };
            list.push(RuleHit { rule: index, hit });
        }
        Ok(hits)
    }

    /// As [`Ruleset::decide`] for one rule, without a list.
    pub(crate) fn decide_one(&self, asked: &RuleHit, now_ms: u64) -> Option<Check> {
        let place = self.places.get(asked.rule)?;
        let (check, evictions) = decide_one(self.table_ask(asked)?, now_ms);
        place.metrics.evictions.add(evictions);
        Some(check)
    }

    /// Decides on what is counted here: all is charged, or nothing.
    pub(crate) fn decide(&self, asked: &[RuleHit], now_ms: u64) -> Decision {
        let asks: Vec<_> = asked
            .iter()
            .filter_map(|asked| self.table_ask(asked))
            .collect();
        let decision = decide_all(&asks, now_ms);
        let evicted_by = decision.evicted_by.iter();
        for asked in evicted_by.filter_map(|place| asked.get(*place)) {
            if let Some((_, metrics)) = self.rule(asked.rule) {
                metrics.evictions.increment();
            }
        }
        decision
    }

    /// Takes back what was charged here.
    pub(crate) fn take_back(&self, charged: &Charged, now_ms: u64) {
        if let Some(ask) = self.table_ask(&charged.asked) {
            ask.take_back(charged.check.mark, now_ms);
        }
    }

    fn table_ask<'a>(&'a self, asked: &'a RuleHit) -> Option<table::TableRequest<'a, HostData>> {
        Some(table::TableRequest {
            table: &self.places.get(asked.rule)?.table,
            quota: asked.hit.quota,
            key: &asked.hit.key,
            cost: asked.hit.cost,
        })
    }
}

/// What was charged, or refused.
#[derive(Clone, Debug)]
pub(crate) struct Charged {
    pub(crate) asked: RuleHit,
    pub(crate) check: Check,
}

impl RuleHit {
    /// Whether it must be taken back when the request has ended.
    pub(crate) fn ends(&self) -> bool {
        self.hit.quota.algorithm() == Algorithm::Concurrency
    }
}

impl Charged {
    /// Pairs asks with what was said to them.
    pub(crate) fn all(asked: Vec<RuleHit>, checks: Vec<Check>) -> Vec<Self> {
        let pairs = asked.into_iter().zip(checks);
        pairs.map(|(asked, check)| Self { asked, check }).collect()
    }
}

/// States of another algorithm are none of the same table.
fn table_name(rule: &Rule) -> String {
    let algorithm = match rule.quota.algorithm() {
        Algorithm::Gcra => "gcra",
        Algorithm::SlidingWindow => "sliding",
        Algorithm::FixedWindow => "fixed",
        Algorithm::Concurrency => "concurrency",
    };
    format!("limit.{}.{algorithm}", rule.name)
}

/// Shared by all that was decided by it, as long as any of it is under way.
pub(crate) type SharedRuleset = Rc<Ruleset>;
