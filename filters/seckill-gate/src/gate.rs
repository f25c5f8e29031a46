//! The state of one VM, and what its callbacks do with it.

use std::borrow::Cow;
use std::time::Duration;

use proxy_wasm::hostcalls;
use proxy_wasm::types::Status;
use weir_base::headers;
use weir_base::id::{SaleId, UserId};
use weir_filter_kit::http::{
    RequestHeaders, add_request_header, prepare_json, remove_gateway_headers,
};
use weir_filter_kit::link::{HostLink, Link};
use weir_filter_kit::pump::{Completed, PendingRequest, Pump};
use weir_filter_kit::redis::{Definite, Failure, Reply, Unknown, read};
use weir_sale::admission::{Admission, Conclusion, Rejection, admit, conclude};
use weir_sale::claim::{ClaimId, Ticket as ClaimTicket};
use weir_sale::ledger::{ClaimReply, OpenClaim};
use weir_sale::sale::{Catalogue, Sale, SaleState};
use weir_sale::sold_out::SoldOutMemory;
use weir_sale::status::SaleStatus;
use weir_sale::verdict::Verdict;
use weir_scripts::{claim, deposit, lend, probe};

use crate::NAME;
use crate::answer::Answers;
use crate::config::{Checked, DEADLINE_MS};
use crate::identify::identify;
use crate::job::{ClaimJob, ClaimPlan, HandBackJob, Job, Step};
use crate::limits::Limits;
use crate::metrics::Metrics;
use crate::overload::Overload;
use crate::poll::{Poll, Poller};
use crate::rebalance::{Progress, Rebalances};
use crate::request_outcome::{Asker, OutcomeCell, RequestOutcome};
use crate::route::RouteKind;

/// All that one VM knows. Shared by its root context and its streams.
pub(crate) struct Gate {
    pub(crate) config: Checked,
    plan: ClaimPlan,
    pump: Pump<ClaimPlan, HostLink>,
    poller: Poller,
    /// `None` until the first poll has found one: nothing is known of any sale.
    catalogue: Option<Catalogue>,
    pub(crate) memory: SoldOutMemory,
    rebalances: Rebalances,
    pub(crate) limits: Limits,
    pub(crate) overload: Overload,
    pub(crate) metrics: Metrics,
    pub(crate) answers: Answers,
    is_poll_failing: bool,
    /// Whether a request has come yet. One VM, on Envoy's main thread, never sees any.
    is_serving: bool,
}

impl Gate {
    pub(crate) fn new(config: Checked, link: HostLink) -> Self {
        let plan = ClaimPlan {
            key_prefix: config.redis.key_prefix.clone(),
            topology: config.redis.topology,
            claim_ttl_ms: config.claim_ttl_ms,
        };
        let metrics = Metrics::define();
        Self {
            limits: Limits::new(&config.limits, &config.claim_keys),
            overload: Overload::new(&config.overload, &metrics),
            pump: Pump::new(config.redis.pump_settings(DEADLINE_MS), plan.clone(), link),
            poller: Poller::new(config.poll_interval_ms),
            catalogue: None,
            memory: SoldOutMemory::default(),
            rebalances: Rebalances::default(),
            metrics,
            answers: Answers::new(config.retry_after_s, config.static_page.clone()),
            is_poll_failing: false,
            is_serving: false,
            plan,
            config,
        }
    }

    /// Who `request` says that it is from, whatever that is.
    pub(crate) fn user<'r>(&self, request: &'r RequestHeaders) -> Cow<'r, [u8]> {
        request.get(&self.config.user_header).unwrap_or_default()
    }

    /// What a request is for, if it concerns the gate at all.
    pub(crate) fn route_kind<'p>(&self, method: &[u8], path: &'p [u8]) -> Option<RouteKind<'p>> {
        self.config.route_kind(method, path)
    }

    /// Tells the effective context's stream how a sale stands.
    pub(crate) fn tell_status(&mut self, sale: &[u8], now_ms: u64) {
        self.note_request();
        self.metrics.status();
        let sent = match self.find(sale) {
            Ok((switch, sale)) => {
                let status = SaleStatus::new(switch, sale, &self.memory, now_ms);
                prepare_json(200, vec![], &status).send()
            }
            Err(rejection) => self.answers.reject(rejection, None),
        };
        log_unsent(sent);
    }

    /// The effective context's request, which is none of the gate's, goes on: the origin is told who
    /// it comes from, and nothing that only gateways may say.
    pub(crate) fn identify(&self, path: &[u8], request: &RequestHeaders) {
        if let Err(status) = identify(&self.config, path, request) {
            log::warn!("{NAME}: headers of a request could not be changed: {status:?}");
        }
    }

    /// Decides on a request of the stream `owner` to buy from `sale`: it is answered, waits, or goes
    /// on because the sale is in shadow. The stream is the effective context.
    pub(crate) fn decide(
        &mut self,
        owner: u32,
        sale: &[u8],
        request: &RequestHeaders,
        now_ms: u64,
    ) -> OutcomeCell {
        self.note_request();
        let found = self.find(sale);
        let asker = Asker {
            outcome: OutcomeCell::default(),
            is_shadow: self.is_shadow(&found),
        };
        let job =
            found.and_then(|(switch, sale)| self.admit(switch, sale, request, &asker, now_ms));
        let job = job.and_then(|job| {
            let pass = Some(self.overload.enter(now_ms)?);
            Ok(ClaimJob { pass, ..job })
        });
        match job {
            Ok(job) => {
                if self.pump.enqueue(owner, Job::Claim(job), now_ms).is_err() {
                    self.reject(&asker, Verdict::Overloaded.into(), None);
                }
            }
            Err(rejection) => self.reject(&asker, rejection, None),
        }
        asker.outcome
    }

    /// The first request of all makes this VM one that needs to know its sales.
    pub(crate) fn note_request(&mut self) {
        if !std::mem::replace(&mut self.is_serving, true) {
            self.poller.hurry();
            self.pump.link().wake();
        }
    }

    /// The sale that a path names, with the switch that counts for it.
    pub(crate) fn find(&self, sale: &[u8]) -> Result<(SaleState, &Sale), Rejection> {
        let catalogue = self.catalogue.as_ref().ok_or(Verdict::Unavailable)?;
        let sale = catalogue.find(sale).ok_or(Verdict::UnknownSale)?;
        Ok((catalogue.switch_of(sale), sale))
    }

    /// Whether a request for what was found goes on whatever is decided. With all sales in shadow, one
    /// for a sale that nobody knows does, too.
    fn is_shadow(&self, found: &Result<(SaleState, &Sale), Rejection>) -> bool {
        let switch = match found {
            Ok((switch, _)) => Some(*switch),
            Err(_) => self.catalogue.as_ref().map(|catalogue| catalogue.switch),
        };
        switch == Some(SaleState::Shadow)
    }

    /// The chain up to the claim.
    fn admit(
        &self,
        switch: SaleState,
        sale: &Sale,
        request: &RequestHeaders,
        asker: &Asker,
        now_ms: u64,
    ) -> Result<ClaimJob, Rejection> {
        let user = UserId::new(self.user(request)).map_err(|_| Verdict::InvalidUser)?;
        match admit(switch, sale, &user, &self.memory, now_ms) {
            Admission::Reject(rejection) => Err(rejection),
            Admission::Claim { shard, checks } => {
                self.check_token(sale, &user, request, now_ms)?;
                self.limits.check(&user, now_ms)?;
                Ok(ClaimJob {
                    sale: sale.id.clone(),
                    shard,
                    user,
                    user_cap: sale.user_cap,
                    shards: sale.shards,
                    rebalances: 0,
                    checks,
                    pass: None,
                    poses_as_gateway: request.pose_as_gateways(),
                    asker: asker.clone(),
                })
            }
        }
    }

    /// The stream `owner` has gone.
    pub(crate) fn forget(&mut self, owner: u32) {
        self.pump.forget(owner);
        self.rebalances.forget(owner);
    }

    /// The way to Redis.
    pub(crate) fn link(&self) -> &HostLink {
        self.pump.link()
    }

    /// Polls if that is due, sends what waits, and gives what has completed to its streams. The root
    /// context is effective, and may not be afterwards.
    pub(crate) fn turn(&mut self, now_ms: u64) {
        self.poll(now_ms);
        let completed = self.pump.turn(now_ms);
        self.apply(completed, now_ms);
    }

    /// The call `token` has ended. As [`Gate::turn`].
    pub(crate) fn on_reply(&mut self, token: u32, reply: Reply, now_ms: u64) {
        if let Some(poll) = self.poller.completed(token) {
            return self.read_poll(&poll, reply);
        }
        let read = |commands| read(reply, commands);
        if let Some(completed) = self.pump.on_reply(token, read, now_ms) {
            self.apply(completed, now_ms);
        }
    }

    fn apply(&mut self, completed: Vec<Completed<Job>>, now_ms: u64) {
        self.metrics.sent(self.pump.take_counts());
        for completed in completed {
            self.apply_one(completed, now_ms);
        }
    }

    fn apply_one(&mut self, completed: Completed<Job>, now_ms: u64) {
        // A call's requests are all of one kind.
        match completed.requests.first().map(|request| &request.job) {
            Some(Job::Claim(_)) => self.claims_completed(completed, now_ms),
            Some(Job::Probe(_)) => self.probes_completed(completed, now_ms),
            Some(Job::Move(_)) => self.move_completed(completed, now_ms),
            // What a hand-back answers is of no further use; one that failed ends with its claim.
            Some(Job::HandBack(_)) | None => {
                self.noted(completed.outcome, completed.requests.len());
            }
        }
    }

    /// The reply, or nothing after the failure has been counted.
    fn noted<T>(&self, outcome: Result<T, Failure>, count: usize) -> Option<T> {
        outcome
            .inspect_err(|failure| {
                let is_definite = matches!(failure, Failure::Definite(_));
                self.metrics.failed(is_definite, count);
                log::debug!("{NAME}: {count} requests failed: {failure}");
            })
            .ok()
    }

    fn claims_completed(&mut self, completed: Completed<Job>, now_ms: u64) {
        let count = completed.requests.len();
        let replies = completed
            .outcome
            .and_then(|value| claim::parse(&value, count).map_err(|_| Unknown::Garbled.into()));
        match replies {
            Ok(replies) => {
                for (request, reply) in completed.requests.into_iter().zip(replies) {
                    self.claimed(request, reply, now_ms);
                }
            }
            Err(failure) => {
                self.noted(Err::<(), _>(failure.clone()), count);
                for request in completed.requests {
                    self.failed(request, &failure, now_ms);
                }
            }
        }
    }

    fn probes_completed(&mut self, completed: Completed<Job>, now_ms: u64) {
        let count = completed.requests.len();
        let seen = self
            .noted(completed.outcome, count)
            .and_then(|value| probe::parse(&value, count).ok());
        for (index, request) in completed.requests.iter().enumerate() {
            if let Job::Probe(job) = &request.job {
                let probe = seen.as_ref().and_then(|seen| seen.get(index).copied());
                let progress = self.rebalances.looked(job, probe);
                self.rebalance_on(&job.sale, progress, now_ms);
            }
        }
    }

    fn move_completed(&mut self, completed: Completed<Job>, now_ms: u64) {
        let value = self.noted(completed.outcome, completed.requests.len());
        for request in completed.requests {
            let Job::Move(job) = request.job else {
                continue;
            };
            let value = value.as_ref();
            let progress = match job.step {
                Step::Lend { .. } => {
                    let reply = value.and_then(|value| lend::parse(value).ok());
                    self.rebalances.lent(&job, reply)
                }
                Step::Deposit { .. } => {
                    let reply = value.and_then(|value| deposit::parse(value).ok());
                    self.rebalances.deposited(&job, reply)
                }
                Step::Settle { .. } => continue,
            };
            self.rebalance_on(&job.sale, progress, now_ms);
        }
    }

    /// A rebalance goes on, or has ended: then those who have waited ask again.
    fn rebalance_on(&mut self, sale: &SaleId, progress: Progress, now_ms: u64) {
        if let Some(shards) = progress.probe {
            self.memory.learn_probe(sale, &shards);
        }
        for job in progress.jobs {
            self.pump.enqueue_unowned(job, now_ms);
        }
        let Some((end, waiting)) = progress.ended else {
            return;
        };
        self.metrics.rebalanced(end);
        for (owner, mut job) in waiting {
            job.rebalances += 1;
            self.pump.enqueue_again(owner, Job::Claim(job), now_ms);
        }
    }

    /// The shard of the stream `owner` is empty: it waits for a rebalance, if it may.
    fn rebalance(&mut self, owner: u32, job: ClaimJob, now_ms: u64) {
        if self.rebalances.waiting() >= self.config.redis.waiting_max {
            return self.reject_waiting(&job.asker, Verdict::Overloaded, None);
        }
        for job in self.rebalances.wait(owner, job) {
            self.pump.enqueue_unowned(job, now_ms);
        }
    }

    /// A shard has replied to a claim.
    fn claimed(&mut self, request: PendingRequest<Job>, reply: ClaimReply, now_ms: u64) {
        let Job::Claim(mut job) = request.job else {
            return;
        };
        self.overload.redis_answered(job.pass.take(), true, now_ms);
        self.memory.learn(&job.sale, job.shard, &reply);
        let stream = request.owner.filter(|&owner| select_stream(owner));
        let is_sale_empty = self.memory.is_empty(&job.sale);
        match (conclude(reply, is_sale_empty, job.rebalances), stream) {
            (Conclusion::Rebalance, Some(owner)) => self.rebalance(owner, job, now_ms),
            (Conclusion::Rebalance, None) => {}
            (Conclusion::Pass { verdict, held }, Some(_)) => self.pass(&job, held, verdict, now_ms),
            (Conclusion::Pass { held, .. }, None) => self.hand_back(&job, held, now_ms),
            (Conclusion::Reject { verdict, ordered }, Some(_)) => {
                let order =
                    ordered.map(|generation| ClaimId::new(&job.sale, job.shard, generation));
                self.reject_waiting(&job.asker, verdict, order.as_ref());
            }
            (Conclusion::Reject { .. }, None) => {}
        }
    }

    /// There is no reply.
    fn failed(&mut self, request: PendingRequest<Job>, failure: &Failure, now_ms: u64) {
        let Job::Claim(job) = request.job else { return };
        self.overload.redis_answered(job.pass, false, now_ms);
        let verdict = match failure {
            Failure::Definite(Definite::Expired) => Verdict::Overloaded,
            _ => Verdict::Unavailable,
        };
        if request.owner.is_some_and(select_stream) {
            self.reject_waiting(&job.asker, verdict, None);
        }
    }

    /// The effective context's request goes on to the origin with its claim, if the origin is to be
    /// asked at all.
    fn pass(&mut self, job: &ClaimJob, held: OpenClaim, verdict: Verdict, now_ms: u64) {
        let outcome = if job.asker.is_shadow {
            RequestOutcome::Shadowed
        } else {
            match self.overload.pass_on(now_ms) {
                Ok(pass) => RequestOutcome::Passed(pass),
                Err(rejection) => {
                    self.reject_waiting(&job.asker, rejection, None);
                    return self.hand_back(job, held, now_ms);
                }
            }
        };
        // From here on the stream's end ends what was begun.
        job.asker.tell(outcome);
        match self.send_on(job, held, verdict) {
            Ok(()) => self.count(&job.asker, verdict),
            Err(status) => {
                log::warn!("{NAME}: a granted request could not go on: {status:?}");
                self.hand_back(job, held, now_ms);
            }
        }
    }

    fn send_on(&self, job: &ClaimJob, held: OpenClaim, verdict: Verdict) -> Result<(), Status> {
        let claim = ClaimTicket {
            sale: job.sale.clone(),
            shard: job.shard,
            generation: held.generation,
            quantity: held.quantity,
            deadline_ms: held.deadline_ms,
            user: job.user.clone(),
        }
        .encode();
        let signature = self.config.claim_keys.sign(&claim);
        if job.poses_as_gateway {
            remove_gateway_headers()?;
        }
        add_request_header(headers::CLAIM, &claim)?;
        add_request_header(headers::CLAIM_SIGNATURE, &signature)?;
        if !job.asker.is_shadow {
            add_request_header(headers::VERDICT, verdict.word())?;
        }
        hostcalls::resume_http_request()
    }

    /// A claim's delivery never left the gateway: it goes back with the next batch.
    fn hand_back(&mut self, job: &ClaimJob, held: OpenClaim, now_ms: u64) {
        self.metrics.handed_back();
        let job = HandBackJob {
            sale: job.sale.clone(),
            shard: job.shard,
            user: job.user.clone(),
            generation: held.generation,
            delivery: held.delivery,
        };
        self.pump.enqueue_unowned(Job::HandBack(job), now_ms);
    }

    /// Answers the effective context's request, which has not been paused yet. One for a sale in shadow
    /// is only counted, and made ready to go on without a claim.
    fn reject(&self, asker: &Asker, rejection: Rejection, order: Option<&ClaimId>) {
        self.count(asker, rejection.verdict);
        let done = if asker.is_shadow {
            asker.tell(RequestOutcome::Shadowed);
            remove_gateway_headers()
        } else {
            asker.tell(RequestOutcome::Answered);
            self.answers.reject(rejection, order)
        };
        log_unsent(done);
    }

    /// As [`Gate::reject`], of a request that was paused.
    fn reject_waiting(
        &self,
        asker: &Asker,
        rejection: impl Into<Rejection>,
        order: Option<&ClaimId>,
    ) {
        self.reject(asker, rejection.into(), order);
        if asker.is_shadow {
            log_unsent(hostcalls::resume_http_request());
        }
    }

    fn count(&self, asker: &Asker, verdict: Verdict) {
        if asker.is_shadow {
            self.metrics.shadow(verdict);
        } else {
            self.metrics.request(verdict);
        }
    }

    /// Sends a poll if one is due.
    fn poll(&mut self, now_ms: u64) {
        let Some(poll) = self.poller.next(&self.memory, now_ms) else {
            return;
        };
        let body = poll.commands(&self.plan);
        match self
            .pump
            .link()
            .send(&body, self.pump.settings().deadline_ms, now_ms)
        {
            Ok(token) => self.poller.sent(token, poll),
            Err(definite) => self.poll_failed(&Failure::from(definite).to_string()),
        }
    }

    /// How far apart ticks should be.
    pub(crate) fn tick(&self) -> Duration {
        let tick_ms = self.poller.tick_ms();
        Duration::from_millis(match self.is_serving {
            true => tick_ms.min(self.pump.tick_ms()),
            false => tick_ms,
        })
    }

    fn read_poll(&mut self, poll: &Poll, reply: Reply) {
        let replies = match read(reply, poll.count()) {
            Ok(replies) => replies,
            Err(failure) => return self.poll_failed(&failure.to_string()),
        };
        match self.poller.read(poll, &replies, &mut self.memory) {
            Ok(changed) => self.poll_succeeded(changed),
            Err(error) => self.poll_failed(&error.to_string()),
        }
    }

    fn poll_succeeded(&mut self, changed: Option<Catalogue>) {
        if std::mem::take(&mut self.is_poll_failing) {
            log::info!("{NAME}: the catalogue can be read again");
        }
        if let Some(catalogue) = changed {
            if self.config.token.is_none() && catalogue.sales.iter().any(|sale| sale.token) {
                log::error!("{NAME}: sales want order tokens, but `token` is not configured");
            }
            self.memory.retain(&catalogue);
            self.catalogue = Some(catalogue);
        }
    }

    /// What is known stays; the log says so once, not with every poll.
    fn poll_failed(&mut self, reason: &str) {
        if !self.is_serving && self.catalogue.is_none() {
            return;
        }
        self.metrics.poll_failed();
        if !std::mem::replace(&mut self.is_poll_failing, true) {
            log::warn!("{NAME}: the catalogue could not be read, the last one stays: {reason}");
        }
    }
}

/// Makes the stream `owner` the one that answers and header changes are for. `false` if it has gone:
/// an answer would then go to the wrong stream.
fn select_stream(owner: u32) -> bool {
    hostcalls::set_effective_context(owner).is_ok()
}

/// Notes that the host has refused what was sent: the stream has gone, or was answered already.
pub(crate) fn log_unsent(sent: Result<(), Status>) {
    if let Err(status) = sent {
        log::warn!("{NAME}: an answer could not be sent: {status:?}");
    }
}
