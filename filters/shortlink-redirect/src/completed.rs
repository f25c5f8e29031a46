//! What comes of the replies of Redis and of the origin, and what is due on ticks.

use std::time::Duration;

use proxy_wasm::hostcalls;
use weir_filter_kit::link::Link as _;
use weir_filter_kit::pump::{Completed, PendingRequest};
use weir_filter_kit::redis::{Failure, Reply, Unknown, read};
use weir_link::cache::LinkName;
use weir_link::record::Link;
use weir_resp::Value;
use weir_scripts::link_read::Read;
use weir_scripts::{link_clicks, link_read};

use crate::NAME;
use crate::answer::send_unavailable;
use crate::config::OriginConfig;
use crate::job::{Job, ReadJob};
use crate::links::{LinkRequest, Links};
use crate::metrics::{AnswerKind, Clicks, From};
use crate::origin_lookups::{Ended, Lookup};
use crate::poll::PollResult;
use crate::relay::{self, Answered};

/// How long a poll may take, in milliseconds.
const POLL_TIMEOUT_MS: u64 = 1_000;

/// When whoever could not be answered may ask again, in milliseconds.
const RETRY_MS: u64 = 1_000;

impl Links {
    /// Does what is due. The root context is effective, and may not be afterwards.
    pub(crate) fn turn(&mut self, now_ms: u64) {
        self.poll(now_ms);
        self.flush(now_ms);
        let completed = self.redis.pump.turn(now_ms);
        self.apply(completed, now_ms);
        self.send_lookups(now_ms);
    }

    /// The response to the call `token` to the origin has come. As [`Links::turn`].
    pub(crate) fn on_http_response(
        &mut self,
        token: u32,
        headers: usize,
        body: usize,
        now_ms: u64,
    ) {
        if let Some(lookup) = self.lookups.completed(token) {
            self.looked_up(lookup, relay::read(headers, body), now_ms);
            self.send_lookups(now_ms);
        }
    }

    /// The call `token` to Redis has ended. As [`Links::turn`].
    pub(crate) fn on_reply(&mut self, token: u32, reply: Reply, now_ms: u64) {
        if self.poller.schedule.completed(token) {
            self.read_poll(reply);
            // It may have told that there is more to read.
            return self.poll(now_ms);
        }
        let read = |commands| read(reply, commands);
        if let Some(completed) = self.redis.pump.on_reply(token, read, now_ms) {
            self.apply(completed, now_ms);
            self.send_lookups(now_ms);
        }
    }

    fn apply(&mut self, completed: Vec<Completed<Job>>, now_ms: u64) {
        self.metrics.sent(self.redis.pump.take_counts());
        for completed in completed {
            // Each call is of one request.
            for request in completed.requests {
                self.apply_one(request, &completed.outcome, now_ms);
            }
        }
        self.metrics.evictions.add(self.memory.take_evictions());
    }

    fn apply_one(
        &mut self,
        request: PendingRequest<Job>,
        outcome: &Result<Value, Failure>,
        now_ms: u64,
    ) {
        match request.job {
            Job::Read(job) => {
                let garbled = |_| Failure::from(Unknown::Garbled);
                let read = outcome.as_ref().map_err(Clone::clone);
                let read = read.and_then(|value| link_read::parse(value).map_err(garbled));
                self.redis
                    .record(job.pass, read.is_ok(), &self.metrics, now_ms);
                self.read_completed(request.owner, &job, read, now_ms);
            }
            Job::Clicks { .. } => {
                let is_taken = outcome
                    .as_ref()
                    .is_ok_and(|value| link_clicks::parse(value).is_ok());
                self.clicks_completed(is_taken, now_ms);
            }
        }
    }

    fn read_completed(
        &mut self,
        owner: Option<u32>,
        job: &ReadJob,
        read: Result<Option<Read>, Failure>,
        now_ms: u64,
    ) {
        let link = match read {
            Ok(Some(read)) => self.decoded(read),
            Ok(None) => {
                self.memory.drop_link(&job.name);
                None
            }
            Err(failure) => {
                log::debug!("{NAME}: a link was not read: {failure}");
                self.metrics.redis_failed.increment();
                return self.go_on(owner, job.name, now_ms, |links, asking| {
                    links.without_redis(asking, job.is_second);
                });
            }
        };
        let Some((link, read)) = link else {
            return self.go_on(owner, job.name, now_ms, |links, asking| {
                links.ask_origin(asking, job.is_second);
            });
        };
        self.metrics.found(From::Redis);
        // A disabled link is not counted, so clicks are nothing that it could be out of.
        let is_used_up = read.clicks_left == Some(0);
        self.go_on(owner, job.name, now_ms, |links, asking| {
            links.answer_with(&link, is_used_up, read.left_ms, &asking);
        });
        // Of a link with clicks left each one is Redis' to count.
        let is_constant = read.clicks_left.is_none() || is_used_up;
        if is_constant && job.changes == self.changes {
            self.memory
                .learn(&job.name, link, is_used_up, read.left_ms, now_ms);
        }
    }

    /// What is no record may be a link to an origin of another version.
    fn decoded(&mut self, read: Read) -> Option<(Link, Read)> {
        match Link::decode(&read.record) {
            Ok(link) => Some((link, read)),
            Err(error) => {
                self.metrics.records_refused.increment();
                log::debug!("{NAME}: a record was refused: {error}");
                None
            }
        }
    }

    /// Lets a request that has waited go on, if it is still there.
    fn go_on(
        &mut self,
        owner: Option<u32>,
        name: LinkName,
        now_ms: u64,
        act: impl FnOnce(&mut Self, LinkRequest<'_>),
    ) {
        let Some(owner) = owner else { return };
        let Some(headers) = self.select(owner) else {
            return;
        };
        let fields = crate::request::Fields::of(&headers);
        // The domain may have gone since.
        let Some(domain) = self.sites.find(fields.host) else {
            self.metrics.answered(AnswerKind::Unavailable);
            return send_unavailable(RETRY_MS);
        };
        act(
            self,
            LinkRequest {
                owner,
                name,
                domain: &domain,
                fields,
                now_ms,
            },
        );
    }

    // --- the origin

    /// Sends look-ups, and lets those go on whose link was looked up for another one.
    fn send_lookups(&mut self, now_ms: u64) {
        let unsent = self.lookups.send(dispatch);
        for lookup in unsent {
            self.looked_up(lookup, Answered::Failed, now_ms);
        }
        for (owner, name, ended) in self.lookups.take_ended() {
            self.go_on(Some(owner), name, now_ms, |links, asking| match ended {
                Ended::Found => {
                    links.ask_redis(asking, true);
                }
                Ended::Unknown => {
                    links.unknown(asking.domain);
                }
                Ended::Failed => links.unavailable(),
            });
        }
        if self.lookups.has_work() {
            self.redis.pump.link().wake();
        }
    }

    fn looked_up(&mut self, lookup: Lookup, answered: Answered, now_ms: u64) {
        self.metrics.lookups.increment();
        self.metrics.found(From::Origin);
        let ended = match &answered {
            Answered::Response(_) => Ended::Found,
            Answered::Unknown => Ended::Unknown,
            Answered::Failed => Ended::Failed,
        };
        if ended == Ended::Unknown && lookup.changes == self.changes {
            self.memory.learn_unknown(&lookup.name, now_ms);
        }
        if ended == Ended::Failed {
            self.metrics.lookups_failed.increment();
        }
        let method = lookup.method;
        self.go_on(
            lookup.owner,
            lookup.name,
            now_ms,
            |links, asking| match answered {
                Answered::Response(response) => {
                    links.metrics.answered(AnswerKind::Relayed);
                    response.send(method);
                }
                Answered::Unknown => {
                    links.unknown(asking.domain);
                }
                Answered::Failed => links.unavailable(),
            },
        );
        self.lookups.tell(lookup.name, lookup.followers, ended);
    }

    fn unavailable(&self) {
        self.metrics.answered(AnswerKind::Unavailable);
        send_unavailable(RETRY_MS);
    }

    // --- clicks

    /// Makes a batch of what was counted, if that is due.
    fn flush(&mut self, now_ms: u64) {
        let (Some(click_buffer), Some(config)) = (&mut self.click_buffer, &self.config.clicks)
        else {
            return;
        };
        // A clock that was set back must not put it off.
        let is_due = now_ms >= self.flush_due_ms || self.flush_due_ms - now_ms > config.flush_ms;
        if !is_due {
            return;
        }
        self.flush_due_ms = now_ms + config.flush_ms;
        click_buffer.close();
        self.metrics
            .clicks(Clicks::Dropped, click_buffer.take_dropped());
        self.send_clicks(now_ms);
    }

    fn send_clicks(&mut self, now_ms: u64) {
        let Some(batch) = self
            .click_buffer
            .as_mut()
            .and_then(|click_buffer| click_buffer.send_next())
        else {
            return;
        };
        let job = Job::Clicks {
            id: batch.id,
            payload: batch.payload.clone(),
        };
        self.redis.pump.enqueue_unowned(job, now_ms);
    }

    /// A batch was taken, or may not have been: then it goes again when the next one is due.
    fn clicks_completed(&mut self, is_taken: bool, now_ms: u64) {
        let Some(click_buffer) = &mut self.click_buffer else {
            return;
        };
        match is_taken {
            true => {
                let clicks = click_buffer.arrived();
                self.metrics.clicks(Clicks::Sent, clicks);
                self.send_clicks(now_ms);
            }
            false => click_buffer.failed(),
        }
    }

    // --- edits and domains

    fn poll(&mut self, now_ms: u64) {
        if !self.poller.schedule.is_due(now_ms) {
            return;
        }
        let body = self.poller.body(&self.config.redis.key_prefix);
        match self.redis.pump.link().send(&body, POLL_TIMEOUT_MS, now_ms) {
            Ok(token) => self.poller.schedule.sent(token),
            Err(definite) => self.poll_failed(&definite.to_string()),
        }
    }

    fn read_poll(&mut self, reply: Reply) {
        let replies = read(reply, self.poller.commands());
        let result = replies
            .map_err(|failure| failure.to_string())
            .and_then(|replies| {
                self.poller
                    .read(&replies)
                    .map_err(|error| error.to_string())
            });
        match result {
            Ok(result) => self.apply_poll(result),
            Err(reason) => self.poll_failed(&reason),
        }
    }

    fn apply_poll(&mut self, result: PollResult) {
        if std::mem::take(&mut self.is_poll_failing) {
            log::info!("{NAME}: edits and domains can be read again");
        }
        if result.has_missed || !result.changed.is_empty() {
            self.changes = self.changes.wrapping_add(1);
        }
        if result.has_missed {
            self.metrics.changes_missed.increment();
            self.memory.revalidate_all();
        }
        self.metrics.changes.add(result.changed.len());
        result
            .changed
            .iter()
            .for_each(|name| self.memory.forget(name));
        if let Some(document) = result.domains {
            self.take_domains(&document);
        }
    }

    fn take_domains(&mut self, document: &[u8]) {
        match self.sites.read(document) {
            Ok(()) => {
                self.metrics.domains_loaded.increment();
                log::info!("{NAME}: domains were read from Redis");
            }
            Err(error) => {
                self.metrics.polls_failed.increment();
                log::error!("{NAME}: domains in Redis refused, the last ones stay: {error}");
            }
        }
    }

    /// What is known stays; the log says so once, not with every poll.
    fn poll_failed(&mut self, reason: &str) {
        if !self.is_serving {
            return;
        }
        self.metrics.polls_failed.increment();
        if !std::mem::replace(&mut self.is_poll_failing, true) {
            log::warn!("{NAME}: edits cannot be heard of, what is known stays: {reason}");
        }
    }
}

/// Sends a look-up, from a callback of the root context.
fn dispatch(config: &OriginConfig, headers: &[(&'static str, String)]) -> Option<u32> {
    let headers = headers.iter().map(|(name, value)| (*name, value.as_str()));
    let timeout = Duration::from_millis(config.timeout_ms);
    hostcalls::dispatch_http_call(&config.cluster, headers.collect(), None, vec![], timeout).ok()
}
