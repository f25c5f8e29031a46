//! Quotas and algorithms.

use core::fmt;

use serde::Deserialize;

/// The highest rate, in requests per period.
pub const RATE_MAX: u32 = 1_000_000;

/// The maximum burst, in requests.
pub const BURST_MAX: u32 = 1_000_000;

/// The maximum period: a leap year, in milliseconds.
pub const PER_MS_MAX: u64 = 366 * DAY_MS;

/// The maximum period of a sliding window: 30 days, in milliseconds, so that its state fits in 32 bits.
pub const SLIDING_PER_MS_MAX: u64 = 30 * DAY_MS;

const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

/// The maximum of `burst · per_ms`, so that a script's numbers, which are doubles, are exact.
const TICKS_MAX: u64 = 1 << 52;

/// How a rule counts requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Algorithm {
    /// Generic cell rate algorithm (ITU-T I.371, annex A): a burst, then an even rate.
    #[default]
    Gcra,
    /// At most `rate` requests in any window of length `per`.
    SlidingWindow,
    /// At most `rate` requests in each period since the Unix epoch.
    FixedWindow,
    /// At most `rate` concurrent requests.
    Concurrency,
}

/// An algorithm and its numbers.
///
/// Time is counted in *ticks*: `rate` ticks are one millisecond. So one request takes `per_ms` ticks at every rate, all
/// numbers are whole, and no rounding errors accumulate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    algorithm: Algorithm,
    rate: u32,
    per_ms: u64,
    burst: u32,
}

/// Why a quota is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuotaError {
    /// The rate is 0 or too high.
    #[error("rate must be 1 to {RATE_MAX}")]
    Rate,
    /// The period is 0 or too long.
    #[error("per must be 1ms to {0} ms")]
    Per(u64),
    /// The burst is 0 or too high.
    #[error("burst must be 1 to {BURST_MAX}")]
    Burst,
    /// Each number is valid, but their product is too large.
    #[error("burst times per, in milliseconds, must be at most 2^52")]
    Ticks,
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rate, per_ms) = (self.rate, self.per_ms);
        if self.algorithm == Algorithm::Concurrency {
            return write!(f, "{rate} at once");
        }
        match per_ms % 1_000 {
            0 => write!(f, "{rate} per {} s", per_ms / 1_000)?,
            _ => write!(f, "{rate} per {per_ms} ms")?,
        }
        match self.burst == rate {
            true => Ok(()),
            false => write!(f, ", burst {}", self.burst),
        }
    }
}

impl Quota {
    /// At most `rate` requests in `per_ms`, and `burst` at once. Only [`Algorithm::Gcra`] uses `burst`; for the others
    /// it equals the rate.
    ///
    /// # Errors
    /// When a number is out of its bounds.
    pub fn new(
        algorithm: Algorithm,
        rate: u32,
        per_ms: u64,
        burst: u32,
    ) -> Result<Self, QuotaError> {
        let (burst, per_ms_max) = match algorithm {
            Algorithm::Gcra => (burst, PER_MS_MAX),
            Algorithm::SlidingWindow => (rate, SLIDING_PER_MS_MAX),
            Algorithm::FixedWindow | Algorithm::Concurrency => (rate, PER_MS_MAX),
        };
        if !(1..=RATE_MAX).contains(&rate) {
            return Err(QuotaError::Rate);
        }
        if !(1..=per_ms_max).contains(&per_ms) {
            return Err(QuotaError::Per(per_ms_max));
        }
        if !(1..=BURST_MAX).contains(&burst) {
            return Err(QuotaError::Burst);
        }
        if u64::from(burst) * per_ms > TICKS_MAX {
            return Err(QuotaError::Ticks);
        }
        Ok(Self {
            algorithm,
            rate,
            per_ms,
            burst,
        })
    }

    /// [`Algorithm::Gcra`] with an average of `rate` requests per second, and `burst` at once. Numbers out of bounds
    /// are clamped.
    pub fn per_second(rate: u32, burst: u32) -> Self {
        Self {
            algorithm: Algorithm::Gcra,
            rate: rate.clamp(1, RATE_MAX),
            per_ms: 1_000,
            burst: burst.clamp(1, BURST_MAX),
        }
    }

    /// The algorithm.
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Requests per period.
    pub const fn rate(&self) -> u32 {
        self.rate
    }

    /// The period in milliseconds.
    pub const fn per_ms(&self) -> u64 {
        self.per_ms
    }

    /// The maximum number of requests at once, and the maximum cost of a request.
    pub const fn burst(&self) -> u32 {
        self.burst
    }

    /// The ticks of a request with `cost`. A cost above the burst counts as the burst.
    pub(super) fn ticks(&self, cost: u32) -> u64 {
        u64::from(cost.min(self.burst)).saturating_mul(self.per_ms)
    }

    /// The start of the period that contains `now_ms`.
    pub(super) fn period_start_ms(&self, now_ms: u64) -> u64 {
        now_ms - now_ms.checked_rem(self.per_ms).unwrap_or(0)
    }
}
