//! The engine: its events and responses.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::Answer as PairAnswer;
use crate::check::{BODY_LEN_MAX, Browse, Check, CheckError};
use crate::redis::{fit_browse, fit_vehicles};
use crate::routes::{FITMENT_CHECK, FITMENT_SKUS};
use weir_base::resp::Value;
use weir_engine::pump::{CompletedBatch, Pending};
use weir_engine::redis::{Failure, UnknownFailure};
use weir_engine::{Answer, Description, Effects, Engine, Event, Level, Metrics, Request, StreamId};
use weir_limit::{Quota, State as LimitState};

use crate::engine::NAME;
use crate::engine::answer;
use crate::engine::config::CheckedConfig;
use crate::engine::metrics::{FitmentCounters, Outcome, Pair};
use crate::engine::placement_cache::PlacementCache;
use crate::engine::query::{Query, QueryOptions};
use crate::engine::stores::{CallRejection, Job, Kind, Stores};
use crate::engine::vehicles::Vehicles;

/// The engine of vehicle fitment.
#[derive(Debug)]
pub struct Fitment {
    asking: QueryOptions,
    stores: Stores,
    vehicles: Vehicles,
    places: PlacementCache,
    origin_quota: Quota,
    origin_state: Option<LimitState>,
    waiting: BTreeMap<StreamId, OpenRequest>,
    /// Whether the engine has received a request.
    is_serving: bool,
    counters: FitmentCounters,
    metrics: Metrics,
}

/// An unanswered request and what it waits for.
#[derive(Debug)]
enum OpenRequest {
    /// The body of a query.
    Body,
    /// The end of a request that should have no body.
    End(Browse),
    /// Replies from Redis.
    Query(Query),
    /// A page from Redis.
    Page,
}

impl Engine for Fitment {
    const NAME: &'static str = NAME;

    fn handle(&mut self, event: Event<'_>, effects: &mut Effects) {
        match event {
            Event::Request { stream, request } => self.on_request(stream, request, effects),
            Event::Body {
                stream,
                body,
                now_ms,
            } => self.on_body(stream, body, now_ms, effects),
            Event::Response { .. } | Event::FetchDone { .. } => {}
            Event::Closed { stream, .. } | Event::Undelivered { stream, .. } => {
                self.waiting.remove(&stream);
            }
            Event::Tick { now_ms } => self.on_tick(now_ms, effects),
            Event::RedisReply {
                batch,
                reply,
                now_ms,
            } => {
                let completed = self.stores.on_reply(batch, reply, now_ms, effects);
                self.apply(completed, now_ms, effects);
            }
            Event::NotSent { batch } => self.stores.not_sent(batch, effects),
            Event::Deferred { batch } => self.stores.deferred(batch, effects),
        }
    }

    fn tick_ms(&self) -> Option<u64> {
        let poll_ms = self.vehicles.schedule.tick_ms();
        match self.is_serving {
            true => Some(poll_ms.min(self.stores.tick_ms())),
            false => Some(poll_ms),
        }
    }

    fn metrics(&mut self) -> &mut Metrics {
        &mut self.metrics
    }

    fn describe(&self) -> Option<Description> {
        Some(Description {
            key_prefix: self.asking.key_prefix.clone(),
            items: Vec::new(),
        })
    }
}

impl Fitment {
    /// An engine without data.
    pub fn new(config: CheckedConfig) -> Self {
        let mut metrics = Metrics::new();
        let stores = Stores::new(&config, &mut metrics);
        let prefix = config.redis.key_prefix;
        Self {
            vehicles: Vehicles::new(config.poll_interval_ms, &prefix, config.vehicles_max),
            asking: QueryOptions {
                key_prefix: prefix,
                plan: config.plan,
                is_one: stores.is_one(),
            },
            stores,
            places: PlacementCache::new(config.places_max),
            origin_quota: config.origin_quota,
            origin_state: None,
            waiting: BTreeMap::new(),
            is_serving: false,
            counters: FitmentCounters::new(&mut metrics),
            metrics,
        }
    }

    /// The number of waiting requests.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    // --- requests

    fn on_request(&mut self, stream: StreamId, request: &dyn Request, effects: &mut Effects) {
        let path = request.header(":path").unwrap_or_default();
        let (path, query) = split_path(&path);
        if path == FITMENT_CHECK.as_bytes() {
            self.note_request(effects);
            self.on_check(stream, request, effects);
        } else if path == FITMENT_SKUS.as_bytes() {
            self.note_request(effects);
            self.on_browse(stream, query, request, effects);
        } else {
            effects.let_go(stream);
        }
    }

    /// Starts reading the vehicle map on the first request.
    fn note_request(&mut self, effects: &mut Effects) {
        if !core::mem::replace(&mut self.is_serving, true) {
            self.vehicles.schedule.poll_soon();
            effects.wake();
        }
    }

    fn on_check(&mut self, stream: StreamId, request: &dyn Request, effects: &mut Effects) {
        if request.header(":method").as_deref() != Some(b"POST") {
            let answer = answer::wrong_method("POST");
            return self.respond(stream, Outcome::Malformed, answer, effects);
        }
        let length = request.header("content-length");
        if length.is_some_and(|length| is_too_long(&length)) {
            return self.refuse(stream, &CheckError::TooLong, effects);
        }
        self.waiting.insert(stream, OpenRequest::Body);
        effects.read_body(stream, BODY_LEN_MAX);
    }

    fn on_browse(
        &mut self,
        stream: StreamId,
        query: &[u8],
        request: &dyn Request,
        effects: &mut Effects,
    ) {
        if request.header(":method").as_deref() != Some(b"GET") {
            let answer = answer::wrong_method("GET");
            return self.respond(stream, Outcome::Malformed, answer, effects);
        }
        // Invalid UTF-8 names no vehicle.
        match Browse::read(core::str::from_utf8(query).unwrap_or_default()) {
            Ok(browse) => {
                self.waiting.insert(stream, OpenRequest::End(browse));
                effects.read_body(stream, 0);
            }
            Err(error) => self.refuse(stream, &error, effects),
        }
    }

    fn on_body(
        &mut self,
        stream: StreamId,
        body: Option<&[u8]>,
        now_ms: u64,
        effects: &mut Effects,
    ) {
        match (self.waiting.remove(&stream), body) {
            (Some(OpenRequest::End(browse)), Some(_)) => {
                self.find_page(stream, browse, now_ms, effects);
            }
            (Some(OpenRequest::End(_)), None) => {
                let answer = answer::body_not_wanted();
                self.respond(stream, Outcome::Malformed, answer, effects);
            }
            (_, Some(body)) => match Check::read(body) {
                Ok(check) => self.check(stream, check, now_ms, effects),
                Err(error) => self.refuse(stream, &error, effects),
            },
            (_, None) => self.refuse(stream, &CheckError::TooLong, effects),
        }
    }

    // --- pages

    fn find_page(&mut self, stream: StreamId, browse: Browse, now_ms: u64, effects: &mut Effects) {
        let call = fit_browse::call(&self.asking.key_prefix, &browse);
        let calls = [(call, Kind::Page)];
        let home = crate::Cluster::home();
        match self.stores.send(&home, stream, calls, now_ms, effects) {
            Ok(()) => {
                self.waiting.insert(stream, OpenRequest::Page);
            }
            Err(not_taken) => self.not_taken(stream, not_taken, effects),
        }
    }

    fn page_read(&mut self, stream: StreamId, reply: &Value, now_ms: u64, effects: &mut Effects) {
        self.waiting.remove(&stream);
        match fit_browse::parse(reply) {
            Ok(Some(page)) if self.vehicles.is_fresh(page.stamp) => {
                let answer = answer::found(page.json);
                self.respond(stream, Outcome::Answered, answer, effects);
            }
            Ok(_) if self.may_ask_origin(now_ms) => self.forward(stream, effects),
            Ok(_) => {
                let answer = answer::unavailable();
                self.respond(stream, Outcome::Limited, answer, effects);
            }
            Err(error) => self.garbled(stream, &error, effects),
        }
    }

    // --- questions

    fn check(&mut self, stream: StreamId, check: Check, now_ms: u64, effects: &mut Effects) {
        let query = Query::new(check, &self.vehicles, &mut self.places, &self.asking);
        self.go_on(stream, query, now_ms, effects);
    }

    /// Sends the next calls of a query, or answers it.
    fn go_on(&mut self, stream: StreamId, mut query: Query, now_ms: u64, effects: &mut Effects) {
        let unplaced = query.unplaced_count();
        let calls = query.next(&self.asking);
        if calls.is_empty() && !query.is_open() {
            return self.finish(stream, &query, now_ms, effects);
        }
        if !calls.is_empty() {
            self.counters.places_read.add(unplaced);
        }
        for (cluster, calls) in calls {
            let sent = self.stores.send(&cluster, stream, calls, now_ms, effects);
            if let Err(not_taken) = sent {
                // Replies to its earlier calls are dropped.
                return self.not_taken(stream, not_taken, effects);
            }
        }
        self.waiting.insert(stream, OpenRequest::Query(query));
    }

    fn finish(&mut self, stream: StreamId, query: &Query, now_ms: u64, effects: &mut Effects) {
        let has_gaps = query.has_gaps();
        if has_gaps && self.vehicles.is_out_of_reach() {
            return self.not_taken(stream, CallRejection::Unavailable, effects);
        }
        if has_gaps && self.may_ask_origin(now_ms) {
            return self.forward(stream, effects);
        }
        let outcome = match has_gaps {
            true => Outcome::Limited,
            false => Outcome::Answered,
        };
        let pairs = &self.counters.pairs;
        let json = query.answer(|answer| pairs.increment(pair(answer)));
        self.respond(stream, outcome, answer::found(json), effects);
    }

    fn may_ask_origin(&mut self, now_ms: u64) -> bool {
        let state = self
            .origin_state
            .get_or_insert_with(|| LimitState::new(&self.origin_quota, now_ms));
        *state = state.at(&self.origin_quota, now_ms);
        let is_allowed = state.check(&self.origin_quota, 1).is_allowed();
        if is_allowed {
            state.charge(&self.origin_quota, 1);
        }
        is_allowed
    }

    // --- Redis

    fn on_tick(&mut self, now_ms: u64, effects: &mut Effects) {
        self.read_vehicles(now_ms, effects);
        let completed = self.stores.flush(now_ms, effects);
        self.apply(completed, now_ms, effects);
    }

    fn read_vehicles(&mut self, now_ms: u64, effects: &mut Effects) {
        if let Some(call) = self.vehicles.due(now_ms) {
            self.stores.read_vehicles(call, now_ms, effects);
        }
    }

    fn apply(&mut self, completed: Vec<CompletedBatch<Job>>, now_ms: u64, effects: &mut Effects) {
        for completed in completed {
            // Each call has one job.
            let Some(pending) = completed.requests.into_iter().next() else {
                continue;
            };
            match pending {
                Pending {
                    stream: Some(stream),
                    job,
                    ..
                } => self.completed(stream, job.kind, completed.outcome, now_ms, effects),
                Pending { stream: None, .. } => {
                    self.vehicles_read(completed.outcome, effects);
                    // The map may have more vehicles.
                    self.read_vehicles(now_ms, effects);
                }
            }
        }
    }

    fn completed(
        &mut self,
        stream: StreamId,
        kind: Kind,
        outcome: Result<Value, Failure>,
        now_ms: u64,
        effects: &mut Effects,
    ) {
        // The client may have left, or another of the query's calls has failed.
        if !self.waiting.contains_key(&stream) {
            return;
        }
        match outcome {
            Ok(reply) if kind == Kind::Page => self.page_read(stream, &reply, now_ms, effects),
            Ok(reply) => self.query_read(stream, kind, reply, now_ms, effects),
            Err(_) => self.not_taken(stream, CallRejection::Unavailable, effects),
        }
    }

    fn query_read(
        &mut self,
        stream: StreamId,
        kind: Kind,
        reply: Value,
        now_ms: u64,
        effects: &mut Effects,
    ) {
        let Some(OpenRequest::Query(mut query)) = self.waiting.remove(&stream) else {
            return;
        };
        let places = &mut self.places;
        let read = match kind {
            Kind::Routes(requested) => query.routes_read(&requested, &reply, places),
            Kind::Fits { ask, call } => query.fits_read(&self.asking, ask, call, reply, places),
            Kind::Vehicles | Kind::Page => Ok(()),
        };
        match read {
            Ok(()) => self.go_on(stream, query, now_ms, effects),
            Err(error) => self.garbled(stream, &error, effects),
        }
    }

    fn vehicles_read(&mut self, outcome: Result<Value, Failure>, effects: &mut Effects) {
        let garbled = |_| Failure::from(UnknownFailure::Garbled);
        let tail = outcome.and_then(|reply| fit_vehicles::parse(&reply).map_err(garbled));
        match tail {
            Ok(Some(tail)) => {
                self.counters.vehicles_read.add(tail.vehicles.len());
                if self.vehicles.read(&tail) {
                    effects.log(Level::Info, "vehicle map can be read again");
                }
            }
            Ok(None) => {
                let is_first = self.vehicles.missing();
                self.no_vehicles(is_first, "Redis has none", effects);
            }
            Err(failure) => {
                let is_first = self.vehicles.unanswered(self.is_serving);
                self.no_vehicles(is_first, &format!("{failure}"), effects);
            }
        }
    }

    fn no_vehicles(&mut self, is_first: bool, why: &str, effects: &mut Effects) {
        self.counters.polls_failed.increment();
        if is_first {
            effects.log(Level::Warn, format!("cannot read the vehicle map: {why}"));
        }
    }

    // --- answers

    fn not_taken(&mut self, stream: StreamId, why: CallRejection, effects: &mut Effects) {
        self.waiting.remove(&stream);
        let outcome = match why {
            CallRejection::Full => Outcome::Overloaded,
            CallRejection::Unavailable => Outcome::Unavailable,
        };
        self.respond(stream, outcome, answer::unavailable(), effects);
    }

    fn garbled(
        &mut self,
        stream: StreamId,
        error: &weir_scripts::ReplyError,
        effects: &mut Effects,
    ) {
        effects.log(Level::Error, format!("{error}"));
        self.not_taken(stream, CallRejection::Unavailable, effects);
    }

    fn refuse(&mut self, stream: StreamId, error: &CheckError, effects: &mut Effects) {
        self.respond(stream, Outcome::Malformed, answer::refused(error), effects);
    }

    fn respond(
        &mut self,
        stream: StreamId,
        outcome: Outcome,
        answer: Answer,
        effects: &mut Effects,
    ) {
        self.counters.requests.increment(outcome);
        effects.respond(stream, Arc::new(answer));
    }

    fn forward(&mut self, stream: StreamId, effects: &mut Effects) {
        self.counters.requests.increment(Outcome::Forwarded);
        effects.let_go(stream);
    }
}

/// The path of a request, and its query without the `?`.
fn split_path(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().position(|byte| *byte == b'?') {
        Some(at) => {
            let (path, query) = path.split_at_checked(at).unwrap_or((path, b""));
            (path, query.get(1..).unwrap_or_default())
        }
        None => (path, b""),
    }
}

/// Whether a `content-length` exceeds the limit of a query. The host refuses an invalid one.
fn is_too_long(length: &[u8]) -> bool {
    let length = core::str::from_utf8(length).unwrap_or_default();
    length
        .parse::<u64>()
        .is_ok_and(|length| length > BODY_LEN_MAX as u64)
}

fn pair(answer: PairAnswer) -> Pair {
    match answer {
        PairAnswer::Fits => Pair::Fits,
        PairAnswer::DoesNot => Pair::DoesNot,
        PairAnswer::Unknown => Pair::Unknown,
    }
}
