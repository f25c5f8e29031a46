//! Handles ticks, and replies of Redis and of the origin.

use alloc::format;
use alloc::vec::Vec;

use crate::cache::{CacheLookup as MemoryFound, LinkName, LinkReading, Source};
use crate::record::Link;
use crate::redis::link_read::Read;
use crate::redis::{link_back, link_clicks, link_read};
use weir_base::resp::Value;
use weir_engine::event::FetchResponse;
use weir_engine::pump::{BATCH_MAX, CompletedBatch, Pending};
use weir_engine::redis::{DefiniteFailure, Failure, Reply, UnknownFailure, read};
use weir_engine::{BatchId, Effects, FetchId, Level, StreamId};

use crate::engine::clicks::Clicks;
use crate::engine::job::{Job, ReadJob};
use crate::engine::links::{LinkRequest, Links};
use crate::engine::lookups::{Lookup, LookupOutcome};
use crate::engine::metrics::{ClickOutcome, Place};
use crate::engine::origin;
use crate::engine::poll::{PollError, PollResult};

impl Links {
    /// Runs due work, and answers at most [`BATCH_MAX`] requests.
    pub(crate) fn on_tick(&mut self, now_ms: u64, effects: &mut Effects) {
        self.poller.poll(now_ms, effects);
        self.flush_clicks(now_ms, effects);
        self.flush_unused(now_ms, effects);
        let completed = self.redis.pump.flush(now_ms, effects);
        let count: usize = completed.iter().map(|call| call.requests.len()).sum();
        self.apply(completed, now_ms, effects);
        let room = BATCH_MAX.saturating_sub(count);
        let room = room.saturating_sub(self.release_held(room, now_ms, effects));
        self.tell_ended(room, now_ms, effects);
    }

    /// Handles the end of a call to Redis.
    pub(crate) fn on_reply(
        &mut self,
        batch: BatchId,
        reply: Reply,
        now_ms: u64,
        effects: &mut Effects,
    ) {
        if self.poller.completed(batch) {
            let replies = read(reply, self.poller.commands());
            let polled = self.poller.read(&replies);
            if polled.is_err() {
                let refusals = self.redis.pump.refusals();
                refusals.note_replies(&replies, "poll", now_ms, effects);
            }
            self.take_poll(polled, effects);
            self.release_held(BATCH_MAX, now_ms, effects);
            // The poll may have found more to read.
            self.poller.poll(now_ms, effects);
        } else if let Some(completed) = self.redis.pump.on_reply(batch, reply, now_ms, effects) {
            self.apply(completed, now_ms, effects);
        }
    }

    /// Handles a call to Redis that could not be sent.
    pub(crate) fn on_not_sent(&mut self, batch: BatchId, effects: &mut Effects) {
        if self.poller.completed(batch) {
            let failure = Failure::from(DefiniteFailure::NotSent);
            self.take_poll(Err(failure.into()), effects);
        } else {
            self.redis.pump.not_sent(batch, effects);
        }
    }

    // --- Redis

    fn apply(&mut self, completed: Vec<CompletedBatch<Job>>, now_ms: u64, effects: &mut Effects) {
        for completed in completed {
            // Each call has one request.
            for pending in completed.requests {
                self.apply_one(pending, &completed.outcome, now_ms, effects);
            }
        }
        self.counters.evictions.add(self.memory.take_evictions());
    }

    fn apply_one(
        &mut self,
        pending: Pending<Job>,
        outcome: &Result<Value, Failure>,
        now_ms: u64,
        effects: &mut Effects,
    ) {
        match pending.job {
            Job::Read(job) => {
                let garbled = |_| Failure::from(UnknownFailure::Garbled);
                let read = outcome.as_ref().map_err(Clone::clone);
                let read = read.and_then(|value| link_read::parse(value).map_err(garbled));
                self.redis.record(job.pass, read.is_ok(), now_ms);
                self.read_completed(pending.stream, &job, read, now_ms, effects);
            }
            Job::Clicks { .. } => {
                let is_taken = outcome
                    .as_ref()
                    .is_ok_and(|value| link_clicks::parse(value).is_ok());
                let completed = |clicks: &mut Clicks| clicks.completed(is_taken);
                self.send_clicks(completed, now_ms, effects);
            }
            Job::Back(unused) => match outcome.as_ref().map(link_back::parse) {
                Ok(Ok(was_used)) => {
                    let count = usize::from(was_used);
                    self.counters.clicks.add(ClickOutcome::Returned, count);
                }
                // Not delivered: try again later.
                _ => self.unused.push(unused),
            },
        }
    }

    /// Handles the result of a read. `stream` waits for it, unless its client has left.
    fn read_completed(
        &mut self,
        stream: Option<StreamId>,
        job: &ReadJob,
        read: Result<Option<Read>, Failure>,
        now_ms: u64,
        effects: &mut Effects,
    ) {
        let request = stream.and_then(|stream| self.waiting.remove(&stream));
        match read {
            Ok(Some(read)) => match self.decoded(&read, effects) {
                Some(link) => self.found_in_redis(request, job, link, &read, now_ms, effects),
                None => self.not_in_redis(request, job, now_ms, effects),
            },
            Ok(None) => self.not_in_redis(request, job, now_ms, effects),
            Err(failure) => {
                self.counters.redis_failed.increment();
                self.redis_failed(request, job, &failure, now_ms, effects);
            }
        }
    }

    /// Redis has no readable record. Redis may have lost it, so ask the origin. The cached entry stays until the origin
    /// reports that the link is deleted.
    fn not_in_redis(
        &mut self,
        request: Option<LinkRequest>,
        job: &ReadJob,
        now_ms: u64,
        effects: &mut Effects,
    ) {
        match request {
            Some(request) => self.ask_origin(request, now_ms, effects),
            None => self.refresh_at_origin(job.name, job.purpose, now_ms, effects),
        }
    }

    fn redis_failed(
        &mut self,
        request: Option<LinkRequest>,
        job: &ReadJob,
        failure: &Failure,
        now_ms: u64,
        effects: &mut Effects,
    ) {
        let may_have_run = matches!(failure, Failure::Unknown(_));
        match (request, job.purpose.click()) {
            (Some(mut request), click) => {
                request.may_have_used |= may_have_run && click.is_some();
                self.without_redis(request, now_ms, effects);
            }
            // The client has left.
            (None, Some(click)) if may_have_run => self.unused.add(&job.name, click),
            (None, Some(_)) => {}
            (None, None) => self.refresh_at_origin(job.name, job.purpose, now_ms, effects),
        }
    }

    /// Answers with the link from Redis, and caches it.
    fn found_in_redis(
        &mut self,
        request: Option<LinkRequest>,
        job: &ReadJob,
        link: Link,
        read: &Read,
        now_ms: u64,
        effects: &mut Effects,
    ) {
        self.counters.found.increment(Place::Redis);
        match request {
            Some(request) => self.answer_with(&request, &link, read, now_ms, effects),
            None => self.give_back(job.purpose, &job.name, read),
        }
        let known_before = job.changes;
        self.learn(&job.name, link, read, Source::Redis, known_before, now_ms);
    }

    /// Caches a link unless edits were reported since the read began. A link with clicks left is not cached: Redis
    /// counts each of them.
    fn learn(
        &mut self,
        name: &LinkName,
        link: Link,
        read: &Read,
        source: Source,
        changes: u32,
        now_ms: u64,
    ) {
        if changes != self.changes {
            return;
        }
        let is_used_up = read.clicks_left == Some(0);
        if read.clicks_left.is_some() && !is_used_up {
            return self.memory.drop_link(name);
        }
        let reading = LinkReading {
            link,
            is_used_up,
            left_ms: read.left_ms,
            source,
        };
        self.memory.learn(name, reading, now_ms);
    }

    /// Decodes a record. The origin may be able to read a record that this version cannot.
    fn decoded(&mut self, read: &Read, effects: &mut Effects) -> Option<Link> {
        match Link::decode(&read.record) {
            Ok(link) => Some(link),
            Err(error) => {
                self.counters.records_refused.increment();
                effects.log(
                    Level::Debug,
                    format!("invalid link record in Redis: {error}"),
                );
                None
            }
        }
    }

    // --- the origin

    /// Handles the end of an origin lookup. If the origin has the link, its owner is answered at once. All other
    /// requests wait for a turn.
    pub(crate) fn on_fetched(
        &mut self,
        fetch: FetchId,
        response: Option<FetchResponse>,
        now_ms: u64,
        effects: &mut Effects,
    ) {
        let found = origin::OriginReply::from(response);
        let is_answered = found != origin::OriginReply::Failed;
        let Some(lookup) = self.lookups.completed(fetch, is_answered, now_ms) else {
            return;
        };
        self.counters.lookups.increment();
        self.counters.found.increment(Place::Origin);
        let (reply, ended) = match found {
            origin::OriginReply::Link(read) => match self.decoded(&read, effects) {
                Some(link) => self.found_at_origin(lookup, link, &read, now_ms, effects),
                None => self.lookup_failed(lookup),
            },
            origin::OriginReply::Unknown => {
                if lookup.changes == self.changes {
                    self.memory.learn_unknown(&lookup.name, now_ms);
                }
                (lookup.all_streams(), LookupOutcome::Unknown)
            }
            origin::OriginReply::Failed => self.lookup_failed(lookup),
        };
        self.counters.evictions.add(self.memory.take_evictions());
        self.lookups.tell_later(reply, ended, effects);
    }

    /// Answers with the link from the origin, and caches it. The followers are answered later.
    fn found_at_origin(
        &mut self,
        lookup: Lookup,
        link: Link,
        read: &Read,
        now_ms: u64,
        effects: &mut Effects,
    ) -> (Vec<StreamId>, LookupOutcome) {
        let owner = lookup.owner;
        match owner.and_then(|stream| self.waiting.remove(&stream)) {
            Some(request) => self.answer_with(&request, &link, read, now_ms, effects),
            None => self.give_back(lookup.purpose, &lookup.name, read),
        }
        let (name, changes) = (lookup.name, lookup.changes);
        self.learn(&name, link, read, Source::Origin, changes, now_ms);
        (lookup.followers, LookupOutcome::Found)
    }

    fn lookup_failed(&mut self, lookup: Lookup) -> (Vec<StreamId>, LookupOutcome) {
        self.counters.lookups_failed.increment();
        if let Some(click) = lookup.purpose.click() {
            // The origin may have used the click.
            let owner = lookup.owner;
            match owner.and_then(|stream| self.waiting.get_mut(&stream)) {
                Some(request) => request.may_have_used = true,
                None => self.unused.add(&lookup.name, click),
            }
        }
        (lookup.all_streams(), LookupOutcome::Failed)
    }

    /// Continues at most `room` requests whose lookup has ended.
    fn tell_ended(&mut self, room: usize, now_ms: u64, effects: &mut Effects) {
        for (stream, ended) in self.lookups.take_ended(room, effects) {
            let Some(mut request) = self.waiting.remove(&stream) else {
                continue;
            };
            match ended {
                LookupOutcome::Found => {
                    request.has_followed = true;
                    self.go_on(request, now_ms, effects);
                }
                LookupOutcome::Unknown => self.tell_unknown(&request, effects),
                LookupOutcome::Failed => self.without_origin(request, None, now_ms, effects),
            }
        }
    }

    /// Continues a request after another request's lookup found the link. The cache now contains it, unless it has a
    /// click limit, which Redis counts.
    fn go_on(&mut self, request: LinkRequest, now_ms: u64, effects: &mut Effects) {
        let found = self.memory.find(&request.name, now_ms);
        if !matches!(found, MemoryFound::Link { .. }) {
            return self.ask_redis(request, now_ms, effects);
        }
        if let Some(request) = self.answer_known(request, Place::Memory, now_ms, effects) {
            self.ask_redis(request, now_ms, effects);
        }
    }

    // --- clicks

    /// Returns unused clicks to Redis.
    fn flush_unused(&mut self, now_ms: u64, effects: &mut Effects) {
        for unused in self.unused.take_due(now_ms) {
            let job = Job::Back(unused);
            self.redis.pump.enqueue_unowned(job, now_ms, effects);
        }
    }

    fn flush_clicks(&mut self, now_ms: u64, effects: &mut Effects) {
        self.send_clicks(|clicks| clicks.flush(now_ms), now_ms, effects);
    }

    /// Sends the batch that `next` returns, if clicks are counted.
    fn send_clicks(
        &mut self,
        next: impl FnOnce(&mut Clicks) -> Option<Job>,
        now_ms: u64,
        effects: &mut Effects,
    ) {
        if let Some(batch) = self.clicks.as_mut().and_then(next) {
            self.redis.pump.enqueue_unowned(batch, now_ms, effects);
        }
    }

    // --- edits and domains

    /// Handles the result of a poll. A failed poll changes no state; the first of several failures in a row is logged.
    fn take_poll(&mut self, polled: Result<PollResult, PollError>, effects: &mut Effects) {
        match polled {
            Ok(result) => self.apply_poll(result, effects),
            // Without requests, as on Envoy's main thread, an unreachable Redis is no problem.
            Err(_) if !self.held.has_begun() => {}
            Err(error) => {
                self.counters.polls_failed.increment();
                if self.poller.schedule.failed() {
                    let text =
                        format!("cannot read edits and domains, using the previous ones: {error}");
                    effects.log(Level::Warn, text);
                }
            }
        }
    }

    fn apply_poll(&mut self, result: PollResult, effects: &mut Effects) {
        if self.poller.schedule.succeeded() {
            effects.log(Level::Info, "edits and domains can be read again");
        }
        if result.has_missed || !result.changed.is_empty() {
            self.changes = self.changes.wrapping_add(1);
        }
        if result.has_missed {
            self.counters.changes_missed.increment();
            self.memory.revalidate_all();
        }
        self.counters.changes.add(result.changed.len());
        for name in &result.changed {
            self.memory.forget(name);
        }
        if let Some(document) = result.domains {
            self.take_domains(&document, effects);
        }
    }

    fn take_domains(&mut self, document: &[u8], effects: &mut Effects) {
        match self.sites.read(document) {
            Ok(()) => {
                self.counters.domains_loaded.increment();
                effects.log(Level::Info, "domains loaded from Redis");
            }
            Err(error) => {
                self.counters.polls_failed.increment();
                let text = format!("invalid domains in Redis, using the previous ones: {error}");
                effects.log(Level::Error, text);
            }
        }
    }
}
