//! Handles replies from Redis and CAPTCHA providers.

use alloc::format;
use alloc::vec::Vec;

use crate::admission::{Conclusion, Rejection, conclude};
use crate::claim::{ClaimId, Ticket};
use crate::ledger::{ClaimReply, OpenClaim};
use crate::redis::{challenge_spend, claim, deposit, lend, probe};
use crate::site::{fence_of, first_shard};
use crate::verdict::Verdict;
use weir_base::headers;
use weir_base::id::SaleId;
use weir_base::resp::Value;
use weir_base::shared_data::SharedData;
use weir_engine::event::FetchResponse;
use weir_engine::pump::{BATCH_MAX, CompletedBatch, Pending};
use weir_engine::redis::{DefiniteFailure, Failure, Reply, UnknownFailure, read};
use weir_engine::{BatchId, Effects, FetchId, Level, StreamId};
use weir_scripts::ReplyError;

use crate::engine::checkout::CheckoutStep;
use crate::engine::gate::{Gate, StreamState};
use crate::engine::job::{Buyer, ClaimJob, HandBackJob, Job, Step};
use crate::engine::rebalance::Progress;

impl<D: SharedData + Clone> Gate<D> {
    pub(crate) fn on_reply(
        &mut self,
        batch: BatchId,
        reply: Reply,
        now_ms: u64,
        effects: &mut Effects,
    ) {
        if let Some(poll) = self.sales.poller.completed(batch) {
            let is_needed = self.pending.held.has_begun();
            let replies = read(reply, poll.count());
            let refusals = self.pump.refusals();
            self.sales
                .polled(&poll, &replies, is_needed, refusals, now_ms, effects);
            return self.release_pending(BATCH_MAX, now_ms, effects);
        }
        if self.responder.is_report(batch) {
            let refusals = self.pump.refusals();
            return refusals.note_replies(&read(reply, 1), "tally", now_ms, effects);
        }
        if let Some(completed) = self.pump.on_reply(batch, reply, now_ms, effects) {
            self.complete(completed, now_ms, effects);
        }
    }

    pub(crate) fn on_not_sent(&mut self, batch: BatchId, effects: &mut Effects) {
        if self.sales.poller.completed(batch).is_some() {
            let (reason, is_needed) = (DefiniteFailure::NotSent, self.pending.held.has_begun());
            self.sales
                .poll_failed(&format!("{reason}"), is_needed, effects);
        } else if !self.responder.is_report(batch) {
            self.pump.not_sent(batch, effects);
        }
    }

    /// Handles the answer of a CAPTCHA provider, or its failure.
    pub(crate) fn on_fetch_done(
        &mut self,
        fetch: FetchId,
        response: Option<&FetchResponse>,
        now_ms: u64,
        effects: &mut Effects,
    ) {
        let captchas = &mut self.checkout.captchas;
        if let Some((stream, shopper, step)) = captchas.checked(fetch, response, now_ms) {
            self.streams.remove(&stream);
            self.advance(stream, &shopper, step, now_ms, effects);
        }
    }

    /// Handles completed calls.
    pub(crate) fn complete(
        &mut self,
        completed: Vec<CompletedBatch<Job>>,
        now_ms: u64,
        effects: &mut Effects,
    ) {
        for call in completed {
            // All requests of a call have the same kind.
            match call.requests.first().map(|pending| &pending.job) {
                Some(Job::Claim(_)) => {
                    self.each_completed(call, claim::parse, Self::claimed, now_ms, effects);
                }
                Some(Job::Spend(_)) => {
                    let parse = challenge_spend::parse;
                    self.each_completed(call, parse, Self::spent, now_ms, effects);
                }
                Some(Job::Probe(_)) => self.probes_completed(call, now_ms, effects),
                Some(Job::Move(_)) => self.moves_completed(call, now_ms, effects),
                // The reply to a release is not needed; after a failure, the claim ends at its deadline.
                Some(Job::HandBack(_)) | None => {
                    self.reply_of(call.outcome, call.requests.len(), effects);
                }
            }
        }
    }

    /// Returns the reply and counts a failure.
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

    /// Gives each request of a call its own reply from `parse`, or gives all the failure.
    fn each_completed<T>(
        &mut self,
        call: CompletedBatch<Job>,
        parse: impl FnOnce(&Value, usize) -> Result<Vec<T>, ReplyError>,
        replied: impl Fn(&mut Self, Pending<Job>, T, u64, &mut Effects),
        now_ms: u64,
        effects: &mut Effects,
    ) {
        let count = call.requests.len();
        let replies = call
            .outcome
            .and_then(|value| parse(&value, count).map_err(|_| UnknownFailure::Garbled.into()));
        match replies {
            Ok(replies) => {
                for (pending, reply) in call.requests.into_iter().zip(replies) {
                    replied(self, pending, reply, now_ms, effects);
                }
            }
            Err(failure) => {
                self.count_failure(&failure, count, effects);
                for pending in call.requests {
                    self.failed(pending, &failure, now_ms, effects);
                }
            }
        }
    }

    fn probes_completed(&mut self, call: CompletedBatch<Job>, now_ms: u64, effects: &mut Effects) {
        let count = call.requests.len();
        let shards = self
            .reply_of(call.outcome, count, effects)
            .and_then(|value| probe::parse(&value, count).ok());
        for (index, pending) in call.requests.iter().enumerate() {
            if let Job::Probe(job) = &pending.job {
                let shards = shards.as_ref();
                let probe = shards.and_then(|shards| shards.get(index).copied());
                let progress = self.rebalances.probed(job, probe);
                self.rebalance_on(&job.sale, job.to_shard, progress, now_ms, effects);
            }
        }
    }

    fn moves_completed(&mut self, call: CompletedBatch<Job>, now_ms: u64, effects: &mut Effects) {
        let value = self.reply_of(call.outcome, call.requests.len(), effects);
        for pending in call.requests {
            let Job::Move(job) = pending.job else {
                continue;
            };
            let value = value.as_ref();
            let progress = match job.step {
                Step::Lend { .. } => {
                    let reply = value.and_then(|value| lend::parse(value).ok());
                    self.rebalances.complete_lend(&job, reply)
                }
                Step::Deposit { .. } => {
                    let reply = value.and_then(|value| deposit::parse(value).ok());
                    self.rebalances.complete_deposit(&job, reply)
                }
                Step::Settle { .. } => continue,
            };
            self.rebalance_on(&job.sale, job.to_shard, progress, now_ms, effects);
        }
    }

    /// Continues a rebalance, or ends it: then the waiting requests claim again.
    fn rebalance_on(
        &mut self,
        sale: &SaleId,
        to_shard: u32,
        progress: Progress,
        now_ms: u64,
        effects: &mut Effects,
    ) {
        if let Some(shards) = progress.probe {
            let first = first_shard(fence_of(to_shard));
            self.sales.learn_probe(sale, first, &shards, now_ms);
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

    /// Handles a shard's reply to a claim.
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
        self.sales.memory.learn(&job.sale, job.shard, &reply);
        let too_few = job.is_too_many.then_some(Verdict::TooFew);
        let if_empty = self.sales.if_empty(&job.sale, now_ms).or(too_few);
        let conclusion = conclude(reply, if_empty, job.rebalances);
        let Some(stream) = pending.stream else {
            // The stream has ended, so its claim is released.
            if let Conclusion::Pass { held, .. } = conclusion {
                self.hand_back(delivery_of(job, held), now_ms, effects);
            }
            return;
        };
        if let Some(refusal) = job.refusal
            && !matches!(conclusion, Conclusion::Pass { .. })
        {
            return self.reject_waiting(stream, &job, refusal, None, effects);
        }
        match conclusion {
            Conclusion::Rebalance => self.rebalance(stream, job, now_ms, effects),
            Conclusion::Pass { verdict, held } => {
                self.pass(stream, job, held, verdict, now_ms, effects);
            }
            Conclusion::Reject { verdict, ordered } => {
                let order = ordered.map(|n| ClaimId::new(&job.sale, job.shard, n));
                self.reject_waiting(stream, &job, verdict, order.as_ref(), effects);
            }
        }
    }

    /// Handles an empty shard: the stream waits for a rebalance, if allowed.
    fn rebalance(&mut self, stream: StreamId, job: ClaimJob, now_ms: u64, effects: &mut Effects) {
        if self.rebalances.waiting() >= self.config.redis.waiting_max {
            return self.reject_waiting(stream, &job, Verdict::Overloaded, None, effects);
        }
        for job in self.rebalances.wait(stream, job) {
            self.pump.enqueue_unowned(job, now_ms, effects);
        }
    }

    /// Handles the time when the token of a solution was minted.
    fn spent(
        &mut self,
        pending: Pending<Job>,
        minted_at_ms: u64,
        now_ms: u64,
        effects: &mut Effects,
    ) {
        let Job::Spend(job) = pending.job else { return };
        self.overload.redis_answered(job.pass, true, now_ms);
        let step = self.checkout.spent(&job, minted_at_ms, now_ms);
        if let Some(stream) = pending.stream {
            self.streams.remove(&stream);
            self.advance(stream, &job.shopper, step, now_ms, effects);
        }
    }

    /// Handles a call without a reply.
    fn failed(
        &mut self,
        pending: Pending<Job>,
        failure: &Failure,
        now_ms: u64,
        effects: &mut Effects,
    ) {
        let verdict = match failure {
            Failure::Definite(DefiniteFailure::Expired) => Verdict::Overloaded,
            _ => Verdict::Unavailable,
        };
        match pending.job {
            Job::Claim(job) => {
                self.overload.redis_answered(job.pass, false, now_ms);
                if let Some(stream) = pending.stream {
                    self.reject_waiting(stream, &job, verdict, None, effects);
                }
            }
            // The solution may have led to a token. A shopper who sends it again gets that token, or a first one.
            Job::Spend(job) => {
                self.overload.redis_answered(job.pass, false, now_ms);
                if let Some(stream) = pending.stream {
                    self.streams.remove(&stream);
                    let step = CheckoutStep::Refuse(verdict.into());
                    self.advance(stream, &job.shopper, step, now_ms, effects);
                }
            }
            Job::HandBack(_) | Job::Probe(_) | Job::Move(_) => {}
        }
    }

    /// Forwards the request to the origin with its claim, unless the origin is overloaded.
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
        self.send_on(stream, &job, claim, verdict, effects);
        let Buyer {
            sale, is_shadow, ..
        } = job.buyer;
        self.responder.count(sale, is_shadow, verdict);
        self.unconfirmed.push(stream);
        let delivery = Some(delivery_of(job, claim));
        // From now on, the origin's answer or the stream's end completes the claim's delivery.
        let passed = StreamState::Passed { pass, delivery };
        self.streams.insert(stream, passed);
    }

    fn send_on(
        &self,
        stream: StreamId,
        job: &ClaimJob,
        claim: OpenClaim,
        verdict: Verdict,
        effects: &mut Effects,
    ) {
        let claim = Ticket {
            sale: job.sale.clone(),
            shard: job.shard,
            generation: claim.generation,
            quantity: claim.quantity,
            deadline_ms: claim.deadline_ms,
            user: job.user.clone(),
        }
        .encode();
        let signature = self.config.claim_keys.sign(&claim);
        if job.buyer.poses_as_gateway {
            effects.remove_gateway_headers(stream);
        }
        if let Some(path) = &job.path {
            effects.set_path(stream, path.clone());
        }
        effects.add_header(stream, headers::CLAIM, claim);
        effects.add_header(stream, headers::CLAIM_SIGNATURE, signature);
        if !job.buyer.is_shadow {
            effects.add_header(stream, headers::VERDICT, verdict.label().into());
        }
        effects.go_on(stream);
    }

    /// Releases a delivery that never left the gateway or that the origin refused, with the next batch.
    pub(crate) fn hand_back(&mut self, delivery: HandBackJob, now_ms: u64, effects: &mut Effects) {
        self.metrics.handed_back.increment();
        self.pump
            .enqueue_unowned(Job::HandBack(delivery), now_ms, effects);
    }

    /// Like [`Responder::reject`](crate::engine::responder::Responder::reject), for a request that has waited.
    fn reject_waiting(
        &mut self,
        stream: StreamId,
        job: &ClaimJob,
        rejection: impl Into<Rejection>,
        order: Option<&ClaimId>,
        effects: &mut Effects,
    ) {
        self.streams.remove(&stream);
        self.responder
            .reject(stream, job.buyer, rejection.into(), order, effects);
    }
}

/// The delivery of `claim` for `job`.
fn delivery_of(job: ClaimJob, claim: OpenClaim) -> HandBackJob {
    HandBackJob {
        sale: job.sale,
        shard: job.shard,
        user: job.user,
        generation: claim.generation,
        delivery: claim.delivery,
    }
}
