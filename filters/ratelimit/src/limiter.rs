//! The state of one VM, and what its callbacks do with it.

use std::rc::Rc;
use std::time::Duration;

use proxy_wasm::hostcalls;
use proxy_wasm::types::Status;
use subtle::ConstantTimeEq;
use weir_base::breaker::{self, Pass, Permit};
use weir_filter_kit::http::request_header;
use weir_filter_kit::link::{HostLink, Link};
use weir_filter_kit::pump::{Completed, PendingRequest};
use weir_filter_kit::redis::{Failure, Reply, Unknown, read};
use weir_scripts::keys::LimitKey;
use weir_scripts::limit::{self, Answer};

use crate::NAME;
use crate::answer::{Refusal, refuse};
use crate::config::Checked;
use crate::evaluation::{Evaluation, Passed, RequestState, SharedState, StateHandle};
use crate::job::{CheckJob, Job};
use crate::metrics::Metrics;
use crate::redis::{NOTHING, Redis};
use crate::request::HostRequest;
use crate::ruleset::{Charged, RuleHit, RuleHits, Ruleset, SharedRuleset};

/// What operators show, to be told of rules in shadow.
const DEBUG: &str = "x-weir-debug";

/// All that one VM knows. Shared by its root context and its streams.
pub(crate) struct Limiter {
    pub(crate) config: Checked,
    pub(crate) ruleset: SharedRuleset,
    pub(crate) seed: u64,
    pub(crate) redis: Option<Redis>,
    pub(crate) metrics: Metrics,
    pub(crate) is_serving: bool,
    pub(crate) is_poll_failing: bool,
}

impl Limiter {
    /// `link` leads to Redis, if there is one; `seed` is the same in all VMs.
    pub(crate) fn new(config: Checked, link: Option<HostLink>, seed: u64) -> Self {
        let redis = link.and_then(|link| Redis::new(&config, link));
        Self {
            ruleset: Rc::new(Ruleset::new(config.rules.clone(), seed)),
            config,
            seed,
            redis,
            metrics: Metrics::define(),
            is_serving: false,
            is_poll_failing: false,
        }
    }

    /// How far apart ticks should be, if there is anything to do in them.
    pub(crate) fn tick(&self) -> Option<Duration> {
        let redis = self.redis.as_ref()?;
        let poll_ms = redis
            .poller
            .as_ref()
            .map(|poller| poller.schedule.interval_ms());
        let watch_ms = redis.pump.tick_ms();
        let tick_ms = match self.is_serving {
            true => poll_ms.map_or(watch_ms, |poll_ms| poll_ms.min(watch_ms)),
            false => poll_ms?,
        };
        Some(Duration::from_millis(tick_ms))
    }

    /// Decides on the request of the effective context's stream `owner`: it passes, is answered, or waits.
    pub(crate) fn decide(&mut self, owner: u32, now_ms: u64) -> StateHandle {
        self.note_request();
        let request = HostRequest::new(self.config.user_header.as_deref());
        let looked = self.ruleset.look(&request);
        if let Ok(hits) = &looked
            && let Some(asked) = hits.only_one()
            && !self.tells_passing()
        {
            return self.decide_one(asked, now_ms);
        }
        let evaluation = self.evaluation();
        let outcome = Rc::clone(&evaluation.outcome);
        match looked {
            Ok(hits) => self.enter(owner, evaluation, hits, now_ms),
            Err(rule) => {
                if let Some((_, metrics)) = self.ruleset.rule(rule) {
                    metrics.denied.increment();
                }
                self.answer(&evaluation, Refusal::Denied, &[]);
            }
        }
        StateHandle::Shared(outcome)
    }

    /// Whether there may be something to say in the response to a request that passes.
    fn tells_passing(&self) -> bool {
        self.config.headers.on_allowed || self.config.debug_secret.is_some()
    }

    /// One rule that counts here decides: what nearly every request is, so it costs no lists.
    fn decide_one(&mut self, asked: &RuleHit, now_ms: u64) -> StateHandle {
        let Some(check) = self.ruleset.decide_one(asked, now_ms) else {
            return StateHandle::Owned(RequestState::default());
        };
        let charged = || Charged {
            asked: asked.clone(),
            check,
        };
        if !check.is_allowed() {
            self.limit(&self.evaluation(), &[charged()], now_ms);
            return StateHandle::Owned(RequestState::Answered);
        }
        if let Some((_, metrics)) = self.ruleset.rule(asked.rule) {
            metrics.allowed.increment();
        }
        let mut passed = Passed::default();
        if asked.ends() {
            let ruleset = Rc::clone(&self.ruleset);
            passed.here.push((ruleset, charged()));
        }
        StateHandle::Owned(RequestState::Passed(passed))
    }

    /// A request of which nothing is decided yet.
    fn evaluation(&self) -> Evaluation {
        Evaluation {
            ruleset: Rc::clone(&self.ruleset),
            charged: vec![],
            leased: vec![],
            redis: vec![],
            local_shadow: vec![],
            redis_shadow: vec![],
            charged_in_redis: vec![],
            would_refuse: vec![],
            is_debug: self.is_operator(),
            outcome: SharedState::default(),
        }
    }

    fn enter(&mut self, owner: u32, mut evaluation: Evaluation, hits: RuleHits, now_ms: u64) {
        evaluation.local_shadow = hits.local_shadow;
        evaluation.redis_shadow = hits.redis_shadow;
        evaluation.redis = hits.redis;
        let mut local = hits.local;
        let pass = self.permit(&evaluation, now_ms);
        if pass.is_none() && !(evaluation.redis.is_empty() && evaluation.redis_shadow.is_empty()) {
            match evaluation.fall_back() {
                Ok(asked) => local.extend(asked),
                Err(_) => return self.refuse(&evaluation, Refusal::Unavailable, &[], now_ms),
            }
        }
        if !self.decide_here(&mut evaluation, local, now_ms) {
            return;
        }
        self.spend_slices(&mut evaluation, now_ms);
        let known = self.known_refusals(&evaluation, now_ms);
        if !known.is_empty() {
            return self.limit(&evaluation, &known, now_ms);
        }
        match pass {
            Some(pass) if !(evaluation.redis.is_empty() && evaluation.redis_shadow.is_empty()) => {
                self.ask_redis(owner, evaluation, pass, now_ms);
            }
            _ => self.pass(evaluation, now_ms),
        }
    }

    /// Leave to ask Redis, if the request has anything to ask.
    fn permit(&mut self, evaluation: &Evaluation, now_ms: u64) -> Option<Pass> {
        if evaluation.redis.is_empty() && evaluation.redis_shadow.is_empty() {
            return None;
        }
        let redis = self.redis.as_mut()?;
        let permit = redis.breaker.permit(now_ms);
        redis.note(&self.metrics);
        match permit {
            Permit::Pass(pass) => Some(pass),
            Permit::Refuse { .. } => None,
        }
    }

    /// Charges what is counted here. If that refuses, the request is answered, and this is false.
    fn decide_here(
        &mut self,
        evaluation: &mut Evaluation,
        asked: Vec<RuleHit>,
        now_ms: u64,
    ) -> bool {
        if asked.is_empty() {
            return true;
        }
        let decision = evaluation.ruleset.decide(&asked, now_ms);
        let said = Charged::all(asked, decision.checks);
        if said.iter().all(|charged| charged.check.is_allowed()) {
            evaluation.charged.extend(said);
            return true;
        }
        self.limit(evaluation, &said, now_ms);
        false
    }

    /// Spends slices where there are any; what they cover need not be asked for.
    fn spend_slices(&mut self, evaluation: &mut Evaluation, now_ms: u64) {
        let Some(redis) = &mut self.redis else { return };
        let mut rest = Vec::new();
        for asked in std::mem::take(&mut evaluation.redis) {
            let has_slices = evaluation
                .ruleset
                .rule(asked.rule)
                .is_some_and(|(rule, _)| rule.lease.is_some());
            let key = has_slices
                .then(|| redis.key(&evaluation.ruleset, &asked))
                .flatten();
            match key {
                Some(key) if redis.leases.spend(&key, asked.hit.cost, now_ms) => {
                    evaluation.leased.push((asked, key));
                }
                _ => rest.push(asked),
            }
        }
        evaluation.redis = rest;
    }

    /// What Redis has refused and would refuse again, unless a rule in shadow wants to be asked.
    fn known_refusals(&mut self, evaluation: &Evaluation, now_ms: u64) -> Vec<Charged> {
        match &mut self.redis {
            Some(redis) if evaluation.redis_shadow.is_empty() => {
                redis.known_refusals(&evaluation.ruleset, &evaluation.redis, now_ms)
            }
            _ => vec![],
        }
    }

    fn ask_redis(&mut self, owner: u32, evaluation: Evaluation, pass: Pass, now_ms: u64) {
        let Some(redis) = &mut self.redis else { return };
        if redis.pump.waiting() >= redis.config.waiting_max {
            return self.without_redis(evaluation, now_ms);
        }
        let mut asks: Vec<Vec<limit::LimitRequest>> = Vec::new();
        let enforced: Vec<_> = evaluation
            .redis
            .iter()
            .filter_map(|asked| redis.ask(&evaluation.ruleset, asked, now_ms))
            .collect();
        if !enforced.is_empty() {
            asks.push(enforced);
        }
        let looked_at = evaluation
            .redis_shadow
            .iter()
            .filter_map(|asked| redis.ask(&evaluation.ruleset, asked, now_ms));
        asks.extend(looked_at.map(|ask| vec![ask]));
        let job = CheckJob {
            asks,
            pass,
            since_ms: now_ms,
            evaluation,
        };
        // It is not full, as was just looked.
        let _ = redis.pump.enqueue(owner, Job::Check(Box::new(job)), now_ms);
    }

    /// Redis does not decide. The stream is the effective context.
    fn without_redis(&mut self, mut evaluation: Evaluation, now_ms: u64) {
        match evaluation.fall_back() {
            Err(_) => self.refuse(&evaluation, Refusal::Unavailable, &[], now_ms),
            Ok(local) => {
                if self.decide_here(&mut evaluation, local, now_ms) {
                    self.pass(evaluation, now_ms);
                }
            }
        }
    }

    /// A limit is reached: nothing is charged, and the client is told.
    fn limit(&mut self, evaluation: &Evaluation, said: &[Charged], now_ms: u64) {
        for charged in said.iter().filter(|charged| !charged.check.is_allowed()) {
            if let Some((_, metrics)) = evaluation.ruleset.rule(charged.asked.rule) {
                metrics.limited.increment();
            }
        }
        let waits = said.iter().map(|charged| charged.check.wait_ms);
        let wait_ms = waits.max().unwrap_or(0);
        self.refuse(evaluation, Refusal::Limited { wait_ms }, said, now_ms);
    }

    /// Takes back what was charged, and answers.
    fn refuse(&mut self, evaluation: &Evaluation, refusal: Refusal, said: &[Charged], now_ms: u64) {
        self.take_back(evaluation, now_ms);
        self.answer(evaluation, refusal, said);
    }

    fn take_back(&mut self, evaluation: &Evaluation, now_ms: u64) {
        for charged in &evaluation.charged {
            evaluation.ruleset.take_back(charged, now_ms);
        }
        if let Some(redis) = &mut self.redis {
            for (asked, key) in &evaluation.leased {
                redis.leases.give_back(key, asked.hit.cost);
            }
        }
    }

    fn answer(&self, evaluation: &Evaluation, refusal: Refusal, said: &[Charged]) {
        let fields = evaluation.tell(said.iter(), self.config.headers);
        evaluation.outcome.replace(RequestState::Answered);
        let is_grpc = is_grpc();
        log_unsent(refuse(
            refusal,
            &fields,
            is_grpc,
            self.config.answer.as_ref(),
        ));
    }

    /// The request passes; whoever has called goes on with it, or resumes it.
    fn pass(&self, mut evaluation: Evaluation, now_ms: u64) {
        for asked in std::mem::take(&mut evaluation.local_shadow) {
            let decision = evaluation
                .ruleset
                .decide(std::slice::from_ref(&asked), now_ms);
            if let Some(check) = decision.checks.first() {
                evaluation.shadow(asked.rule, check);
            }
        }
        evaluation.count_allowed();
        let passed = evaluation.passed(self.config.headers);
        evaluation.outcome.replace(RequestState::Passed(passed));
    }

    /// The first request makes this VM one that needs to know its rules.
    fn note_request(&mut self) {
        if std::mem::replace(&mut self.is_serving, true) {
            return;
        }
        if let Some(redis) = &mut self.redis {
            redis
                .poller
                .iter_mut()
                .for_each(|poller| poller.schedule.hurry());
            redis.pump.link().wake();
        }
    }

    fn is_operator(&self) -> bool {
        let Some(secret) = &self.config.debug_secret else {
            return false;
        };
        request_header(DEBUG).is_some_and(|shown| bool::from(shown.as_slice().ct_eq(secret)))
    }

    /// The stream `owner` has gone while it waited.
    pub(crate) fn forget(&mut self, owner: u32) {
        if let Some(redis) = &mut self.redis {
            redis.pump.forget(owner);
        }
    }

    /// A request that passed has ended: what counted it as under way no longer does.
    pub(crate) fn ended(&mut self, passed: Passed, now_ms: u64) {
        for (ruleset, charged) in &passed.here {
            ruleset.take_back(charged, now_ms);
        }
        if let Some(redis) = &mut self.redis {
            for charge in passed.in_redis {
                redis.pump.enqueue_unowned(Job::Back(charge), now_ms);
            }
        }
    }

    /// The way to Redis, if it is configured.
    pub(crate) fn link(&self) -> Option<&HostLink> {
        self.redis.as_ref().map(|redis| redis.pump.link())
    }

    /// Polls if that is due, sends what waits, and gives what has completed to its streams. The root
    /// context is effective, and may not be afterwards.
    pub(crate) fn turn(&mut self, now_ms: u64) {
        self.poll(now_ms);
        if let Some(redis) = &mut self.redis {
            let completed = redis.pump.turn(now_ms);
            self.apply(completed, now_ms);
        }
    }

    /// The call `token` has ended. As [`Limiter::turn`].
    pub(crate) fn on_reply(&mut self, token: u32, reply: Reply, now_ms: u64) {
        let Some(redis) = &mut self.redis else { return };
        if redis
            .poller
            .as_mut()
            .is_some_and(|poller| poller.schedule.completed(token))
        {
            return self.read_poll(reply);
        }
        let read = |commands| read(reply, commands);
        if let Some(completed) = redis.pump.on_reply(token, read, now_ms) {
            self.apply(completed, now_ms);
        }
    }

    fn apply(&mut self, completed: Vec<Completed<Job>>, now_ms: u64) {
        if let Some(redis) = &mut self.redis {
            self.metrics.sent(redis.pump.take_counts());
        }
        for completed in completed {
            self.apply_one(completed, now_ms);
        }
    }

    fn apply_one(&mut self, completed: Completed<Job>, now_ms: u64) {
        let outcome = completed.outcome;
        let jobs: Vec<(Option<u32>, CheckJob)> = completed
            .requests
            .into_iter()
            .filter_map(check_job)
            .collect();
        // A charge that did not go back stops counting with its period.
        let Some((_, first)) = jobs.first() else {
            return;
        };
        self.metrics
            .store_ms
            .record(now_ms.saturating_sub(first.since_ms));
        let shape = jobs
            .iter()
            .flat_map(|(_, job)| job.asks.iter().map(Vec::len));
        let answers = outcome.and_then(|value| {
            limit::parse(&value, shape).map_err(|_| Failure::from(Unknown::Garbled))
        });
        match answers {
            Ok(answers) => {
                let mut answers = answers.into_iter();
                for (owner, job) in jobs {
                    let its: Vec<_> = answers.by_ref().take(job.asks.len()).collect();
                    self.decided(owner, job, its, now_ms);
                }
            }
            Err(failure) => {
                log::debug!(
                    "{NAME}: {} requests go on without Redis: {failure}",
                    jobs.len()
                );
                jobs.into_iter()
                    .for_each(|(owner, job)| self.failed(owner, job, now_ms));
            }
        }
    }

    /// Redis has decided.
    fn decided(
        &mut self,
        owner: Option<u32>,
        job: CheckJob,
        answers: Vec<Vec<Answer>>,
        now_ms: u64,
    ) {
        let Some(redis) = &mut self.redis else { return };
        redis.record(job.pass, breaker::Outcome::Success, &self.metrics, now_ms);
        let mut evaluation = job.evaluation;
        let mut answers = answers.into_iter().zip(job.asks);
        let mut said = Vec::new();
        if !evaluation.redis.is_empty()
            && let Some((answers, asks)) = answers.next()
        {
            let asked = std::mem::take(&mut evaluation.redis).into_iter();
            for ((asked, answer), ask) in asked.zip(answers).zip(asks) {
                redis.granted(&evaluation.ruleset, &asked, &ask, answer, now_ms);
                redis.refusals.note(&ask, answer.check, job.since_ms);
                said.push((
                    Charged {
                        asked,
                        check: answer.check,
                    },
                    ask.key,
                ));
            }
        }
        let looked_at = std::mem::take(&mut evaluation.redis_shadow)
            .into_iter()
            .zip(answers);
        for (asked, (answers, _)) in looked_at {
            if let Some(answer) = answers.first() {
                evaluation.shadow(asked.rule, &answer.check);
            }
        }
        let is_allowed = said.iter().all(|(charged, _)| charged.check.is_allowed());
        match (owner.is_some_and(select_stream), is_allowed) {
            (true, true) => {}
            (true, false) => {
                let said: Vec<_> = said.into_iter().map(|(charged, _)| charged).collect();
                return self.limit(&evaluation, &said, now_ms);
            }
            (false, true) => return self.gone(evaluation, said, now_ms),
            (false, false) => return self.take_back(&evaluation, now_ms),
        }
        evaluation.charged_in_redis = said;
        self.pass_waiting(evaluation, now_ms);
    }

    /// Redis has not answered.
    fn failed(&mut self, owner: Option<u32>, job: CheckJob, now_ms: u64) {
        let Some(redis) = &mut self.redis else { return };
        redis.record(job.pass, breaker::Outcome::Failure, &self.metrics, now_ms);
        let evaluation = job.evaluation;
        for (asked, ask) in evaluation.redis.iter().zip(job.asks.iter().flatten()) {
            redis.granted(&evaluation.ruleset, asked, ask, NOTHING, now_ms);
        }
        for asked in evaluation.redis.iter().chain(&evaluation.redis_shadow) {
            if let Some((_, metrics)) = evaluation.ruleset.rule(asked.rule) {
                metrics.store_error.increment();
            }
        }
        if !owner.is_some_and(select_stream) {
            return self.gone(evaluation, vec![], now_ms);
        }
        let outcome = Rc::clone(&evaluation.outcome);
        self.without_redis(evaluation, now_ms);
        if matches!(*outcome.borrow(), RequestState::Passed(_)) {
            log_unsent(hostcalls::resume_http_request());
        }
    }

    fn pass_waiting(&self, evaluation: Evaluation, now_ms: u64) {
        self.pass(evaluation, now_ms);
        log_unsent(hostcalls::resume_http_request());
    }

    /// Whoever asked has gone: what is under way because of it is not.
    fn gone(&mut self, mut evaluation: Evaluation, said: Vec<(Charged, LimitKey)>, now_ms: u64) {
        evaluation.charged_in_redis = said;
        let passed = evaluation.passed(self.config.headers);
        self.ended(passed, now_ms);
    }
}

fn check_job(request: PendingRequest<Job>) -> Option<(Option<u32>, CheckJob)> {
    match request.job {
        Job::Check(job) => Some((request.owner, *job)),
        Job::Back(_) => None,
    }
}

/// Makes the stream `owner` the one that answers are for. `false` if it has gone.
fn select_stream(owner: u32) -> bool {
    hostcalls::set_effective_context(owner).is_ok()
}

fn is_grpc() -> bool {
    request_header("content-type").is_some_and(|kind| kind.starts_with(b"application/grpc"))
}

fn log_unsent(sent: Result<(), Status>) {
    if let Err(status) = sent {
        log::debug!("{NAME}: the stream has gone: {status:?}");
    }
}
