//! The engine: its events, and what a request is answered.

use alloc::collections::BTreeMap;
use alloc::rc::Rc;

use serde_json::Value;
use weir_engine::{Effects, Engine, Event, Metrics, Request, StreamId};
use weir_link::answer::{self, Answer, Gone};
use weir_link::cache::{Found, Known, LinkName, Memory};
use weir_link::domain::Domain;
use weir_link::record::Link;

use crate::NAME;
use crate::answer::{file, kind_of, respond, unavailable};
use crate::clicks::Clicks;
use crate::config::Checked;
use crate::domains::Sites;
use crate::job::{Job, ReadJob};
use crate::lookups::{LookupRequest, Lookups};
use crate::metrics::{AnswerKind, LinkCounters, Place};
use crate::origin::lookup_headers;
use crate::poll::Poller;
use crate::redis::Redis;
use crate::request::{Fields, Resource};
use crate::visitor::Visitor;

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
    trusted_hops: Option<usize>,
    /// How many polls have told of changes. What was read before such a poll has completed may be from before the change,
    /// and is not remembered.
    pub(crate) changes: u32,
    /// Requests that wait for Redis or the origin.
    pub(crate) waiting: BTreeMap<StreamId, LinkRequest>,
    /// Whether a request has ever come.
    pub(crate) is_serving: bool,
    pub(crate) counters: LinkCounters,
    metrics: Metrics,
}

/// A request for a link that memory does not answer.
#[derive(Clone, Debug)]
pub(crate) struct LinkRequest {
    pub(crate) stream: StreamId,
    pub(crate) name: LinkName,
    pub(crate) domain: Rc<Domain>,
    pub(crate) visitor: Visitor,
    /// Whether it has waited for a look-up that was sent for another one.
    pub(crate) has_followed: bool,
}

/// A request for a link, while its head is there.
struct LinkHead<'a> {
    stream: StreamId,
    name: LinkName,
    domain: Rc<Domain>,
    fields: Fields<'a>,
    request: &'a dyn Request,
    now_ms: u64,
}

impl Engine for Links {
    const NAME: &'static str = NAME;

    fn handle(&mut self, event: Event<'_>, effects: &mut Effects) {
        match event {
            Event::Request { stream, request } => self.on_request(stream, request, effects),
            Event::Response { .. } => {}
            Event::Closed { stream, .. } | Event::Undelivered { stream, .. } => self.forget(stream),
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

    fn tick_ms(&self) -> Option<u64> {
        let poll_ms = self.poller.schedule.tick_ms();
        if !self.is_serving {
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
    /// An engine that knows nothing yet. No other engine may have `unique_name`, by which batches of clicks are told
    /// apart; nobody outside may know the seed, by which names are hashed.
    pub fn new(config: Checked, unique_name: &str, seed: u64) -> Self {
        let mut metrics = Metrics::new();
        let clicks = config.clicks.as_ref();
        Self {
            sites: Sites::default(),
            memory: Memory::new(config.limits, seed),
            redis: Redis::new(&config, &mut metrics),
            lookups: Lookups::new(&config.origin),
            poller: Poller::new(config.poll_interval_ms, &config.redis.key_prefix),
            trusted_hops: clicks.and_then(|clicks| clicks.trusted_hops),
            clicks: clicks.map(|clicks| Clicks::new(clicks, unique_name, &mut metrics)),
            changes: 0,
            waiting: BTreeMap::new(),
            is_serving: false,
            counters: LinkCounters::new(&mut metrics),
            metrics,
        }
    }

    /// How many requests wait for Redis or the origin.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    fn on_request(&mut self, stream: StreamId, request: &dyn Request, effects: &mut Effects) {
        self.note_request(effects);
        let fields = Fields::of(request.headers());
        let Some(domain) = self.sites.find(fields.host) else {
            self.counters.answers.increment(AnswerKind::Passed);
            return effects.let_go(stream);
        };
        match fields.resource(&domain.id) {
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
            Resource::AppleFile => {
                let wanted = domain.apple_app_site_association.as_ref();
                self.answer_file(stream, &domain, wanted, effects);
            }
            Resource::AndroidFile => {
                self.answer_file(stream, &domain, domain.assetlinks.as_ref(), effects);
            }
            Resource::Nothing => self.answer_unknown(stream, &domain, effects),
        }
    }

    /// With the first request this engine becomes one that needs its domains.
    fn note_request(&mut self, effects: &mut Effects) {
        if !core::mem::replace(&mut self.is_serving, true) {
            self.poller.schedule.hurry();
            effects.wake();
        }
    }

    /// The client has gone.
    fn forget(&mut self, stream: StreamId) {
        if self.waiting.remove(&stream).is_some() {
            self.redis.pump.forget(stream);
            self.lookups.forget(stream);
        }
    }

    // --- memory, Redis, origin

    fn find(&mut self, head: LinkHead<'_>, effects: &mut Effects) {
        let (stream, now_ms) = (head.stream, head.now_ms);
        match self.memory.find(&head.name, now_ms) {
            Found::Link { known, is_due } => {
                self.counters.found.increment(Place::Memory);
                let answer = answer_of(known, &head.fields, now_ms);
                if give(answer, stream, &head.fields, &self.counters, effects)
                    && let Some(clicks) = &mut self.clicks
                {
                    let address = head.fields.address(self.trusted_hops, head.request);
                    clicks.count(&head.fields.click(&head.name, &address, now_ms));
                }
                if is_due {
                    self.renew(head.name, now_ms, effects);
                }
            }
            Found::Unknown => {
                self.counters.found.increment(Place::MemoryUnknown);
                self.answer_unknown(stream, &head.domain, effects);
            }
            Found::MustRevalidate | Found::Nothing => {
                let request = head.keep(self.trusted_hops);
                self.ask_redis(request, now_ms, effects);
            }
        }
    }

    /// Lets the request wait for Redis; or for the origin, if Redis is not to be asked.
    pub(crate) fn ask_redis(&mut self, request: LinkRequest, now_ms: u64, effects: &mut Effects) {
        let is_click = request.visitor.fields().is_click();
        let Some(job) = self.read_job(request.name, is_click, now_ms) else {
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

    /// Reads again what is remembered of a link, for no request in particular.
    fn renew(&mut self, name: LinkName, now_ms: u64, effects: &mut Effects) {
        if let Some(job) = self.read_job(name, false, now_ms) {
            self.redis.pump.enqueue_unowned(job, now_ms, effects);
        }
    }

    /// The job that reads a link, unless Redis is not to be asked.
    fn read_job(&mut self, name: LinkName, is_click: bool, now_ms: u64) -> Option<Job> {
        Some(Job::Read(ReadJob {
            name,
            link: name.to_link()?,
            is_click,
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
        let Some(known) = self.memory.stale(&request.name, now_ms) else {
            return self.ask_origin(request, now_ms, effects);
        };
        self.counters.found.increment(Place::Stale);
        let fields = request.visitor.fields();
        let answer = answer_of(known, &fields, now_ms);
        let is_click = give(answer, request.stream, &fields, &self.counters, effects);
        self.count(is_click, &request, now_ms);
    }

    /// Lets the request wait for the origin, if not too many do.
    pub(crate) fn ask_origin(&mut self, request: LinkRequest, now_ms: u64, effects: &mut Effects) {
        // The look-up of another request may have told meanwhile.
        if self.memory.find(&request.name, now_ms) == Found::Unknown {
            return self.answer_unknown(request.stream, &request.domain, effects);
        }
        let lookup = LookupRequest {
            stream: request.stream,
            name: request.name,
            has_followed: request.has_followed,
            changes: self.changes,
        };
        let headers = || lookup_headers(&request.visitor);
        match self.lookups.wait(lookup, headers, now_ms, effects) {
            Ok(()) => self.wait(request),
            Err(too_many) => {
                self.counters.answers.increment(AnswerKind::Overloaded);
                let answer = unavailable(too_many.wait_ms);
                effects.respond(request.stream, Rc::new(answer));
            }
        }
    }

    // --- answers

    /// Answers with a link that was just read, and counts the click if it is one.
    pub(crate) fn answer_with(
        &mut self,
        request: &LinkRequest,
        link: &Link,
        is_used_up: bool,
        left_ms: Option<u64>,
        now_ms: u64,
        effects: &mut Effects,
    ) {
        let fields = request.visitor.fields();
        let answer = answer_to(link, is_used_up, left_ms, &fields, now_ms);
        let is_click = give(answer, request.stream, &fields, &self.counters, effects);
        self.count(is_click, request, now_ms);
    }

    fn count(&mut self, is_click: bool, request: &LinkRequest, now_ms: u64) {
        if let Some(clicks) = self.clicks.as_mut().filter(|_| is_click) {
            let visitor = &request.visitor;
            let fields = visitor.fields();
            clicks.count(&fields.click(&request.name, &visitor.address, now_ms));
        }
    }

    /// There is no such link.
    pub(crate) fn answer_unknown(&self, stream: StreamId, domain: &Domain, effects: &mut Effects) {
        self.counters.answers.increment(AnswerKind::Unknown);
        let reply = answer::unknown(domain.not_found_page.as_deref());
        respond(stream, reply, effects);
    }

    /// Nobody can say where the link leads.
    pub(crate) fn answer_unavailable(&self, stream: StreamId, effects: &mut Effects) {
        self.counters.answers.increment(AnswerKind::Unavailable);
        effects.respond(stream, Rc::new(unavailable(RETRY_MS)));
    }

    fn answer_file(
        &self,
        stream: StreamId,
        domain: &Domain,
        wanted: Option<&Value>,
        effects: &mut Effects,
    ) {
        let Some(wanted) = wanted else {
            return self.answer_unknown(stream, domain, effects);
        };
        self.counters.answers.increment(AnswerKind::File);
        effects.respond(stream, Rc::new(file(wanted)));
    }
}

impl LinkHead<'_> {
    /// What is kept of it while it waits.
    fn keep(self, trusted_hops: Option<usize>) -> LinkRequest {
        let address = self.fields.address(trusted_hops, self.request);
        LinkRequest {
            stream: self.stream,
            name: self.name,
            visitor: Visitor::new(&self.fields, &address),
            domain: self.domain,
            has_followed: false,
        }
    }
}

fn answer_of<'a>(known: &'a Known, fields: &Fields<'_>, now_ms: u64) -> Answer<'a> {
    let left_ms = known.dies_at_ms.checked_sub(now_ms);
    let left_ms = left_ms.filter(|_| known.dies_at_ms != u64::MAX);
    answer_to(&known.link, known.is_used_up, left_ms, fields, now_ms)
}

fn answer_to<'a>(
    link: &'a Link,
    is_used_up: bool,
    left_ms: Option<u64>,
    fields: &Fields<'_>,
    now_ms: u64,
) -> Answer<'a> {
    match is_used_up {
        true => Answer::Gone(Gone::UsedUp),
        false => answer::answer(link, &fields.visit(left_ms, now_ms)),
    }
}

/// Gives an answer. Whether the request was a click.
fn give(
    answer: Answer<'_>,
    stream: StreamId,
    fields: &Fields<'_>,
    counters: &LinkCounters,
    effects: &mut Effects,
) -> bool {
    let is_click = answer.leads_on() && fields.is_click();
    counters.answers.increment(kind_of(&answer));
    respond(stream, answer.reply(), effects);
    is_click
}
