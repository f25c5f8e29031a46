//! Group commit: requests that need Redis wait in their engine and go together.
//!
//! ```text
//! enqueue ─▶ waiting ─▶ batch (≤ 64 requests, one pipelined call) ─▶ outbox ─▶ completed
//! ```
//!
//! - The first request to wait asks for a turn, which comes in the next round of the host's event loop: what arrived in
//!   this round goes together, without a timer and without added latency.
//! - While a batch is under way, what arrives waits for it to complete, so that it goes together too. But a few that wait
//!   are enough for a second batch, and some more for a third, so that Redis works while the gateway does; a full one goes
//!   at once, several at a time; and one that is late holds nobody back.
//! - Where little is under way and was just before, a batch goes with the event of the request that completes it, without a
//!   turn.
//! - Every request completes exactly once, with a reply or a [`Failure`], at most two deadlines and 10 ms after it was
//!   enqueued: waiting ends with the first tick after the deadline, and a batch's call with the first tick after its
//!   oldest request's.
//! - The pump measures how fast Redis answers. It turns a request away at once that would be answered too late, and gives Redis
//!   no more than it can answer soon. Otherwise all requests would wait in a long queue, and Redis would work on requests that
//!   have been given up.
//! - A request whose stream has gone is forgotten; if it was sent, it still completes, without a stream.

mod pace;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use weir_base::resp::Value;
use weir_scripts::Call;

use self::pace::Pace;
use crate::effect::{BatchId, Effects, RedisId};
use crate::event::StreamId;
use crate::metrics::{Counter, Metrics};
use crate::redis::{DefiniteFailure, Failure, Reply, UnknownFailure, classify, is_noscript, read};
use crate::refusals::Refusals;

/// The most requests in one batch, and the most that complete in one event. To answer N paused requests from one callback
/// nests N deep inside Envoy; around 500 it overflows V8's stack and kills the VM.
pub const BATCH_MAX: usize = 64;

/// How many make a batch, by how many batches are under way: fewer would cost more calls and gain nothing. With more
/// under way only a full one goes.
const BATCH_MIN: [usize; 3] = [1, 4, 8];

/// With no more requests than these under way, and in the batch that ended last, a batch does not wait for a turn.
const FEW: usize = 4;

/// After so many milliseconds a batch is late: others no longer wait for it. Redis answers one in less than a
/// millisecond.
const LATE_MS: u64 = 5;

/// The shortest and the longest between ticks that watch over deadlines.
const TICK_MS_MIN: u64 = 10;
const TICK_MS_MAX: u64 = 500;

/// Limits of a pump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How long a request may wait, and how long a call may take: at least 1.
    pub deadline_ms: u64,
    /// The most batches under way at once: at least 1.
    pub batches_max: usize,
    /// The most requests that wait: beyond it, requests are turned away at once.
    pub waiting_max: usize,
}

/// One request to Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending<J> {
    /// The stream that waits; `None` if none does (any more).
    pub stream: Option<StreamId>,
    /// When it is given up, in milliseconds since the Unix epoch.
    pub deadline_ms: u64,
    /// What is asked.
    pub job: J,
}

/// One script call, and the requests that it decides, in the order of its replies.
#[derive(Clone, Debug)]
pub struct PlannedBatch<J> {
    /// The call.
    pub call: Call,
    /// The requests: at least one.
    pub requests: Vec<Pending<J>>,
}

/// Requests whose outcome is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompletedBatch<J> {
    /// The requests of one call, in the order of its replies.
    pub requests: Vec<Pending<J>>,
    /// The call's reply, never an error reply, or why there is none.
    pub outcome: Result<Value, Failure>,
}

/// How an engine turns requests into script calls.
pub trait Plan {
    /// What is asked.
    type Job;

    /// Groups requests into calls. Every request must be in exactly one call.
    fn plan(&self, requests: Vec<Pending<Self::Job>>, now_ms: u64) -> Vec<PlannedBatch<Self::Job>>;
}

/// This many requests may wait even if Redis is slow: their calls show when it is faster again.
const WAITING_MIN: usize = 16;

/// The first value of `under_way_max`, until the pump has measured Redis.
const UNDER_WAY_UNKNOWN: usize = 2 * BATCH_MAX;

/// The pump is full, or would answer the request too late: it did not take the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many requests wait for Redis")]
pub struct PumpFull;

/// What a pump counts, of calls that were sent.
#[derive(Clone, Debug)]
pub struct Counts {
    batches: Counter,
    commands: Counter,
    requests: Counter,
}

impl Counts {
    /// The counters `<name>_redis_batches_total`, `…_commands_total` and `…_requests_total`.
    pub fn new(metrics: &mut Metrics, name: &str) -> Self {
        let mut counter = |what: &str| metrics.counter(format!("{name}_redis_{what}_total"));
        Self {
            batches: counter("batches"),
            commands: counter("commands"),
            requests: counter("requests"),
        }
    }
}

impl Counts {
    fn add<J>(&self, batch: &Batch<J>) {
        self.batches.increment();
        self.commands.add(batch.calls.len());
        self.requests.add(batch.len);
    }

    /// The host did not send it.
    fn take_back<J>(&self, batch: &Batch<J>) {
        self.batches.take_back(1);
        self.commands.take_back(batch.calls.len());
        self.requests.take_back(batch.len);
    }
}

/// Whether a batch names its scripts by digest or spells them out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Spelling {
    Digest,
    Source,
}

#[derive(Debug)]
struct Batch<J> {
    calls: Vec<PlannedBatch<J>>,
    spelling: Spelling,
    sent_at_ms: u64,
    /// Whether it was as large as a batch could be.
    is_full: bool,
    /// How many requests it decides.
    len: usize,
}

/// The pump of one engine.
#[derive(Debug)]
pub struct Pump<P: Plan> {
    settings: Settings,
    redis: RedisId,
    plan: P,
    digests: BTreeMap<&'static str, String>,
    waiting: VecDeque<Pending<P::Job>>,
    batches: BTreeMap<BatchId, Batch<P::Job>>,
    outbox: VecDeque<CompletedBatch<P::Job>>,
    /// Whether a turn is to come anyway.
    is_woken: bool,
    /// Whether a turn has ever sent a batch.
    has_sent: bool,
    /// How many requests the batch had that ended last: how many a turn may gather.
    last_len: usize,
    pace: Pace,
    /// How many requests are in calls to Redis.
    under_way: usize,
    /// No batch goes while `under_way` is this or more: requests that wait here can still expire.
    under_way_max: usize,
    /// The most requests in one batch: Redis answers a batch as a whole, and only after the batch before it.
    batch_max: usize,
    counts: Counts,
    refusals: Refusals,
}

impl<P: Plan> Pump<P> {
    /// A pump that groups by `plan`.
    pub fn new(settings: Settings, plan: P, counts: Counts, refusals: Refusals) -> Self {
        Self {
            settings,
            redis: RedisId::default(),
            plan,
            digests: BTreeMap::new(),
            waiting: VecDeque::new(),
            batches: BTreeMap::new(),
            outbox: VecDeque::new(),
            is_woken: false,
            has_sent: false,
            last_len: 0,
            pace: Pace::default(),
            under_way: 0,
            under_way_max: UNDER_WAY_UNKNOWN,
            batch_max: BATCH_MAX,
            counts,
            refusals,
        }
    }

    /// The same, but for another Redis than the first.
    pub fn with_redis(self, redis: RedisId) -> Self {
        Self { redis, ..self }
    }

    /// Its limits.
    pub fn settings(&self) -> Settings {
        self.settings
    }

    /// What Redis has refused. Engines note refusals of their own calls here too, such as polls.
    pub fn refusals(&mut self) -> &mut Refusals {
        &mut self.refusals
    }

    /// How it groups.
    pub fn plan(&self) -> &P {
        &self.plan
    }

    /// How far apart ticks must be for a call that is not answered to be given up in time, in milliseconds.
    pub fn tick_ms(&self) -> u64 {
        (self.settings.deadline_ms / 4).clamp(TICK_MS_MIN, TICK_MS_MAX)
    }

    /// How many requests wait and were not sent.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Whether one more request could not wait, or would be answered too late.
    pub fn is_full(&self) -> bool {
        let waiting = self.waiting.len();
        waiting >= self.settings.waiting_max || waiting >= WAITING_MIN && self.is_late()
    }

    /// Whether one more request would be answered after three quarters of its deadline: the last quarter is a reserve.
    fn is_late(&self) -> bool {
        let wait_ms = self.pace.time_ms(self.waiting.len() + self.under_way);
        wait_ms.is_some_and(|wait_ms| wait_ms > self.settings.deadline_ms * 3 / 4)
    }

    /// Measures Redis by a batch that has ended, and adapts the limits.
    fn note_pace(&mut self, batch: &Batch<P::Job>, is_answered: bool, now_ms: u64) {
        self.last_len = batch.len;
        let answered = if is_answered { batch.len } else { 0 };
        self.pace
            .ended(answered, batch.is_full, batch.sent_at_ms, now_ms);
        let deadline_ms = self.settings.deadline_ms;
        self.batch_max = self.pace.in_ms(deadline_ms / 8, BATCH_MAX).max(1);
        if self.pace.is_known() {
            self.under_way_max = self.pace.in_ms(deadline_ms / 4, usize::MAX);
        }
    }

    /// Removes a batch that has ended.
    fn take_batch(&mut self, id: BatchId) -> Option<Batch<P::Job>> {
        let batch = self.batches.remove(&id)?;
        self.under_way -= batch.len;
        Some(batch)
    }

    /// Lets `stream` wait for `job`.
    ///
    /// # Errors
    /// [`PumpFull`] if too many wait already: answer at once.
    pub fn enqueue(
        &mut self,
        stream: StreamId,
        job: P::Job,
        now_ms: u64,
        effects: &mut Effects,
    ) -> Result<(), PumpFull> {
        if self.is_full() {
            return Err(PumpFull);
        }
        self.wait(Some(stream), job, now_ms);
        self.send_or_wake(now_ms, effects);
        Ok(())
    }

    fn send_or_wake(&mut self, now_ms: u64, effects: &mut Effects) {
        if self.may_send(now_ms) {
            match self.needs_turn() {
                true => self.wake(effects),
                false => self.send(Spelling::Digest, true, now_ms, effects),
            }
        }
    }

    /// Lets `stream` wait for several jobs, which go together as far as they can.
    ///
    /// # Errors
    /// As [`Pump::enqueue`]; then none of them waits.
    pub fn enqueue_all(
        &mut self,
        stream: StreamId,
        jobs: impl IntoIterator<Item = P::Job>,
        now_ms: u64,
        effects: &mut Effects,
    ) -> Result<(), PumpFull> {
        if self.is_full() {
            return Err(PumpFull);
        }
        for job in jobs {
            self.wait(Some(stream), job, now_ms);
        }
        self.send_or_wake(now_ms, effects);
        Ok(())
    }

    /// Lets `stream` wait once more, whatever waits already: it had its turn, and learned that it must ask again.
    pub fn enqueue_again(
        &mut self,
        stream: StreamId,
        job: P::Job,
        now_ms: u64,
        effects: &mut Effects,
    ) {
        self.push(Some(stream), job, now_ms, effects);
    }

    /// Lets `job` wait without a stream, whatever waits already: for what must be done, such as giving back. There are
    /// never more of these than requests that were sent.
    pub fn enqueue_unowned(&mut self, job: P::Job, now_ms: u64, effects: &mut Effects) {
        self.push(None, job, now_ms, effects);
    }

    fn push(&mut self, stream: Option<StreamId>, job: P::Job, now_ms: u64, effects: &mut Effects) {
        self.wait(stream, job, now_ms);
        if self.may_send(now_ms) {
            self.wake(effects);
        }
    }

    fn wait(&mut self, stream: Option<StreamId>, job: P::Job, now_ms: u64) {
        let deadline_ms = now_ms.saturating_add(self.settings.deadline_ms);
        self.waiting.push_back(Pending {
            stream,
            deadline_ms,
            job,
        });
    }

    fn wake(&mut self, effects: &mut Effects) {
        if !core::mem::replace(&mut self.is_woken, true) {
            effects.wake();
        }
    }

    /// Whether a batch should go now. If not, the next to complete sends what waits.
    fn may_send(&self, now_ms: u64) -> bool {
        let is_on_time = |batch: &&Batch<P::Job>| now_ms.abs_diff(batch.sent_at_ms) < LATE_MS;
        let under_way = self.batches.values().filter(is_on_time).count();
        let enough = BATCH_MIN.get(under_way).copied().unwrap_or(BATCH_MAX);
        let enough = enough.min(self.batch_max);
        let has_room =
            self.batches.len() < self.settings.batches_max && self.under_way < self.under_way_max;
        self.waiting.len() >= enough && (has_room || self.batches.is_empty())
    }

    /// Whether what waits goes in a turn. A turn costs time, and where few are under way it gathers nobody else; but clients
    /// that were answered together ask again together. The first batch of all takes its turn, with which ticks begin that watch
    /// over calls.
    fn needs_turn(&self) -> bool {
        self.is_woken || !self.has_sent || self.under_way.max(self.last_len) > FEW
    }

    /// The calls of the next batch, off what waits.
    fn take_calls(&mut self, now_ms: u64) -> Vec<PlannedBatch<P::Job>> {
        let count = self.waiting.len().min(self.batch_max);
        let requests = self.waiting.drain(..count).collect();
        self.plan.plan(requests, now_ms)
    }

    /// `stream` has gone. Its job, if it was not sent: what the engine did for it can be undone.
    pub fn forget(&mut self, stream: StreamId) -> Option<P::Job> {
        let is_its = |pending: &Pending<P::Job>| pending.stream == Some(stream);
        if let Some(index) = self.waiting.iter().position(is_its) {
            return self.waiting.remove(index).map(|pending| pending.job);
        }
        let batches = self.batches.values_mut();
        let sent = batches.flat_map(|batch| &mut batch.calls);
        let sent = sent.flat_map(|call| &mut call.requests);
        let completed = self.outbox.iter_mut();
        let completed = completed.flat_map(|completed| &mut completed.requests);
        if let Some(pending) = sent.chain(completed).find(|pending| is_its(pending)) {
            pending.stream = None;
        }
        None
    }

    /// Sends what waits and returns what has completed, at most [`BATCH_MAX`] requests or one call's. On ticks.
    pub fn flush(&mut self, now_ms: u64, effects: &mut Effects) -> Vec<CompletedBatch<P::Job>> {
        self.is_woken = false;
        self.expire(now_ms);
        while self.may_send(now_ms) {
            self.send(Spelling::Digest, false, now_ms, effects);
            self.has_sent = true;
        }
        self.deliver(now_ms, effects)
    }

    /// The call `batch` has ended. Returns `None` if it is not the pump's. Otherwise as [`Pump::flush`].
    pub fn on_reply(
        &mut self,
        id: BatchId,
        reply: Reply,
        now_ms: u64,
        effects: &mut Effects,
    ) -> Option<Vec<CompletedBatch<P::Job>>> {
        let batch = self.take_batch(id)?;
        self.note_pace(&batch, reply.is_ok(), now_ms);
        match read(reply, batch.calls.len()) {
            Ok(values) => self.complete(batch, values, now_ms, effects),
            Err(failure) => {
                self.note_refusal(&failure, &batch, now_ms, effects);
                self.fail(batch.calls, &failure);
            }
        }
        Some(self.flush(now_ms, effects))
    }

    /// Whether the call `batch` is the pump's.
    pub fn has(&self, id: BatchId) -> bool {
        self.batches.contains_key(&id)
    }

    /// The host could not send the call `batch`. Whether it was the pump's.
    pub fn not_sent(&mut self, id: BatchId, effects: &mut Effects) -> bool {
        let Some(batch) = self.take_batch(id) else {
            return false;
        };
        self.counts.take_back(&batch);
        self.fail(batch.calls, &DefiniteFailure::NotSent.into());
        self.wake(effects);
        true
    }

    /// The call `batch` has to wait for a turn. Whether it was the pump's.
    pub fn deferred(&mut self, id: BatchId, effects: &mut Effects) -> bool {
        let Some(batch) = self.take_batch(id) else {
            return false;
        };
        self.counts.take_back(&batch);
        let requests = batch.calls.into_iter().flat_map(|call| call.requests);
        self.waiting.extend(requests);
        let by_deadline = |pending: &Pending<P::Job>| pending.deadline_ms;
        self.waiting.make_contiguous().sort_by_key(by_deadline);
        self.wake(effects);
        true
    }

    /// Gives each call its reply; what Redis did not know by digest goes again, spelled out.
    fn complete(
        &mut self,
        batch: Batch<P::Job>,
        values: Vec<Value>,
        now_ms: u64,
        effects: &mut Effects,
    ) {
        let mut again = Vec::new();
        let mut values = values.into_iter();
        for planned in batch.calls {
            let outcome = match values.next() {
                Some(Value::Error(error))
                    if is_noscript(&error) && batch.spelling == Spelling::Digest =>
                {
                    let error = String::from_utf8_lossy(&error);
                    let (script, requests) = (planned.call.script.name, planned.requests.len());
                    self.refusals
                        .note_unknown_script(&error, script, requests, now_ms, effects);
                    again.push(planned);
                    continue;
                }
                Some(Value::Error(error)) => {
                    let failure = classify(&error);
                    if let Some(error) = failure.refusal() {
                        let (script, requests) = (planned.call.script.name, planned.requests.len());
                        self.refusals.note(error, script, requests, now_ms, effects);
                    }
                    Err(failure)
                }
                Some(value) => Ok(value),
                None => Err(UnknownFailure::Garbled.into()),
            };
            self.outbox.push_back(CompletedBatch {
                requests: planned.requests,
                outcome,
            });
        }
        if !again.is_empty() {
            self.send_calls(again, Spelling::Source, false, now_ms, effects);
        }
    }

    /// A whole batch has failed: if Redis refused the login, it refused each request.
    fn note_refusal(
        &mut self,
        failure: &Failure,
        batch: &Batch<P::Job>,
        now_ms: u64,
        effects: &mut Effects,
    ) {
        if let Some(error) = failure.refusal() {
            self.refusals
                .note(error, "AUTH", batch.len, now_ms, effects);
        }
    }

    fn fail(&mut self, calls: Vec<PlannedBatch<P::Job>>, failure: &Failure) {
        let completed = calls.into_iter().map(|planned| CompletedBatch {
            requests: planned.requests,
            outcome: Err(failure.clone()),
        });
        self.outbox.extend(completed);
    }

    /// Sends the next batch.
    fn send(&mut self, spelling: Spelling, at_once: bool, now_ms: u64, effects: &mut Effects) {
        let calls = self.take_calls(now_ms);
        self.send_calls(calls, spelling, at_once, now_ms, effects);
    }

    fn send_calls(
        &mut self,
        calls: Vec<PlannedBatch<P::Job>>,
        spelling: Spelling,
        at_once: bool,
        now_ms: u64,
        effects: &mut Effects,
    ) {
        let timeout_ms = self.time_left_ms(&calls, now_ms);
        let len: usize = calls.iter().map(|planned| planned.requests.len()).sum();
        let is_full = len >= self.batch_max;
        let digests = &mut self.digests;
        let write = |body: &mut Vec<u8>| {
            for planned in &calls {
                encode(digests, &planned.call, spelling, body);
            }
        };
        let id = effects.call_to(self.redis, timeout_ms, now_ms, at_once, write);
        let batch = Batch {
            calls,
            spelling,
            sent_at_ms: now_ms,
            is_full,
            len,
        };
        self.under_way += len;
        self.counts.add(&batch);
        self.batches.insert(id, batch);
    }

    /// Until the first deadline in a batch. Never more than one deadline's length, even if the clock was set back since.
    fn time_left_ms(&self, calls: &[PlannedBatch<P::Job>], now_ms: u64) -> u64 {
        calls
            .iter()
            .flat_map(|planned| &planned.requests)
            .map(|pending| pending.deadline_ms.saturating_sub(now_ms))
            .min()
            .unwrap_or(0)
            .clamp(1, self.settings.deadline_ms)
    }

    /// Gives up what has waited past its deadline. Deadlines are in order unless the clock was set: what stands behind
    /// such a request waits until that one's.
    fn expire(&mut self, now_ms: u64) {
        while let Some(first) = self.waiting.front()
            && first.deadline_ms <= now_ms
        {
            let requests = self.waiting.drain(..1).collect();
            let outcome = Err(DefiniteFailure::Expired.into());
            self.outbox.push_back(CompletedBatch { requests, outcome });
        }
    }

    fn deliver(&mut self, now_ms: u64, effects: &mut Effects) -> Vec<CompletedBatch<P::Job>> {
        let mut completed = Vec::new();
        let mut requests = 0;
        while let Some(next) = self.outbox.front() {
            requests += next.requests.len();
            if requests > BATCH_MAX && !completed.is_empty() {
                break;
            }
            completed.extend(self.outbox.pop_front());
        }
        if !self.outbox.is_empty() || self.may_send(now_ms) {
            self.wake(effects);
        }
        completed
    }
}

fn encode(
    digests: &mut BTreeMap<&'static str, String>,
    call: &Call,
    spelling: Spelling,
    body: &mut Vec<u8>,
) {
    match spelling {
        Spelling::Source => call.encode_eval(body),
        Spelling::Digest => {
            let digest = || call.script.sha1_hex();
            let digest = digests.entry(call.script.name).or_insert_with(digest);
            call.encode_evalsha(digest, body);
        }
    }
}

#[cfg(test)]
mod tests;
