//! A circuit breaker: what stands behind it has failed too often, so it is left in peace for a while
//! and asked by a few before all ask again.
//!
//! ```text
//!            failures ≥ failure_percent
//!   Closed ─────────────────────────────▶ Open ◀─────────────┐
//!      ▲                                    │ open_ms later  │ a probe fails
//!      └───────── all probes succeed ── HalfOpen ────────────┘
//! ```
//!
//! Every request that it lets pass gets a [`Pass`], which comes back with the outcome. An outcome
//! counts only in the state, and in the round of probes, that let its request pass: what a
//! request from before the failure has met says nothing about now.
//!
//! To learn an outcome may cost something. While all is well, one in a few is enough: see [`Breaker::wants`].

/// In how many parts the window of outcomes moves on. The window covers between seven eighths and
/// the whole of the time that is asked for.
const PARTS: usize = 8;

/// Of so many outcomes one is asked for while all is well.
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

/// Whether a request may pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permit {
    /// It may. Its outcome is for [`Breaker::record`].
    Pass(Pass),
    /// It may not.
    Refuse {
        /// After how many milliseconds it makes sense to try again: at least 1.
        retry_after_ms: u64,
    },
}

/// Leave for one request to pass. If its outcome never becomes known, it is simply dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pass {
    round: u64,
    is_probe: bool,
}

impl Pass {
    /// Whether the request is one of the few that try out whether all is well again.
    pub const fn is_probe(self) -> bool {
        self.is_probe
    }
}

/// The outcome of a request that passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// An answer came, whatever it said: what stands behind the breaker is alive.
    Success,
    /// No answer came, or one that tells of its own trouble.
    Failure,
}

/// What a breaker does at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// All pass.
    Closed,
    /// None pass.
    Open,
    /// A few pass, to try it out.
    HalfOpen,
}

impl State {
    /// Every state.
    pub const ALL: [Self; 3] = [Self::Closed, Self::Open, Self::HalfOpen];

    /// The word in metrics.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
        }
    }
}

/// A circuit breaker. Closed to begin with.
#[derive(Clone, Debug)]
pub struct Breaker {
    settings: Settings,
    clock: Clock,
    phase: Phase,
    // Moves on with every change of phase, and with every new round of probes.
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
    /// A breaker with these settings, each raised or lowered into its range if necessary.
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

    /// What it does at present. An open one that has been open for long enough is still open, until
    /// a request comes that can try it out.
    pub const fn state(&self) -> State {
        match self.phase {
            Phase::Closed(_) => State::Closed,
            Phase::Open { .. } => State::Open,
            Phase::HalfOpen { .. } => State::HalfOpen,
        }
    }

    /// After how many milliseconds it makes sense to try again, if a request may not pass at `now_ms`. Nobody is let pass
    /// by it: for whoever does not know yet whether there will be a request.
    pub fn refusal(&mut self, now_ms: u64) -> Option<u64> {
        let now_ms = self.clock.at(now_ms);
        let (since_ms, free) = self.probing()?;
        let over_ms = now_ms.saturating_sub(since_ms);
        let is_refused = free == 0 && over_ms < self.settings.open_ms;
        is_refused.then(|| self.settings.open_ms.saturating_sub(over_ms))
    }

    /// Since when it has been open or tried out, and how many more may try; `None` if it is closed.
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
            // Open for long enough; or the outcomes of this round's probes do not come, and others
            // must try.
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

    /// For how many outcomes that of a request that passed stands, itself included; 0 if nobody needs to ask for it.
    /// Each stands for itself, but one in eight for all eight while the breaker is closed, has enough outcomes to
    /// judge by, and has seen no failure among them. It is for [`Breaker::record_sample`].
    ///
    /// The first failure may so be seen up to seven requests late; from then on all are.
    pub fn wants(&mut self, pass: Pass) -> u32 {
        if pass.round != self.round {
            return 0;
        }
        match &mut self.phase {
            Phase::Closed(window) => window.wants(&self.settings),
            Phase::Open { .. } | Phase::HalfOpen { .. } => 1,
        }
    }

    /// Takes note of what became, at `now_ms`, of a request that passed.
    pub fn record(&mut self, now_ms: u64, pass: Pass, outcome: Outcome) {
        self.record_sample(now_ms, pass, outcome, 1);
    }

    /// As [`Breaker::record`], of an outcome that stands for `count`: a success for as many, so that failures keep
    /// their share; a failure for itself, since nobody knows of the others.
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

/// A clock that never goes back: it adds up the steps forward of another one. Where that one is set
/// back, this one stands still for a moment, and no wait grows longer by it. A step counts as
/// [`STEP_MS_MAX`] at most, so that no sequence of times brings it to its end.
#[derive(Clone, Copy, Debug, Default)]
struct Clock {
    elapsed_ms: u64,
    last_ms: u64,
}

/// 49 days: longer than anything here is waited for, and four thousand million of them fit in 64
/// bits.
const STEP_MS_MAX: u64 = u32::MAX as u64;

impl Clock {
    fn at(&mut self, now_ms: u64) -> u64 {
        let step_ms = now_ms.saturating_sub(self.last_ms).min(STEP_MS_MAX);
        self.elapsed_ms = self.elapsed_ms.saturating_add(step_ms);
        self.last_ms = now_ms;
        self.elapsed_ms
    }
}

/// The outcomes of the last while, in parts that are forgotten one by one.
#[derive(Clone, Debug, Default)]
struct Window {
    parts: [WindowBucket; PARTS],
    /// Outcomes that were not asked for since the last that was.
    passed_over: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct WindowBucket {
    /// Which stretch of time it counts: the time over the length of a part.
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
        // The remainder is below PARTS, so it fits, and there is such a part.
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

    /// Outcomes, and failures among them.
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
