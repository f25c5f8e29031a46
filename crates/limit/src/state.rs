//! The state of one key.

use super::backlog::Backlog;
use super::in_flight::InFlight;
use super::log::{LINES, Line, Log};
use super::window::Window;
use super::{Algorithm, Quota};

/// The state of one key at some moment: see [`State::at`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    kind: Kind,
    now_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Backlog(Backlog),
    Log(Log),
    Window(Window),
    InFlight(InFlight),
}

/// A quota's decision on one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Check {
    /// Milliseconds until the request may pass; 0: now.
    pub wait_ms: u64,
    /// The remaining quota: after the request if it was charged, otherwise before it.
    pub remaining: u32,
    /// Milliseconds until more quota is available without further requests; 0 if the quota is unused, or if the time is
    /// unknown.
    pub reset_ms: u64,
    /// The input of [`State::take_back`].
    pub mark: u64,
}

impl Check {
    /// Whether the request may pass.
    pub const fn is_allowed(&self) -> bool {
        self.wait_ms == 0
    }
}

/// The length of a stored number in bytes.
const WORD: usize = 8;

impl Algorithm {
    /// The length of a stored state in bytes.
    pub(super) const fn state_len(self) -> usize {
        match self {
            Self::Gcra | Self::Concurrency => 3 * WORD,
            Self::SlidingWindow => (2 + LINES) * WORD,
            Self::FixedWindow => 2 * WORD,
        }
    }
}

impl State {
    /// The state of a new key.
    pub fn new(quota: &Quota, now_ms: u64) -> Self {
        Self::fresh(fresh(quota.algorithm()), quota, now_ms)
    }

    /// Decodes a stored state and advances it to `now_ms`. Missing bytes, or those of another algorithm, are a new key:
    /// stored states may be lost.
    pub(super) fn decode(bytes: &[u8], quota: &Quota, now_ms: u64) -> Self {
        Self::fresh(decode(bytes, quota.algorithm()), quota, now_ms)
    }

    fn fresh(kind: Kind, quota: &Quota, now_ms: u64) -> Self {
        let mut state = Self { kind, now_ms };
        state.advance(quota, now_ms);
        state
    }

    /// Advances the state to a later moment, or to another quota of the same algorithm.
    pub fn at(mut self, quota: &Quota, now_ms: u64) -> Self {
        self.advance(quota, now_ms);
        self
    }

    fn advance(&mut self, quota: &Quota, now_ms: u64) {
        self.now_ms = now_ms;
        match &mut self.kind {
            Kind::Backlog(state) => state.advance(quota, now_ms),
            Kind::Log(state) => state.advance(quota, now_ms),
            Kind::Window(state) => state.advance(quota, now_ms),
            Kind::InFlight(state) => state.advance(quota, now_ms),
        }
    }

    /// The decision on a request of `cost`. Charges nothing.
    pub fn check(&self, quota: &Quota, cost: u32) -> Check {
        let (cost, now_ms) = (cost.min(quota.burst()), self.now_ms);
        let (wait_ms, used) = match &self.kind {
            Kind::Backlog(state) => (state.wait_ms(quota, cost, now_ms), state.used(quota)),
            Kind::Log(state) => (state.wait_ms(quota, cost, now_ms), state.used()),
            Kind::Window(state) => (state.wait_ms(quota, cost, now_ms), state.count),
            Kind::InFlight(state) => (state.wait_ms(quota, cost), state.used()),
        };
        let rest = u64::from(quota.burst()).saturating_sub(used);
        Check {
            wait_ms,
            remaining: u32::try_from(rest).unwrap_or(u32::MAX),
            reset_ms: self.reset_ms(quota, used),
            mark: self.mark(),
        }
    }

    fn reset_ms(&self, quota: &Quota, used: u64) -> u64 {
        let now_ms = self.now_ms;
        match &self.kind {
            Kind::Backlog(state) => state.reset_ms(quota, used, now_ms),
            Kind::Log(state) => state.reset_ms(quota, now_ms),
            Kind::Window(state) => state.idle_at_ms(quota).saturating_sub(now_ms),
            // The end of a running request is unknown.
            Kind::InFlight(_) => 0,
        }
    }

    /// Charges an allowed request; returns the check for the client.
    pub fn charged(&mut self, quota: &Quota, cost: u32) -> Check {
        self.charge(quota, cost);
        Check {
            wait_ms: 0,
            ..self.check(quota, cost)
        }
    }

    /// Charges a request of `cost` without a check. A cost above the burst counts as the burst.
    pub fn charge(&mut self, quota: &Quota, cost: u32) {
        let cost = cost.min(quota.burst());
        match &mut self.kind {
            Kind::Backlog(state) => state.add(quota, cost),
            Kind::Log(state) => state.add(quota, cost, self.now_ms),
            Kind::Window(state) => state.add(cost),
            Kind::InFlight(state) => state.add(cost),
        }
    }

    /// Undoes a charge of `cost` whose check had `mark`: another rule refused the request, or, with
    /// [`Algorithm::Concurrency`], it has ended.
    pub fn take_back(&mut self, quota: &Quota, cost: u32, mark: u64) {
        let cost = cost.min(quota.burst());
        match &mut self.kind {
            Kind::Backlog(state) => state.take_back(quota, cost),
            Kind::Log(state) => state.take_back(cost),
            Kind::Window(state) => state.take_back(cost, mark),
            Kind::InFlight(state) => state.take_back(quota, cost, mark),
        }
    }

    /// When the state becomes equal to that of a new key.
    pub fn idle_at_ms(&self, quota: &Quota) -> u64 {
        match &self.kind {
            Kind::Backlog(state) => state.idle_at_ms(quota),
            Kind::Log(state) => state.idle_at_ms(quota),
            Kind::Window(state) => state.idle_at_ms(quota),
            Kind::InFlight(state) => state.idle_at_ms(quota),
        }
    }

    fn mark(&self) -> u64 {
        match &self.kind {
            Kind::Backlog(_) | Kind::Log(_) => 0,
            Kind::Window(state) => state.start_ms,
            Kind::InFlight(state) => state.start_ms,
        }
    }

    /// Encodes the state in `bytes`, which have the algorithm's length.
    pub(super) fn encode(&self, bytes: &mut [u8]) {
        let to = bytes.as_chunks_mut::<WORD>().0;
        for (to, word) in to.iter_mut().zip(self.words()) {
            *to = word.to_le_bytes();
        }
    }

    /// The numbers of the state, padded with zeros.
    fn words(&self) -> [u64; 2 + LINES] {
        let mut words = [0; 2 + LINES];
        let [first, second, third, ..] = &mut words;
        match &self.kind {
            Kind::Backlog(state) => {
                (*first, *second, *third) = (state.at_ms, state.ticks, state.per_ms);
            }
            Kind::Window(state) => (*first, *second) = (state.start_ms, state.count),
            Kind::InFlight(state) => {
                (*first, *second, *third) = (state.start_ms, state.latest, state.before);
            }
            Kind::Log(state) => {
                (*first, *second) = (state.latest_ms, state.width_ms);
                for (word, line) in words.iter_mut().skip(2).zip(&state.lines) {
                    *word = u64::from(line.back_ms) << 32 | u64::from(line.count);
                }
            }
        }
        words
    }
}

fn fresh(algorithm: Algorithm) -> Kind {
    decode(&[], algorithm)
}

/// Missing words are 0.
fn decode(bytes: &[u8], algorithm: Algorithm) -> Kind {
    let mut words = bytes.as_chunks::<WORD>().0.iter();
    let mut next = || words.next().copied().map_or(0, u64::from_le_bytes);
    match algorithm {
        Algorithm::Gcra => Kind::Backlog(Backlog {
            at_ms: next(),
            ticks: next(),
            per_ms: next(),
        }),
        Algorithm::SlidingWindow => Kind::Log(Log {
            latest_ms: next(),
            width_ms: next(),
            lines: core::array::from_fn(|_| line(next())),
        }),
        Algorithm::FixedWindow => Kind::Window(Window {
            start_ms: next(),
            count: next(),
        }),
        Algorithm::Concurrency => Kind::InFlight(InFlight {
            start_ms: next(),
            latest: next(),
            before: next(),
        }),
    }
}

/// The upper and the lower half of the word.
fn line(word: u64) -> Line {
    Line {
        back_ms: (word >> 32) as u32,
        count: word as u32,
    }
}
