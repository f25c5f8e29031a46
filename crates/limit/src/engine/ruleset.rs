//! The rules in force, with their tables and counters.

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::mem;

use crate::rules::{Hit, Mode, Request, Rule, RuleMatch, Rules, Store};
use crate::table::{Table, TableRequest, decide_all, decide_one};
use crate::{Algorithm, Check, Quota};
use weir_base::shared_data::SharedData;
use weir_engine::Metrics;

use crate::engine::metrics::RuleMetrics;

/// Rules, each with its table and counters.
#[derive(Debug)]
pub struct Ruleset<D> {
    rules: Rules,
    places: Vec<LocalRule<D>>,
}

#[derive(Debug)]
struct LocalRule<D> {
    table: Table<D>,
    metrics: RuleMetrics,
}

/// What a request takes of one rule.
#[derive(Clone, Debug)]
pub struct RuleHit {
    /// Which rule, by its place.
    pub rule: usize,
    hit: Hit,
}

/// What a request takes of all rules.
#[derive(Debug)]
pub enum Hits {
    /// Nothing.
    None,
    /// One rule that is enforced and counted here decides. Nearly every request is such a one, so it costs no lists.
    OneLocal(RuleHit),
    /// Anything else.
    Lists(RuleHits),
}

/// What a request takes of several rules, by who counts it.
#[derive(Debug, Default)]
pub struct RuleHits {
    /// Enforced, counted here.
    pub local: Vec<RuleHit>,
    /// Enforced, counted in Redis.
    pub redis: Vec<RuleHit>,
    /// In shadow, counted here.
    pub local_shadow: Vec<RuleHit>,
    /// In shadow, counted in Redis.
    pub redis_shadow: Vec<RuleHit>,
}

/// A hit, and what its rule said to it.
#[derive(Clone, Debug)]
pub struct ChargedHit {
    pub hit: RuleHit,
    pub check: Check,
}

impl RuleHit {
    /// What is allowed.
    pub fn quota(&self) -> Quota {
        self.hit.quota
    }

    /// As how many requests it counts.
    pub fn cost(&self) -> u32 {
        self.hit.cost
    }

    /// Who shares the limit.
    pub fn key(&self) -> &[u8] {
        &self.hit.key
    }

    /// The name of its key in Redis.
    pub fn digest(&self) -> [u8; 16] {
        self.hit.digest()
    }

    /// Whether the charge goes back when the request ends.
    pub fn goes_back(&self) -> bool {
        self.quota().algorithm() == Algorithm::Concurrency
    }
}

impl Hits {
    fn push(&mut self, rule: &Rule, hit: RuleHit) {
        match self {
            Self::None if rule.mode == Mode::Enforce && rule.store == Store::Local => {
                *self = Self::OneLocal(hit);
            }
            Self::Lists(lists) => lists.push(rule, hit),
            Self::None | Self::OneLocal(_) => {
                let mut lists = mem::replace(self, Self::None).into_lists();
                lists.push(rule, hit);
                *self = Self::Lists(lists);
            }
        }
    }

    /// The same hits, in lists.
    pub fn into_lists(self) -> RuleHits {
        match self {
            Self::None => RuleHits::default(),
            Self::OneLocal(hit) => RuleHits {
                local: vec![hit],
                ..RuleHits::default()
            },
            Self::Lists(lists) => lists,
        }
    }
}

impl RuleHits {
    fn push(&mut self, rule: &Rule, hit: RuleHit) {
        let list = match (rule.mode, rule.store) {
            (Mode::Enforce, Store::Local) => &mut self.local,
            (Mode::Enforce, Store::Redis) => &mut self.redis,
            (Mode::Shadow, Store::Local) => &mut self.local_shadow,
            (Mode::Shadow, Store::Redis) => &mut self.redis_shadow,
        };
        list.push(hit);
    }
}

impl<D: SharedData + Clone> Ruleset<D> {
    /// `seed` is that of the tables' hashes: the same in all workers.
    pub fn new(rules: Rules, data: &D, seed: u64, metrics: &mut Metrics) -> Self {
        let place = |rule: &Rule| LocalRule {
            table: Table::new(data.clone(), &table_name(rule), rule.slots, seed),
            metrics: RuleMetrics::new(metrics, &rule.name),
        };
        Self {
            places: rules.iter().map(place).collect(),
            rules,
        }
    }
}

impl<D: SharedData> Ruleset<D> {
    /// The rule at `index`, with its counters.
    pub fn rule(&self, index: usize) -> Option<(&Rule, &RuleMetrics)> {
        let metrics = &self.places.get(index)?.metrics;
        Some((self.rules.get(index)?, metrics))
    }

    /// What the request takes of which rules; or the rule that denies its key. `in_shadow`: those that would deny it.
    pub fn hits(&self, request: &impl Request, in_shadow: &mut Vec<usize>) -> Result<Hits, usize> {
        let mut hits = Hits::None;
        for (index, (rule, place)) in self.rules.iter().zip(&self.places).enumerate() {
            match (rule.apply(request), rule.mode) {
                (RuleMatch::Not, _) => {}
                (RuleMatch::Hit(hit), _) => hits.push(rule, RuleHit { rule: index, hit }),
                (RuleMatch::Denied, Mode::Enforce) => return Err(index),
                (RuleMatch::Denied, Mode::Shadow) => {
                    place.metrics.shadow_limited.increment();
                    in_shadow.push(index);
                }
            }
        }
        Ok(hits)
    }

    /// Charges one hit, if its rule lets it pass.
    pub fn charge_one(&self, hit: &RuleHit, now_ms: u64) -> Option<Check> {
        let place = self.places.get(hit.rule)?;
        let (check, evictions) = decide_one(self.table_request(hit)?, now_ms);
        place.metrics.evictions.add(evictions);
        Some(check)
    }

    /// Charges all hits, or none if a rule refuses: see [`Check::is_allowed`].
    pub fn charge_all(&self, hits: Vec<RuleHit>, now_ms: u64) -> Vec<ChargedHit> {
        let requests: Vec<_> = hits
            .iter()
            .filter_map(|hit| self.table_request(hit))
            .collect();
        let decision = decide_all(&requests, now_ms);
        for hit in decision.evicted_by.iter().filter_map(|at| hits.get(*at)) {
            if let Some((_, metrics)) = self.rule(hit.rule) {
                metrics.evictions.increment();
            }
        }
        let pairs = hits.into_iter().zip(decision.checks);
        pairs
            .map(|(hit, check)| ChargedHit { hit, check })
            .collect()
    }

    /// Takes back what was charged here.
    pub fn take_back(&self, charged: &ChargedHit, now_ms: u64) {
        if let Some(request) = self.table_request(&charged.hit) {
            request.take_back(charged.check.mark, now_ms);
        }
    }

    fn table_request<'a>(&'a self, hit: &'a RuleHit) -> Option<TableRequest<'a, D>> {
        Some(TableRequest {
            table: &self.places.get(hit.rule)?.table,
            quota: hit.quota(),
            key: &hit.hit.key,
            cost: hit.cost(),
        })
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
