//! A worker's view of Redis.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::mem;

use crate::Algorithm;
use crate::redis::keys::LimitKey;
use crate::redis::limit::{Answer, LimitRequest};
use weir_base::breaker::{Pass, Settings, State};
use weir_base::shared_data::SharedData;
use weir_engine::Metrics;
use weir_engine::breaker::CountedBreaker;

use crate::engine::evaluation::Evaluation;
use crate::engine::job::CheckJob;
use crate::engine::lease::Leases;
use crate::engine::refusal_cache::RefusalCache;
use crate::engine::ruleset::{ChargedHit, RuleHit, Ruleset};

/// A worker's view of Redis: breaker, leases and cached refusals.
#[derive(Debug)]
pub struct Redis {
    key_prefix: String,
    breaker: CountedBreaker,
    leases: Leases,
    refusals: RefusalCache,
}

/// The result of a request in Redis.
#[derive(Debug)]
pub enum Outcome {
    /// All its rules allow and have charged it.
    Charged,
    /// A rule refuses it, so none has charged it. Contains all results.
    Refused(Vec<ChargedHit>),
    /// Redis did not answer.
    Unknown,
}

impl Redis {
    pub fn new(key_prefix: String, breaker: Settings, metrics: &mut Metrics) -> Self {
        Self {
            key_prefix,
            breaker: CountedBreaker::new(breaker, metrics, "weir_ratelimit_redis"),
            leases: Leases::default(),
            refusals: RefusalCache::default(),
        }
    }

    /// A pass, unless the breaker is open.
    pub fn permit(&mut self, now_ms: u64) -> Option<Pass> {
        self.breaker.permit(now_ms).ok()
    }

    /// Whether [`Redis::permit`] gives a pass without a change of state.
    pub fn is_permitting(&self) -> bool {
        self.breaker.state() == State::Closed
    }

    /// Spends slices where available: Redis need not decide these hits.
    pub fn spend_slices<D: SharedData>(&mut self, evaluation: &mut Evaluation<D>, now_ms: u64) {
        for hit in mem::take(&mut evaluation.redis) {
            match self.slice_key(&evaluation.ruleset, &hit) {
                Some(key) if self.leases.spend(&key, hit.cost(), now_ms) => {
                    evaluation.leased.push((hit, key));
                }
                _ => evaluation.redis.push(hit),
            }
        }
    }

    /// Whether a slice can pay for one of the hits.
    pub fn has_slice<D: SharedData>(&self, evaluation: &Evaluation<D>, now_ms: u64) -> bool {
        evaluation.redis.iter().any(|hit| {
            let key = self.slice_key(&evaluation.ruleset, hit);
            key.is_some_and(|key| self.leases.covers(&key, hit.cost(), now_ms))
        })
    }

    /// The key of a hit, if its rule has slices.
    fn slice_key<D: SharedData>(&self, ruleset: &Ruleset<D>, hit: &RuleHit) -> Option<LimitKey> {
        let (rule, _) = ruleset.rule(hit.rule)?;
        rule.lease?;
        self.key(ruleset, hit)
    }

    /// Returns the spent slices of a refused request.
    pub fn give_back<D>(&mut self, evaluation: &Evaluation<D>) {
        for (hit, key) in &evaluation.leased {
            self.leases.give_back(key, hit.cost());
        }
    }

    /// The cached refusals that still hold. Empty if a dry-run rule needs Redis anyway.
    pub fn known_refusals<D: SharedData>(
        &mut self,
        evaluation: &Evaluation<D>,
        now_ms: u64,
    ) -> Vec<ChargedHit> {
        if self.refusals.is_empty() || !evaluation.redis_shadow.is_empty() {
            return vec![];
        }
        let existing = evaluation.redis.iter().filter_map(|hit| {
            let key = self.key(&evaluation.ruleset, hit)?;
            let (quota, cost) = (hit.quota(), hit.cost());
            let check = self.refusals.recall(&key, quota, cost, now_ms)?;
            let hit = hit.clone();
            Some(ChargedHit { hit, check })
        });
        existing.collect()
    }

    /// The limits of a request: see [`CheckJob::limits`].
    pub fn limits<D: SharedData>(
        &mut self,
        evaluation: &Evaluation<D>,
        now_ms: u64,
    ) -> Vec<Vec<LimitRequest>> {
        let ruleset = &evaluation.ruleset;
        let mut limit = |hit| self.limit(ruleset, hit, now_ms);
        let enforced: Vec<_> = evaluation.redis.iter().filter_map(&mut limit).collect();
        let shadow = evaluation.redis_shadow.iter().filter_map(limit);
        let shadow = shadow.map(|limit| vec![limit]);
        let enforced = (!enforced.is_empty()).then_some(enforced);
        enforced.into_iter().chain(shadow).collect()
    }

    fn limit<D: SharedData>(
        &mut self,
        ruleset: &Ruleset<D>,
        hit: &RuleHit,
        now_ms: u64,
    ) -> Option<LimitRequest> {
        let (rule, _) = ruleset.rule(hit.rule)?;
        let key = self.key(ruleset, hit)?;
        let extra = rule
            .lease
            .map(|lease| self.leases.extra(&key, lease, hit.cost(), now_ms));
        Some(LimitRequest {
            key,
            quota: hit.quota(),
            cost: hit.cost(),
            extra: extra.unwrap_or(0),
        })
    }

    /// Evaluates the answers of Redis to the request of `job`.
    pub fn answered<D: SharedData>(
        &mut self,
        job: CheckJob<D>,
        answers: Vec<Vec<Answer>>,
        now_ms: u64,
    ) -> (Evaluation<D>, Outcome) {
        self.breaker.record(now_ms, job.pass, true, 1);
        let mut evaluation = job.evaluation;
        let mut answers = answers.into_iter().zip(job.limits);
        let mut replies = Vec::new();
        let hits = mem::take(&mut evaluation.redis);
        if !hits.is_empty()
            && let Some((answers, limits)) = answers.next()
        {
            for ((hit, answer), limit) in hits.into_iter().zip(answers).zip(limits) {
                self.granted(&evaluation.ruleset, &hit, &limit, answer, now_ms);
                self.refusals.note(&limit, answer.check, job.since_ms);
                let check = answer.check;
                replies.push((ChargedHit { hit, check }, limit.key));
            }
        }
        let in_shadow = mem::take(&mut evaluation.redis_shadow);
        for (hit, (answers, limits)) in in_shadow.into_iter().zip(answers) {
            if let (Some(answer), Some(limit)) = (answers.first(), limits.into_iter().next()) {
                evaluation.shadow_in_redis(hit, limit.key, answer.check);
            }
        }
        if replies
            .iter()
            .all(|(charged, _)| charged.check.is_allowed())
        {
            evaluation.charged_in_redis = replies;
            return (evaluation, Outcome::Charged);
        }
        let replies = replies.into_iter().map(|(charged, _)| charged).collect();
        (evaluation, Outcome::Refused(replies))
    }

    /// Handles a missing answer to the request of `job`.
    pub fn unanswered<D: SharedData>(
        &mut self,
        job: CheckJob<D>,
        now_ms: u64,
    ) -> (Evaluation<D>, Outcome) {
        self.breaker.record(now_ms, job.pass, false, 1);
        self.not_granted(&job.limits);
        let evaluation = job.evaluation;
        for hit in evaluation.redis.iter().chain(&evaluation.redis_shadow) {
            if let Some((_, metrics)) = evaluation.ruleset.rule(hit.rule) {
                metrics.store_error.increment();
            }
        }
        (evaluation, Outcome::Unknown)
    }

    /// Ends pending requests for slices, so that others may lease them.
    pub fn not_granted(&mut self, limits: &[Vec<LimitRequest>]) {
        for limit in limits.iter().flatten() {
            self.leases.not_granted(&limit.key);
        }
    }

    /// Stores units charged beyond the request's cost as its key's slice. A slice of a fixed window ends with the
    /// window.
    fn granted<D: SharedData>(
        &mut self,
        ruleset: &Ruleset<D>,
        hit: &RuleHit,
        limit: &LimitRequest,
        answer: Answer,
        now_ms: u64,
    ) {
        let Some(lease) = ruleset.rule(hit.rule).and_then(|(rule, _)| rule.lease) else {
            return;
        };
        let accepted = answer.used.saturating_sub(limit.cost);
        let lasts_ms = match limit.quota.algorithm() {
            Algorithm::FixedWindow => lease.lasts_ms.min(answer.check.reset_ms),
            _ => lease.lasts_ms,
        };
        self.leases.granted(&limit.key, accepted, lasts_ms, now_ms);
    }

    fn key<D: SharedData>(&self, ruleset: &Ruleset<D>, hit: &RuleHit) -> Option<LimitKey> {
        let (rule, _) = ruleset.rule(hit.rule)?;
        Some(LimitKey::new(&self.key_prefix, &rule.name, hit.digest()))
    }
}
