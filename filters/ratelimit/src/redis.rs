//! The way to Redis, and what is known of it.

use weir_base::breaker::{self, Breaker, Pass};
use weir_filter_kit::link::HostLink;
use weir_filter_kit::pump::Pump;
use weir_filter_kit::redis_config::RedisConfig;
use weir_limit::{Algorithm, Check};
use weir_scripts::keys::LimitKey;
use weir_scripts::limit::{self, Answer};

use crate::config::{Checked, DEADLINE_MS};
use crate::job::LimitPlan;
use crate::lease::Leases;
use crate::metrics::Metrics;
use crate::poll::Poller;
use crate::refusal::Refusals;
use crate::ruleset::{Charged, RuleHit, Ruleset};

/// The way to Redis, and what is known of it.
pub(crate) struct Redis {
    pub(crate) config: RedisConfig,
    pub(crate) pump: Pump<LimitPlan, HostLink>,
    pub(crate) breaker: Breaker,
    pub(crate) seen: breaker::State,
    pub(crate) leases: Leases,
    pub(crate) refusals: Refusals,
    pub(crate) poller: Option<Poller>,
}

/// As if nothing had been charged.
pub(crate) const NOTHING: Answer = Answer {
    check: Check {
        wait_ms: 0,
        remaining: 0,
        reset_ms: 0,
        mark: 0,
    },
    taken: 0,
};

impl Redis {
    /// Nothing, if none is configured.
    pub(crate) fn new(config: &Checked, link: HostLink) -> Option<Self> {
        let redis = config.redis.clone()?;
        let plan = LimitPlan {
            topology: redis.topology,
        };
        let breaker = Breaker::new(config.breaker);
        Some(Self {
            pump: Pump::new(redis.pump_settings(DEADLINE_MS), plan, link),
            seen: breaker.state(),
            breaker,
            leases: Leases::default(),
            refusals: Refusals::default(),
            poller: config.poll_interval_ms.map(Poller::new),
            config: redis,
        })
    }

    pub(crate) fn key(&self, ruleset: &Ruleset, asked: &RuleHit) -> Option<LimitKey> {
        let (rule, _) = ruleset.rule(asked.rule)?;
        Some(LimitKey::new(
            &self.config.key_prefix,
            &rule.name,
            asked.hit.digest(),
        ))
    }

    /// What of this is known to be refused, with what Redis would say to it.
    pub(crate) fn known_refusals(
        &mut self,
        ruleset: &Ruleset,
        asked: &[RuleHit],
        now_ms: u64,
    ) -> Vec<Charged> {
        if self.refusals.is_empty() {
            return vec![];
        }
        let known = asked.iter().filter_map(|asked| {
            let key = self.key(ruleset, asked)?;
            let ask = &asked.hit;
            let check = self.refusals.recall(&key, ask.quota, ask.cost, now_ms)?;
            let asked = asked.clone();
            Some(Charged { asked, check })
        });
        known.collect()
    }

    pub(crate) fn ask(
        &mut self,
        ruleset: &Ruleset,
        asked: &RuleHit,
        now_ms: u64,
    ) -> Option<limit::LimitRequest> {
        let (rule, _) = ruleset.rule(asked.rule)?;
        let key = self.key(ruleset, asked)?;
        let extra = rule
            .lease
            .map(|lease| self.leases.extra(&key, lease, asked.hit.cost, now_ms));
        Some(limit::LimitRequest {
            key,
            quota: asked.hit.quota,
            cost: asked.hit.cost,
            extra: extra.unwrap_or(0),
        })
    }

    /// What was charged beyond the request's cost is its key's slice. One of a fixed window ends with that.
    pub(crate) fn granted(
        &mut self,
        ruleset: &Ruleset,
        asked: &RuleHit,
        ask: &limit::LimitRequest,
        answer: Answer,
        now_ms: u64,
    ) {
        let Some(lease) = ruleset.rule(asked.rule).and_then(|(rule, _)| rule.lease) else {
            return;
        };
        let taken = answer.taken.saturating_sub(ask.cost);
        let lasts_ms = match ask.quota.algorithm() {
            Algorithm::FixedWindow => lease.lasts_ms.min(answer.check.reset_ms),
            _ => lease.lasts_ms,
        };
        self.leases.granted(&ask.key, taken, lasts_ms, now_ms);
    }

    pub(crate) fn record(
        &mut self,
        pass: Pass,
        outcome: breaker::Outcome,
        metrics: &Metrics,
        now_ms: u64,
    ) {
        self.breaker.record(now_ms, pass, outcome);
        self.note(metrics);
    }

    pub(crate) fn note(&mut self, metrics: &Metrics) {
        let state = self.breaker.state();
        if std::mem::replace(&mut self.seen, state) != state {
            metrics.breaker_entered(state);
        }
    }
}
