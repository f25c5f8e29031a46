//! The state of one worker, and its event handlers.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use crate::admission::Rejection;
use crate::sale::SaleState;
use crate::status::SaleStatus;
use crate::verdict::Verdict;
use weir_base::breaker::Pass;
use weir_base::headers;
use weir_base::shared_data::SharedData;
use weir_engine::event::PlainRequest;
use weir_engine::pump::{BATCH_MAX, Counts, Pump};
use weir_engine::refusals::Refusals;
use weir_engine::{
    Answer, Description, EarlyDecision, Effects, Engine, Event, Level, Metrics as Registry,
    Request, StreamEnd, StreamId,
};

use crate::engine::NAME;
use crate::engine::answers::reader_of;
use crate::engine::buy::{Purchase, without_query};
use crate::engine::checkout::{Checkout, CheckoutStep};
use crate::engine::config::{CheckedConfig, DEADLINE_MS};
use crate::engine::identify::Identification;
use crate::engine::job::{Buyer, ClaimJob, ClaimPlan, HandBackJob, Job, Shopper, SpendJob};
use crate::engine::limits::Limits;
use crate::engine::metrics::{Metrics, PREFIX};
use crate::engine::overload::Overload;
use crate::engine::pending::PendingRequests;
use crate::engine::rebalance::Rebalances;
use crate::engine::responder::Responder;
use crate::engine::route::RouteKind;
use crate::engine::sales::Sales;

/// An intermediary may return this status when it does not know the outcome.
const REQUEST_TIMEOUT: u16 = 408;

/// The state of one worker. `D` is the memory shared by all workers.
///
/// Each concern decides on its own state, and the gate applies the decisions: those on requests and streams here, those
/// on replies in `replies`.
#[derive(Debug)]
pub struct Gate<D> {
    pub(crate) config: Arc<CheckedConfig>,
    pub(crate) pump: Pump<ClaimPlan>,
    pub(crate) sales: Sales,
    pub(crate) pending: PendingRequests,
    pub(crate) identification: Identification<D>,
    pub(crate) limits: Limits<D>,
    pub(crate) checkout: Checkout,
    pub(crate) rebalances: Rebalances,
    pub(crate) overload: Overload,
    pub(crate) responder: Responder,
    pub(crate) metrics: Metrics,
    registry: Registry,
    /// Streams whose end the gate must handle.
    pub(crate) streams: BTreeMap<StreamId, StreamState>,
    /// Streams that the last event let continue: if that fails, their claims are released.
    pub(crate) unconfirmed: Vec<StreamId>,
    /// Whether misrouted requests were logged.
    has_logged_misroute: bool,
}

/// A stream whose end the gate must handle.
#[derive(Clone, Debug)]
pub(crate) enum StreamState {
    /// Its request waits.
    Waiting,
    /// Its request continued with a claim.
    Passed {
        /// The breaker's pass for the origin; `None` in dry-run mode.
        pass: Option<Pass>,
        /// The delivery to release if the origin refuses it; `None` after the release.
        delivery: Option<HandBackJob>,
    },
}

impl<D: SharedData + Clone> Gate<D> {
    /// A gate without a catalogue. `data` is the memory shared by one gateway's workers.
    pub fn new(config: CheckedConfig, data: &D) -> Self {
        let plan = ClaimPlan {
            key_prefix: config.redis.key_prefix.clone(),
            topology: config.redis.topology,
            claim_ttl_ms: config.claim_ttl_ms,
        };
        let mut registry = Registry::new();
        let metrics = Metrics::new(&mut registry);
        let counts = Counts::new(&mut registry, PREFIX);
        let refusals = Refusals::new(&mut registry, PREFIX, &config.redis.cluster);
        let config = Arc::new(config);
        Self {
            limits: Limits::buying(&config, data),
            identification: Identification::new(Arc::clone(&config), data),
            overload: Overload::new(&config.overload, &mut registry),
            pump: Pump::new(
                config.redis.pump_settings(DEADLINE_MS),
                plan,
                counts,
                refusals,
            ),
            sales: Sales::new(Arc::clone(&config), &metrics),
            pending: PendingRequests::new(Arc::clone(&config)),
            checkout: Checkout::new(Arc::clone(&config), &metrics),
            rebalances: Rebalances::default(),
            responder: Responder::new(&config, &metrics),
            metrics,
            registry,
            streams: BTreeMap::new(),
            unconfirmed: Vec::new(),
            has_logged_misroute: false,
            config,
        }
    }

    /// The number of tracked streams: with waiting requests, or without an answer from the origin.
    pub fn open_streams(&self) -> usize {
        self.pending.held.len() + self.streams.len()
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
        if !self.pending.hold(stream, request, &self.sales) {
            self.decide_as(stream, kind, &path, request, effects);
        }
    }

    /// Handles the first request: the worker starts to poll for the catalogue.
    fn note_request(&mut self, request: &dyn Request, effects: &mut Effects) {
        // Reading the clock is a host call, so it is avoided.
        if self.pending.held.has_begun() {
            return;
        }
        self.pending.held.begin(request.now_ms());
        self.sales.poller.poll_soon();
        effects.wake();
    }

    /// Decides on at most `room` pending requests after the first poll or its timeout.
    pub(crate) fn release_pending(&mut self, room: usize, now_ms: u64, effects: &mut Effects) {
        if self.pending.held.is_empty() || self.pending.await_poll(&self.sales, now_ms) {
            return;
        }
        for _ in 0..room {
            let Some((stream, retained)) = self.pending.held.pop_first() else {
                return;
            };
            self.decide(stream, &PlainRequest { now_ms, ..retained }, effects);
        }
        if !self.pending.held.is_empty() {
            effects.wake();
        }
    }

    /// Decides on a pending request.
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
            RouteKind::NormalOrder => self.order_normally(stream, path, request, effects),
        }
    }

    /// Refuses a normal order for a SKU of a sale, which would bypass the sale's rules, with the sale's address.
    /// Without a catalogue, normal orders continue.
    fn order_normally(
        &mut self,
        stream: StreamId,
        path: &[u8],
        request: &dyn Request,
        effects: &mut Effects,
    ) {
        let Some((switch, sale)) = self.sales.by_sku(path, request) else {
            return self.identify(stream, path, request, effects);
        };
        let is_shadow = switch == SaleState::Shadow;
        let mark = self.responder.mark(sale.id.as_str().as_bytes());
        self.responder.count(mark, is_shadow, Verdict::SkuInSale);
        if is_shadow {
            return self.identify(stream, path, request, effects);
        }
        let orders = self.config.orders_of(&sale.id);
        let answers = &self.responder.answers;
        let answer = answers.in_sale(&sale.id, &orders, reader_of(request).language);
        effects.respond(stream, Arc::new(answer));
    }

    /// The name of the host's route for an order request, if it is not the configured one.
    fn misroute(&self, method: &[u8], path: &[u8], request: &dyn Request) -> Option<String> {
        let expected = self.config.must_go_via(method, path)?;
        let chosen = request.route_name().unwrap_or_default();
        let is_it = chosen == expected.as_bytes();
        (!is_it).then(|| String::from_utf8_lossy(&chosen).into_owned())
    }

    /// Lets a misrouted order request pass without a claim: it does not reach the origin, so a claim would block a
    /// unit.
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
                "" => "a route without a name",
                route => route,
            };
            let text = format!(
                "an order uses {by} instead of the order route, so it passes without a claim; put the order route first"
            );
            effects.log(Level::Error, text);
        }
        self.identify(stream, path, request, effects);
    }

    /// Treats every sale without units in SQL as empty: for a host that reads only the catalogue and calls no shard.
    pub fn trust_bands(&mut self) {
        self.sales.trust_bands();
    }

    /// Forwards a request that is not an order, with the signed user for `identify_prefixes`, within its rate limits.
    /// Removes the client's own copies of these headers.
    fn identify(
        &mut self,
        stream: StreamId,
        path: &[u8],
        request: &dyn Request,
        effects: &mut Effects,
    ) {
        let is_limited = !self.sales.are_in_shadow();
        let user = match self.identification.sign(path, request, is_limited) {
            Ok(user) => user,
            Err(rejection) => {
                let buyer = Buyer {
                    reader: reader_of(request),
                    ..Buyer::default()
                };
                return self
                    .responder
                    .reject(stream, buyer, rejection, None, effects);
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

    /// Answers a status request.
    pub(crate) fn status(&mut self, sale: &[u8], request: &dyn Request) -> Arc<Answer> {
        self.metrics.statuses.increment();
        match self.sales.find(sale) {
            Ok((switch, sale)) => {
                let status = SaleStatus::new(switch, sale, request.now_ms());
                // The answer is public, so pages of any site may read it.
                let headers = vec![("access-control-allow-origin", "*")];
                Arc::new(Answer::json(200, headers, &status).because("weir_sale_status"))
            }
            Err(rejection) => {
                let answers = &mut self.responder.answers;
                answers.reject(rejection, reader_of(request), None)
            }
        }
    }

    /// Decides on an order request for `sale`: it is answered, waits, or continues in dry-run mode.
    fn buy(
        &mut self,
        stream: StreamId,
        sale: &[u8],
        path: &[u8],
        request: &dyn Request,
        effects: &mut Effects,
    ) {
        let now_ms = request.now_ms();
        let purchase = Purchase {
            config: &self.config,
            sales: &self.sales,
            checkout: &self.checkout,
            limits: Some(&self.limits),
            request,
            now_ms,
        };
        let (buyer, claim) = purchase.decide(sale, self.responder.mark(sale));
        let waits = claim.and_then(|claim| {
            let job = Job::Claim(ClaimJob {
                pass: Some(self.overload.enter(now_ms)?),
                path: without_query(path),
                buyer,
                ..claim
            });
            self.enqueue(stream, job, now_ms, effects)
        });
        if let Err(rejection) = waits {
            self.responder
                .reject(stream, buyer, rejection, None, effects);
        }
    }

    /// Enqueues the stream's request for Redis, unless too many wait.
    fn enqueue(
        &mut self,
        stream: StreamId,
        job: Job,
        now_ms: u64,
        effects: &mut Effects,
    ) -> Result<(), Rejection> {
        let enqueued = self.pump.enqueue(stream, job, now_ms, effects);
        enqueued.map_err(|_full| Verdict::Overloaded)?;
        self.streams.insert(stream, StreamState::Waiting);
        Ok(())
    }

    /// Issues a token for `sale`, or refuses it.
    fn check_out(
        &mut self,
        stream: StreamId,
        sale: &[u8],
        request: &dyn Request,
        now_ms: u64,
        effects: &mut Effects,
    ) {
        let checkout = &self.checkout;
        let decided = checkout.decide(&self.sales, &self.limits, sale, request, now_ms);
        match decided {
            Ok((shopper, step)) => self.advance(stream, &shopper, step, now_ms, effects),
            Err(rejection) => {
                let mark = self.responder.mark(sale);
                let buyer = Buyer {
                    sale: mark.filter(|_| self.sales.find(sale).is_ok()),
                    reader: reader_of(request),
                    ..Buyer::default()
                };
                self.responder
                    .reject(stream, buyer, rejection, None, effects);
            }
        }
    }

    /// Performs the next checkout step.
    pub(crate) fn advance(
        &mut self,
        stream: StreamId,
        shopper: &Shopper,
        step: CheckoutStep,
        now_ms: u64,
        effects: &mut Effects,
    ) {
        let sale = self.responder.mark(shopper.sale.as_str().as_bytes());
        let done = match step {
            CheckoutStep::Mint { at_ms, in_shadow } => {
                let minted = self.checkout.mint(shopper, at_ms, now_ms);
                minted.map(|answer| {
                    let verdict = in_shadow.unwrap_or(Verdict::TokenMinted);
                    self.responder.count(sale, in_shadow.is_some(), verdict);
                    effects.respond(stream, Arc::new(answer));
                })
            }
            CheckoutStep::Challenge(offer) => {
                let verdict = Verdict::ChallengeRequired;
                self.responder.count(sale, false, verdict);
                let answer = self
                    .responder
                    .answers
                    .challenge(&offer, shopper.reader.language);
                effects.respond(stream, Arc::new(answer));
                Ok(())
            }
            CheckoutStep::Spend(spend, bits) => self.overload.ask_redis(now_ms).and_then(|pass| {
                let job = Job::Spend(SpendJob {
                    shopper: shopper.clone(),
                    spend,
                    bits,
                    pass: Some(pass),
                });
                self.enqueue(stream, job, now_ms, effects)
            }),
            CheckoutStep::CheckCaptcha { solution, address } => {
                let captchas = &mut self.checkout.captchas;
                let waits = captchas.check(stream, shopper, &solution, &address, effects);
                waits.map(|()| {
                    self.streams.insert(stream, StreamState::Waiting);
                })
            }
            CheckoutStep::Refuse(rejection) => Err(rejection),
        };
        if let Err(rejection) = done {
            let buyer = Buyer {
                sale,
                reader: shopper.reader,
                ..Buyer::default()
            };
            self.responder
                .reject(stream, buyer, rejection, None, effects);
        }
    }

    fn on_closed(&mut self, stream: StreamId, end: &dyn StreamEnd, effects: &mut Effects) {
        match self.streams.remove(&stream) {
            None => self.pending.held.forget(stream),
            Some(StreamState::Waiting) => {
                self.pump.forget(stream);
                self.rebalances.forget(stream);
                self.checkout.captchas.forget(stream);
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

    /// Handles the response of the origin or the gateway to a request with a claim. A refused request never becomes an
    /// order. If the origin could not parse it, no other component releases the claim.
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

    /// Handles a stream that ended before its request could continue: its claim never left the gateway.
    fn on_undelivered(&mut self, stream: StreamId, now_ms: u64, effects: &mut Effects) {
        if self.unconfirmed.contains(&stream)
            && let Some(StreamState::Passed { delivery, .. }) = self.streams.get_mut(&stream)
            && let Some(delivery) = delivery.take()
        {
            self.hand_back(delivery, now_ms, effects);
        }
    }

    /// Sends due polls and waiting jobs, and handles completed ones.
    fn flush(&mut self, now_ms: u64, effects: &mut Effects) {
        let deadline_ms = self.pump.settings().deadline_ms;
        let plan = self.pump.plan();
        self.sales
            .poller
            .poll(&self.sales.memory, plan, deadline_ms, now_ms, effects);
        let completed = self.pump.flush(now_ms, effects);
        let count: usize = completed.iter().map(|call| call.requests.len()).sum();
        self.complete(completed, now_ms, effects);
        self.release_pending(BATCH_MAX.saturating_sub(count), now_ms, effects);
        if let Some(report) = &mut self.responder.report {
            let sales = self
                .sales
                .catalogue
                .iter()
                .flat_map(|existing| &existing.sales);
            report.flush(sales, now_ms, effects);
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
            Event::Tick { now_ms } => self.flush(now_ms, effects),
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

    fn decide_early(&mut self, request: &dyn Request, trusts_user: bool) -> EarlyDecision {
        self.early_decision(request, trusts_user)
    }

    fn tick_ms(&self) -> Option<u64> {
        let tick_ms = self.sales.poller.tick_ms();
        Some(match self.pending.held.has_begun() {
            true => tick_ms.min(self.pump.tick_ms()),
            false => tick_ms,
        })
    }

    fn metrics(&mut self) -> &mut Registry {
        &mut self.registry
    }

    fn describe(&self) -> Option<Description> {
        Some(Description {
            key_prefix: self.config.redis.key_prefix.clone(),
            items: self.config.items(),
        })
    }
}
