//! The engine: events in, effects out.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem;

use crate::redis::limit::{self, Answer};
use weir_base::resp::Value;
use weir_base::shared_data::SharedData;
use weir_engine::pump::{CompletedBatch, Counts, Pending, Pump};
use weir_engine::redis::{DefiniteFailure, Failure, Reply, UnknownFailure, read};
use weir_engine::refusals::Refusals;
use weir_engine::{
    BatchId, Description, EarlyDecision, Effect, Effects, Engine, Event, Level, Metrics, Request,
    StreamId,
};

use crate::engine::NAME;
use crate::engine::answer::RefusedRequest;
use crate::engine::config::{AnswerConfig, CheckedConfig, DEADLINE_MS};
use crate::engine::decider::{Decider, EarlyVerdict, NextStep};
use crate::engine::evaluation::PassedRequest;
use crate::engine::job::{CheckJob, Job, LimitPlan};
use crate::engine::redis::{Outcome, Redis};
use crate::engine::reload::Reload;
use crate::engine::report::Report;
use crate::engine::request::Client;
use crate::engine::ruleset::Ruleset;

/// The rate limiter of one worker. `D` is the memory shared by all workers.
#[derive(Debug)]
pub struct Limiter<D> {
    decider: Decider<D>,
    pump: Option<Pump<LimitPlan<D>>>,
    reload: Option<Reload>,
    /// Streams with remaining work.
    streams: BTreeMap<StreamId, Stream<D>>,
    data: D,
    seed: u64,
    metrics: Metrics,
    /// Whether it has received a request.
    is_serving: bool,
    /// Whether it has no rules and will not get any. Always false for a limiter within another engine.
    is_idle: bool,
    /// Whether Redis failed to answer the last call.
    is_redis_failing: bool,
    /// How often rules from Redis replaced the previous ones.
    reloads: u64,
}

/// The remaining work of a stream.
#[derive(Debug)]
enum Stream<D> {
    /// It waits for Redis.
    Waiting,
    /// The work for a passed request.
    Passed(PassedRequest<D>),
}

impl<D: SharedData + Clone> Limiter<D> {
    /// A limiter that counts in `data`. `seed` seeds the hashes of keys: the same in all workers, and secret from
    /// clients.
    pub fn new(config: CheckedConfig, data: D, seed: u64) -> Self {
        let limiter = Self::with_metrics(config, data, seed, Metrics::new());
        let has_none = limiter.decider.config.rules.iter().next().is_none();
        let is_idle = has_none && limiter.reload.is_none();
        Self { is_idle, ..limiter }
    }

    /// Like [`Limiter::new`], for an engine that contains a limiter: its counters are added to the engine's `metrics`.
    pub fn with_metrics(config: CheckedConfig, data: D, seed: u64, mut metrics: Metrics) -> Self {
        let ruleset = Ruleset::new(config.rules.clone(), &data, seed, &mut metrics);
        let counts = Counts::new(&mut metrics, "weir_ratelimit");
        let pump = config.redis.as_ref().map(|redis| {
            let plan = LimitPlan::new(redis.topology);
            let refusals = Refusals::new(&mut metrics, "weir_ratelimit", &redis.cluster);
            Pump::new(redis.pump_settings(DEADLINE_MS), plan, counts, refusals)
        });
        let redis = config.redis.as_ref().map(|redis| {
            let key_prefix = redis.key_prefix.clone();
            Redis::new(key_prefix, config.breaker, &mut metrics)
        });
        Self {
            pump,
            reload: Reload::new(&config, &mut metrics),
            decider: Decider {
                ruleset: Arc::new(ruleset),
                redis,
                report: config.report_to().map(Report::new),
                config,
            },
            streams: BTreeMap::new(),
            data,
            seed,
            metrics,
            is_serving: false,
            is_idle: false,
            is_redis_failing: false,
            reloads: 0,
        }
    }

    /// The number of streams that wait or have remaining work.
    pub fn open_streams(&self) -> usize {
        self.streams.len()
    }

    // --- streams

    fn on_request(&mut self, stream: StreamId, request: &dyn Request, effects: &mut Effects) {
        match self.decider.config.edges.stamped(request) {
            Some(stamped) => self.on_request_of(stream, &stamped, effects),
            None => self.on_request_of(stream, request, effects),
        }
    }

    fn on_request_of(&mut self, stream: StreamId, request: &dyn Request, effects: &mut Effects) {
        let now_ms = request.now_ms();
        self.note_request(effects);
        let may_wait = self.pump.as_ref().is_some_and(|pump| !pump.is_full());
        match self.decider.decide(request, may_wait, now_ms) {
            Ok(NextStep::Pass(passed)) => self.pass(stream, passed, effects),
            Ok(NextStep::Ask(job)) => self.wait(stream, job, now_ms, effects),
            Err(refused) => self.refuse(stream, &refused, Client::from_request(request), effects),
        }
    }

    /// Handles the first request: the worker starts to poll for rules and to check deadlines.
    fn note_request(&mut self, effects: &mut Effects) {
        if mem::replace(&mut self.is_serving, true) {
            return;
        }
        if self.is_idle {
            let text = "no rules, so nothing is limited: add `rules`, or set `reload`";
            effects.log(Level::Warn, text);
        }
        if let Some(reload) = &mut self.reload {
            reload.poll_soon();
        }
        if self.pump.is_some() {
            effects.wake();
        }
    }

    fn pass(&mut self, stream: StreamId, passed: PassedRequest<D>, effects: &mut Effects) {
        if passed.is_done() {
            return effects.let_go(stream);
        }
        self.streams.insert(stream, Stream::Passed(passed));
        effects.go_on(stream);
    }

    fn refuse(
        &self,
        stream: StreamId,
        refused: &RefusedRequest,
        client: Client,
        effects: &mut Effects,
    ) {
        effects.respond(stream, self.answer(refused, client));
    }

    fn answer(&self, refused: &RefusedRequest, client: Client) -> Arc<weir_engine::Answer> {
        let config = self.decider.config.answer.as_ref();
        Arc::new(refused.answer(client, config))
    }

    fn wait(
        &mut self,
        stream: StreamId,
        job: Box<CheckJob<D>>,
        now_ms: u64,
        effects: &mut Effects,
    ) {
        let Some(pump) = &mut self.pump else { return };
        self.streams.insert(stream, Stream::Waiting);
        // The pump accepts it: `may_wait` was checked.
        let _ = pump.enqueue(stream, Job::Check(job), now_ms, effects);
    }

    fn on_response(&mut self, stream: StreamId, effects: &mut Effects) {
        let Some(Stream::Passed(passed)) = self.streams.get_mut(&stream) else {
            return;
        };
        for (name, value) in mem::take(&mut passed.headers) {
            effects.push(Effect::SetResponseHeader {
                stream,
                name,
                value,
            });
        }
        if passed.is_done() {
            self.streams.remove(&stream);
        }
    }

    /// Handles the end of a stream; repeated calls have no effect.
    fn on_gone(&mut self, stream: StreamId, now_ms: impl FnOnce() -> u64, effects: &mut Effects) {
        match self.streams.remove(&stream) {
            None => {}
            Some(Stream::Waiting) => {
                let pump = self.pump.as_mut();
                if let Some(Job::Check(job)) = pump.and_then(|pump| pump.forget(stream)) {
                    self.decider.withdraw(&job, now_ms());
                }
            }
            Some(Stream::Passed(passed)) => self.end(passed, now_ms(), effects),
        }
    }

    /// Handles the end of a passed request: undoes its concurrency charges.
    fn end(&mut self, passed: PassedRequest<D>, now_ms: u64, effects: &mut Effects) {
        for (ruleset, charged) in &passed.here {
            ruleset.take_back(charged, now_ms);
        }
        if let Some(pump) = &mut self.pump {
            for charge in passed.in_redis {
                pump.enqueue_unowned(Job::Back(charge), now_ms, effects);
            }
        }
    }

    // --- Redis

    fn on_tick(&mut self, now_ms: u64, effects: &mut Effects) {
        if let Some(reload) = &mut self.reload {
            reload.poll(now_ms, effects);
        }
        if let Some(pump) = &mut self.pump {
            let completed = pump.flush(now_ms, effects);
            self.complete(completed, now_ms, effects);
        }
        if let Some(report) = &mut self.decider.report {
            report.flush(now_ms, effects);
        }
    }

    fn on_reply(&mut self, batch: BatchId, reply: Reply, now_ms: u64, effects: &mut Effects) {
        if self.is_poll(batch) {
            let replies = read(reply, 1);
            self.note_refusal(&replies, "GET", now_ms, effects);
            return self.reload(&replies, effects);
        }
        if self.is_report(batch) {
            return self.note_refusal(&read(reply, 1), "tally", now_ms, effects);
        }
        let Some(pump) = &mut self.pump else { return };
        if let Some(completed) = pump.on_reply(batch, reply, now_ms, effects) {
            self.complete(completed, now_ms, effects);
        }
    }

    fn on_not_sent(&mut self, batch: BatchId, effects: &mut Effects) {
        if self.is_poll(batch) {
            return self.reload(&Err(DefiniteFailure::NotSent.into()), effects);
        }
        if self.is_report(batch) {
            return;
        }
        if let Some(pump) = &mut self.pump {
            pump.not_sent(batch, effects);
        }
    }

    /// Records a refusal of a call that is not the pump's.
    fn note_refusal(
        &mut self,
        replies: &Result<Vec<Value>, Failure>,
        command: &str,
        now_ms: u64,
        effects: &mut Effects,
    ) {
        if let Some(pump) = &mut self.pump {
            pump.refusals()
                .note_replies(replies, command, now_ms, effects);
        }
    }

    fn is_poll(&mut self, batch: BatchId) -> bool {
        let reload = self.reload.as_mut();
        reload.is_some_and(|reload| reload.is_poll(batch))
    }

    /// Whether the ended call `batch` was a report. Nothing depends on its result.
    fn is_report(&mut self, batch: BatchId) -> bool {
        let report = self.decider.report.as_mut();
        report.is_some_and(|report| report.completed(batch))
    }

    /// Applies new rules from a poll to later requests. Waiting requests keep the rules at their arrival.
    fn reload(&mut self, replies: &Result<Vec<Value>, Failure>, effects: &mut Effects) {
        let Some(reload) = &mut self.reload else {
            return;
        };
        if let Some(rules) = reload.read(replies, self.is_serving, effects) {
            let ruleset = Ruleset::new(rules, &self.data, self.seed, &mut self.metrics);
            self.decider.ruleset = Arc::new(ruleset);
            self.reloads += 1;
        }
    }

    fn complete(
        &mut self,
        completed: Vec<CompletedBatch<Job<D>>>,
        now_ms: u64,
        effects: &mut Effects,
    ) {
        for completed in completed {
            self.complete_call(completed, now_ms, effects);
        }
    }

    /// Handles the end of one script call.
    fn complete_call(
        &mut self,
        completed: CompletedBatch<Job<D>>,
        now_ms: u64,
        effects: &mut Effects,
    ) {
        // A charge that could not be undone expires with its period.
        let requests = completed.requests.into_iter();
        let jobs: Vec<_> = requests.filter_map(check_job).collect();
        if jobs.is_empty() {
            return;
        }
        let limits = jobs.iter().flat_map(|(_, job)| &job.limits);
        let shape = limits.map(Vec::len);
        let answers = completed.outcome.and_then(|value| {
            limit::parse(&value, shape).map_err(|_| Failure::from(UnknownFailure::Garbled))
        });
        self.tell_of_redis(answers.as_ref().err(), jobs.len(), effects);
        let mut answers = answers.ok().map(Vec::into_iter);
        for (stream, job) in jobs {
            let count = job.limits.len();
            let its = answers
                .as_mut()
                .map(|all| all.by_ref().take(count).collect());
            self.complete_check(stream, job, its, now_ms, effects);
        }
    }

    /// Logs the first failure as a warning and later ones at a lower level, to keep the log short.
    fn tell_of_redis(&mut self, failure: Option<&Failure>, count: usize, effects: &mut Effects) {
        let was_failing = mem::replace(&mut self.is_redis_failing, failure.is_some());
        match failure {
            Some(failure) => {
                let level = match was_failing {
                    true => Level::Debug,
                    false => Level::Warn,
                };
                let text = format!("{count} requests decided without Redis: {failure}");
                effects.log(level, text);
            }
            None if was_failing => effects.log(Level::Info, "Redis answers again"),
            None => {}
        }
    }

    /// Handles the result for one request. `stream` is `None` if it has ended.
    fn complete_check(
        &mut self,
        stream: Option<StreamId>,
        job: CheckJob<D>,
        answers: Option<Vec<Vec<Answer>>>,
        now_ms: u64,
        effects: &mut Effects,
    ) {
        let client = job.client;
        let (mut evaluation, outcome) = self.decider.learn(job, answers, now_ms);
        if let Outcome::Refused(_) = outcome {
            // Undoes dry-run charges of a request that is not in flight.
            let in_shadow = evaluation.take_shadow_charges();
            self.end(in_shadow, now_ms, effects);
        }
        let Some(stream) = stream else {
            let remaining = self.decider.abandon(evaluation, &outcome, now_ms);
            return self.end(remaining, now_ms, effects);
        };
        self.streams.remove(&stream);
        match self.decider.conclude(evaluation, outcome, now_ms) {
            Ok(passed) => self.pass(stream, passed, effects),
            Err(refused) => self.refuse(stream, &refused, client, effects),
        }
    }
}

impl<D: SharedData + Clone> Engine for Limiter<D> {
    const NAME: &'static str = NAME;

    fn handle(&mut self, event: Event<'_>, effects: &mut Effects) {
        match event {
            Event::Request { stream, request } => self.on_request(stream, request, effects),
            Event::Response { stream } => self.on_response(stream, effects),
            Event::Closed { stream, end } => self.on_gone(stream, || end.now_ms(), effects),
            Event::Undelivered { stream, now_ms } => self.on_gone(stream, || now_ms, effects),
            Event::Tick { now_ms } => self.on_tick(now_ms, effects),
            Event::RedisReply {
                batch,
                reply,
                now_ms,
            } => self.on_reply(batch, reply, now_ms, effects),
            Event::NotSent { batch } => self.on_not_sent(batch, effects),
            Event::Deferred { batch } => {
                if let Some(pump) = &mut self.pump {
                    pump.deferred(batch, effects);
                }
            }
            // The engine never causes these events.
            Event::Body { .. } | Event::FetchDone { .. } => {}
        }
    }

    fn decide_early(&mut self, request: &dyn Request, trusts_user: bool) -> EarlyDecision {
        let config = &self.decider.config;
        let may_differ = config.user_header.is_some() && !trusts_user;
        // After a 400, hosts close the connection in their HTTP stack.
        let closes = |answer: &AnswerConfig| answer.status == 400;
        let may_close = config.answer.as_ref().is_some_and(closes);
        // The first request starts the polls.
        let is_first = !self.is_serving;
        if may_differ || may_close || is_first || config.edges.stamped(request).is_some() {
            return EarlyDecision::Undecided;
        }
        match self.decider.decide_early(request, request.now_ms()) {
            EarlyVerdict::Refused(refused) => {
                let answer = self.answer(&refused, Client::from_request(request));
                EarlyDecision::Answer(answer)
            }
            EarlyVerdict::NotConcerned => EarlyDecision::NotConcerned,
            EarlyVerdict::Undecided => EarlyDecision::Undecided,
        }
    }

    fn tick_ms(&self) -> Option<u64> {
        let poll_ms = self.reload.as_ref().map(Reload::tick_ms);
        let pump = self.pump.as_ref().filter(|_| self.is_serving);
        let watch_ms = pump.map(Pump::tick_ms);
        poll_ms.into_iter().chain(watch_ms).min()
    }

    fn metrics(&mut self) -> &mut Metrics {
        &mut self.metrics
    }

    fn describe(&self) -> Option<Description> {
        let source = match self.reloads {
            0 => "the configuration",
            _ => "Redis",
        };
        Some(Description {
            key_prefix: self.decider.config.redis.as_ref()?.key_prefix.clone(),
            items: self.decider.ruleset.items(source),
        })
    }

    fn revision(&self) -> u64 {
        self.reloads
    }
}

fn check_job<D>(request: Pending<Job<D>>) -> Option<(Option<StreamId>, CheckJob<D>)> {
    match request.job {
        Job::Check(job) => Some((request.stream, *job)),
        Job::Back(_) => None,
    }
}

#[cfg(test)]
mod tests;
