//! Group commit: requests that need Redis wait in their VM, and the root context sends them
//! together.
//!
//! ```text
//! enqueue ─▶ waiting ─▶ flight (≤ 64 requests, one pipelined call) ─▶ outbox ─▶ landed
//! ```
//!
//! - The first request to wait wakes the root context, which runs in the next turn of the event
//!   loop: what arrived in this turn goes together, without a timer and without added latency.
//! - While a flight is under way, what arrives waits for it to land, so that it goes together too. But a few
//!   that wait are enough for a second flight, and some more for a third, so that Redis works while the gateway does;
//!   a full one goes at once, several at a time; and one that is late holds nobody back.
//! - Where little is under way, a flight goes from the callback of the request that completes it, without a turn.
//! - Every request lands exactly once, with a reply or a [`Failure`], at most two deadlines and
//!   10 ms after it was enqueued: waiting ends with the first tick behind the deadline, and a flight's call with that
//!   behind its oldest request's.
//! - An owner that has gone is forgotten; its request still lands, without an owner, if it was sent.
//!
//! The pump calls nothing but its [`Link`]: time comes in as `now_ms`.

use std::collections::{BTreeMap, VecDeque};

use weir_resp::Value;
use weir_scripts::Call;

use crate::link::Link;
use crate::redis::{Definite, Failure, Unknown, classify, is_noscript};

/// The most requests in one flight, and the most that land in one callback. To answer N paused
/// requests from one callback nests N deep inside Envoy; around 500 it overflows V8's stack and
/// kills the VM.
pub const FLIGHT_MAX: usize = 64;

/// How many make a flight, by how many are under way: fewer would cost more calls and gain nothing. With more under way
/// only a full one goes.
const FLIGHT_MIN: [usize; 3] = [1, 4, 8];

/// With no more requests than these under way, a flight does not wait for a turn.
const FEW: usize = 4;

/// After so many milliseconds a flight is late: others no longer wait for it. Redis answers a flight
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
    /// The most flights under way at once: at least 1.
    pub flights_max: usize,
    /// The most requests that wait: beyond it, requests are turned away at once.
    pub waiting_max: usize,
}

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticket<J> {
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
    pub tickets: Vec<Ticket<J>>,
}

/// Requests whose outcome is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Landed<J> {
    /// The requests of one call, in the order of its replies.
    pub tickets: Vec<Ticket<J>>,
    /// The call's reply, never an error reply, or why there is none.
    pub outcome: Result<Value, Failure>,
}

/// How a filter turns requests into script calls.
pub trait Plan {
    /// What is asked.
    type Job;

    /// Groups requests into calls. Every ticket must be in exactly one call.
    fn plan(&self, tickets: Vec<Ticket<Self::Job>>, now_ms: u64) -> Vec<Planned<Self::Job>>;
}

/// The pump was full: the request was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many requests wait for Redis")]
pub struct Full;

/// What a pump has done, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Calls sent.
    pub flights: usize,
    /// Commands in them.
    pub commands: usize,
    /// Requests in them.
    pub requests: usize,
}

/// Whether a flight names its scripts by digest or spells them out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Spelling {
    Digest,
    Source,
}

struct Flight<J> {
    calls: Vec<Planned<J>>,
    spelling: Spelling,
    sent_at_ms: u64,
}

/// How many requests are in these calls.
fn count<J>(calls: &[Planned<J>]) -> usize {
    calls.iter().map(|planned| planned.tickets.len()).sum()
}

/// The pump of one VM.
pub struct Pump<P: Plan, L> {
    settings: Settings,
    plan: P,
    link: L,
    digests: BTreeMap<&'static str, String>,
    waiting: VecDeque<Ticket<P::Job>>,
    flights: BTreeMap<u32, Flight<P::Job>>,
    outbox: VecDeque<Landed<P::Job>>,
    /// What is sent is written here: memory that is used again.
    body: Vec<u8>,
    /// Whether a turn is to come anyway.
    is_woken: bool,
    /// Whether a turn has ever sent a flight.
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
            flights: BTreeMap::new(),
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
        self.waiting.push_back(Ticket {
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

    /// Whether a flight should go now. If not, the next to land sends what waits.
    fn may_send(&self, now_ms: u64) -> bool {
        let is_on_time = |flight: &&Flight<P::Job>| now_ms.abs_diff(flight.sent_at_ms) < LATE_MS;
        let under_way = self.flights.values().filter(is_on_time).count();
        let enough = FLIGHT_MIN.get(under_way).unwrap_or(&FLIGHT_MAX);
        self.waiting.len() >= *enough && self.flights.len() < self.settings.flights_max
    }

    /// Sends what waits without a turn of the root context: a turn costs time, and where few are under way it gathers
    /// nobody else. The first flight of all takes its turn, with which ticks begin that watch over calls. Whether it was
    /// sent; if not, it waits.
    fn send_at_once(&mut self, now_ms: u64) -> bool {
        let under_way = self.flights.values().map(|flight| count(&flight.calls));
        let are_few = under_way.sum::<usize>() <= FEW;
        if self.is_woken || !self.has_sent || !are_few || !self.link.is_ready() {
            return false;
        }
        let calls = self.take_calls(now_ms);
        let sent = self.write(&calls, Spelling::Digest, now_ms, L::send_at_once);
        match sent {
            Some(token) => self.note_sent(token, calls, Spelling::Digest, now_ms),
            None => {
                let tickets = calls.into_iter().flat_map(|planned| planned.tickets);
                self.waiting.extend(tickets);
                let by_deadline = |ticket: &Ticket<P::Job>| ticket.deadline_ms;
                self.waiting.make_contiguous().sort_by_key(by_deadline);
            }
        }
        sent.is_some()
    }

    /// The calls of the next flight, off what waits.
    fn take_calls(&mut self, now_ms: u64) -> Vec<Planned<P::Job>> {
        let count = self.waiting.len().min(FLIGHT_MAX);
        let tickets = self.waiting.drain(..count).collect();
        self.plan.plan(tickets, now_ms)
    }

    /// `owner` has gone. From any callback.
    pub fn forget(&mut self, owner: u32) {
        let is_its = |ticket: &Ticket<P::Job>| ticket.owner == Some(owner);
        if let Some(index) = self.waiting.iter().position(is_its) {
            self.waiting.remove(index);
            return;
        }
        let in_flight = self
            .flights
            .values_mut()
            .flat_map(|flight| &mut flight.calls);
        let sent = in_flight.flat_map(|call| &mut call.tickets);
        let landed = self
            .outbox
            .iter_mut()
            .flat_map(|landed| &mut landed.tickets);
        if let Some(ticket) = sent.chain(landed).find(|ticket| is_its(ticket)) {
            ticket.owner = None;
        }
    }

    /// Sends what waits and returns what has landed, at most [`FLIGHT_MAX`] requests or one call's.
    /// From a callback of the root context: a wake-up, a tick.
    pub fn turn(&mut self, now_ms: u64) -> Vec<Landed<P::Job>> {
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
    ) -> Option<Vec<Landed<P::Job>>> {
        let flight = self.flights.remove(&token)?;
        match read(flight.calls.len()) {
            Ok(values) => self.land(flight, values, now_ms),
            Err(failure) => self.fail(flight.calls, &failure),
        }
        Some(self.turn(now_ms))
    }

    /// Gives each call its reply; what Redis did not know by digest goes again, spelt out.
    fn land(&mut self, flight: Flight<P::Job>, values: Vec<Value>, now_ms: u64) {
        let mut again = Vec::new();
        let mut values = values.into_iter();
        for planned in flight.calls {
            let tickets = |planned: Planned<P::Job>| planned.tickets;
            let landed = match values.next() {
                Some(Value::Error(error))
                    if is_noscript(&error) && flight.spelling == Spelling::Digest =>
                {
                    again.push(planned);
                    continue;
                }
                Some(Value::Error(error)) => Landed {
                    tickets: tickets(planned),
                    outcome: Err(classify(&error)),
                },
                Some(value) => Landed {
                    tickets: tickets(planned),
                    outcome: Ok(value),
                },
                None => Landed {
                    tickets: tickets(planned),
                    outcome: Err(Unknown::Garbled.into()),
                },
            };
            self.outbox.push_back(landed);
        }
        if !again.is_empty() {
            self.send(again, Spelling::Source, now_ms);
        }
    }

    fn fail(&mut self, calls: Vec<Planned<P::Job>>, failure: &Failure) {
        self.outbox.extend(calls.into_iter().map(|planned| Landed {
            tickets: planned.tickets,
            outcome: Err(failure.clone()),
        }));
    }

    /// Sends one flight. If the host refuses it, its requests land at once; returns whether it went.
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
        self.counts.flights += 1;
        self.counts.commands += calls.len();
        self.counts.requests += count(&calls);
        let flight = Flight {
            calls,
            spelling,
            sent_at_ms: now_ms,
        };
        self.flights.insert(token, flight);
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

    /// Until the first deadline in a flight. Never more than one deadline's length, even if the
    /// clock was set back since.
    fn time_left_ms(&self, calls: &[Planned<P::Job>], now_ms: u64) -> u64 {
        calls
            .iter()
            .flat_map(|planned| &planned.tickets)
            .map(|ticket| ticket.deadline_ms.saturating_sub(now_ms))
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
            let tickets = self.waiting.drain(..1).collect();
            let outcome = Err(Definite::Expired.into());
            self.outbox.push_back(Landed { tickets, outcome });
        }
    }

    fn deliver(&mut self, now_ms: u64) -> Vec<Landed<P::Job>> {
        let mut landed = Vec::new();
        let mut requests = 0;
        while let Some(next) = self.outbox.front() {
            requests += next.tickets.len();
            if requests > FLIGHT_MAX && !landed.is_empty() {
                break;
            }
            landed.extend(self.outbox.pop_front());
        }
        if !self.outbox.is_empty() || self.may_send(now_ms) {
            self.wake();
        }
        landed
    }
}

#[cfg(test)]
mod tests;
