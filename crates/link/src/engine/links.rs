//! The engine: its events and responses.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::answer::Answer;
use crate::cache::{CacheLookup, LinkName, Memory};
use crate::click::ClickId;
use crate::domain::Domain;
use crate::record::Link;
use crate::redis::link_read::{Purpose, Read};
use crate::rule::point_of;
use crate::site::{self, File};
use weir_base::hash::seeded_hash;
use weir_base::key::KeyRing;
use weir_engine::answer::retry_after_seconds;
use weir_engine::held::HeldRequests;
use weir_engine::{Description, EarlyDecision, Effects, Engine, Event, Metrics, Request, StreamId};

use crate::engine::NAME;
use crate::engine::answer::{answer_of, answer_to, kind_of, respond};
use crate::engine::clicks::Clicks;
use crate::engine::config::CheckedConfig;
use crate::engine::crawlers::Crawlers;
use crate::engine::domains::Sites;
use crate::engine::held::HeldRequest;
use crate::engine::job::{Job, ReadJob};
use crate::engine::lookups::{LookupRequest, Lookups};
use crate::engine::metrics::{AnswerKind, LinkCounters, Place};
use crate::engine::poll::Poller;
use crate::engine::redis::Redis;
use crate::engine::request::{Fields, Resource};
use crate::engine::tagger::Tagger;
use crate::engine::unused::UnusedClicks;
use crate::engine::visitor::Visitor;

/// Retry interval for clients during an outage, in milliseconds.
const RETRY_MS: u64 = 1_000;

/// The engine of short links.
#[derive(Debug)]
pub struct Links {
    pub(crate) sites: Sites,
    pub(crate) memory: Memory,
    pub(crate) redis: Redis,
    pub(crate) lookups: Lookups,
    pub(crate) poller: Poller,
    /// `None` if clicks are not counted.
    pub(crate) clicks: Option<Clicks>,
    /// Clicks to return.
    pub(crate) unused: UnusedClicks,
    /// Clicks used by the answers of the current event. If an answer cannot be delivered, its click is returned.
    answered: BTreeMap<StreamId, UsedClick>,
    /// The ID of the next click.
    next_click: ClickId,
    /// Signs the IDs of clicks on tracked links.
    tagger: Tagger,
    crawlers: Crawlers,
    pub(crate) trusted_hops: Option<usize>,
    /// The request header with the client's country.
    pub(crate) country_header: Option<String>,
    /// How many polls have reported changes. A link that was read before such a poll ended may be outdated, and is not
    /// cached.
    pub(crate) changes: u32,
    /// Requests that wait for the first poll.
    pub(crate) held: HeldRequests<HeldRequest>,
    /// Requests that wait for Redis or the origin.
    pub(crate) waiting: BTreeMap<StreamId, LinkRequest>,
    pub(crate) counters: LinkCounters,
    metrics: Metrics,
}

/// A request that the cache cannot answer.
#[derive(Clone, Debug)]
pub(crate) struct LinkRequest {
    pub(crate) stream: StreamId,
    pub(crate) name: LinkName,
    pub(crate) domain: Arc<Domain>,
    pub(crate) visitor: Visitor,
    /// The purpose of the read.
    pub(crate) purpose: Purpose,
    /// Whether a click may have been used for it without a confirmation.
    pub(crate) may_have_used: bool,
    /// The change counter when Redis was called.
    changes: u32,
    /// Whether it has waited for another request's lookup.
    pub(crate) has_followed: bool,
}

/// A click that an answer has used.
#[derive(Debug)]
struct UsedClick {
    name: LinkName,
    click: ClickId,
    visitor: Visitor,
    now_ms: u64,
}

/// The head of a request for a link.
struct LinkHead<'a> {
    stream: StreamId,
    name: LinkName,
    domain: Arc<Domain>,
    fields: Fields<'a>,
    request: &'a dyn Request,
    now_ms: u64,
}

impl Engine for Links {
    const NAME: &'static str = NAME;

    fn handle(&mut self, event: Event<'_>, effects: &mut Effects) {
        // Hosts report undeliverable answers right after the effects of one of these events.
        if !self.answered.is_empty()
            && let Event::Request { .. } | Event::Tick { .. } | Event::RedisReply { .. } = event
        {
            self.count_used();
        }
        match event {
            Event::Request { stream, request } => self.on_request(stream, request, effects),
            Event::Response { .. } | Event::Body { .. } => {}
            Event::Closed { stream, .. } => self.forget(stream),
            Event::Undelivered { stream, .. } => self.not_delivered(stream),
            Event::Tick { now_ms } => self.on_tick(now_ms, effects),
            Event::RedisReply {
                batch,
                reply,
                now_ms,
            } => self.on_reply(batch, reply, now_ms, effects),
            Event::NotSent { batch } => self.on_not_sent(batch, effects),
            Event::Deferred { batch } => {
                self.redis.pump.deferred(batch, effects);
            }
            Event::FetchDone {
                fetch,
                response,
                now_ms,
            } => self.on_fetched(fetch, response, now_ms, effects),
        }
    }

    fn decide_early(&mut self, request: &dyn Request, _: bool) -> EarlyDecision {
        self.early_decision(request)
    }

    fn tick_ms(&self) -> Option<u64> {
        let poll_ms = self.poller.schedule.tick_ms();
        if !self.held.has_begun() {
            return Some(poll_ms);
        }
        let flush_ms = self.clicks.as_ref().map_or(u64::MAX, Clicks::flush_ms);
        Some(poll_ms.min(flush_ms).min(self.redis.pump.tick_ms()))
    }

    fn metrics(&mut self) -> &mut Metrics {
        &mut self.metrics
    }

    fn describe(&self) -> Option<Description> {
        Some(Description {
            key_prefix: self.redis.pump.plan().key_prefix.clone(),
            items: Vec::new(),
        })
    }
}

impl Links {
    /// Creates an engine without domains. `unique_name` must differ between engines: it identifies batches and clicks.
    /// `seed` must be secret: it seeds the hash of names.
    pub fn new(config: CheckedConfig, unique_name: &str, seed: u64) -> Self {
        let mut metrics = Metrics::new();
        let clicks = config.clicks.as_ref();
        let first = ClickId {
            counter: seeded_hash(0, unique_name.as_bytes()),
            sequence: 0,
        };
        Self {
            sites: Sites::default(),
            memory: Memory::new(config.limits, seed),
            crawlers: Crawlers::new(seed),
            redis: Redis::new(&config, &mut metrics),
            lookups: Lookups::new(&config.origin, config.lookups, &mut metrics),
            poller: Poller::new(config.poll_interval_ms, &config.redis.key_prefix),
            country_header: config.country_header.clone(),
            trusted_hops: clicks.and_then(|clicks| clicks.trusted_hops),
            clicks: clicks.map(|clicks| Clicks::new(clicks, unique_name, &mut metrics)),
            unused: UnusedClicks::default(),
            answered: BTreeMap::new(),
            next_click: first,
            tagger: Tagger {
                keys: None,
                next: first,
            },
            changes: 0,
            waiting: BTreeMap::new(),
            held: HeldRequests::default(),
            counters: LinkCounters::new(&mut metrics),
            metrics,
        }
    }

    /// Signs the IDs of clicks on tracked links with these keys.
    #[must_use]
    pub fn naming_clicks(mut self, keys: Option<KeyRing>) -> Self {
        self.tagger.keys = keys;
        self
    }

    /// The number of requests that wait for the first poll, for Redis or for the origin.
    pub fn waiting(&self) -> usize {
        self.held.len() + self.waiting.len()
    }

    /// The number of clicks still to return.
    pub fn unused(&self) -> usize {
        self.unused.len()
    }

    fn on_request(&mut self, stream: StreamId, request: &dyn Request, effects: &mut Effects) {
        self.note_request(request, effects);
        let fields = Fields::from_headers(request.headers());
        let fields = fields.with_country(request.headers(), self.country_header.as_deref());
        let Some(domain) = self.sites.find(fields.host) else {
            if self.hold(stream, &fields, request) {
                return;
            }
            self.counters.answers.increment(AnswerKind::Passed);
            return effects.let_go(stream);
        };
        let resource = fields.resource(&domain);
        self.answer_resource(stream, domain, resource, fields, request, effects);
    }

    /// Answers or holds a request for a resource of a domain.
    pub(crate) fn answer_resource(
        &mut self,
        stream: StreamId,
        domain: Arc<Domain>,
        resource: Resource,
        fields: Fields<'_>,
        request: &dyn Request,
        effects: &mut Effects,
    ) {
        match resource {
            Resource::Link(name) => {
                let head = LinkHead {
                    stream,
                    name,
                    domain,
                    fields,
                    request,
                    now_ms: request.now_ms(),
                };
                self.find(head, effects);
            }
            Resource::File(file) => self.answer_file(stream, file, &domain, &fields, effects),
            Resource::Nothing => self.answer_unknown(stream, &domain, &fields, effects),
        }
    }

    /// Forgets a request after its client has left.
    fn forget(&mut self, stream: StreamId) {
        self.held.forget(stream);
        if let Some(request) = self.waiting.remove(&stream) {
            self.redis.pump.forget(stream);
            self.lookups.forget(stream);
            self.led_nowhere(&request);
        }
    }

    /// Returns the click of an answer that could not be delivered.
    fn not_delivered(&mut self, stream: StreamId) {
        if let Some(used) = self.answered.remove(&stream) {
            self.unused.add(&used.name, used.click);
        }
        self.forget(stream);
    }

    /// Counts the clicks of earlier events: their answers have arrived.
    pub(crate) fn count_used(&mut self) {
        let answered = core::mem::take(&mut self.answered);
        let Some(clicks) = &mut self.clicks else {
            return;
        };
        for used in answered.values() {
            let fields = used.visitor.fields();
            clicks.count(&fields.click(&used.name, &used.visitor.address, used.now_ms));
        }
    }

    // --- memory, Redis, origin

    fn find(&mut self, head: LinkHead<'_>, effects: &mut Effects) {
        let (stream, now_ms) = (head.stream, head.now_ms);
        match self.memory.find(&head.name, now_ms) {
            CacheLookup::Link {
                cached: existing,
                is_due,
            } => {
                self.counters.found.increment(Place::Memory);
                let mut fields = head.fields_for(&existing.link, self.trusted_hops);
                let tag = self.tagger.tag(&existing.link, &head.name, &fields, now_ms);
                fields.click_tag = tag.as_deref();
                let answer = answer_of(existing, &fields, now_ms);
                let is_followed = answer.leads_on();
                let (domain, counters) = (&head.domain, &self.counters);
                if give(answer, stream, &fields, domain, counters, effects)
                    && let Some(clicks) = &mut self.clicks
                {
                    let address = head.fields.address(self.trusted_hops, head.request);
                    clicks.count(&head.fields.click(&head.name, &address, now_ms));
                }
                if is_due {
                    let is_click = is_followed && self.crawlers.is_click(&head.fields);
                    let purpose = if is_click {
                        Purpose::Renew
                    } else {
                        Purpose::Look
                    };
                    self.refresh(head.name, purpose, now_ms, effects);
                }
            }
            CacheLookup::Unknown => {
                self.counters.found.increment(Place::MemoryUnknown);
                self.answer_unknown(stream, &head.domain, &head.fields, effects);
            }
            CacheLookup::MustRevalidate | CacheLookup::Nothing => {
                let purpose = self.purpose_of(&head.fields);
                let request = head.keep(self.trusted_hops, purpose);
                self.ask_redis(request, now_ms, effects);
            }
        }
    }

    /// The purpose of a read for this request. Each click gets its own ID.
    pub(crate) fn purpose_of(&mut self, fields: &Fields<'_>) -> Purpose {
        if !self.crawlers.is_click(fields) {
            return Purpose::Look;
        }
        let click = self.next_click;
        self.next_click.sequence = click.sequence.wrapping_add(1);
        Purpose::Click(click)
    }

    /// Sends the request to Redis, or to the origin if Redis is unavailable.
    pub(crate) fn ask_redis(
        &mut self,
        mut request: LinkRequest,
        now_ms: u64,
        effects: &mut Effects,
    ) {
        request.changes = self.changes;
        let Some(job) = self.read_job(request.name, request.purpose, now_ms) else {
            return self.without_redis(request, now_ms, effects);
        };
        match self
            .redis
            .pump
            .enqueue(request.stream, job, now_ms, effects)
        {
            Ok(()) => self.wait(request),
            // There was room for the job a moment ago.
            Err(_full) => self.without_redis(request, now_ms, effects),
        }
    }

    /// Reads a cached link again, without a request: in Redis, or at the origin if Redis is unavailable.
    fn refresh(&mut self, name: LinkName, purpose: Purpose, now_ms: u64, effects: &mut Effects) {
        match self.read_job(name, purpose, now_ms) {
            Some(job) => self.redis.pump.enqueue_unowned(job, now_ms, effects),
            None => self.refresh_at_origin(name, purpose, now_ms, effects),
        }
    }

    /// Reads a cached link again at the origin.
    pub(crate) fn refresh_at_origin(
        &mut self,
        name: LinkName,
        purpose: Purpose,
        now_ms: u64,
        effects: &mut Effects,
    ) {
        if self.memory.stale(&name, now_ms).is_some() {
            let changes = self.changes;
            self.lookups
                .refresh(name, purpose, changes, now_ms, effects);
        }
    }

    /// The job that reads a link; `None` if Redis is unavailable.
    fn read_job(&mut self, name: LinkName, purpose: Purpose, now_ms: u64) -> Option<Job> {
        Some(Job::Read(ReadJob {
            name,
            link: name.to_link()?,
            purpose,
            pass: self.redis.permit(now_ms)?,
            changes: self.changes,
        }))
    }

    fn wait(&mut self, request: LinkRequest) {
        self.waiting.insert(request.stream, request);
    }

    /// Handles a missing reply from Redis: answers with the stale entry, or else calls the origin.
    pub(crate) fn without_redis(
        &mut self,
        request: LinkRequest,
        now_ms: u64,
        effects: &mut Effects,
    ) {
        if let Some(request) = self.answer_stale(request, now_ms, effects) {
            self.ask_origin(request, now_ms, effects);
        }
    }

    /// Answers with the cached entry, however old. Returns the request if there is none.
    fn answer_stale(
        &mut self,
        request: LinkRequest,
        now_ms: u64,
        effects: &mut Effects,
    ) -> Option<LinkRequest> {
        self.answer_known(request, Place::Stale, now_ms, effects)
    }

    /// Answers with the cached entry, counted as found in `place`. Returns the request if there is none.
    pub(crate) fn answer_known(
        &mut self,
        request: LinkRequest,
        place: Place,
        now_ms: u64,
        effects: &mut Effects,
    ) -> Option<LinkRequest> {
        let Some(existing) = self.memory.stale(&request.name, now_ms) else {
            return Some(request);
        };
        self.counters.found.increment(place);
        let mut fields = request.visitor.fields_for(&existing.link, &request.name);
        let tag = self
            .tagger
            .tag(&existing.link, &request.name, &fields, now_ms);
        fields.click_tag = tag.as_deref();
        let answer = answer_of(existing, &fields, now_ms);
        let (counters, clicks) = (&self.counters, self.clicks.as_mut());
        if !request.give(answer, counters, clicks, now_ms, effects) {
            self.led_nowhere(&request);
        }
        None
    }

    /// Sends the request to the origin, unless too many requests wait.
    pub(crate) fn ask_origin(&mut self, request: LinkRequest, now_ms: u64, effects: &mut Effects) {
        // Another request's lookup may have ended in the meantime.
        if self.memory.find(&request.name, now_ms) == CacheLookup::Unknown {
            return self.tell_unknown(&request, effects);
        }
        let lookup = LookupRequest {
            stream: request.stream,
            name: request.name,
            purpose: request.purpose,
            has_followed: request.has_followed,
            is_held: self.memory.stale(&request.name, now_ms).is_some(),
            changes: self.changes,
        };
        match self.lookups.wait(lookup, now_ms, effects) {
            Ok(()) => self.wait(request),
            Err(too_many) => self.without_origin(request, Some(too_many.wait_ms), now_ms, effects),
        }
    }

    /// Handles an origin that did not answer, or whose lookups are limited for `wait_ms`. The stale entry is used, and
    /// trusted for a while.
    pub(crate) fn without_origin(
        &mut self,
        request: LinkRequest,
        wait_ms: Option<u64>,
        now_ms: u64,
        effects: &mut Effects,
    ) {
        let (name, changes) = (request.name, request.changes);
        match self.answer_stale(request, now_ms, effects) {
            // An entry that Redis returned before later changes is not trusted.
            None if changes == self.changes => self.memory.trust(&name, now_ms),
            None => {}
            Some(request) => {
                self.answer_unavailable(&request, wait_ms, effects);
                self.led_nowhere(&request);
            }
        }
    }

    /// Returns the click that may have been used for a request that was not redirected.
    pub(crate) fn led_nowhere(&mut self, request: &LinkRequest) {
        if let Some(click) = request.purpose.click().filter(|_| request.may_have_used) {
            self.unused.add(&request.name, click);
        }
    }

    // --- answers

    /// Answers with a link that was just read, and counts the visit if it is one.
    pub(crate) fn answer_with(
        &mut self,
        request: &LinkRequest,
        link: &Link,
        read: &Read,
        now_ms: u64,
        effects: &mut Effects,
    ) {
        // Redis does not count clicks of a disabled link, so they are never used up.
        let is_used_up = read.clicks_left == Some(0);
        let mut fields = request.visitor.fields_for(link, &request.name);
        let tag = self.tagger.tag(link, &request.name, &fields, now_ms);
        fields.click_tag = tag.as_deref();
        let answer = answer_to(link, is_used_up, read.left_ms, &fields, now_ms);
        let used = request
            .purpose
            .click()
            .filter(|_| read.clicks_left >= Some(1));
        // A used click is counted after its answer has been delivered.
        let clicks = self.clicks.as_mut().filter(|_| used.is_none());
        if !request.give(answer, &self.counters, clicks, now_ms, effects) {
            self.led_nowhere(request);
            // The read has used a click, although the link has reached its end time, for example.
            self.give_back(request.purpose, &request.name, read);
        } else if let Some(click) = used {
            let used = UsedClick {
                name: request.name,
                click,
                visitor: request.visitor.clone(),
                now_ms,
            };
            self.answered.insert(request.stream, used);
        }
    }

    /// Returns a click that was used without a redirect.
    pub(crate) fn give_back(&mut self, purpose: Purpose, name: &LinkName, read: &Read) {
        if let (Some(click), Some(1..)) = (purpose.click(), read.clicks_left) {
            self.unused.add(name, click);
        }
    }

    /// Answers that the link does not exist.
    pub(crate) fn answer_unknown(
        &self,
        stream: StreamId,
        domain: &Domain,
        fields: &Fields<'_>,
        effects: &mut Effects,
    ) {
        self.counters.answers.increment(AnswerKind::Unknown);
        let reply = site::unknown(Some(domain), fields.accept_language);
        respond(stream, AnswerKind::Unknown, reply, effects);
    }

    /// Answers that the link does not exist, and returns the request's click.
    pub(crate) fn tell_unknown(&mut self, request: &LinkRequest, effects: &mut Effects) {
        let fields = request.visitor.fields();
        self.answer_unknown(request.stream, &request.domain, &fields, effects);
        self.led_nowhere(request);
    }

    /// Answers that the link is unavailable. After `wait_ms`, a retry may succeed.
    fn answer_unavailable(
        &self,
        request: &LinkRequest,
        wait_ms: Option<u64>,
        effects: &mut Effects,
    ) {
        let kind = match wait_ms {
            Some(_) => AnswerKind::Overloaded,
            None => AnswerKind::Unavailable,
        };
        self.counters.answers.increment(kind);
        let retry_after_s = retry_after_seconds(wait_ms.unwrap_or(RETRY_MS));
        let accept_language = request.visitor.fields().accept_language;
        let reply = site::unavailable(&request.domain, accept_language, retry_after_s);
        respond(request.stream, kind, reply, effects);
    }

    pub(crate) fn answer_file(
        &self,
        stream: StreamId,
        file: File,
        domain: &Domain,
        fields: &Fields<'_>,
        effects: &mut Effects,
    ) {
        let Some(reply) = file.reply(domain) else {
            return self.answer_unknown(stream, domain, fields, effects);
        };
        self.counters.answers.increment(AnswerKind::File);
        respond(stream, AnswerKind::File, reply, effects);
    }
}

impl<'a> LinkHead<'a> {
    /// The fields of a visitor of `link`. The address is read from the host only if the link needs the visitor's
    /// bucket.
    fn fields_for(&self, link: &Link, trusted_hops: Option<usize>) -> Fields<'a> {
        let point = match link.has_shares() {
            true => {
                let address = self.fields.address(trusted_hops, self.request);
                point_of(self.name.as_bytes(), &address, self.fields.user_agent)
            }
            false => 0,
        };
        Fields {
            point,
            ..self.fields
        }
    }

    /// The part of the request that is stored while it waits.
    fn keep(self, trusted_hops: Option<usize>, purpose: Purpose) -> LinkRequest {
        let address = self.fields.address(trusted_hops, self.request);
        let visitor = Visitor::new(&self.fields, &address);
        LinkRequest::new(self.stream, self.name, self.domain, visitor, purpose)
    }
}

impl LinkRequest {
    pub(crate) fn new(
        stream: StreamId,
        name: LinkName,
        domain: Arc<Domain>,
        visitor: Visitor,
        purpose: Purpose,
    ) -> Self {
        Self {
            stream,
            name,
            domain,
            visitor,
            purpose,
            may_have_used: false,
            changes: 0,
            has_followed: false,
        }
    }

    /// Sends a response, and counts the visit if it is one. Returns whether the response follows the link.
    fn give(
        &self,
        answer: Answer<'_>,
        counters: &LinkCounters,
        clicks: Option<&mut Clicks>,
        now_ms: u64,
        effects: &mut Effects,
    ) -> bool {
        let leads_on = answer.leads_on();
        let fields = self.visitor.fields();
        let (stream, domain) = (self.stream, &self.domain);
        if give(answer, stream, &fields, domain, counters, effects)
            && let Some(clicks) = clicks
        {
            clicks.count(&fields.click(&self.name, &self.visitor.address, now_ms));
        }
        leads_on
    }
}

/// Sends a response. Returns whether statistics count the request.
fn give(
    answer: Answer<'_>,
    stream: StreamId,
    fields: &Fields<'_>,
    domain: &Domain,
    counters: &LinkCounters,
    effects: &mut Effects,
) -> bool {
    let is_counted = answer.leads_on() && fields.is_visit();
    let kind = kind_of(&answer);
    counters.answers.increment(kind);
    if kind == AnswerKind::Guarded {
        effects.let_go(stream);
        return false;
    }
    let reply = answer.reply(domain, fields.accept_language);
    respond(stream, kind, reply, effects);
    is_counted
}
