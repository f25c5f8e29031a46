//! What the gate carries out when Redis or a captcha's provider has replied.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::admission::Rejection;
use crate::claim::ClaimId;
use crate::ledger::{ClaimReply, OpenClaim};
use crate::redis::{challenge_spend, claim, probe};
use crate::verdict::Verdict;
use weir_base::headers;
use weir_base::id::SaleId;
use weir_base::resp::Value;
use weir_base::shared_data::SharedData;
use weir_engine::event::FetchResponse;
use weir_engine::pump::{BATCH_MAX, Completed, Pending};
use weir_engine::redis::{Definite, Failure, Reply, Unknown};
use weir_engine::{BatchId, Effects, FetchId, Level, StreamId};
use weir_scripts::ReplyError;

use crate::engine::claims::{ClaimStep, delivery_of, without_reply};
use crate::engine::gate::{Gate, StreamState};
use crate::engine::job::{ClaimJob, Job};
use crate::engine::rebalance::Progress;
use crate::engine::sales::{PollResult, missing_settings};

impl<D: SharedData + Clone> Gate<D> {
    pub(crate) fn on_reply(
        &mut self,
        batch: BatchId,
        reply: Reply,
        now_ms: u64,
        effects: &mut Effects,
    ) {
        if let Some(poll) = self.sales.poll_of(batch) {
            match self.sales.read_poll(&poll, reply, now_ms) {
                Ok(result) => self.poll_succeeded(result, effects),
                Err(reason) => self.poll_failed(&reason, effects),
            }
            return self.release_pending(BATCH_MAX, now_ms, effects);
        }
        if self.is_report(batch) {
            return;
        }
        if let Some(completed) = self.pump.on_reply(batch, reply, now_ms, effects) {
            self.complete(completed, now_ms, effects);
        }
    }

    pub(crate) fn on_not_sent(&mut self, batch: BatchId, effects: &mut Effects) {
        if self.sales.poll_of(batch).is_some() {
            self.poll_failed(&format!("{}", Definite::NotSent), effects);
        } else if !self.is_report(batch) {
            self.pump.not_sent(batch, effects);
        }
    }

    /// Whether the call `batch`, which has ended, reported decisions. Nobody waits for it.
    fn is_report(&mut self, batch: BatchId) -> bool {
        let report = self.report.as_mut();
        report.is_some_and(|report| report.completed(batch))
    }

    fn poll_succeeded(&mut self, result: PollResult, effects: &mut Effects) {
        if result.has_recovered {
            effects.log(Level::Info, "the catalogue can be read again");
        }
        let changed = self.sales.catalogue().filter(|_| result.has_changed);
        let Some(catalogue) = changed else { return };
        // The log says with every new catalogue which sales cannot be sold as this gateway is configured.
        for text in missing_settings(&self.config, catalogue) {
            effects.log(Level::Error, text);
        }
        if let Some((level, text)) = self.signer.compare(catalogue) {
            effects.log(level, text);
        }
    }

    /// What is known stays; the log says so once, not with every poll.
    fn poll_failed(&mut self, reason: &str, effects: &mut Effects) {
        // Where no request comes, as on Envoy's main thread, Redis need not be reached.
        if !self.pending.has_begun() && self.sales.catalogue().is_none() {
            return;
        }
        self.metrics.polls_failed.increment();
        if self.sales.poll_failed() {
            let text = format!("the catalogue could not be read, the last one stays: {reason}");
            effects.log(Level::Warn, text);
        }
    }

    /// A captcha's provider has answered, or has not.
    pub(crate) fn on_fetch_done(
        &mut self,
        fetch: FetchId,
        response: Option<&FetchResponse>,
        now_ms: u64,
        effects: &mut Effects,
    ) {
        let checkout = self.checkout.as_mut();
        let fetched = checkout.and_then(|checkout| checkout.fetched(fetch, response, now_ms));
        if let Some((stream, shopper, decision)) = fetched {
            self.streams.remove(&stream);
            self.advance(stream, shopper, decision, now_ms, effects);
        }
    }

    /// Gives streams what has completed.
    pub(crate) fn complete(
        &mut self,
        completed: Vec<Completed<Job>>,
        now_ms: u64,
        effects: &mut Effects,
    ) {
        for call in completed {
            // A call's requests are all of one kind.
            match call.requests.first().map(|pending| &pending.job) {
                Some(Job::Claim(_)) => self.claims_completed(call, now_ms, effects),
                Some(Job::Spend(_)) => self.spends_completed(call, now_ms, effects),
                Some(Job::Probe(_)) => self.probes_completed(call, now_ms, effects),
                Some(Job::Move(_)) => self.moves_completed(call, now_ms, effects),
                // The reply to a hand-back is of no further use; one that failed ends with its claim.
                Some(Job::HandBack(_)) | None => {
                    self.reply_of(call.outcome, call.requests.len(), effects);
                }
            }
        }
    }

    /// The reply. A failure is counted.
    fn reply_of<T>(
        &self,
        outcome: Result<T, Failure>,
        count: usize,
        effects: &mut Effects,
    ) -> Option<T> {
        let failed = |failure: &Failure| self.count_failure(failure, count, effects);
        outcome.inspect_err(failed).ok()
    }

    fn count_failure(&self, failure: &Failure, count: usize, effects: &mut Effects) {
        let is_definite = matches!(failure, Failure::Definite(_));
        self.metrics.failed(is_definite, count);
        effects.log(Level::Debug, format!("{count} requests failed: {failure}"));
    }

    /// The replies to a call's requests, one each. A failure is counted, and fails all of them.
    fn replies_of<T>(
        &self,
        outcome: Result<Value, Failure>,
        count: usize,
        parse: impl FnOnce(&Value, usize) -> Result<Vec<T>, ReplyError>,
        effects: &mut Effects,
    ) -> Result<Vec<T>, Failure> {
        outcome
            .and_then(|value| parse(&value, count).map_err(|_| Unknown::Garbled.into()))
            .inspect_err(|failure| self.count_failure(failure, count, effects))
    }

    // --- claims

    fn claims_completed(&mut self, call: Completed<Job>, now_ms: u64, effects: &mut Effects) {
        let requests = call.requests;
        match self.replies_of(call.outcome, requests.len(), claim::parse, effects) {
            Ok(replies) => {
                for (pending, reply) in requests.into_iter().zip(replies) {
                    self.claimed(pending, reply, now_ms, effects);
                }
            }
            Err(failure) => self.fail(requests, without_reply(&failure), now_ms, effects),
        }
    }

    /// Redis has not replied to these requests.
    fn fail(
        &mut self,
        requests: Vec<Pending<Job>>,
        verdict: Verdict,
        now_ms: u64,
        effects: &mut Effects,
    ) {
        for Pending { stream, job, .. } in requests {
            match job {
                Job::Claim(job) => {
                    self.overload.redis_answered(job.pass, false, now_ms);
                    if let Some(stream) = stream {
                        self.reject_waiting(stream, &job, verdict, None, effects);
                    }
                }
                // It is not known whether the solution has led to a token. A shopper who sends it again gets that, or the first.
                Job::Spend(job) => {
                    self.overload.redis_answered(job.pass, false, now_ms);
                    if let Some(stream) = stream {
                        self.streams.remove(&stream);
                        self.refuse_shopper(stream, &job.shopper, verdict.into(), effects);
                    }
                }
                Job::HandBack(_) | Job::Probe(_) | Job::Move(_) => {}
            }
        }
    }

    /// A shard has replied to a claim.
    fn claimed(
        &mut self,
        pending: Pending<Job>,
        reply: ClaimReply,
        now_ms: u64,
        effects: &mut Effects,
    ) {
        let Job::Claim(mut job) = pending.job else {
            return;
        };
        self.overload.redis_answered(job.pass.take(), true, now_ms);
        self.sales.learn(&job.sale, job.shard, &reply);
        let if_empty = self.sales.if_empty(&job.sale, now_ms);
        let step = ClaimStep::after(&job, reply, if_empty);
        let Some(stream) = pending.stream else {
            // Nobody waits any more. What was granted goes back.
            if let ClaimStep::Pass(_, claim) = step {
                self.hand_back(delivery_of(job, claim), now_ms, effects);
            }
            return;
        };
        match step {
            ClaimStep::Rebalance => self.rebalance(stream, job, now_ms, effects),
            ClaimStep::Pass(verdict, claim) => {
                self.pass(stream, job, claim, verdict, now_ms, effects);
            }
            ClaimStep::Reject(verdict, order) => {
                self.reject_waiting(stream, &job, verdict, order.as_ref(), effects);
            }
        }
    }

    /// The request goes on to the origin with its claim, if the origin is to be asked at all.
    fn pass(
        &mut self,
        stream: StreamId,
        job: ClaimJob,
        claim: OpenClaim,
        verdict: Verdict,
        now_ms: u64,
        effects: &mut Effects,
    ) {
        let pass = match job.buyer.is_shadow {
            true => None,
            false => match self.overload.pass_on(now_ms) {
                Ok(pass) => Some(pass),
                Err(rejection) => {
                    self.reject_waiting(stream, &job, rejection, None, effects);
                    return self.hand_back(delivery_of(job, claim), now_ms, effects);
                }
            },
        };
        let ticket = self.signer.ticket(&job, claim);
        send_on(stream, &job, ticket, verdict, effects);
        self.count(job.buyer.sale, job.buyer.is_shadow, verdict);
        self.unconfirmed.push(stream);
        let delivery = Some(delivery_of(job, claim));
        // From here on the origin's answer and the stream's end end what was begun.
        let passed = StreamState::Passed { pass, delivery };
        self.streams.insert(stream, passed);
    }

    /// As [`Gate::reject`], of a request that has waited.
    fn reject_waiting(
        &mut self,
        stream: StreamId,
        job: &ClaimJob,
        rejection: impl Into<Rejection>,
        order: Option<&ClaimId>,
        effects: &mut Effects,
    ) {
        self.streams.remove(&stream);
        self.reject(stream, job.buyer, rejection, order, effects);
    }

    // --- solved challenges

    fn spends_completed(&mut self, call: Completed<Job>, now_ms: u64, effects: &mut Effects) {
        let requests = call.requests;
        match self.replies_of(
            call.outcome,
            requests.len(),
            challenge_spend::parse,
            effects,
        ) {
            Ok(times) => {
                for (pending, minted_at_ms) in requests.into_iter().zip(times) {
                    self.spent(pending, minted_at_ms, now_ms, effects);
                }
            }
            Err(failure) => self.fail(requests, without_reply(&failure), now_ms, effects),
        }
    }

    /// Redis has said when the token of a solution was minted.
    fn spent(
        &mut self,
        pending: Pending<Job>,
        minted_at_ms: u64,
        now_ms: u64,
        effects: &mut Effects,
    ) {
        let Job::Spend(job) = pending.job else { return };
        self.overload.redis_answered(job.pass, true, now_ms);
        let Some(checkout) = &self.checkout else {
            return;
        };
        let decision = checkout.spent(&job, minted_at_ms, now_ms);
        match (pending.stream, decision.challenge) {
            (Some(stream), _) => {
                self.streams.remove(&stream);
                self.advance(stream, job.shopper, decision, now_ms, effects);
            }
            (None, Some(outcome)) => self.metrics.challenges.increment(outcome),
            (None, None) => {}
        }
    }

    // --- rebalances

    /// The shard of the stream is empty: it waits for a rebalance, if it may.
    fn rebalance(&mut self, stream: StreamId, job: ClaimJob, now_ms: u64, effects: &mut Effects) {
        if self.rebalances.waiting() >= self.config.redis.waiting_max {
            return self.reject_waiting(stream, &job, Verdict::Overloaded, None, effects);
        }
        for job in self.rebalances.wait(stream, job) {
            self.pump.enqueue_unowned(job, now_ms, effects);
        }
    }

    fn probes_completed(&mut self, call: Completed<Job>, now_ms: u64, effects: &mut Effects) {
        let count = call.requests.len();
        let shards = self
            .reply_of(call.outcome, count, effects)
            .and_then(|value| probe::parse(&value, count).ok());
        for (index, pending) in call.requests.iter().enumerate() {
            if let Job::Probe(job) = &pending.job {
                let probe = shards
                    .as_ref()
                    .and_then(|shards| shards.get(index).copied());
                let progress = self.rebalances.probed(job, probe);
                self.rebalance_on(&job.sale, progress, now_ms, effects);
            }
        }
    }

    fn moves_completed(&mut self, call: Completed<Job>, now_ms: u64, effects: &mut Effects) {
        let value = self.reply_of(call.outcome, call.requests.len(), effects);
        for pending in call.requests {
            if let Job::Move(job) = pending.job {
                let progress = self.rebalances.moved(&job, value.as_ref());
                self.rebalance_on(&job.sale, progress, now_ms, effects);
            }
        }
    }

    /// A rebalance goes on, or has ended: then those who have waited ask again.
    fn rebalance_on(
        &mut self,
        sale: &SaleId,
        progress: Progress,
        now_ms: u64,
        effects: &mut Effects,
    ) {
        if let Some(shards) = progress.probe {
            self.sales.learn_probe(sale, &shards);
        }
        for job in progress.jobs {
            self.pump.enqueue_unowned(job, now_ms, effects);
        }
        let Some((end, waiting)) = progress.ended else {
            return;
        };
        self.metrics.rebalances.increment(end);
        for (stream, mut job) in waiting {
            job.rebalances += 1;
            self.pump
                .enqueue_again(stream, Job::Claim(job), now_ms, effects);
        }
    }
}

/// Lets a request go on with its claim.
fn send_on(
    stream: StreamId,
    job: &ClaimJob,
    [claim, signature]: [String; 2],
    verdict: Verdict,
    effects: &mut Effects,
) {
    if job.buyer.poses_as_gateway {
        effects.remove_gateway_headers(stream);
    }
    if let Some(path) = &job.path {
        effects.set_path(stream, path.clone());
    }
    effects.add_header(stream, headers::CLAIM, claim);
    effects.add_header(stream, headers::CLAIM_SIGNATURE, signature);
    if !job.buyer.is_shadow {
        effects.add_header(stream, headers::VERDICT, verdict.word().into());
    }
    effects.go_on(stream);
}
