//! The engine: its events, and what a request is answered.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;

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
use weir_engine::{EarlyDecision, Effects, Engine, Event, Metrics, Request, StreamId};

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

/// When a client that could not be answered may try again, in milliseconds.
const RETRY_MS: u64 = 1_000;

/// The engine of short links.
#[derive(Debug)]
pub struct Links {
    pub(crate) sites: Sites,
    pub(crate) memory: Memory,
    pub(crate) redis: Redis,
    pub(crate) lookups: Lookups,
    pub(crate) poller: Poller,
    /// If clicks are counted.
    pub(crate) clicks: Option<Clicks>,
    /// Clicks that led nowhere.
    pub(crate) unused: UnusedClicks,
    /// Clicks that this event has used for answers: an answer that nobody gets has led nowhere.
    answered: BTreeMap<StreamId, UsedClick>,
    /// The name of the next click.
    next_click: ClickId,
    /// Names clicks that travel on.
    tagger: Tagger,
    crawlers: Crawlers,
    pub(crate) trusted_hops: Option<usize>,
    /// The header that names a client's country.
    pub(crate) country_header: Option<String>,
    /// How many polls have told of changes. What was read before such a poll has completed may be from before the change,
    /// and is not remembered.
    pub(crate) changes: u32,
    /// Requests that wait for the first poll.
    pub(crate) held: HeldRequests<HeldRequest>,
    /// Requests that wait for Redis or the origin.
    pub(crate) waiting: BTreeMap<StreamId, LinkRequest>,
    pub(crate) counters: LinkCounters,
    metrics: Metrics,
}

/// A request for a link that memory does not answer.
#[derive(Clone, Debug)]
pub(crate) struct LinkRequest {
    pub(crate) stream: StreamId,
    pub(crate) name: LinkName,
    pub(crate) domain: Arc<Domain>,
    pub(crate) visitor: Visitor,
    /// Why the link is read for it.
    pub(crate) purpose: Purpose,
    /// Whether a click may have been used for it though nobody has told.
    pub(crate) may_have_used: bool,
    /// How many changes were known when Redis was asked.
    changes: u32,
    /// Whether it has waited for a look-up that was sent for another one.
    pub(crate) has_followed: bool,
}

/// A click that was used for an answer.
#[derive(Debug)]
struct UsedClick {
    name: LinkName,
    click: ClickId,
    visitor: Visitor,
    now_ms: u64,
}

/// A request for a link, while its head is there.
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
        // What could not be delivered is told right after the effects of an event of these.
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
}

impl Links {
    /// An engine that knows nothing yet. No other engine may have `unique_name`, by which batches of clicks
    /// and clicks are told apart; nobody outside may know the seed, by which names are hashed.
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

    /// The same, which names clicks on links that are tracked, and signs the names with these keys.
    #[must_use]
    pub fn naming_clicks(mut self, keys: Option<KeyRing>) -> Self {
        self.tagger.keys = keys;
        self
    }

    /// How many requests wait for the first poll, for Redis or for the origin.
    pub fn waiting(&self) -> usize {
        self.held.len() + self.waiting.len()
    }

    /// How many clicks are still to be given back.
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

    /// Answers a request for something of a domain, or lets it wait.
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
            Resource::File(file) => self.answer_file(stream, file, &domain, effects),
            Resource::Nothing => self.answer_unknown(stream, &domain, effects),
        }
    }

    /// The client has gone.
    fn forget(&mut self, stream: StreamId) {
        self.held.forget(stream);
        if let Some(request) = self.waiting.remove(&stream) {
            self.redis.pump.forget(stream);
            self.lookups.forget(stream);
            self.led_nowhere(&request);
        }
    }

    /// The client had gone before its answer came: a click that was used for it is given back.
    fn not_delivered(&mut self, stream: StreamId) {
        if let Some(used) = self.answered.remove(&stream) {
            self.unused.add(&used.name, used.click);
        }
        self.forget(stream);
    }

    /// Clients have what they were told before this event: those clicks are counted.
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
            CacheLookup::Link { known, is_due } => {
                self.counters.found.increment(Place::Memory);
                let mut fields = head.fields_for(&known.link, self.trusted_hops);
                let tag = self.tagger.tag(&known.link, &head.name, &fields, now_ms);
                fields.click_tag = tag.as_deref();
                let answer = answer_of(known, &fields, now_ms);
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
                self.answer_unknown(stream, &head.domain, effects);
            }
            CacheLookup::MustRevalidate | CacheLookup::Nothing => {
                let purpose = self.purpose_of(&head.fields);
                let request = head.keep(self.trusted_hops, purpose);
                self.ask_redis(request, now_ms, effects);
            }
        }
    }

    /// Why a link is read for a request: each click has a name of its own.
    pub(crate) fn purpose_of(&mut self, fields: &Fields<'_>) -> Purpose {
        if !self.crawlers.is_click(fields) {
            return Purpose::Look;
        }
        let click = self.next_click;
        self.next_click.sequence = click.sequence.wrapping_add(1);
        Purpose::Click(click)
    }

    /// Lets the request wait for Redis; or for the origin, if Redis is not to be asked.
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

    /// Reads again what is remembered of a link, for no request in particular: in Redis, or if that is not to be asked, at
    /// the origin.
    fn refresh(&mut self, name: LinkName, purpose: Purpose, now_ms: u64, effects: &mut Effects) {
        match self.read_job(name, purpose, now_ms) {
            Some(job) => self.redis.pump.enqueue_unowned(job, now_ms, effects),
            None => self.refresh_at_origin(name, purpose, now_ms, effects),
        }
    }

    /// Asks the origin about a link that memory has.
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

    /// The job that reads a link, unless Redis is not to be asked.
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

    /// Redis has not answered: what is remembered still holds, and otherwise the origin is asked.
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

    /// Answers with what is remembered, however old that is; or gives the request back if there is nothing.
    fn answer_stale(
        &mut self,
        request: LinkRequest,
        now_ms: u64,
        effects: &mut Effects,
    ) -> Option<LinkRequest> {
        self.answer_known(request, Place::Stale, now_ms, effects)
    }

    /// Answers with what is remembered, which counts as found in `place`; or gives the request back if there is nothing.
    pub(crate) fn answer_known(
        &mut self,
        request: LinkRequest,
        place: Place,
        now_ms: u64,
        effects: &mut Effects,
    ) -> Option<LinkRequest> {
        let Some(known) = self.memory.stale(&request.name, now_ms) else {
            return Some(request);
        };
        self.counters.found.increment(place);
        let mut fields = request.visitor.fields_for(&known.link, &request.name);
        let tag = self.tagger.tag(&known.link, &request.name, &fields, now_ms);
        fields.click_tag = tag.as_deref();
        let answer = answer_of(known, &fields, now_ms);
        let (counters, clicks) = (&self.counters, self.clicks.as_mut());
        if !request.give(answer, counters, clicks, now_ms, effects) {
            self.led_nowhere(&request);
        }
        None
    }

    /// Lets the request wait for the origin, if not too many do.
    pub(crate) fn ask_origin(&mut self, request: LinkRequest, now_ms: u64, effects: &mut Effects) {
        // The look-up of another request may have told meanwhile.
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

    /// The origin has not answered, or is not to be asked for so many milliseconds: what is remembered counts, for a while
    /// without anybody being asked.
    pub(crate) fn without_origin(
        &mut self,
        request: LinkRequest,
        wait_ms: Option<u64>,
        now_ms: u64,
        effects: &mut Effects,
    ) {
        let (name, changes) = (request.name, request.changes);
        match self.answer_stale(request, now_ms, effects) {
            // What Redis said before changes were told of says nothing after them.
            None if changes == self.changes => self.memory.trust(&name, now_ms),
            None => {}
            Some(request) => {
                self.answer_unavailable(&request, wait_ms, effects);
                self.led_nowhere(&request);
            }
        }
    }

    /// The request was not led on, and will not be: a click that may have been used for it is given back.
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
        // Redis does not count clicks of a disabled link, so it is never used up.
        let is_used_up = read.clicks_left == Some(0);
        let mut fields = request.visitor.fields_for(link, &request.name);
        let tag = self.tagger.tag(link, &request.name, &fields, now_ms);
        fields.click_tag = tag.as_deref();
        let answer = answer_to(link, is_used_up, read.left_ms, &fields, now_ms);
        let used = request
            .purpose
            .click()
            .filter(|_| read.clicks_left >= Some(1));
        // A click that was used is counted when it is known that its client was there.
        let clicks = self.clicks.as_mut().filter(|_| used.is_none());
        if !request.give(answer, &self.counters, clicks, now_ms, effects) {
            self.led_nowhere(request);
            // A click of it has just been used, as of a link whose own end has come.
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

    /// A click that was used for nobody is given back.
    pub(crate) fn give_back(&mut self, purpose: Purpose, name: &LinkName, read: &Read) {
        if let (Some(click), Some(1..)) = (purpose.click(), read.clicks_left) {
            self.unused.add(name, click);
        }
    }

    /// There is no such link.
    pub(crate) fn answer_unknown(&self, stream: StreamId, domain: &Domain, effects: &mut Effects) {
        self.counters.answers.increment(AnswerKind::Unknown);
        let reply = site::unknown(Some(domain));
        respond(stream, AnswerKind::Unknown, reply, effects);
    }

    /// There is no such link, says whoever must know.
    pub(crate) fn tell_unknown(&mut self, request: &LinkRequest, effects: &mut Effects) {
        self.answer_unknown(request.stream, &request.domain, effects);
        self.led_nowhere(request);
    }

    /// Nobody can say where the link leads; in `wait_ms` there may be room for one who asks.
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
        let reply = site::unavailable(&request.domain, retry_after_s);
        respond(request.stream, kind, reply, effects);
    }

    pub(crate) fn answer_file(
        &self,
        stream: StreamId,
        file: File,
        domain: &Domain,
        effects: &mut Effects,
    ) {
        let Some(reply) = file.reply(domain) else {
            return self.answer_unknown(stream, domain, effects);
        };
        self.counters.answers.increment(AnswerKind::File);
        respond(stream, AnswerKind::File, reply, effects);
    }
}

impl<'a> LinkHead<'a> {
    /// As a visitor of `link`. The host is asked for the address only if it matters where the visitor stands.
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

    /// What is kept of it while it waits.
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

    /// Gives it an answer, and counts the visit if it is one. Whether the answer leads on.
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

/// Gives an answer. Whether the request is one that the statistics count.
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
    respond(stream, kind, answer.reply(domain), effects);
    is_counted
}
