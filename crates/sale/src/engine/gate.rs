//! The state of one worker, and its events.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use crate::admission::Rejection;
use crate::claim::ClaimId;
use crate::status::SaleStatus;
use crate::verdict::Verdict;
use weir_base::breaker::Pass;
use weir_base::headers;
use weir_base::shared_data::SharedData;
use weir_engine::pump::{BATCH_MAX, Counts, Pump};
use weir_engine::{
    Answer, Effects, Engine, Event, Level, Metrics as Registry, Request, StreamEnd, StreamId,
};

use crate::engine::answers::{Answers, language_of};
use crate::engine::buy::{PurchaseError, PurchasePolicy, without_query};
use crate::engine::checkout::Checkout;
use crate::engine::claims::ClaimSigner;
use crate::engine::config::{Checked, DEADLINE_MS};
use crate::engine::decision::{CheckoutDecision, CheckoutStep};
use crate::engine::identify::Identification;
use crate::engine::job::{Buyer, ClaimJob, ClaimPlan, HandBackJob, Job, Shopper, SpendJob};
use crate::engine::limits::Limits;
use crate::engine::metrics::{Metrics, PREFIX};
use crate::engine::overload::Overload;
use crate::engine::pending::PendingRequests;
use crate::engine::rebalance::Rebalances;
use crate::engine::report::{Report, SaleMark};
use crate::engine::route::RouteKind;
use crate::engine::sales::Sales;

/// The engine's name, in logs.
pub const NAME: &str = "seckill-gate";

/// An intermediary may answer so of a request whose outcome it does not know.
const REQUEST_TIMEOUT: u16 = 408;

/// All that one worker knows. `D` is the memory that it shares with the others.
///
/// Each concern decides on its own state and returns a plain value. The gate alone carries the values out: here what follows
/// from requests and streams, in `replies` what follows from replies.
#[derive(Debug)]
pub struct Gate<D> {
    pub(crate) config: Checked,
    pub(crate) pump: Pump<ClaimPlan>,
    pub(crate) sales: Sales,
    /// Requests that wait for the first poll.
    pub(crate) pending: PendingRequests,
    identification: Identification,
    pub(crate) signer: ClaimSigner,
    /// `None`: this gateway has no keys for order tokens.
    pub(crate) checkout: Option<Checkout>,
    pub(crate) rebalances: Rebalances,
    limits: Limits<D>,
    pub(crate) overload: Overload,
    answers: Answers,
    pub(crate) metrics: Metrics,
    /// Counts decisions for operators, if that is configured.
    pub(crate) report: Option<Report>,
    registry: Registry,
    /// The streams whose end matters.
    pub(crate) streams: BTreeMap<StreamId, StreamState>,
    /// Streams whose requests the last event let go on: if that fails, their claims go back.
    pub(crate) unconfirmed: Vec<StreamId>,
    /// Whether the log has a line on requests that go by another route.
    has_logged_misroute: bool,
}

/// A stream whose end matters.
#[derive(Clone, Debug)]
pub(crate) enum StreamState {
    /// Its request waits.
    Waiting,
    /// Its request went on with a claim.
    Passed {
        /// For the outcome at the origin; `None` in shadow.
        pass: Option<Pass>,
        /// What goes back if nothing comes of it; `None` when it has gone back.
        delivery: Option<HandBackJob>,
    },
}

impl<D: SharedData + Clone> Gate<D> {
    /// A gate that knows of no sale yet. `data` is the memory that the workers of one gateway share.
    pub fn new(config: Checked, data: &D) -> Self {
        let plan = ClaimPlan {
            key_prefix: config.redis.key_prefix.clone(),
            topology: config.redis.topology,
            claim_ttl_ms: config.claim_ttl_ms,
        };
        let mut registry = Registry::new();
        let metrics = Metrics::new(&mut registry);
        let counts = Counts::new(&mut registry, PREFIX);
        Self {
            limits: Limits::new(&config.limits, &config.claim_keys, data),
            overload: Overload::new(&config.overload, &mut registry),
            pump: Pump::new(config.redis.pump_settings(DEADLINE_MS), plan, counts),
            sales: Sales::new(config.poll_interval_ms),
            pending: PendingRequests::new(&config.user_header),
            identification: Identification::new(&config),
            signer: ClaimSigner::new(config.claim_keys.clone()),
            checkout: Checkout::new(&config),
            rebalances: Rebalances::default(),
            answers: Answers::new(config.retry_after_s, config.static_page.clone()),
            metrics,
            report: config.report_to().map(Report::new),
            registry,
            streams: BTreeMap::new(),
            unconfirmed: Vec::new(),
            has_logged_misroute: false,
            config,
        }
    }

    /// How many streams it remembers: those whose requests wait, and those that the origin has not answered.
    pub fn open_streams(&self) -> usize {
        self.pending.len() + self.streams.len()
    }

    fn on_request(&mut self, stream: StreamId, request: &dyn Request, effects: &mut Effects) {
        match self.config.edges.stamped(request) {
            Some(stamped) => self.on_request_of(stream, &stamped, effects),
            None => self.on_request_of(stream, request, effects),
        }
    }

    fn on_request_of(&mut self, stream: StreamId, request: &dyn Request, effects: &mut Effects) {
        let headers = request.headers();
        let method = headers.get(":method").unwrap_or_default();
        let path = headers.get(":path").unwrap_or_default();
        let Some(kind) = self.config.route_kind(&method, &path) else {
            return self.identify(stream, &path, request, effects);
        };
        self.note_request(request, effects);
        if matches!(kind, RouteKind::Buy(_))
            && let Some(route) = self.misroute(&method, &path, request)
        {
            return self.pass_misrouted(stream, &route, &path, request, effects);
        }
        if !self.sales.is_awaited() || !self.pending.hold(stream, request) {
            self.decide_as(stream, kind, &path, request, effects);
        }
    }

    /// The first request of all makes this worker one that needs to know its sales.
    fn note_request(&mut self, request: &dyn Request, effects: &mut Effects) {
        if self.pending.begin(request) {
            self.sales.hurry();
            effects.wake();
        }
    }

    /// The first poll has ended, or took too long: what waited for it is decided, at most `room` requests.
    pub(crate) fn release_pending(&mut self, room: usize, now_ms: u64, effects: &mut Effects) {
        let waits_on = self.sales.is_awaited() && !self.pending.is_over(now_ms);
        if self.pending.is_empty() || waits_on {
            return;
        }
        for _ in 0..room {
            let Some((stream, request)) = self.pending.pop_first(now_ms) else {
                return;
            };
            self.decide(stream, &request, effects);
        }
        if !self.pending.is_empty() {
            effects.wake();
        }
    }

    /// Decides on a request that has waited.
    fn decide(&mut self, stream: StreamId, request: &dyn Request, effects: &mut Effects) {
        let headers = request.headers();
        let method = headers.get(":method").unwrap_or_default();
        let path = headers.get(":path").unwrap_or_default();
        match self.config.route_kind(&method, &path) {
            Some(kind) => self.decide_as(stream, kind, &path, request, effects),
            None => self.identify(stream, &path, request, effects),
        }
    }

    fn decide_as(
        &mut self,
        stream: StreamId,
        kind: RouteKind<'_>,
        path: &[u8],
        request: &dyn Request,
        effects: &mut Effects,
    ) {
        match kind {
            RouteKind::Buy(sale) => self.buy(stream, sale, path, request, effects),
            RouteKind::Checkout(sale) => {
                self.check_out(stream, sale, request, request.now_ms(), effects);
            }
            RouteKind::Status(sale) => effects.respond(stream, self.status(sale, request)),
        }
    }

    /// By which other route the host sends a request to buy than by that of orders, if it does.
    fn misroute(&self, method: &[u8], path: &[u8], request: &dyn Request) -> Option<String> {
        let expected = self.config.must_go_via(method, path)?;
        let chosen = request.route_name().unwrap_or_default();
        let is_it = chosen == expected.as_bytes();
        (!is_it).then(|| String::from_utf8_lossy(&chosen).into_owned())
    }

    /// Lets a request to buy pass that will not reach the origin: a claim would hold a unit that nobody gets.
    fn pass_misrouted(
        &mut self,
        stream: StreamId,
        route: &str,
        path: &[u8],
        request: &dyn Request,
        effects: &mut Effects,
    ) {
        self.metrics.misrouted.increment();
        if !core::mem::replace(&mut self.has_logged_misroute, true) {
            let by = match route {
                "" => "no route with a name",
                route => route,
            };
            let text = format!(
                "a request to buy goes by {by} and not by the route of orders: nothing is claimed; put that route first"
            );
            effects.log(Level::Error, text);
        }
        self.identify(stream, path, request, effects);
    }

    /// Takes every sale of which SQL has nothing left for empty: for a host that reads only the catalogue and asks no shard.
    pub fn trust_bands(&mut self) {
        self.sales.trust_bands();
    }

    /// Lets a request go on that buys nothing, with its signed user if the origin wants to know it, unless it comes too
    /// often. Whatever a client sent instead of the signed user is removed.
    fn identify(
        &mut self,
        stream: StreamId,
        path: &[u8],
        request: &dyn Request,
        effects: &mut Effects,
    ) {
        let limits = (!self.sales.is_all_shadow()).then_some(&self.limits);
        let user = match self.identification.sign(path, request, limits) {
            Ok(user) => user,
            Err(rejection) => {
                self.metrics.requests.increment(rejection.verdict);
                let answer = self.answers.reject(rejection, language_of(request), None);
                return effects.respond(stream, answer);
            }
        };
        if request.headers().pose_as_gateway() {
            effects.remove_gateway_headers(stream);
        }
        if let Some(user) = user {
            effects.add_header(stream, headers::USER, user.value);
            effects.add_header(stream, headers::USER_SIGNATURE, user.signature);
        }
        effects.let_go(stream);
    }

    /// How a sale stands.
    fn status(&mut self, sale: &[u8], request: &dyn Request) -> Arc<Answer> {
        self.metrics.statuses.increment();
        match self.sales.find(sale) {
            Ok((switch, sale)) => {
                let status = SaleStatus::new(switch, sale, request.now_ms());
                // It says the same to anybody, so pages of any site may read it.
                let headers = vec![("access-control-allow-origin", "*")];
                Arc::new(Answer::json(200, headers, &status).because("weir_sale_status"))
            }
            Err(rejection) => self.answers.reject(rejection, language_of(request), None),
        }
    }

    // --- requests to buy

    /// Decides on a request to buy from `sale`: it is answered, waits, or goes on because the sale is in shadow.
    fn buy(
        &mut self,
        stream: StreamId,
        sale: &[u8],
        path: &[u8],
        request: &dyn Request,
        effects: &mut Effects,
    ) {
        let now_ms = request.now_ms();
        let policy = PurchasePolicy {
            user_header: &self.config.user_header,
            sales: &self.sales,
            signer: &self.signer,
            checkout: self.checkout.as_ref(),
            limits: &self.limits,
        };
        let decision = policy.decide(sale, self.mark(sale), request, now_ms);
        let buyer = decision.buyer;
        if let Err(PurchaseError::Token(error)) = decision.claim {
            self.metrics.tokens_refused.increment(error);
        }
        let claim = decision.claim.map_err(PurchaseError::rejection);
        let waits = claim.and_then(|claim| {
            let pass = Some(self.overload.enter(now_ms)?);
            let path = without_query(path);
            let job = Job::Claim(ClaimJob {
                pass,
                path,
                buyer,
                ..claim
            });
            let enqueued = self.pump.enqueue(stream, job, now_ms, effects);
            enqueued.map_err(|_full| Verdict::Overloaded.into())
        });
        match waits {
            Ok(()) => {
                self.streams.insert(stream, StreamState::Waiting);
            }
            Err(rejection) => self.reject(stream, buyer, rejection, None, effects),
        }
    }

    /// Answers a request. One for a sale in shadow is only counted, and goes on without a claim.
    pub(crate) fn reject(
        &mut self,
        stream: StreamId,
        buyer: Buyer,
        rejection: impl Into<Rejection>,
        order: Option<&ClaimId>,
        effects: &mut Effects,
    ) {
        let rejection = rejection.into();
        self.count(buyer.sale, buyer.is_shadow, rejection.verdict);
        if !buyer.is_shadow {
            let answer = self.answers.reject(rejection, buyer.language, order);
            return effects.respond(stream, answer);
        }
        if buyer.poses_as_gateway {
            effects.remove_gateway_headers(stream);
        }
        effects.add_header(stream, headers::SHADOW, rejection.verdict.word().into());
        effects.go_on(stream);
    }

    /// Counts a decision. `is_shadow`: the request goes on all the same.
    pub(crate) fn count(&mut self, sale: SaleMark, is_shadow: bool, verdict: Verdict) {
        match is_shadow {
            true => self.metrics.shadow.increment(verdict),
            false => self.metrics.requests.increment(verdict),
        }
        if let (Some(report), Some(sale)) = (&mut self.report, sale) {
            report.count(sale, is_shadow, verdict);
        }
    }

    /// The sale of this id as operators know it, if decisions are reported.
    fn mark(&self, sale: &[u8]) -> SaleMark {
        self.report.as_ref().map(|_| Report::mark(sale))
    }

    // --- the checkout

    /// Gives the stream a token for `sale`, or says why not.
    fn check_out(
        &mut self,
        stream: StreamId,
        sale: &[u8],
        request: &dyn Request,
        now_ms: u64,
        effects: &mut Effects,
    ) {
        // There is no route to a checkout without keys.
        let checkout = self.checkout.as_ref();
        let checkout = checkout.ok_or(Rejection::from(Verdict::Unavailable));
        let (sales, signer, limits) = (&self.sales, &self.signer, &self.limits);
        let admitted = checkout
            .and_then(|checkout| checkout.admit(sales, signer, limits, sale, request, now_ms));
        match admitted {
            Ok((shopper, decision)) => self.advance(stream, shopper, decision, now_ms, effects),
            Err(rejection) => {
                let mark = self.mark(sale).filter(|_| self.sales.find(sale).is_ok());
                self.count(mark, false, rejection.verdict);
                let answer = self.answers.reject(rejection, language_of(request), None);
                effects.respond(stream, answer);
            }
        }
    }

    /// Carries out what was decided on a shopper.
    pub(crate) fn advance(
        &mut self,
        stream: StreamId,
        shopper: Shopper,
        decision: CheckoutDecision,
        now_ms: u64,
        effects: &mut Effects,
    ) {
        if let Some(outcome) = decision.challenge {
            self.metrics.challenges.increment(outcome);
        }
        let mark = self.mark(shopper.sale.as_str().as_bytes());
        match decision.step {
            CheckoutStep::Grant { answer, in_shadow } => {
                let verdict = in_shadow.unwrap_or(Verdict::TokenMinted);
                self.count(mark, in_shadow.is_some(), verdict);
                effects.respond(stream, Arc::new(answer));
            }
            CheckoutStep::Challenge(offer) => {
                self.count(mark, false, Verdict::ChallengeRequired);
                let answer = self.answers.challenge(&offer, shopper.language);
                effects.respond(stream, Arc::new(answer));
            }
            CheckoutStep::Refuse(rejection) => {
                self.refuse_shopper(stream, &shopper, rejection, effects);
            }
            CheckoutStep::AskProvider(fetch) => {
                let fetch = effects.fetch(fetch);
                if let Some(checkout) = &mut self.checkout {
                    checkout.wait(fetch, stream, shopper);
                }
                self.streams.insert(stream, StreamState::Waiting);
            }
            CheckoutStep::Spend(spend, bits) => {
                let job = SpendJob {
                    shopper,
                    spend,
                    bits,
                    pass: None,
                };
                self.spend(stream, job, now_ms, effects);
            }
        }
    }

    /// Asks Redis which token a solution leads to.
    fn spend(&mut self, stream: StreamId, job: SpendJob, now_ms: u64, effects: &mut Effects) {
        let shopper = job.shopper.clone();
        let waits = self.overload.ask_redis(now_ms).and_then(|pass| {
            let pass = Some(pass);
            let job = Job::Spend(SpendJob { pass, ..job });
            let enqueued = self.pump.enqueue(stream, job, now_ms, effects);
            enqueued.map_err(|_full| Verdict::Overloaded.into())
        });
        match waits {
            Ok(()) => {
                self.streams.insert(stream, StreamState::Waiting);
            }
            Err(rejection) => self.refuse_shopper(stream, &shopper, rejection, effects),
        }
    }

    pub(crate) fn refuse_shopper(
        &mut self,
        stream: StreamId,
        shopper: &Shopper,
        rejection: Rejection,
        effects: &mut Effects,
    ) {
        let mark = self.mark(shopper.sale.as_str().as_bytes());
        self.count(mark, false, rejection.verdict);
        let answer = self.answers.reject(rejection, shopper.language, None);
        effects.respond(stream, answer);
    }

    // --- streams that end, and time

    fn on_closed(&mut self, stream: StreamId, end: &dyn StreamEnd, effects: &mut Effects) {
        match self.streams.remove(&stream) {
            None => self.pending.forget(stream),
            Some(StreamState::Waiting) => {
                self.pump.forget(stream);
                self.rebalances.forget(stream);
                if let Some(checkout) = &mut self.checkout {
                    checkout.forget(stream);
                }
            }
            Some(StreamState::Passed { pass, delivery }) => {
                if let Some(status) = end.response_status() {
                    self.origin_answered(status, pass, delivery, end, effects);
                } else if let Some(pass) = pass {
                    self.overload.origin_is_done(pass);
                }
            }
        }
    }

    /// The origin, or the gateway in its place, has answered a request with a claim. What it refuses never becomes an order:
    /// it may not even have been able to read it, and then nobody else ends the claim.
    fn origin_answered(
        &mut self,
        status: u16,
        pass: Option<Pass>,
        delivery: Option<HandBackJob>,
        end: &dyn StreamEnd,
        effects: &mut Effects,
    ) {
        if let Some(pass) = pass {
            let count = self.overload.origin_is_done(pass);
            if count > 0 {
                self.overload
                    .origin_answered(pass, status, count, end.now_ms());
            }
        }
        let is_refused = (400..500).contains(&status) && status != REQUEST_TIMEOUT;
        if let Some(delivery) = delivery.filter(|_| is_refused) {
            self.hand_back(delivery, end.now_ms(), effects);
        }
    }

    /// The stream has gone before its request could go on: what it was granted never left the gateway.
    fn on_undelivered(&mut self, stream: StreamId, now_ms: u64, effects: &mut Effects) {
        if self.unconfirmed.contains(&stream)
            && let Some(StreamState::Passed { delivery, .. }) = self.streams.get_mut(&stream)
            && let Some(delivery) = delivery.take()
        {
            self.hand_back(delivery, now_ms, effects);
        }
    }

    /// A claim's delivery never left the gateway, or the origin has refused it: it goes back with the next batch.
    pub(crate) fn hand_back(&mut self, delivery: HandBackJob, now_ms: u64, effects: &mut Effects) {
        self.metrics.handed_back.increment();
        self.pump
            .enqueue_unowned(Job::HandBack(delivery), now_ms, effects);
    }

    /// Polls if that is due, sends what waits, and gives streams what has completed.
    fn turn(&mut self, now_ms: u64, effects: &mut Effects) {
        let deadline_ms = self.pump.settings().deadline_ms;
        let plan = self.pump.plan();
        self.sales.poll(plan, deadline_ms, now_ms, effects);
        let completed = self.pump.turn(now_ms, effects);
        let count: usize = completed.iter().map(|call| call.requests.len()).sum();
        self.complete(completed, now_ms, effects);
        self.release_pending(BATCH_MAX.saturating_sub(count), now_ms, effects);
        if let Some(report) = &mut self.report {
            let sales = self.sales.catalogue().into_iter();
            report.turn(sales.flat_map(|known| &known.sales), now_ms, effects);
        }
    }
}

impl<D: SharedData + Clone> Engine for Gate<D> {
    const NAME: &'static str = NAME;

    fn handle(&mut self, event: Event<'_>, effects: &mut Effects) {
        let is_feedback = matches!(
            event,
            Event::NotSent { .. } | Event::Deferred { .. } | Event::Undelivered { .. }
        );
        if !is_feedback {
            self.unconfirmed.clear();
        }
        match event {
            Event::Request { stream, request } => self.on_request(stream, request, effects),
            Event::Closed { stream, end } => self.on_closed(stream, end, effects),
            Event::Undelivered { stream, now_ms } => self.on_undelivered(stream, now_ms, effects),
            Event::Tick { now_ms } => self.turn(now_ms, effects),
            Event::RedisReply {
                batch,
                reply,
                now_ms,
            } => self.on_reply(batch, reply, now_ms, effects),
            Event::NotSent { batch } => self.on_not_sent(batch, effects),
            Event::Deferred { batch } => {
                self.pump.deferred(batch, effects);
            }
            Event::FetchDone {
                fetch,
                response,
                now_ms,
            } => self.on_fetch_done(fetch, response.as_ref(), now_ms, effects),
            Event::Response { .. } | Event::Body { .. } => {}
        }
    }

    fn tick_ms(&self) -> Option<u64> {
        let tick_ms = self.sales.tick_ms();
        Some(match self.pending.has_begun() {
            true => tick_ms.min(self.pump.tick_ms()),
            false => tick_ms,
        })
    }

    fn metrics(&mut self) -> &mut Registry {
        &mut self.registry
    }
}
