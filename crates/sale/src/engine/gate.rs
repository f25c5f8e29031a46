//! The state of one worker, and its events.

use alloc::borrow::Cow;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use crate::admission::{Rejection, without_units};
use crate::challenge::Challenge;
use crate::ledger::ShardProbe;
use crate::sale::{Band, Catalogue, ClaimKey, Sale, SaleState};
use crate::sold_out::SoldOutMemory;
use crate::status::SaleStatus;
use crate::verdict::Verdict;
use weir_base::breaker::Pass;
use weir_base::id::UserId;
use weir_base::shared_data::SharedData;
use weir_engine::event::PlainRequest;
use weir_engine::held::Held;
use weir_engine::pump::{BATCH_MAX, Counts, Pump};
use weir_engine::redis::{Definite, Reply, read};
use weir_engine::refusals::Refusals;
use weir_engine::{
    Answer, BatchId, Effects, Engine, Event, Level, Metrics as Registry, Request, StreamEnd,
    StreamId,
};

use crate::engine::NAME;
use crate::engine::answers::{Answers, language_of};
use crate::engine::captcha::Captchas;
use crate::engine::config::{Checked, DEADLINE_MS};
use crate::engine::job::{ClaimPlan, HandBackJob};
use crate::engine::limits::Limits;
use crate::engine::metrics::{Metrics, PREFIX};
use crate::engine::overload::Overload;
use crate::engine::poll::Poller;
use crate::engine::rebalance::Rebalances;
use crate::engine::report::{Report, SaleMark};
use crate::engine::route::RouteKind;

/// An intermediary may answer so of a request whose outcome it does not know.
const REQUEST_TIMEOUT: u16 = 408;

/// For so long what a poll has found is taken for what is: longer than a few polls, which may be lost.
const CURRENT_MS: u64 = 2_000;
const CURRENT_POLLS: u64 = 4;

/// All that one worker knows. `D` is the memory that it shares with the others.
#[derive(Debug)]
pub struct Gate<D> {
    pub(crate) config: Checked,
    pub(crate) pump: Pump<ClaimPlan>,
    pub(crate) poller: Poller,
    /// When the last poll came back.
    polled_at_ms: Option<u64>,
    /// `None` until the first poll has found one: nothing is known of any sale.
    pub(crate) catalogue: Option<Catalogue>,
    /// Requests that wait for the first poll.
    pub(crate) held: Held<PlainRequest>,
    /// With which this gateway signs claims.
    claim_key: ClaimKey,
    /// Whether the origin has told of its keys, and this one is not among them.
    is_signer_unknown: bool,
    pub(crate) memory: SoldOutMemory,
    pub(crate) rebalances: Rebalances,
    pub(crate) limits: Limits<D>,
    pub(crate) overload: Overload,
    pub(crate) answers: Answers,
    pub(crate) metrics: Metrics,
    /// What operators are told, if they are.
    pub(crate) report: Option<Report>,
    registry: Registry,
    /// The streams whose end matters.
    pub(crate) streams: BTreeMap<StreamId, StreamState>,
    /// Who waits for a captcha's provider.
    pub(crate) captchas: Captchas,
    /// Streams whose requests the last event let go on: if that fails, their claims go back.
    pub(crate) unconfirmed: Vec<StreamId>,
    /// Whether the log tells of requests that go by another route.
    has_told_of_strays: bool,
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
        let refusals = Refusals::new(&mut registry, PREFIX, &config.redis.cluster);
        Self {
            limits: Limits::new(&config.limits, &config.claim_keys, data),
            overload: Overload::new(&config.overload, &mut registry),
            pump: Pump::new(
                config.redis.pump_settings(DEADLINE_MS),
                plan,
                counts,
                refusals,
            ),
            poller: Poller::new(config.poll_interval_ms),
            polled_at_ms: None,
            catalogue: None,
            held: Held::default(),
            claim_key: ClaimKey::of(config.claim_keys.signer()),
            is_signer_unknown: false,
            memory: SoldOutMemory::default(),
            rebalances: Rebalances::default(),
            answers: Answers::new(config.retry_after_s, config.static_page.clone()),
            metrics,
            report: config.report_to().map(Report::new),
            registry,
            streams: BTreeMap::new(),
            captchas: Captchas::default(),
            unconfirmed: Vec::new(),
            has_told_of_strays: false,
            config,
        }
    }

    /// How many streams it remembers: those whose requests wait, and those that the origin has not answered.
    pub fn open_streams(&self) -> usize {
        self.held.len() + self.streams.len()
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
            && let Some(by) = self.strays(&method, &path, request)
        {
            return self.let_stray(stream, &by, &path, request, effects);
        }
        if self.catalogue.is_some() || !self.hold(stream, request) {
            self.decide_as(stream, kind, &path, request, effects);
        }
    }

    /// Decides on a request that has waited.
    pub(crate) fn decide(
        &mut self,
        stream: StreamId,
        request: &dyn Request,
        effects: &mut Effects,
    ) {
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
    fn strays(&self, method: &[u8], path: &[u8], request: &dyn Request) -> Option<String> {
        let expected = self.config.must_go_via(method, path)?;
        let chosen = request.route_name().unwrap_or_default();
        let is_it = chosen == expected.as_bytes();
        (!is_it).then(|| String::from_utf8_lossy(&chosen).into_owned())
    }

    /// A request to buy that will not reach the origin: a claim would hold a unit that nobody gets.
    fn let_stray(
        &mut self,
        stream: StreamId,
        by: &str,
        path: &[u8],
        request: &dyn Request,
        effects: &mut Effects,
    ) {
        self.metrics.misrouted.increment();
        if !core::mem::replace(&mut self.has_told_of_strays, true) {
            let by = match by {
                "" => "no route with a name",
                by => by,
            };
            let text = format!(
                "a request to buy goes by {by} and not by the route of orders: nothing is claimed; put that route first"
            );
            effects.log(Level::Error, text);
        }
        self.identify(stream, path, request, effects);
    }

    /// Takes every sale of which SQL has nothing left for empty, as if a probe had found it so: for a host that is told by the
    /// catalogue, and asks no shard.
    pub fn trust_bands(&mut self) {
        let Some(catalogue) = &self.catalogue else {
            return;
        };
        let empty = ShardProbe {
            stock: Some(0),
            moving: 0,
            epoch: 0,
            open_claims: 0,
        };
        for sale in &catalogue.sales {
            if sale.band == Band::None && !self.memory.is_empty(&sale.id) {
                let shards = vec![empty; sale.shards as usize];
                self.memory.learn_probe(&sale.id, &shards);
            }
        }
    }

    /// How a sale stands.
    fn status(&mut self, sale: &[u8], request: &dyn Request) -> Arc<Answer> {
        self.metrics.statuses.increment();
        match self.find(sale) {
            Ok((switch, sale)) => {
                let status = SaleStatus::new(switch, sale, request.now_ms());
                // It says the same to anybody, so pages of any site may read it.
                let headers = vec![("access-control-allow-origin", "*")];
                Arc::new(Answer::json(200, headers, &status).because("weir_sale_status"))
            }
            Err(rejection) => self.answers.reject(rejection, language_of(request), None),
        }
    }

    /// The sale that a path names, with the switch that counts for it.
    pub(crate) fn find(&self, sale: &[u8]) -> Result<(SaleState, &Sale), Rejection> {
        let catalogue = self.catalogue.as_ref().ok_or(Verdict::Unavailable)?;
        let sale = catalogue.find(sale).ok_or(Verdict::UnknownSale)?;
        Ok((catalogue.switch_of(sale), sale))
    }

    /// What somebody is told whom no unit of `sale` is left for in Redis. A gateway that has heard nothing for a while, as
    /// Redis did not answer or it stood still, does not know that SQL has none left.
    pub(crate) fn without_units(&self, sale: &Sale, now_ms: u64) -> Verdict {
        let interval_ms = self.config.poll_interval_ms;
        let current_ms = CURRENT_MS.max(CURRENT_POLLS.saturating_mul(interval_ms));
        let age_ms = self
            .polled_at_ms
            .and_then(|polled_at_ms| now_ms.checked_sub(polled_at_ms));
        match age_ms {
            Some(age_ms) if age_ms <= current_ms => without_units(sale),
            _ => Verdict::Restocking,
        }
    }

    /// Whether the origin would know this gateway's claims. If it would not, each would tie a unit up until its end, and its
    /// buyer would be sent away.
    pub(crate) fn check_signer(&self) -> Result<(), Rejection> {
        match self.is_signer_unknown {
            true => Err(Verdict::Misconfigured.into()),
            false => Ok(()),
        }
    }

    /// The switch for all sales, if any is known.
    pub(crate) fn switch(&self) -> Option<SaleState> {
        self.catalogue.as_ref().map(|catalogue| catalogue.switch)
    }

    /// Who `request` says that it is from.
    pub(crate) fn user(&self, request: &dyn Request) -> Result<UserId, Rejection> {
        read_user(request.headers().get(&self.config.user_header))
    }

    fn on_closed(&mut self, stream: StreamId, end: &dyn StreamEnd, effects: &mut Effects) {
        match self.streams.remove(&stream) {
            None => self.held.forget(stream),
            Some(StreamState::Waiting) => {
                self.pump.forget(stream);
                self.rebalances.forget(stream);
                self.captchas.forget(stream);
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

    /// Polls if that is due, sends what waits, and gives streams what has completed.
    fn turn(&mut self, now_ms: u64, effects: &mut Effects) {
        let deadline_ms = self.pump.settings().deadline_ms;
        let plan = self.pump.plan();
        self.poller
            .poll(&self.memory, plan, deadline_ms, now_ms, effects);
        let completed = self.pump.turn(now_ms, effects);
        let count: usize = completed.iter().map(|call| call.requests.len()).sum();
        self.complete(completed, now_ms, effects);
        self.release_held(BATCH_MAX.saturating_sub(count), now_ms, effects);
        if let Some(report) = &mut self.report {
            let sales = self.catalogue.iter().flat_map(|known| &known.sales);
            report.turn(sales, now_ms, effects);
        }
    }

    /// The sale of this id, for what operators are told, if they are.
    pub(crate) fn mark(&self, sale: &[u8]) -> SaleMark {
        self.report.as_ref().map(|_| Report::mark(sale))
    }

    /// Whether the call `batch`, which has ended, told operators something. Nobody waits for it.
    fn is_report(&mut self, batch: BatchId) -> bool {
        let report = self.report.as_mut();
        report.is_some_and(|report| report.completed(batch))
    }

    fn on_reply(&mut self, batch: BatchId, reply: Reply, now_ms: u64, effects: &mut Effects) {
        if let Some(poll) = self.poller.completed(batch) {
            let replies = read(reply, poll.count());
            let polled = match &replies {
                Ok(replies) => {
                    let read = self.poller.read(&poll, replies, &mut self.memory);
                    read.map_err(|error| format!("{error}"))
                }
                Err(failure) => Err(format!("{failure}")),
            };
            match polled {
                Ok(changed) => self.poll_succeeded(changed, now_ms, effects),
                Err(reason) => {
                    let refusals = self.pump.refusals();
                    refusals.note_replies(&replies, "GET", now_ms, effects);
                    self.poll_failed(&reason, effects);
                }
            }
            return self.release_held(BATCH_MAX, now_ms, effects);
        }
        if self.is_report(batch) {
            let refusals = self.pump.refusals();
            return refusals.note_replies(&read(reply, 1), "tally", now_ms, effects);
        }
        if let Some(completed) = self.pump.on_reply(batch, reply, now_ms, effects) {
            self.complete(completed, now_ms, effects);
        }
    }

    fn on_not_sent(&mut self, batch: BatchId, effects: &mut Effects) {
        if self.poller.completed(batch).is_some() {
            self.poll_failed(&format!("{}", Definite::NotSent), effects);
        } else if !self.is_report(batch) {
            self.pump.not_sent(batch, effects);
        }
    }

    fn poll_succeeded(&mut self, changed: Option<Catalogue>, now_ms: u64, effects: &mut Effects) {
        self.polled_at_ms = Some(now_ms);
        if self.poller.succeeded() {
            effects.log(Level::Info, "the catalogue can be read again");
        }
        if let Some(catalogue) = changed {
            self.tell_what_is_missing(&catalogue, effects);
            self.memory.retain(&catalogue);
            self.note_claim_keys(&catalogue, effects);
            self.catalogue = Some(catalogue);
        }
    }

    /// The log says with every new catalogue which sales cannot be sold as this gateway is configured.
    fn tell_what_is_missing(&self, catalogue: &Catalogue, effects: &mut Effects) {
        let mut sales = catalogue.sales.iter();
        if self.config.token.is_none() && sales.clone().any(|sale| sale.token) {
            let text = "sales want order tokens, but `token` is not configured";
            effects.log(Level::Error, text);
        }
        let captcha = Some(Challenge::Captcha {});
        if self.config.captcha.is_none() && sales.any(|sale| sale.challenge == captcha) {
            let text = "sales want a captcha before an order token, but `captcha` is not configured: nobody gets one here";
            effects.log(Level::Error, text);
        }
    }

    /// Compares the keys of origin and gateway. The log says when that changes, and not with every catalogue.
    fn note_claim_keys(&mut self, catalogue: &Catalogue, effects: &mut Effects) {
        let is_unknown = !catalogue.knows(&self.claim_key);
        if core::mem::replace(&mut self.is_signer_unknown, is_unknown) == is_unknown {
            return;
        }
        let ClaimKey { id, fingerprint } = &self.claim_key;
        if !is_unknown {
            let text =
                format!("the origin knows the claim key {id} ({fingerprint}): buying goes on");
            return effects.log(Level::Info, text);
        }
        let known = catalogue.claim_keys.iter();
        let known: Vec<_> = known
            .map(|key| format!("{} ({})", key.id, key.fingerprint))
            .collect();
        let text = format!(
            "nobody can buy here: claims are signed with the key {id} (fingerprint {fingerprint}), and the origin knows {}; \
             give gateway and origin the same WEIR_CLAIM_SECRET and key id, and start the one that was changed again",
            known.join(", ")
        );
        effects.log(Level::Error, text);
    }

    /// What is known stays; the log says so once, not with every poll.
    fn poll_failed(&mut self, reason: &str, effects: &mut Effects) {
        // Where no request comes, as on Envoy's main thread, Redis need not be reached.
        if !self.held.has_begun() && self.catalogue.is_none() {
            return;
        }
        self.metrics.polls_failed.increment();
        if self.poller.failed() {
            let text = format!("the catalogue could not be read, the last one stays: {reason}");
            effects.log(Level::Warn, text);
        }
    }
}

/// The user that a header names. It must stand there once: what several were made into names nobody.
pub(crate) fn read_user(header: Option<Cow<'_, [u8]>>) -> Result<UserId, Rejection> {
    match header {
        Some(Cow::Borrowed(user)) => UserId::new(user).map_err(|_| Verdict::InvalidUser.into()),
        // Only joined values are owned.
        Some(Cow::Owned(_)) | None => Err(Verdict::InvalidUser.into()),
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
            } => self.captcha_checked(fetch, response.as_ref(), now_ms, effects),
            Event::Response { .. } | Event::Body { .. } => {}
        }
    }

    fn tick_ms(&self) -> Option<u64> {
        let tick_ms = self.poller.tick_ms();
        Some(match self.held.has_begun() {
            true => tick_ms.min(self.pump.tick_ms()),
            false => tick_ms,
        })
    }

    fn metrics(&mut self) -> &mut Registry {
        &mut self.registry
    }
}
