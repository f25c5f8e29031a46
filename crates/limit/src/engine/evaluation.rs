//! One request on its way through the rules.

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

/// What is known of a request.
#[derive(Debug)]
pub struct Evaluation<D> {
    /// The rules that were in force when it came.
    pub ruleset: Arc<Ruleset<D>>,
    /// What is enforced here and not charged yet.
    pub local: Vec<RuleHit>,
    /// What is enforced in Redis and not charged yet.
    pub redis: Vec<RuleHit>,
    /// What rules in shadow are still to say.
    pub local_shadow: Vec<RuleHit>,
    pub redis_shadow: Vec<RuleHit>,
    /// What was charged here.
    pub charged: Vec<ChargedHit>,
    /// What was spent of slices.
    pub leased: Vec<(RuleHit, LimitKey)>,
    /// What was charged in Redis.
    pub charged_in_redis: Vec<(ChargedHit, LimitKey)>,
    /// What rules in shadow have charged here and in Redis, of what goes back when the request ends.
    shadow_charged: Vec<ChargedHit>,
    shadow_charged_in_redis: Vec<(ChargedHit, LimitKey)>,
    /// What rules in shadow would have refused.
    pub would_refuse: Vec<RuleHit>,
    /// Whether an operator asks.
    is_debug: bool,
}

/// What is left to do for a request that goes on.
#[derive(Debug)]
pub struct PassedRequest<D> {
    /// For its response.
    pub headers: Vec<(&'static str, String)>,
    /// Charges that go back when it ends: here,
    pub here: Vec<(Arc<Ruleset<D>>, ChargedHit)>,
    /// and in Redis.
    pub in_redis: Vec<Charge>,
}

/// The headers that tell of quotas, and what operators see.
const POLICY: &str = "ratelimit-policy";
const LIMIT: &str = "ratelimit";
const SHADOW: &str = "x-weir-ratelimit-shadow";

// Derived, it would ask for data that has a default.
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
    /// Whether nothing is left to do.
    pub fn is_done(&self) -> bool {
        self.headers.is_empty() && self.here.is_empty() && self.in_redis.is_empty()
    }
}

impl<D: SharedData> Evaluation<D> {
    /// A request of which nothing is decided yet.
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

    /// Whether Redis has still something to say.
    pub fn needs_redis(&self) -> bool {
        !(self.redis.is_empty() && self.redis_shadow.is_empty())
    }

    /// Charges what is enforced here. If a rule refuses, nothing of it is charged, and this is what all said.
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

    /// Takes back what was charged here.
    pub fn take_back_here(&self, now_ms: u64) {
        for charged in &self.charged {
            self.ruleset.take_back(charged, now_ms);
        }
    }

    /// Redis does not decide: its hits go where their rules want them then. `Err` if one lets nothing pass.
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

    /// Asks the rules in shadow that count here.
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

    /// Counts what a rule in shadow said in Redis, and keeps what is to go back.
    pub fn shadow_in_redis(&mut self, hit: RuleHit, key: LimitKey, check: Check) {
        if self.shadow_charges(&hit, &check) {
            self.shadow_charged_in_redis
                .push((ChargedHit { hit, check }, key));
        } else if !check.is_allowed() {
            self.would_refuse.push(hit);
        }
    }

    /// What a rule in shadow has charged in Redis for a request that is refused goes back, too: it is not in flight.
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

    /// Counts what a rule in shadow says. Whether it has charged what goes back when the request ends.
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

    /// What its response is to say.
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

    /// What goes back when it ends.
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

    /// The headers that tell what these rules said.
    pub fn quota_headers<'a>(
        &self,
        said: impl Iterator<Item = &'a ChargedHit> + Clone,
        config: HeadersConfig,
    ) -> Vec<(&'static str, String)> {
        let is_refused = said.clone().any(|charged| !charged.check.is_allowed());
        let (mut policy, mut limit) = (String::new(), String::new());
        let mut least: Option<&ChargedHit> = None;
        for charged in said {
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
    pub fn violated(&self, said: &[ChargedHit]) -> Vec<String> {
        let refusing = said.iter().filter(|charged| !charged.check.is_allowed());
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

/// The older headers, which tell of one rule only.
fn legacy_headers(least: &ChargedHit) -> impl Iterator<Item = (&'static str, String)> {
    let values = [
        least.hit.quota().burst().to_string(),
        least.check.remaining.to_string(),
        fields::seconds(least.check.reset_ms).to_string(),
    ];
    fields::LEGACY.into_iter().zip(values)
}
