//! The current rules with their tables and counters.

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::mem;

use crate::rules::{Hit, Mode, Request, Rule, RuleMatch, Rules, Store};
use crate::table::{Table, TableRequest, decide_all, decide_one};
use crate::{Algorithm, Check, Quota};
use weir_base::shared_data::SharedData;
use weir_engine::{ItemKind, Metrics, ReportedItem};

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

/// A request's hit on one rule.
#[derive(Clone, Debug)]
pub struct RuleHit {
    /// The rule's index.
    pub rule: usize,
    hit: Hit,
}

/// A request's hits on all rules.
#[derive(Debug)]
pub enum Hits {
    /// No rule matches.
    None,
    /// One enforced local rule decides. Nearly every request has this form, so it needs no lists.
    OneLocal(RuleHit),
    /// All other combinations.
    Lists(RuleHits),
}

/// A request's hits by store and mode.
#[derive(Debug, Default)]
pub struct RuleHits {
    /// Enforced, local.
    pub local: Vec<RuleHit>,
    /// Enforced, in Redis.
    pub redis: Vec<RuleHit>,
    /// Dry run, local.
    pub local_shadow: Vec<RuleHit>,
    /// Dry run, in Redis.
    pub redis_shadow: Vec<RuleHit>,
}

/// A hit and the result of its check. It is charged only if all rules allow the request.
#[derive(Clone, Debug)]
pub struct ChargedHit {
    pub hit: RuleHit,
    pub check: Check,
}

impl RuleHit {
    /// The quota.
    pub fn quota(&self) -> Quota {
        self.hit.quota
    }

    /// The cost.
    pub fn cost(&self) -> u32 {
        self.hit.cost
    }

    /// The key.
    pub fn key(&self) -> &[u8] {
        &self.hit.key
    }

    /// The key's digest in Redis.
    pub fn digest(&self) -> [u8; 16] {
        self.hit.digest()
    }

    /// Whether the charge is undone when the request ends.
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

    /// Converts the hits into lists.
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
    /// `seed` seeds the tables' hashes: the same in all workers.
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
    /// The rules, for operators.
    pub fn items(&self, source: &str) -> Vec<ReportedItem> {
        let item = |rule: &Rule| {
            let store = match rule.store {
                Store::Local => "local",
                Store::Redis => "in Redis",
            };
            let mode = match rule.mode {
                Mode::Enforce => "",
                Mode::Shadow => ", shadow mode",
            };
            let text = format!("{}, {store}{mode}, from {source}", rule.quota);
            ReportedItem::new(ItemKind::Rule, &rule.name, &text, rule.digest())
        };
        self.rules.iter().map(item).collect()
    }

    /// The rule at `index` and its counters.
    pub fn rule(&self, index: usize) -> Option<(&Rule, &RuleMetrics)> {
        let metrics = &self.places.get(index)?.metrics;
        Some((self.rules.get(index)?, metrics))
    }

    /// Matches the request against the rules. Returns the hits, or the rule that denies its key. Appends dry-run rules
    /// that would deny it to `in_shadow`.
    pub fn hits(&self, request: &impl Request, in_shadow: &mut Vec<usize>) -> Result<Hits, usize> {
        let mut hits = Hits::None;
        for (index, rule) in self.rules.iter().enumerate() {
            match (rule.apply(request), rule.mode) {
                (RuleMatch::Not, _) => {}
                (RuleMatch::Hit(hit), _) => hits.push(rule, RuleHit { rule: index, hit }),
                (RuleMatch::Denied, Mode::Enforce) => return Err(index),
                (RuleMatch::Denied, Mode::Shadow) => in_shadow.push(index),
            }
        }
        Ok(hits)
    }

    /// Charges one hit if its rule allows it.
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

    /// Checks hits without charging them.
    pub fn check_all(&self, hits: &[RuleHit], now_ms: u64) -> Vec<ChargedHit> {
        let check = |hit: &RuleHit| {
            let check = self.table_request(hit)?.check(now_ms);
            let hit = hit.clone();
            Some(ChargedHit { hit, check })
        };
        hits.iter().filter_map(check).collect()
    }

    /// Undoes a local charge.
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

/// Each algorithm has its own table, because the formats of states differ.
fn table_name(rule: &Rule) -> String {
    let algorithm = match rule.quota.algorithm() {
        Algorithm::Gcra => "gcra",
        Algorithm::SlidingWindow => "sliding",
        Algorithm::FixedWindow => "fixed",
        Algorithm::Concurrency => "concurrency",
    };
    format!("limit.{}.{algorithm}", rule.name)
}
