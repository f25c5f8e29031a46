//! What is due on ticks, and what follows from the replies of Redis and of the origin.

use alloc::format;
use alloc::rc::Rc;
use alloc::vec::Vec;

use weir_engine::event::FetchResponse;
use weir_engine::pump::{BATCH_MAX, Completed, Pending};
use weir_engine::redis::{Definite, Failure, Reply, Unknown};
use weir_engine::{BatchId, Effects, FetchId, Level, StreamId};
use weir_link::answer::Answer;
use weir_link::record::Link;
use weir_resp::Value;
use weir_scripts::link_read::Read;
use weir_scripts::{link_clicks, link_read};

use crate::answer::respond;
use crate::clicks::Clicks;
use crate::job::{Job, ReadJob};
use crate::links::{LinkRequest, Links};
use crate::lookups::Ended;
use crate::metrics::{AnswerKind, Place};
use crate::origin::{self, relayed};
use crate::poll::PollResult;

impl Links {
    /// Does what is due, and answers at most [`BATCH_MAX`] requests.
    pub(crate) fn on_tick(&mut self, now_ms: u64, effects: &mut Effects) {
        self.poller.poll(now_ms, effects);
        self.flush_clicks(now_ms, effects);
        let completed = self.redis.pump.turn(now_ms, effects);
        let count: usize = completed.iter().map(|call| call.requests.len()).sum();
        self.apply(completed, now_ms, effects);
        self.tell_ended(BATCH_MAX.saturating_sub(count), now_ms, effects);
    }

    /// A call to Redis has ended.
    pub(crate) fn on_reply(
        &mut self,
        batch: BatchId,
        reply: Reply,
        now_ms: u64,
        effects: &mut Effects,
    ) {
        if self.poller.completed(batch) {
            self.read_poll(reply, effects);
            // It may have told that there is more to read.
            self.poller.poll(now_ms, effects);
        } else if let Some(completed) = self.redis.pump.on_reply(batch, reply, now_ms, effects) {
            self.apply(completed, now_ms, effects);
        }
    }

    /// A call to Redis could not be sent.
    pub(crate) fn on_not_sent(&mut self, batch: BatchId, effects: &mut Effects) {
        if self.poller.completed(batch) {
            self.read_poll(Err(Definite::NotSent.into()), effects);
        } else {
            self.redis.pump.not_sent(batch, effects);
        }
    }

    // --- Redis

    fn apply(&mut self, completed: Vec<Completed<Job>>, now_ms: u64, effects: &mut Effects) {
        for completed in completed {
            // Each call is of one request.
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
                let garbled = |_| Failure::from(Unknown::Garbled);
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
        }
    }

    /// A link was read, or not. `stream` waits for it, if its client has not gone.
    fn read_completed(
        &mut self,
        stream: Option<StreamId>,
        job: &ReadJob,
        read: Result<Option<Read>, Failure>,
        now_ms: u64,
        effects: &mut Effects,
    ) {
        let request = stream.and_then(|stream| self.waiting.remove(&stream));
        let link = match read {
            Ok(Some(read)) => self.decoded(read, effects),
            Ok(None) => {
                self.memory.drop_link(&job.name);
                None
            }
            Err(_) => {
                self.counters.redis_failed.increment();
                if let Some(request) = request {
                    self.without_redis(request, now_ms, effects);
                }
                return;
            }
        };
        match (link, request) {
            (Some((link, read)), request) => {
                self.found_in_redis(request, job, link, &read, now_ms, effects);
            }
            (None, Some(request)) => self.ask_origin(request, now_ms, effects),
            (None, None) => {}
        }
    }

    /// Redis has the link: it is answered, and remembered.
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
        // Redis does not count clicks of a disabled link, so it is never used up.
        let is_used_up = read.clicks_left == Some(0);
        if let Some(request) = request {
            self.answer_with(&request, &link, is_used_up, read.left_ms, now_ms, effects);
        }
        // While a link has clicks left, Redis counts each of them.
        let is_constant = read.clicks_left.is_none() || is_used_up;
        if is_constant && job.changes == self.changes {
            self.memory
                .learn(&job.name, link, is_used_up, read.left_ms, now_ms);
        }
    }

    /// Decodes a record. One that this version cannot read may be one that the origin can.
    fn decoded(&mut self, read: Read, effects: &mut Effects) -> Option<(Link, Read)> {
        match Link::decode(&read.record) {
            Ok(link) => Some((link, read)),
            Err(error) => {
                self.counters.records_refused.increment();
                effects.log(Level::Debug, format!("a record was refused: {error}"));
                None
            }
        }
    }

    // --- the origin

    /// A look-up has ended. The origin's response goes to the client at once; all other answers wait for a turn.
    pub(crate) fn on_fetched(
        &mut self,
        fetch: FetchId,
        response: Option<FetchResponse>,
        now_ms: u64,
        effects: &mut Effects,
    ) {
        let Some(lookup) = self.lookups.completed(fetch) else {
            return;
        };
        self.counters.lookups.increment();
        self.counters.found.increment(Place::Origin);
        let (told, ended) = match origin::Found::from(response) {
            origin::Found::Response(response) => {
                self.relay(lookup.owner, response, effects);
                (lookup.followers, Ended::Found)
            }
            origin::Found::Unknown => {
                if lookup.changes == self.changes {
                    self.memory.learn_unknown(&lookup.name, now_ms);
                }
                (lookup.everybody(), Ended::Unknown)
            }
            origin::Found::Failed => {
                self.counters.lookups_failed.increment();
                (lookup.everybody(), Ended::Failed)
            }
        };
        self.lookups.tell_later(told, ended, effects);
    }

    /// Passes the origin's response on, if the client has not gone.
    fn relay(&mut self, owner: Option<StreamId>, response: FetchResponse, effects: &mut Effects) {
        let Some(request) = owner.and_then(|stream| self.waiting.remove(&stream)) else {
            return;
        };
        self.counters.answers.increment(AnswerKind::Relayed);
        match relayed(response, request.visitor.fields().method) {
            Some(answer) => effects.respond(request.stream, Rc::new(answer)),
            None => respond(request.stream, Answer::NotAllowed.reply(), effects),
        }
    }

    /// Lets requests go on whose look-up has ended, at most `room` of them.
    fn tell_ended(&mut self, room: usize, now_ms: u64, effects: &mut Effects) {
        for (stream, ended) in self.lookups.take_ended(room, effects) {
            let Some(mut request) = self.waiting.remove(&stream) else {
                continue;
            };
            match ended {
                Ended::Found => {
                    request.has_followed = true;
                    self.ask_redis(request, now_ms, effects);
                }
                Ended::Unknown => self.answer_unknown(stream, &request.domain, effects),
                Ended::Failed => self.answer_unavailable(stream, effects),
            }
        }
    }

    // --- clicks

    fn flush_clicks(&mut self, now_ms: u64, effects: &mut Effects) {
        self.send_clicks(|clicks| clicks.flush(now_ms), now_ms, effects);
    }

    /// Sends the batch that `next` gives, if clicks are counted.
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

    /// A poll has ended. If it failed, what is known stays; the log says so once in a row.
    fn read_poll(&mut self, reply: Reply, effects: &mut Effects) {
        let result = self.poller.read(reply);
        match result {
            Ok(result) => self.apply_poll(result, effects),
            // Where no request comes, as on Envoy's main thread, Redis need not be reached.
            Err(_) if !self.is_serving => {}
            Err(error) => {
                self.counters.polls_failed.increment();
                if self.poller.schedule.failed() {
                    let text =
                        format!("edits and domains cannot be read, what is known stays: {error}");
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
                effects.log(Level::Info, "domains were read from Redis");
            }
            Err(error) => {
                self.counters.polls_failed.increment();
                let text = format!("domains in Redis refused, the last ones stay: {error}");
                effects.log(Level::Error, text);
            }
        }
    }
}
