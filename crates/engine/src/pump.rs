//! Group commit: requests that need Redis wait in their engine and are sent in batches.
//!
//! ```text
//! enqueue ─▶ waiting ─▶ batch (≤ 64 requests, one pipelined call) ─▶ outbox ─▶ completed
//! ```
//!
//! - The first waiting request requests a turn in the next round of the host's event loop. All requests of this round
//!   form one batch, without a timer or added latency.
//! - While a batch is pending, new requests wait for its completion, so that they form one batch, too. A few waiting
//!   requests are enough for a second batch and more for a third, so that Redis and the gateway work in parallel. A
//!   full batch is sent at once, several at a time. A late batch delays no other batch.
//! - If few requests are pending, and few were in the last batch, a batch is sent within the request's event, without a
//!   turn.
//! - Every request completes exactly once, with a reply or a [`Failure`], at most two deadlines and 10 ms after it was
//!   enqueued. Waiting ends at the first tick after the deadline. A batch's call ends at the first tick after the
//!   deadline of its oldest request.
//! - The pump measures how fast Redis replies. It rejects a request immediately if the answer would be too late, and
//!   limits the load on Redis. Otherwise all requests would wait in a long queue, and Redis would process requests that
//!   have timed out.
//! - A request whose stream has ended is removed; if it was sent, it completes without a stream.

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
use crate::metrics::{Counter, DurationHistogram, Metrics};
use crate::redis::{DefiniteFailure, Failure, Reply, UnknownFailure, classify, is_noscript, read};
use crate::refusals::Refusals;

/// The maximum number of requests in one batch, and of completions in one event. Answering N paused requests in one
/// callback nests N deep inside Envoy; around 500 overflow V8's stack and crash the VM.
pub const BATCH_MAX: usize = 64;

/// The minimum size of a batch by the number of pending batches: smaller ones would cost more calls without a benefit.
/// With more pending batches, only a full batch is sent.
const BATCH_MIN: [usize; 3] = [1, 4, 8];

/// With at most this many requests pending, and in the last batch, a batch does not wait for a turn.
const FEW: usize = 4;

/// After this many milliseconds a batch is late, and others no longer wait for it. Redis usually replies in less than a
/// millisecond.
const LATE_MS: u64 = 5;

/// The minimum and maximum interval between ticks that check deadlines.
const TICK_MS_MIN: u64 = 10;
const TICK_MS_MAX: u64 = 500;

/// Limits of a pump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The maximum time of a request in the queue, and of a call: at least 1.
    pub deadline_ms: u64,
    /// The maximum number of pending batches: at least 1.
    pub batches_max: usize,
    /// The maximum number of waiting requests; the pump rejects further ones immediately.
    pub waiting_max: usize,
}

/// One request to Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending<J> {
    /// The waiting stream; `None` if no stream waits.
    pub stream: Option<StreamId>,
    /// When it times out, in milliseconds since the Unix epoch.
    pub deadline_ms: u64,
    /// The engine's job.
    pub job: J,
}

/// One script call with its requests, in the order of its replies.
#[derive(Clone, Debug)]
pub struct PlannedBatch<J> {
    /// The call.
    pub call: Call,
    /// The requests: at least one.
    pub requests: Vec<Pending<J>>,
}

/// Requests with an outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompletedBatch<J> {
    /// The requests of one call, in the order of its replies.
    pub requests: Vec<Pending<J>>,
    /// The call's reply, never an error reply, or the failure.
    pub outcome: Result<Value, Failure>,
}

/// Converts requests into script calls.
pub trait Plan {
    /// The engine's job.
    type Job;

    /// Groups requests into calls. Every request must be in exactly one call.
    fn plan(&self, requests: Vec<Pending<Self::Job>>, now_ms: u64) -> Vec<PlannedBatch<Self::Job>>;
}

/// This many requests may wait even if Redis is slow: their calls detect its recovery.
const WAITING_MIN: usize = 16;

/// The first value of `under_way_max`, until the pump has measured Redis.
const UNDER_WAY_UNKNOWN: usize = 2 * BATCH_MAX;

/// The pump is full, or the answer would be too late. The pump did not accept the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many requests wait for Redis")]
pub struct PumpFull;

/// Counters of sent calls.
#[derive(Clone, Debug)]
pub struct Counts {
    batches: Counter,
    commands: Counter,
    requests: Counter,
    /// For each batch, how long its oldest request has waited for the reply.
    seconds: DurationHistogram,
}

impl Counts {
    /// The counters `<name>_redis_batches_total`, `…_commands_total` and `…_requests_total`, and the histogram
    /// `<name>_redis_seconds`.
    pub fn new(metrics: &mut Metrics, name: &str) -> Self {
        let mut counter = |subject: &str| metrics.counter(format!("{name}_redis_{subject}_total"));
        Self {
            batches: counter("batches"),
            commands: counter("commands"),
            requests: counter("requests"),
            seconds: DurationHistogram::new(metrics, &format!("{name}_redis")),
        }
    }
}

impl Counts {
    fn add<J>(&self, batch: &Batch<J>) {
        self.batches.increment();
        self.commands.add(batch.calls.len());
        self.requests.add(batch.len);
    }

    /// Subtracts a batch that the host did not send.
    fn take_back<J>(&self, batch: &Batch<J>) {
        self.batches.take_back(1);
        self.commands.take_back(batch.calls.len());
        self.requests.take_back(batch.len);
    }
}

/// Whether a batch refers to its scripts by digest or contains their text.
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
    /// How long its oldest request had waited before.
    queued_ms: u64,
    /// Whether it had the maximum size.
    is_full: bool,
    /// The number of its requests.
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
    /// Whether a turn was already requested.
    is_woken: bool,
    /// Whether a turn has ever sent a batch.
    has_sent: bool,
    /// The size of the last batch: an estimate of how many requests a turn gathers.
    last_len: usize,
    pace: Pace,
    /// The number of requests in pending calls.
    under_way: usize,
    /// No batch is sent while `under_way` is at least this: requests in the pump can still expire.
    under_way_max: usize,
    /// The maximum size of a batch. Redis replies to a batch as a whole, and only after the previous batch.
    batch_max: usize,
    counts: Counts,
    refusals: Refusals,
}

impl<P: Plan> Pump<P> {
    /// A pump that groups requests by `plan`.
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

    /// Selects a Redis other than the first.
    pub fn with_redis(self, redis: RedisId) -> Self {
        Self { redis, ..self }
    }

    /// Its limits.
    pub fn settings(&self) -> Settings {
        self.settings
    }

    /// The refusals by Redis. Engines also record refusals of their own calls here, such as polls.
    pub fn refusals(&mut self) -> &mut Refusals {
        &mut self.refusals
    }

    /// Its plan.
    pub fn plan(&self) -> &P {
        &self.plan
    }

    /// The maximum interval between ticks, in milliseconds, so that unanswered calls time out in time.
    pub fn tick_ms(&self) -> u64 {
        (self.settings.deadline_ms / 4).clamp(TICK_MS_MIN, TICK_MS_MAX)
    }

    /// The number of waiting requests.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Whether the pump would reject a further request, because it is full or would answer too late.
    pub fn is_full(&self) -> bool {
        let waiting = self.waiting.len();
        waiting >= self.settings.waiting_max || waiting >= WAITING_MIN && self.is_late()
    }

    /// Whether a further request would complete after three quarters of its deadline: the last quarter is a reserve.
    fn is_late(&self) -> bool {
        let wait_ms = self.pace.time_ms(self.waiting.len() + self.under_way);
        wait_ms.is_some_and(|wait_ms| wait_ms > self.settings.deadline_ms * 3 / 4)
    }

    /// Measures Redis by an ended batch, and adjusts the limits.
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

    /// Removes an ended batch.
    fn take_batch(&mut self, id: BatchId) -> Option<Batch<P::Job>> {
        let batch = self.batches.remove(&id)?;
        self.under_way -= batch.len;
        Some(batch)
    }

    /// Enqueues `job` for `stream`.
    ///
    /// # Errors
    /// [`PumpFull`] if too many requests wait or the answer would be too late: answer at once.
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

    /// Enqueues several jobs for `stream`, which share batches as far as possible.
    ///
    /// # Errors
    /// Like [`Pump::enqueue`]; then no job is enqueued.
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

    /// Enqueues another job for a stream whose first job has completed, regardless of the limits.
    pub fn enqueue_again(
        &mut self,
        stream: StreamId,
        job: P::Job,
        now_ms: u64,
        effects: &mut Effects,
    ) {
        self.push(Some(stream), job, now_ms, effects);
    }

    /// Enqueues `job` without a stream, regardless of the limits: for mandatory work, such as releases. There are never
    /// more of these than requests that were sent.
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

    /// Whether a batch should be sent now. Otherwise the next completed batch triggers one.
    fn may_send(&self, now_ms: u64) -> bool {
        let is_on_time = |batch: &&Batch<P::Job>| now_ms.abs_diff(batch.sent_at_ms) < LATE_MS;
        let under_way = self.batches.values().filter(is_on_time).count();
        let enough = BATCH_MIN.get(under_way).copied().unwrap_or(BATCH_MAX);
        let enough = enough.min(self.batch_max);
        let has_room =
            self.batches.len() < self.settings.batches_max && self.under_way < self.under_way_max;
        self.waiting.len() >= enough && (has_room || self.batches.is_empty())
    }

    /// Whether the batch must wait for a turn. A turn costs time and gathers nothing if few requests are pending. But
    /// clients that were answered together return together. The first batch always needs a turn, which starts the ticks
    /// that check deadlines.
    fn needs_turn(&self) -> bool {
        self.is_woken || !self.has_sent || self.under_way.max(self.last_len) > FEW
    }

    /// Takes the calls of the next batch from the queue.
    fn take_calls(&mut self, now_ms: u64) -> Vec<PlannedBatch<P::Job>> {
        let count = self.waiting.len().min(self.batch_max);
        let requests = self.waiting.drain(..count).collect();
        self.plan.plan(requests, now_ms)
    }

    /// Removes a stream that has ended. Returns its job if it was not sent, so that the engine can undo its
    /// preparations.
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

    /// Sends waiting requests and returns completed ones: at most [`BATCH_MAX`] requests or those of one call. For
    /// ticks.
    pub fn flush(&mut self, now_ms: u64, effects: &mut Effects) -> Vec<CompletedBatch<P::Job>> {
        self.is_woken = false;
        self.expire(now_ms);
        while self.may_send(now_ms) {
            self.send(Spelling::Digest, false, now_ms, effects);
            self.has_sent = true;
        }
        self.deliver(now_ms, effects)
    }

    /// Handles the end of the call `batch`. Returns `None` if it is not the pump's; otherwise like [`Pump::flush`].
    pub fn on_reply(
        &mut self,
        id: BatchId,
        reply: Reply,
        now_ms: u64,
        effects: &mut Effects,
    ) -> Option<Vec<CompletedBatch<P::Job>>> {
        let batch = self.take_batch(id)?;
        let sent_ms = now_ms.saturating_sub(batch.sent_at_ms);
        self.counts.seconds.record_ms(batch.queued_ms + sent_ms);
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

    /// Whether the call `batch` belongs to the pump.
    pub fn has(&self, id: BatchId) -> bool {
        self.batches.contains_key(&id)
    }

    /// Handles a call that the host could not send. Returns whether it belongs to the pump.
    pub fn not_sent(&mut self, id: BatchId, effects: &mut Effects) -> bool {
        let Some(batch) = self.take_batch(id) else {
            return false;
        };
        self.counts.take_back(&batch);
        self.fail(batch.calls, &DefiniteFailure::NotSent.into());
        self.wake(effects);
        true
    }

    /// Handles a call that must wait for a turn. Returns whether it belongs to the pump.
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

    /// Assigns the replies to the calls. Resends scripts that Redis does not know by digest, with their text.
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

    /// Records a failed batch: a refused login refuses each request.
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
            queued_ms: self.settings.deadline_ms - timeout_ms,
            is_full,
            len,
        };
        self.under_way += len;
        self.counts.add(&batch);
        self.batches.insert(id, batch);
    }

    /// The time until the first deadline in a batch: at most the length of one deadline, even if the clock was set
    /// back.
    fn time_left_ms(&self, calls: &[PlannedBatch<P::Job>], now_ms: u64) -> u64 {
        calls
            .iter()
            .flat_map(|planned| &planned.requests)
            .map(|pending| pending.deadline_ms.saturating_sub(now_ms))
            .min()
            .unwrap_or(0)
            .clamp(1, self.settings.deadline_ms)
    }

    /// Completes requests that have waited past their deadline. Deadlines are ordered unless the clock was set: then
    /// later requests wait until the first one expires.
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
