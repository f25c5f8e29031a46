//! Group commit: requests that need Redis wait in their VM, and the root context sends them
//! together.
//!
//! ```text
//! enqueue ─▶ waiting ─▶ batch (≤ 64 requests, one pipelined call) ─▶ outbox ─▶ completed
//! ```
//!
//! - The first request to wait wakes the root context, which runs in the next turn of the event
//!   loop: what arrived in this turn goes together, without a timer and without added latency.
//! - While a batch is under way, what arrives waits for it to complete, so that it goes together too. But a few
//!   that wait are enough for a second batch, and some more for a third, so that Redis works while the gateway does;
//!   a full one goes at once, several at a time; and one that is late holds nobody back.
//! - Where little is under way, a batch goes from the callback of the request that completes it, without a turn.
//! - Every request completes exactly once, with a reply or a [`Failure`], at most two deadlines and
//!   10 ms after it was enqueued: waiting ends with the first tick behind the deadline, and a batch's call with that
//!   behind its oldest request's.
//! - An owner that has gone is forgotten; its request still completes, without an owner, if it was sent.
//!
//! The pump calls nothing but its [`Link`]: time comes in as `now_ms`.

use std::collections::{BTreeMap, VecDeque};

use weir_resp::Value;
use weir_scripts::Call;

use crate::link::Link;
use crate::redis::{Definite, Failure, Unknown, classify, is_noscript};

/// The most requests in one batch, and the most that complete in one callback. To answer N paused
/// requests from one callback nests N deep inside Envoy; around 500 it overflows V8's stack and
/// kills the VM.
pub const BATCH_MAX: usize = 64;

/// How many make a batch, by how many are under way: fewer would cost more calls and gain nothing. With more under way
/// only a full one goes.
const BATCH_MIN: [usize; 3] = [1, 4, 8];

/// With no more requests than these under way, a batch does not wait for a turn.
const FEW: usize = 4;

/// After so many milliseconds a batch is late: others no longer wait for it. Redis answers a batch
/// in less than one.
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

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingRequest<J> {
    /// The HTTP context that waits; `None` if nobody does (any more).
    pub owner: Option<u32>,
    /// When it is given up, in milliseconds since the Unix epoch.
    pub deadline_ms: u64,
    /// What is asked.
    pub job: J,
}

/// One script call, and the requests that it decides, in the order of its replies.
#[derive(Clone, Debug)]
pub struct Planned<J> {
    /// The call.
    pub call: Call,
    /// The requests: at least one.
    pub requests: Vec<PendingRequest<J>>,
}

/// Requests whose outcome is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completed<J> {
    /// The requests of one call, in the order of its replies.
    pub requests: Vec<PendingRequest<J>>,
    /// The call's reply, never an error reply, or why there is none.
    pub outcome: Result<Value, Failure>,
}

/// How a filter turns requests into script calls.
pub trait Plan {
    /// What is asked.
    type Job;

    /// Groups requests into calls. Every request must be in exactly one call.
    fn plan(
        &self,
        requests: Vec<PendingRequest<Self::Job>>,
        now_ms: u64,
    ) -> Vec<Planned<Self::Job>>;
}

/// The pump was full: the request was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many requests wait for Redis")]
pub struct Full;

/// What a pump has done, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Calls sent.
    pub batches: usize,
    /// Commands in them.
    pub commands: usize,
    /// Requests in them.
    pub requests: usize,
}

/// Whether a batch names its scripts by digest or spells them out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Spelling {
    Digest,
    Source,
}

struct Batch<J> {
    calls: Vec<Planned<J>>,
    spelling: Spelling,
    sent_at_ms: u64,
}

/// How many requests are in these calls.
fn count<J>(calls: &[Planned<J>]) -> usize {
    calls.iter().map(|planned| planned.requests.len()).sum()
}

/// The pump of one VM.
pub struct Pump<P: Plan, L> {
    settings: Settings,
    plan: P,
    link: L,
    digests: BTreeMap<&'static str, String>,
    waiting: VecDeque<PendingRequest<P::Job>>,
    batches: BTreeMap<u32, Batch<P::Job>>,
    outbox: VecDeque<Completed<P::Job>>,
    /// What is sent is written here: memory that is used again.
    body: Vec<u8>,
    /// Whether a turn is to come anyway.
    is_woken: bool,
    /// Whether a turn has ever sent a batch.
    has_sent: bool,
    counts: Counts,
}

impl<P: Plan, L: Link> Pump<P, L> {
    /// A pump that groups by `plan` and sends by `link`.
    pub fn new(settings: Settings, plan: P, link: L) -> Self {
        Self {
            settings,
            plan,
            link,
            digests: BTreeMap::new(),
            waiting: VecDeque::new(),
            batches: BTreeMap::new(),
            outbox: VecDeque::new(),
            body: Vec::new(),
            is_woken: false,
            has_sent: false,
            counts: Counts::default(),
        }
    }

    /// Its limits.
    pub fn settings(&self) -> Settings {
        self.settings
    }

    /// The way to Redis, for calls beside the pump's own.
    pub fn link(&self) -> &L {
        &self.link
    }

    /// How far apart ticks must be for a call that is not answered to be given up in time, in milliseconds.
    pub fn tick_ms(&self) -> u64 {
        (self.settings.deadline_ms / 4).clamp(TICK_MS_MIN, TICK_MS_MAX)
    }

    /// Takes what was counted since the last call.
    pub fn take_counts(&mut self) -> Counts {
        std::mem::take(&mut self.counts)
    }

    /// How many requests wait and are not in flight.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Lets `owner` wait for `job`. From any callback, but as the last thing that it does: another context may be
    /// effective afterwards.
    ///
    /// # Errors
    /// [`Full`] if too many wait already: answer at once. The same context is effective then.
    pub fn enqueue(&mut self, owner: u32, job: P::Job, now_ms: u64) -> Result<(), Full> {
        if self.waiting.len() >= self.settings.waiting_max {
            return Err(Full);
        }
        self.wait(Some(owner), job, now_ms);
        if self.may_send(now_ms) && !self.send_at_once(now_ms) {
            self.wake();
        }
        Ok(())
    }

    /// Lets `owner` wait once more, whatever waits already: it had its turn, and learnt that it must
    /// ask again.
    pub fn enqueue_again(&mut self, owner: u32, job: P::Job, now_ms: u64) {
        self.push(Some(owner), job, now_ms);
    }

    /// Lets `job` wait without an owner, whatever waits already: for what must be done, such as
    /// giving back. There are never more of these than requests that were in flight.
    pub fn enqueue_unowned(&mut self, job: P::Job, now_ms: u64) {
        self.push(None, job, now_ms);
    }

    fn push(&mut self, owner: Option<u32>, job: P::Job, now_ms: u64) {
        self.wait(owner, job, now_ms);
        if self.may_send(now_ms) {
            self.wake();
        }
    }

    fn wait(&mut self, owner: Option<u32>, job: P::Job, now_ms: u64) {
        let deadline_ms = now_ms.saturating_add(self.settings.deadline_ms);
        self.waiting.push_back(PendingRequest {
            owner,
            deadline_ms,
            job,
        });
    }

    fn wake(&mut self) {
        if !std::mem::replace(&mut self.is_woken, true) {
            self.link.wake();
        }
    }

    /// Whether a batch should go now. If not, the next to complete sends what waits.
    fn may_send(&self, now_ms: u64) -> bool {
        let is_on_time = |batch: &&Batch<P::Job>| now_ms.abs_diff(batch.sent_at_ms) < LATE_MS;
        let under_way = self.batches.values().filter(is_on_time).count();
        let enough = BATCH_MIN.get(under_way).unwrap_or(&BATCH_MAX);
        self.waiting.len() >= *enough && self.batches.len() < self.settings.batches_max
    }

    /// Sends what waits without a turn of the root context: a turn costs time, and where few are under way it gathers
    /// nobody else. The first batch of all takes its turn, with which ticks begin that watch over calls. Whether it was
    /// sent; if not, it waits.
    fn send_at_once(&mut self, now_ms: u64) -> bool {
        let under_way = self.batches.values().map(|batch| count(&batch.calls));
        let are_few = under_way.sum::<usize>() <= FEW;
        if self.is_woken || !self.has_sent || !are_few || !self.link.is_ready() {
            return false;
        }
        let calls = self.take_calls(now_ms);
        let sent = self.write(&calls, Spelling::Digest, now_ms, L::send_at_once);
        match sent {
            Some(token) => self.note_sent(token, calls, Spelling::Digest, now_ms),
            None => {
                let requests = calls.into_iter().flat_map(|planned| planned.requests);
                self.waiting.extend(requests);
                let by_deadline = |request: &PendingRequest<P::Job>| request.deadline_ms;
                self.waiting.make_contiguous().sort_by_key(by_deadline);
            }
        }
        sent.is_some()
    }

    /// The calls of the next batch, off what waits.
    fn take_calls(&mut self, now_ms: u64) -> Vec<Planned<P::Job>> {
        let count = self.waiting.len().min(BATCH_MAX);
        let requests = self.waiting.drain(..count).collect();
        self.plan.plan(requests, now_ms)
    }

    /// `owner` has gone. From any callback.
    pub fn forget(&mut self, owner: u32) {
        let is_its = |request: &PendingRequest<P::Job>| request.owner == Some(owner);
        if let Some(index) = self.waiting.iter().position(is_its) {
            self.waiting.remove(index);
            return;
        }
        let in_flight = self.batches.values_mut().flat_map(|batch| &mut batch.calls);
        let sent = in_flight.flat_map(|call| &mut call.requests);
        let completed = self
            .outbox
            .iter_mut()
            .flat_map(|completed| &mut completed.requests);
        if let Some(request) = sent.chain(completed).find(|request| is_its(request)) {
            request.owner = None;
        }
    }

    /// Sends what waits and returns what has completed, at most [`BATCH_MAX`] requests or one call's.
    /// From a callback of the root context: a wake-up, a tick.
    pub fn turn(&mut self, now_ms: u64) -> Vec<Completed<P::Job>> {
        self.is_woken = false;
        self.expire(now_ms);
        while self.may_send(now_ms) {
            let calls = self.take_calls(now_ms);
            if !self.send(calls, Spelling::Digest, now_ms) {
                // The rest would fare the same; they have their deadline, and the next turn.
                break;
            }
        }
        self.deliver(now_ms)
    }

    /// The call `token` has ended. Returns `None` if it is not the pump's. Otherwise as [`Pump::turn`].
    pub fn on_reply(
        &mut self,
        token: u32,
        read: impl FnOnce(usize) -> Result<Vec<Value>, Failure>,
        now_ms: u64,
    ) -> Option<Vec<Completed<P::Job>>> {
        let batch = self.batches.remove(&token)?;
        match read(batch.calls.len()) {
            Ok(values) => self.complete(batch, values, now_ms),
            Err(failure) => self.fail(batch.calls, &failure),
        }
        Some(self.turn(now_ms))
    }

    /// Gives each call its reply; what Redis did not know by digest goes again, spelt out.
    fn complete(&mut self, batch: Batch<P::Job>, values: Vec<Value>, now_ms: u64) {
        let mut again = Vec::new();
        let mut values = values.into_iter();
        for planned in batch.calls {
            let requests = |planned: Planned<P::Job>| planned.requests;
            let completed = match values.next() {
                Some(Value::Error(error))
                    if is_noscript(&error) && batch.spelling == Spelling::Digest =>
                {
                    again.push(planned);
                    continue;
                }
                Some(Value::Error(error)) => Completed {
                    requests: requests(planned),
                    outcome: Err(classify(&error)),
                },
                Some(value) => Completed {
                    requests: requests(planned),
                    outcome: Ok(value),
                },
                None => Completed {
                    requests: requests(planned),
                    outcome: Err(Unknown::Garbled.into()),
                },
            };
            self.outbox.push_back(completed);
        }
        if !again.is_empty() {
            self.send(again, Spelling::Source, now_ms);
        }
    }

    fn fail(&mut self, calls: Vec<Planned<P::Job>>, failure: &Failure) {
        self.outbox
            .extend(calls.into_iter().map(|planned| Completed {
                requests: planned.requests,
                outcome: Err(failure.clone()),
            }));
    }

    /// Sends one batch. If the host refuses it, its requests complete at once; returns whether it went.
    fn send(&mut self, calls: Vec<Planned<P::Job>>, spelling: Spelling, now_ms: u64) -> bool {
        match self.write(&calls, spelling, now_ms, L::send) {
            Ok(token) => {
                self.has_sent = true;
                self.note_sent(token, calls, spelling, now_ms);
                true
            }
            Err(definite) => {
                self.fail(calls, &definite.into());
                false
            }
        }
    }

    fn note_sent(
        &mut self,
        token: u32,
        calls: Vec<Planned<P::Job>>,
        spelling: Spelling,
        now_ms: u64,
    ) {
        self.counts.batches += 1;
        self.counts.commands += calls.len();
        self.counts.requests += count(&calls);
        let batch = Batch {
            calls,
            spelling,
            sent_at_ms: now_ms,
        };
        self.batches.insert(token, batch);
    }

    /// Writes the calls into the memory that is kept for it, and sends that by `send`.
    fn write<R>(
        &mut self,
        calls: &[Planned<P::Job>],
        spelling: Spelling,
        now_ms: u64,
        send: impl FnOnce(&L, &[u8], u64, u64) -> R,
    ) -> R {
        let mut body = std::mem::take(&mut self.body);
        body.clear();
        for planned in calls {
            self.encode(&planned.call, spelling, &mut body);
        }
        let timeout_ms = self.time_left_ms(calls, now_ms);
        let sent = send(&self.link, &body, timeout_ms, now_ms);
        self.body = body;
        sent
    }

    fn encode(&mut self, call: &Call, spelling: Spelling, body: &mut Vec<u8>) {
        match spelling {
            Spelling::Source => call.encode_eval(body),
            Spelling::Digest => {
                let digest = || call.script.sha1_hex();
                let digest = self.digests.entry(call.script.name).or_insert_with(digest);
                call.encode_evalsha(digest, body);
            }
        }
    }

    /// Until the first deadline in a batch. Never more than one deadline's length, even if the
    /// clock was set back since.
    fn time_left_ms(&self, calls: &[Planned<P::Job>], now_ms: u64) -> u64 {
        calls
            .iter()
            .flat_map(|planned| &planned.requests)
            .map(|request| request.deadline_ms.saturating_sub(now_ms))
            .min()
            .unwrap_or(0)
            .clamp(1, self.settings.deadline_ms)
    }

    /// Gives up what has waited past its deadline. Deadlines are in order, but for a clock that was
    /// set: what stands behind such a one waits until that one's.
    fn expire(&mut self, now_ms: u64) {
        while let Some(first) = self.waiting.front()
            && first.deadline_ms <= now_ms
        {
            let requests = self.waiting.drain(..1).collect();
            let outcome = Err(Definite::Expired.into());
            self.outbox.push_back(Completed { requests, outcome });
        }
    }

    fn deliver(&mut self, now_ms: u64) -> Vec<Completed<P::Job>> {
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
            self.wake();
        }
        completed
    }
}

#[cfg(test)]
mod tests;
