//! The evaluation of one request.

use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::mem;

use crate::Check;
use crate::redis::keys::LimitKey;
use crate::redis::limit_back::Charge;
use crate::rules::{OnStoreError, fields};
use weir_base::shared_data::SharedData;

use crate::engine::config::HeadersConfig;
use crate::engine::ruleset::{ChargedHit, RuleHit, RuleHits, Ruleset};

/// The state of a request's evaluation.
#[derive(Debug)]
pub struct Evaluation<D> {
    /// The rules at the time of the request.
    pub ruleset: Arc<Ruleset<D>>,
    /// Enforced local hits that are not charged yet.
    pub local: Vec<RuleHit>,
    /// Enforced hits in Redis that are not charged yet.
    pub redis: Vec<RuleHit>,
    /// Dry-run hits that are not evaluated yet.
    pub local_shadow: Vec<RuleHit>,
    pub redis_shadow: Vec<RuleHit>,
    /// Local charges.
    pub charged: Vec<ChargedHit>,
    /// Hits paid from slices.
    pub leased: Vec<(RuleHit, LimitKey)>,
    /// Charges in Redis.
    pub charged_in_redis: Vec<(ChargedHit, LimitKey)>,
    /// Charges of dry-run rules, local and in Redis, that are undone when the request ends.
    shadow_charged: Vec<ChargedHit>,
    shadow_charged_in_redis: Vec<(ChargedHit, LimitKey)>,
    /// The dry-run hits that would have refused the request.
    pub would_refuse: Vec<RuleHit>,
    /// Whether an operator sent the debug secret.
    is_debug: bool,
}

/// The remaining work for a passed request.
#[derive(Debug)]
pub struct PassedRequest<D> {
    /// Headers for its response.
    pub headers: Vec<(&'static str, String)>,
    /// Charges to undo when it ends: local ones,
    pub here: Vec<(Arc<Ruleset<D>>, ChargedHit)>,
    /// and those in Redis.
    pub in_redis: Vec<Charge>,
}

/// The names of the quota headers and the debug header.
const POLICY: &str = "ratelimit-policy";
const LIMIT: &str = "ratelimit";
const SHADOW: &str = "x-weir-ratelimit-shadow";

// A derived implementation would require `D: Default`.
impl<D> Default for PassedRequest<D> {
    fn default() -> Self {
        Self {
            headers: vec![],
            here: vec![],
            in_redis: vec![],
        }
    }
}

impl<D> PassedRequest<D> {
    /// Whether no work remains.
    pub fn is_done(&self) -> bool {
        self.headers.is_empty() && self.here.is_empty() && self.in_redis.is_empty()
    }
}

impl<D: SharedData> Evaluation<D> {
    /// A new evaluation.
    pub fn new(ruleset: &Arc<Ruleset<D>>, hits: RuleHits, is_debug: bool) -> Self {
        Self {
            ruleset: Arc::clone(ruleset),
            local: hits.local,
            redis: hits.redis,
            local_shadow: hits.local_shadow,
            redis_shadow: hits.redis_shadow,
            charged: vec![],
            leased: vec![],
            charged_in_redis: vec![],
            shadow_charged: vec![],
            shadow_charged_in_redis: vec![],
            would_refuse: vec![],
            is_debug,
        }
    }

    /// Whether hits remain for Redis.
    pub fn needs_redis(&self) -> bool {
        !(self.redis.is_empty() && self.redis_shadow.is_empty())
    }

    /// Charges the enforced local hits. If a rule refuses, it charges none and returns all results.
    pub fn charge_here(&mut self, now_ms: u64) -> Result<(), Vec<ChargedHit>> {
        if self.local.is_empty() {
            return Ok(());
        }
        let hits = mem::take(&mut self.local);
        let charged = self.ruleset.charge_all(hits, now_ms);
        if charged.iter().any(|charged| !charged.check.is_allowed()) {
            return Err(charged);
        }
        self.charged.extend(charged);
        Ok(())
    }

    /// Undoes the local charges.
    pub fn take_back_here(&self, now_ms: u64) {
        for charged in &self.charged {
            self.ruleset.take_back(charged, now_ms);
        }
    }

    /// Applies each rule's `on_store_error` to its hit in Redis. `Err` if one refuses the request.
    pub fn fall_back(&mut self) -> Result<(), RuleHit> {
        for hit in mem::take(&mut self.redis) {
            let Some((rule, metrics)) = self.ruleset.rule(hit.rule) else {
                continue;
            };
            metrics.fallback.increment();
            match rule.on_store_error {
                OnStoreError::Open => metrics.allowed.increment(),
                OnStoreError::Closed => return Err(hit),
                OnStoreError::Local => self.local.push(hit),
            }
        }
        for hit in mem::take(&mut self.redis_shadow) {
            if let Some((_, metrics)) = self.ruleset.rule(hit.rule) {
                metrics.fallback.increment();
            }
            self.local_shadow.push(hit);
        }
        Ok(())
    }

    /// Evaluates the local dry-run rules.
    pub fn shadow_here(&mut self, now_ms: u64) {
        for hit in mem::take(&mut self.local_shadow) {
            if let Some(check) = self.ruleset.charge_one(&hit, now_ms) {
                if self.shadow_charges(&hit, &check) {
                    self.shadow_charged.push(ChargedHit { hit, check });
                } else if !check.is_allowed() {
                    self.would_refuse.push(hit);
                }
            }
        }
    }

    /// Counts the result of a dry-run rule in Redis, and stores a charge to undo later.
    pub fn shadow_in_redis(&mut self, hit: RuleHit, key: LimitKey, check: Check) {
        if self.shadow_charges(&hit, &check) {
            self.shadow_charged_in_redis
                .push((ChargedHit { hit, check }, key));
        } else if !check.is_allowed() {
            self.would_refuse.push(hit);
        }
    }

    /// Takes the dry-run charges in Redis of a refused request, which must be undone: it is not in flight.
    pub fn take_shadow_charges(&mut self) -> PassedRequest<D> {
        let ruleset = Arc::clone(&self.ruleset);
        let here = mem::take(&mut self.shadow_charged).into_iter();
        let in_redis = mem::take(&mut self.shadow_charged_in_redis);
        PassedRequest {
            headers: vec![],
            here: here
                .map(|charged| (Arc::clone(&ruleset), charged))
                .collect(),
            in_redis: in_redis.into_iter().map(charge_back).collect(),
        }
    }

    /// Counts the result of a dry-run rule. Returns whether its charge is undone when the request ends.
    fn shadow_charges(&self, hit: &RuleHit, check: &Check) -> bool {
        if let Some((_, metrics)) = self.ruleset.rule(hit.rule) {
            match check.is_allowed() {
                true => metrics.allowed.increment(),
                false => metrics.shadow_limited.increment(),
            }
        }
        check.is_allowed() && hit.goes_back()
    }

    /// Counts the request for the rules that let it pass.
    pub fn count_allowed(&self) {
        let here = self.charged.iter().map(|charged| &charged.hit);
        let in_redis = self.charged_in_redis.iter();
        let in_redis = in_redis.map(|(charged, _)| &charged.hit);
        let leased = self.leased.iter().map(|(hit, _)| hit);
        for hit in here.chain(in_redis).chain(leased) {
            if let Some((_, metrics)) = self.ruleset.rule(hit.rule) {
                metrics.allowed.increment();
            }
        }
    }

    /// The headers for the response.
    pub fn response_headers(&self, config: HeadersConfig) -> Vec<(&'static str, String)> {
        let mut headers = Vec::new();
        if config.on_allowed {
            let in_redis = self.charged_in_redis.iter().map(|(charged, _)| charged);
            headers = self.quota_headers(self.charged.iter().chain(in_redis), config);
        }
        if self.is_debug {
            headers.push((SHADOW, self.names(&self.would_refuse)));
        }
        headers
    }

    /// The work that remains until the request ends.
    pub fn passed(self, headers: Vec<(&'static str, String)>) -> PassedRequest<D> {
        let here = self.charged.into_iter().chain(self.shadow_charged);
        let here = here.filter(|charged| charged.hit.goes_back());
        let in_redis = self.charged_in_redis.into_iter();
        let in_redis = in_redis.chain(self.shadow_charged_in_redis);
        let in_redis = in_redis.filter(|(charged, _)| charged.hit.goes_back());
        PassedRequest {
            headers,
            here: here
                .map(|charged| (Arc::clone(&self.ruleset), charged))
                .collect(),
            in_redis: in_redis.map(charge_back).collect(),
        }
    }

    /// The quota headers for these results.
    pub fn quota_headers<'a>(
        &self,
        response: impl Iterator<Item = &'a ChargedHit> + Clone,
        config: HeadersConfig,
    ) -> Vec<(&'static str, String)> {
        let is_refused = response.clone().any(|charged| !charged.check.is_allowed());
        let (mut policy, mut limit) = (String::new(), String::new());
        let mut least: Option<&ChargedHit> = None;
        for charged in response {
            let Some((rule, _)) = self.ruleset.rule(charged.hit.rule) else {
                continue;
            };
            fields::append_policy(&mut policy, &rule.name, &charged.hit.quota());
            fields::append_limit(&mut limit, &rule.name, &charged.check, is_refused);
            if least.is_none_or(|least| charged.check.remaining < least.check.remaining) {
                least = Some(charged);
            }
        }
        let Some(least) = least else { return vec![] };
        let mut headers = vec![(POLICY, policy), (LIMIT, limit)];
        if config.legacy {
            headers.extend(legacy_headers(least));
        }
        headers
    }

    /// The names of the rules that refuse.
    pub fn violated(&self, hits: &[ChargedHit]) -> Vec<String> {
        let refusing = hits.iter().filter(|charged| !charged.check.is_allowed());
        let rules = refusing.filter_map(|charged| self.ruleset.rule(charged.hit.rule));
        rules.map(|(rule, _)| rule.name.as_str().into()).collect()
    }

    fn names(&self, hits: &[RuleHit]) -> String {
        let names = hits.iter().filter_map(|hit| self.ruleset.rule(hit.rule));
        let names: Vec<&str> = names.map(|(rule, _)| rule.name.as_str()).collect();
        match names.is_empty() {
            true => "none".into(),
            false => names.join(", "),
        }
    }
}

fn charge_back((charged, key): (ChargedHit, LimitKey)) -> Charge {
    Charge {
        key,
        quota: charged.hit.quota(),
        cost: charged.hit.cost(),
        mark: charged.check.mark,
    }
}

/// The older headers, which can describe only one rule.
fn legacy_headers(least: &ChargedHit) -> impl Iterator<Item = (&'static str, String)> {
    let values = [
        least.hit.quota().burst().to_string(),
        least.check.remaining.to_string(),
        fields::seconds(least.check.reset_ms).to_string(),
    ];
    fields::LEGACY.into_iter().zip(values)
}
