//! A circuit breaker. It stops requests to a dependency that fails too often; later, a few probes test the dependency.
//!
//! ```text
//!            failures ≥ failure_percent
//!   Closed ─────────────────────────────▶ Open ◀─────────────┐
//!      ▲                                    │ open_ms later  │ a probe fails
//!      └───────── all probes succeed ── HalfOpen ────────────┘
//! ```
//!
//! Every request that may pass gets a [`Pass`], which [`Breaker::record`] takes with the outcome. An outcome counts
//! only in the state, and in the round of probes, that issued its pass. The result of an older request says nothing
//! about the current health.
//!
//! Measuring an outcome may be expensive. While no request fails, a sample is enough: see [`Breaker::wants`].

/// The number of parts in which the window of outcomes slides. So the window covers between seven eighths and the whole
/// of `window_ms`.
const PARTS: usize = 8;

/// While no request fails, the breaker wants one outcome in this many.
const SAMPLE: u32 = 8;

/// When a circuit breaker opens and closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Length of the sliding window, 1 to 3,600,000. Default: 10,000.
    pub window_ms: u64,
    /// Minimum outcomes in the window before the breaker can open, 1 to 1,000,000. Default: 20.
    pub min_requests: u32,
    /// Failure rate that opens it, in percent, 1 to 100. Default: 50.
    pub failure_percent: u32,
    /// How long it stays open, and how long it waits for probes, 1 to 3,600,000. Default: 1,000.
    pub open_ms: u64,
    /// Successful probe requests that close it, 1 to 1,000,000. Default: 3.
    pub probes: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            window_ms: 10_000,
            min_requests: 20,
            failure_percent: 50,
            open_ms: 1_000,
            probes: 3,
        }
    }
}

/// The decision on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permit {
    /// The request may pass. [`Breaker::record`] takes its outcome.
    Pass(Pass),
    /// The request may not pass.
    Refuse {
        /// Milliseconds until a retry can succeed: at least 1.
        retry_after_ms: u64,
    },
}

/// Permission for one request. Drop it if the outcome stays unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pass {
    round: u64,
    is_probe: bool,
}

impl Pass {
    /// Whether the request is a probe of a half-open breaker.
    pub const fn is_probe(self) -> bool {
        self.is_probe
    }
}

/// The outcome of a request that passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// An answer of any kind: the dependency is alive.
    Success,
    /// No answer, or one that reports a failure of the dependency.
    Failure,
}

/// The state of a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// All requests pass.
    Closed,
    /// No request passes.
    Open,
    /// A few probes pass.
    HalfOpen,
}

impl State {
    /// Every state.
    pub const ALL: [Self; 3] = [Self::Closed, Self::Open, Self::HalfOpen];

    /// The label in metrics.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
        }
    }
}

/// A circuit breaker. Initially closed.
#[derive(Clone, Debug)]
pub struct Breaker {
    settings: Settings,
    clock: Clock,
    phase: Phase,
    // Increases with every change of phase and every new round of probes.
    round: u64,
}

#[derive(Clone, Debug)]
enum Phase {
    Closed(Window),
    Open {
        since_ms: u64,
    },
    HalfOpen {
        since_ms: u64,
        sent: u32,
        succeeded: u32,
    },
}

impl Breaker {
    /// A breaker with these settings, each clamped to its range.
    pub fn new(settings: Settings) -> Self {
        let settings = Settings {
            window_ms: settings.window_ms.max(1),
            min_requests: settings.min_requests.max(1),
            failure_percent: settings.failure_percent.clamp(1, 100),
            open_ms: settings.open_ms.min(STEP_MS_MAX),
            probes: settings.probes.max(1),
        };
        Self {
            settings,
            clock: Clock::default(),
            phase: Phase::Closed(Window::default()),
            round: 0,
        }
    }

    /// The current state. An open breaker becomes half-open only when a request calls [`permit`](Self::permit) after
    /// `open_ms`.
    pub const fn state(&self) -> State {
        match self.phase {
            Phase::Closed(_) => State::Closed,
            Phase::Open { .. } => State::Open,
            Phase::HalfOpen { .. } => State::HalfOpen,
        }
    }

    /// Milliseconds until a retry can succeed, if no request may pass at `now_ms`. It issues no pass, so callers can
    /// use it before they know whether a request follows.
    pub fn refusal(&mut self, now_ms: u64) -> Option<u64> {
        let now_ms = self.clock.at(now_ms);
        let (since_ms, free) = self.probing()?;
        let over_ms = now_ms.saturating_sub(since_ms);
        let is_refused = free == 0 && over_ms < self.settings.open_ms;
        is_refused.then(|| self.settings.open_ms.saturating_sub(over_ms))
    }

    /// The start of the current open or half-open phase, and the number of probes left; `None` if closed.
    fn probing(&self) -> Option<(u64, u32)> {
        match &self.phase {
            Phase::Closed(_) => None,
            Phase::Open { since_ms } => Some((*since_ms, 0)),
            Phase::HalfOpen { since_ms, sent, .. } => {
                Some((*since_ms, self.settings.probes.saturating_sub(*sent)))
            }
        }
    }

    /// Whether a request may pass at `now_ms`.
    pub fn permit(&mut self, now_ms: u64) -> Permit {
        if let Some(retry_after_ms) = self.refusal(now_ms) {
            return Permit::Refuse { retry_after_ms };
        }
        let now_ms = self.clock.elapsed_ms;
        let Some((_, free)) = self.probing() else {
            return self.pass(false);
        };
        if free == 0 {
            // The breaker was open for `open_ms`, or the outcomes of this round's probes are missing and new probes are
            // needed.
            self.enter(Phase::HalfOpen {
                since_ms: now_ms,
                sent: 0,
                succeeded: 0,
            });
        }
        if let Phase::HalfOpen { sent, .. } = &mut self.phase {
            *sent = sent.saturating_add(1);
        }
        self.pass(true)
    }

    /// The number of outcomes that this one represents, for [`Breaker::record_sample`]; 0 if the caller need not
    /// measure it. Usually 1. A closed breaker with `min_requests` outcomes and no failure in its window wants one
    /// outcome in eight, which represents all eight.
    ///
    /// So it may see the first failure up to seven requests late; after that, it wants every outcome.
    pub fn wants(&mut self, pass: Pass) -> u32 {
        if pass.round != self.round {
            return 0;
        }
        match &mut self.phase {
            Phase::Closed(window) => window.wants(&self.settings),
            Phase::Open { .. } | Phase::HalfOpen { .. } => 1,
        }
    }

    /// Records the outcome, at `now_ms`, of a request that passed.
    pub fn record(&mut self, now_ms: u64, pass: Pass, outcome: Outcome) {
        self.record_sample(now_ms, pass, outcome, 1);
    }

    /// Like [`Breaker::record`], for an outcome that represents `count` requests. A success counts `count` times, so
    /// that the failure rate stays right. A failure counts once, because the other outcomes are unknown.
    pub fn record_sample(&mut self, now_ms: u64, pass: Pass, outcome: Outcome, count: u32) {
        let now_ms = self.clock.at(now_ms);
        if pass.round != self.round {
            return;
        }
        match &mut self.phase {
            Phase::Closed(window) => {
                window.add(now_ms, self.settings.window_ms, outcome, count);
                if window.is_bad(&self.settings) {
                    self.enter(Phase::Open { since_ms: now_ms });
                }
            }
            Phase::Open { .. } => {}
            Phase::HalfOpen { succeeded, .. } => match outcome {
                Outcome::Failure => self.enter(Phase::Open { since_ms: now_ms }),
                Outcome::Success => {
                    *succeeded = succeeded.saturating_add(1);
                    if *succeeded >= self.settings.probes {
                        self.enter(Phase::Closed(Window::default()));
                    }
                }
            },
        }
    }

    fn pass(&self, is_probe: bool) -> Permit {
        let round = self.round;
        Permit::Pass(Pass { round, is_probe })
    }

    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.round = self.round.wrapping_add(1);
    }
}

/// A monotonic clock: it adds up the forward steps of another clock. When that clock is set back, this one pauses, so
/// no wait grows longer. A step counts as [`STEP_MS_MAX`] at most, so that the sum cannot overflow.
#[derive(Clone, Copy, Debug, Default)]
struct Clock {
    elapsed_ms: u64,
    last_ms: u64,
}

/// 49 days: longer than any wait here, and 64 bits hold four thousand million of them.
const STEP_MS_MAX: u64 = u32::MAX as u64;

impl Clock {
    fn at(&mut self, now_ms: u64) -> u64 {
        let step_ms = now_ms.saturating_sub(self.last_ms).min(STEP_MS_MAX);
        self.elapsed_ms = self.elapsed_ms.saturating_add(step_ms);
        self.last_ms = now_ms;
        self.elapsed_ms
    }
}

/// The outcomes of the sliding window, in parts that expire one by one.
#[derive(Clone, Debug, Default)]
struct Window {
    parts: [WindowBucket; PARTS],
    /// Outcomes skipped since the last one that was wanted.
    passed_over: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct WindowBucket {
    /// The index of the part's interval: time divided by the length of a part.
    number: u64,
    outcomes: u32,
    failures: u32,
}

impl Window {
    fn add(&mut self, now_ms: u64, window_ms: u64, outcome: Outcome, count: u32) {
        let number = now_ms / window_ms.div_ceil(PARTS as u64).max(1);
        for part in &mut self.parts {
            if number.saturating_sub(part.number) >= PARTS as u64 {
                *part = WindowBucket::default();
            }
        }
        // The remainder is below `PARTS`, so the lookup succeeds.
        let Some(part) = self.parts.get_mut((number % PARTS as u64) as usize) else {
            return;
        };
        part.number = number;
        let (outcomes, failures) = match outcome {
            Outcome::Success => (count, 0),
            Outcome::Failure => (1, 1),
        };
        part.outcomes = part.outcomes.saturating_add(outcomes);
        part.failures = part.failures.saturating_add(failures);
    }

    /// The numbers of outcomes and of failures.
    fn sums(&self) -> (u64, u64) {
        let sum =
            |of: fn(&WindowBucket) -> u32| self.parts.iter().map(|part| u64::from(of(part))).sum();
        (sum(|part| part.outcomes), sum(|part| part.failures))
    }

    fn wants(&mut self, settings: &Settings) -> u32 {
        let (outcomes, failures) = self.sums();
        if failures > 0 || outcomes < u64::from(settings.min_requests) {
            self.passed_over = 0;
            return 1;
        }
        self.passed_over = self.passed_over.saturating_add(1) % SAMPLE;
        if self.passed_over == 0 { SAMPLE } else { 0 }
    }

    fn is_bad(&self, settings: &Settings) -> bool {
        let (outcomes, failures) = self.sums();
        let percent = u64::from(settings.failure_percent);
        outcomes >= u64::from(settings.min_requests) && failures * 100 >= outcomes * percent
    }
}

#[cfg(test)]
mod tests;
