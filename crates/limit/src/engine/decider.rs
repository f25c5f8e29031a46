//! Decides which requests pass.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::redis::limit::Answer;
use subtle::ConstantTimeEq;
use weir_base::breaker::Pass;
use weir_base::shared_data::SharedData;
use weir_engine::Request;

use crate::engine::answer::{Reason, RefusedRequest};
use crate::engine::config::CheckedConfig;
use crate::engine::evaluation::{Evaluation, PassedRequest};
use crate::engine::job::CheckJob;
use crate::engine::redis::{Outcome, Redis};
use crate::engine::report::{Report, RuleAction};
use crate::engine::request::{Client, RuleRequest};
use crate::engine::ruleset::{ChargedHit, Hits, RuleHit, RuleHits, Ruleset};

mod early;

pub use early::EarlyVerdict;

/// The header with the debug secret.
const DEBUG: &str = "x-weir-debug";

/// Decides on requests by the current rules and cached results from Redis.
#[derive(Debug)]
pub struct Decider<D> {
    pub config: CheckedConfig,
    pub ruleset: Arc<Ruleset<D>>,
    pub redis: Option<Redis>,
    /// Counts for operators, if enabled.
    pub report: Option<Report>,
}

/// The next step for a request that no rule has refused so far.
#[derive(Debug)]
pub enum NextStep<D> {
    /// It passes.
    Pass(PassedRequest<D>),
    /// Redis decides.
    Ask(Box<CheckJob<D>>),
}

impl<D: SharedData> Decider<D> {
    /// Decides on a request. `may_wait`: whether the pump accepts it.
    pub fn decide(
        &mut self,
        request: &dyn Request,
        may_wait: bool,
        now_ms: u64,
    ) -> Result<NextStep<D>, RefusedRequest> {
        let user_header = self.config.user_header.as_deref();
        let mut in_shadow = Vec::new();
        let request_of_rules = RuleRequest::new(request, user_header);
        let hits = self.ruleset.hits(&request_of_rules, &mut in_shadow);
        for rule in in_shadow {
            self.deny_in_shadow(rule);
        }
        let hits = hits.map_err(|rule| self.deny(rule))?;
        match hits {
            Hits::OneLocal(hit) if !self.tells_passing() => {
                self.decide_one(hit, now_ms).map(NextStep::Pass)
            }
            hits => self.evaluate(hits.into_lists(), request, may_wait, now_ms),
        }
    }

    /// Reports the action of a current rule to operators.
    fn report_action(&mut self, action: RuleAction, rule: usize, key: Option<&[u8]>) {
        if let (Some(report), Some((rule, _))) = (&mut self.report, self.ruleset.rule(rule)) {
            report.count(action, rule, key);
        }
    }

    /// Reports the refusals of dry-run rules after a decision.
    fn tell_of_shadow(&mut self, evaluation: &Evaluation<D>) {
        let Some(report) = &mut self.report else {
            return;
        };
        for hit in &evaluation.would_refuse {
            if let Some((rule, _)) = evaluation.ruleset.rule(hit.rule) {
                report.count(RuleAction::ShadowLimited, rule, Some(hit.key()));
            }
        }
    }

    fn deny_in_shadow(&mut self, rule: usize) {
        if let Some((_, metrics)) = self.ruleset.rule(rule) {
            metrics.shadow_limited.increment();
        }
        self.report_action(RuleAction::ShadowLimited, rule, None);
    }

    fn deny(&mut self, rule: usize) -> RefusedRequest {
        if let Some((_, metrics)) = self.ruleset.rule(rule) {
            metrics.denied.increment();
        }
        self.report_action(RuleAction::Denied, rule, None);
        RefusedRequest::without_fields(Reason::Denied)
    }

    /// Whether the response to a passed request may have quota headers.
    fn tells_passing(&self) -> bool {
        self.config.headers.on_allowed || self.config.debug_secret.is_some()
    }

    /// Decides by a single local rule.
    fn decide_one(
        &mut self,
        hit: RuleHit,
        now_ms: u64,
    ) -> Result<PassedRequest<D>, RefusedRequest> {
        let mut passed = PassedRequest::default();
        let Some(check) = self.ruleset.charge_one(&hit, now_ms) else {
            return Ok(passed);
        };
        if !check.is_allowed() {
            let evaluation = Evaluation::new(&self.ruleset, RuleHits::default(), false);
            return Err(self.limit(&evaluation, &[ChargedHit { hit, check }], now_ms));
        }
        if let Some((_, metrics)) = self.ruleset.rule(hit.rule) {
            metrics.allowed.increment();
        }
        if hit.goes_back() {
            let charged = ChargedHit { hit, check };
            passed.here.push((Arc::clone(&self.ruleset), charged));
        }
        Ok(passed)
    }

    fn evaluate(
        &mut self,
        hits: RuleHits,
        request: &dyn Request,
        may_wait: bool,
        now_ms: u64,
    ) -> Result<NextStep<D>, RefusedRequest> {
        let mut evaluation = Evaluation::new(&self.ruleset, hits, self.is_operator(request));
        let pass = self.permit(&evaluation, now_ms);
        if pass.is_none() {
            self.fall_back(&mut evaluation, now_ms)?;
        }
        self.charge_here(&mut evaluation, now_ms)?;
        self.use_known(&mut evaluation, now_ms)?;
        match pass {
            Some(pass) if evaluation.needs_redis() && may_wait => {
                let job = self.check_job(evaluation, pass, Client::from_request(request), now_ms);
                Ok(NextStep::Ask(Box::new(job)))
            }
            _ => self.without_redis(evaluation, now_ms).map(NextStep::Pass),
        }
    }

    fn is_operator(&self, request: &dyn Request) -> bool {
        let Some(secret) = &self.config.debug_secret else {
            return false;
        };
        let displayed = request.header(DEBUG);
        displayed.is_some_and(|displayed| bool::from(displayed.as_ref().ct_eq(secret.as_slice())))
    }

    /// A pass of the breaker, if Redis is needed.
    fn permit(&mut self, evaluation: &Evaluation<D>, now_ms: u64) -> Option<Pass> {
        match &mut self.redis {
            Some(redis) if evaluation.needs_redis() => redis.permit(now_ms),
            _ => None,
        }
    }

    /// Applies cached results from Redis: slices and refusals.
    fn use_known(
        &mut self,
        evaluation: &mut Evaluation<D>,
        now_ms: u64,
    ) -> Result<(), RefusedRequest> {
        let Some(redis) = &mut self.redis else {
            return Ok(());
        };
        redis.spend_slices(evaluation, now_ms);
        let existing = redis.known_refusals(evaluation, now_ms);
        match existing.is_empty() {
            true => Ok(()),
            false => Err(self.limit(evaluation, &existing, now_ms)),
        }
    }

    fn check_job(
        &mut self,
        evaluation: Evaluation<D>,
        pass: Pass,
        client: Client,
        now_ms: u64,
    ) -> CheckJob<D> {
        let redis = self.redis.as_mut();
        let limits = redis.map(|redis| redis.limits(&evaluation, now_ms));
        CheckJob {
            limits: limits.unwrap_or_default(),
            pass,
            since_ms: now_ms,
            client,
            evaluation,
        }
    }

    /// Evaluates the answers of Redis to `job`; `None` if it did not answer.
    pub fn learn(
        &mut self,
        job: CheckJob<D>,
        answers: Option<Vec<Vec<Answer>>>,
        now_ms: u64,
    ) -> (Evaluation<D>, Outcome) {
        match (&mut self.redis, answers) {
            (Some(redis), Some(answers)) => redis.answered(job, answers, now_ms),
            (Some(redis), None) => redis.unanswered(job, now_ms),
            (None, _) => (job.evaluation, Outcome::Unknown),
        }
    }

    /// Decides on a request after its wait for Redis.
    pub fn conclude(
        &mut self,
        evaluation: Evaluation<D>,
        outcome: Outcome,
        now_ms: u64,
    ) -> Result<PassedRequest<D>, RefusedRequest> {
        match outcome {
            Outcome::Charged => Ok(self.pass(evaluation, now_ms)),
            Outcome::Refused(response) => Err(self.limit(&evaluation, &response, now_ms)),
            Outcome::Unknown => self.without_redis(evaluation, now_ms),
        }
    }

    /// Handles a client that disconnected before its request was sent to Redis: no rule is charged.
    pub fn withdraw(&mut self, job: &CheckJob<D>, now_ms: u64) {
        self.take_back(&job.evaluation, now_ms);
        if let Some(redis) = &mut self.redis {
            redis.not_granted(&job.limits);
        }
    }

    /// Handles a client that disconnected while Redis decided. Returns the remaining work.
    pub fn abandon(
        &mut self,
        evaluation: Evaluation<D>,
        outcome: &Outcome,
        now_ms: u64,
    ) -> PassedRequest<D> {
        self.tell_of_shadow(&evaluation);
        if let Outcome::Refused(_) = outcome {
            self.take_back(&evaluation, now_ms);
            return PassedRequest::default();
        }
        evaluation.passed(Vec::new())
    }

    /// Decides on the remaining hits without Redis.
    fn without_redis(
        &mut self,
        mut evaluation: Evaluation<D>,
        now_ms: u64,
    ) -> Result<PassedRequest<D>, RefusedRequest> {
        self.fall_back(&mut evaluation, now_ms)?;
        self.charge_here(&mut evaluation, now_ms)?;
        Ok(self.pass(evaluation, now_ms))
    }

    fn fall_back(
        &mut self,
        evaluation: &mut Evaluation<D>,
        now_ms: u64,
    ) -> Result<(), RefusedRequest> {
        let fallen_back = evaluation.fall_back();
        fallen_back.map_err(|_| self.refuse(evaluation, Reason::Unavailable, &[], now_ms))
    }

    fn charge_here(
        &mut self,
        evaluation: &mut Evaluation<D>,
        now_ms: u64,
    ) -> Result<(), RefusedRequest> {
        let charged = evaluation.charge_here(now_ms);
        charged.map_err(|response| self.limit(evaluation, &response, now_ms))
    }

    fn pass(&mut self, mut evaluation: Evaluation<D>, now_ms: u64) -> PassedRequest<D> {
        evaluation.shadow_here(now_ms);
        self.tell_of_shadow(&evaluation);
        evaluation.count_allowed();
        let headers = evaluation.response_headers(self.config.headers);
        evaluation.passed(headers)
    }

    /// Refuses a request at a limit. `hits` are the results of the rules that decided together.
    fn limit(
        &mut self,
        evaluation: &Evaluation<D>,
        hits: &[ChargedHit],
        now_ms: u64,
    ) -> RefusedRequest {
        for charged in hits.iter().filter(|charged| !charged.check.is_allowed()) {
            if let Some((rule, metrics)) = evaluation.ruleset.rule(charged.hit.rule) {
                metrics.limited.increment();
                if let Some(report) = &mut self.report {
                    report.count(RuleAction::Limited, rule, Some(charged.hit.key()));
                }
            }
        }
        let waits = hits.iter().map(|charged| charged.check.wait_ms);
        let wait_ms = waits.max().unwrap_or(0);
        self.refuse(evaluation, Reason::Limited { wait_ms }, hits, now_ms)
    }

    fn refuse(
        &mut self,
        evaluation: &Evaluation<D>,
        reason: Reason,
        hits: &[ChargedHit],
        now_ms: u64,
    ) -> RefusedRequest {
        self.take_back(evaluation, now_ms);
        self.tell_of_shadow(evaluation);
        RefusedRequest {
            reason,
            fields: evaluation.quota_headers(hits.iter(), self.config.headers),
            violated: evaluation.violated(hits),
        }
    }

    /// Undoes the charges of a refused request.
    fn take_back(&mut self, evaluation: &Evaluation<D>, now_ms: u64) {
        evaluation.take_back_here(now_ms);
        if let Some(redis) = &mut self.redis {
            redis.give_back(evaluation);
        }
    }
}
