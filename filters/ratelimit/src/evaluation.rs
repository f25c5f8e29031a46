//! One request on its way through the rules.

use std::cell::RefCell;
use std::rc::Rc;

use weir_limit::Check;
use weir_limit::rules::{OnStoreError, fields};
use weir_scripts::keys::LimitKey;
use weir_scripts::limit_back::Charge;

use crate::config::HeadersConfig;
use crate::ruleset::{Charged, RuleHit, SharedRuleset};

/// What is known of a request.
#[derive(Debug)]
pub(crate) struct Evaluation {
    pub(crate) ruleset: SharedRuleset,
    /// What was charged here and has passed.
    pub(crate) charged: Vec<Charged>,
    /// What was spent of slices.
    pub(crate) leased: Vec<(RuleHit, LimitKey)>,
    /// What is enforced in Redis and not decided yet.
    pub(crate) redis: Vec<RuleHit>,
    /// What is only looked at.
    pub(crate) local_shadow: Vec<RuleHit>,
    pub(crate) redis_shadow: Vec<RuleHit>,
    /// What was charged in Redis and has passed.
    pub(crate) charged_in_redis: Vec<(Charged, LimitKey)>,
    /// Which rules in shadow would have refused it.
    pub(crate) would_refuse: Vec<usize>,
    /// Whether an operator asks.
    pub(crate) is_debug: bool,
    /// What the stream is told.
    pub(crate) outcome: SharedState,
}

/// What became of a stream's request.
#[derive(Debug, Default)]
pub(crate) enum RequestState {
    /// Not known yet.
    #[default]
    Waiting,
    /// It was answered here.
    Answered,
    /// It went on.
    Passed(Passed),
}

/// What is left to do for a request that went on.
#[derive(Debug, Default)]
pub(crate) struct Passed {
    /// For the response.
    pub(crate) headers: Vec<(&'static str, String)>,
    /// To be taken back when it has ended: here,
    pub(crate) here: Vec<(SharedRuleset, Charged)>,
    /// and in Redis.
    pub(crate) in_redis: Vec<Charge>,
}

impl Passed {
    /// Whether its end changes nothing.
    pub(crate) fn is_over(&self) -> bool {
        self.here.is_empty() && self.in_redis.is_empty()
    }
}

/// Where a stream reads what became of its request.
pub(crate) type SharedState = Rc<RefCell<RequestState>>;

/// What a stream holds of its request.
#[derive(Debug)]
pub(crate) enum StateHandle {
    /// What became of it.
    Owned(RequestState),
    /// Where that can be read.
    Shared(SharedState),
}

/// The names of the fields, and of what operators see.
pub(crate) const POLICY: &str = "ratelimit-policy";
pub(crate) const LIMIT: &str = "ratelimit";
pub(crate) const SHADOW: &str = "x-weir-ratelimit-shadow";

impl Evaluation {
    /// Counts a request that passes.
    pub(crate) fn count_allowed(&self) {
        let here = self.charged.iter().map(|charged| &charged.asked);
        let in_redis = self
            .charged_in_redis
            .iter()
            .map(|(charged, _)| &charged.asked);
        let leased = self.leased.iter().map(|(asked, _)| asked);
        for asked in here.chain(in_redis).chain(leased) {
            if let Some((_, metrics)) = self.ruleset.rule(asked.rule) {
                metrics.allowed.increment();
            }
        }
    }

    /// Counts what rules in shadow say to it.
    pub(crate) fn shadow(&mut self, rule: usize, check: &Check) {
        let Some((_, metrics)) = self.ruleset.rule(rule) else {
            return;
        };
        match check.is_allowed() {
            true => metrics.allowed.increment(),
            false => {
                metrics.shadow_limited.increment();
                self.would_refuse.push(rule);
            }
        }
    }

    /// What the response of a request that passes is to say.
    pub(crate) fn passed(&mut self, config: HeadersConfig) -> Passed {
        let mut headers = Vec::new();
        if config.on_allowed {
            let in_redis = self.charged_in_redis.iter().map(|(charged, _)| charged);
            headers = self.tell(self.charged.iter().chain(in_redis), config);
        }
        if self.is_debug {
            headers.push((SHADOW, self.names(&self.would_refuse)));
        }
        let ends = |charged: &Charged| charged.asked.ends();
        let here = std::mem::take(&mut self.charged).into_iter().filter(ends);
        let in_redis = std::mem::take(&mut self.charged_in_redis).into_iter();
        Passed {
            headers,
            here: here
                .map(|charged| (Rc::clone(&self.ruleset), charged))
                .collect(),
            in_redis: in_redis
                .filter(|(charged, _)| charged.asked.ends())
                .map(|(charged, key)| Charge {
                    key,
                    quota: charged.asked.hit.quota,
                    cost: charged.asked.hit.cost,
                    mark: charged.check.mark,
                })
                .collect(),
        }
    }

    /// The fields that tell of these rules.
    pub(crate) fn tell<'a>(
        &self,
        said: impl Iterator<Item = &'a Charged>,
        config: HeadersConfig,
    ) -> Vec<(&'static str, String)> {
        let (mut policy, mut limit) = (String::new(), String::new());
        let mut least: Option<&Charged> = None;
        for charged in said {
            let Some((rule, _)) = self.ruleset.rule(charged.asked.rule) else {
                continue;
            };
            fields::append_policy(&mut policy, &rule.name, &charged.asked.hit.quota);
            fields::append_limit(&mut limit, &rule.name, &charged.check);
            if least.is_none_or(|least| charged.check.remaining < least.check.remaining) {
                least = Some(charged);
            }
        }
        let mut headers = Vec::new();
        if let Some(least) = least {
            headers.extend([(POLICY, policy), (LIMIT, limit)]);
            if config.legacy {
                let (quota, check) = (least.asked.hit.quota, least.check);
                let values = [
                    quota.burst().to_string(),
                    check.remaining.to_string(),
                    fields::seconds(check.reset_ms).to_string(),
                ];
                headers.extend(fields::LEGACY.into_iter().zip(values));
            }
        }
        headers
    }

    fn names(&self, rules: &[usize]) -> String {
        let names = rules.iter().filter_map(|rule| self.ruleset.rule(*rule));
        let names: Vec<&str> = names.map(|(rule, _)| rule.name.as_str()).collect();
        match names.is_empty() {
            true => "none".into(),
            false => names.join(", "),
        }
    }

    /// Redis does not decide: what its rules want to happen. `Err` is a rule that refuses.
    pub(crate) fn fall_back(&mut self) -> Result<Vec<RuleHit>, usize> {
        let mut local = Vec::new();
        for asked in std::mem::take(&mut self.redis) {
            let Some((rule, metrics)) = self.ruleset.rule(asked.rule) else {
                continue;
            };
            metrics.fallback.increment();
            match rule.on_store_error {
                OnStoreError::Open => metrics.allowed.increment(),
                OnStoreError::Closed => return Err(asked.rule),
                OnStoreError::Local => local.push(asked),
            }
        }
        for asked in std::mem::take(&mut self.redis_shadow) {
            if let Some((_, metrics)) = self.ruleset.rule(asked.rule) {
                metrics.fallback.increment();
            }
            self.local_shadow.push(asked);
        }
        Ok(local)
    }
}
