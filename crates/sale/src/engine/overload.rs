//! Overload protection: rejects requests early, so that accepted ones can finish.

use alloc::format;

use crate::admission::Rejection;
use crate::verdict::Verdict;
use weir_base::breaker::Pass;
use weir_engine::Metrics;
use weir_engine::breaker::CountedBreaker;

use crate::engine::config::OverloadConfig;
use crate::engine::metrics::PREFIX;

/// One worker's view of the load on Redis and the origin.
#[derive(Debug)]
pub(crate) struct Overload {
    in_flight_max: usize,
    /// Granted requests without an answer from the origin.
    in_flight: usize,
    redis: CountedBreaker,
    origin: CountedBreaker,
}

impl Overload {
    pub(crate) fn new(config: &OverloadConfig, metrics: &mut Metrics) -> Self {
        let mut breaker =
            |of: &str, settings| CountedBreaker::new(settings, metrics, &format!("{PREFIX}_{of}"));
        Self {
            in_flight_max: config.in_flight_max,
            in_flight: 0,
            redis: breaker("redis", config.redis_breaker),
            origin: breaker("origin", config.origin_breaker),
        }
    }

    /// A pass for a claim in Redis. [`Overload::redis_answered`] takes the outcome.
    pub(crate) fn enter(&mut self, now_ms: u64) -> Result<Pass, Rejection> {
        self.check_in_flight()?;
        // Before its claim, it is unknown whether a request reaches the origin, and only requests that do may be
        // probes. So this only reads the origin's breaker.
        if let Some(retry_after_ms) = self.origin.refusal(now_ms) {
            return Err(overloaded(retry_after_ms));
        }
        self.redis.permit(now_ms).map_err(overloaded)
    }

    /// A pass for another call to Redis. Like [`Overload::enter`], without the check of the origin.
    pub(crate) fn ask_redis(&mut self, now_ms: u64) -> Result<Pass, Rejection> {
        self.redis.permit(now_ms).map_err(overloaded)
    }

    /// Records whether Redis has answered a request.
    pub(crate) fn redis_answered(&mut self, pass: Option<Pass>, is_answered: bool, now_ms: u64) {
        if let Some(pass) = pass {
            self.redis.record(now_ms, pass, is_answered, 1);
        }
    }

    /// A pass for a granted request to the origin: it is in flight until [`Overload::origin_is_done`].
    pub(crate) fn pass_on(&mut self, now_ms: u64) -> Result<Pass, Rejection> {
        self.check_in_flight()?;
        match self.origin.permit(now_ms) {
            Ok(pass) => {
                self.in_flight += 1;
                Ok(pass)
            }
            Err(retry_after_ms) => Err(overloaded(retry_after_ms)),
        }
    }

    /// Ends a request in flight. Returns how many outcomes its status represents; if not 0, pass it to
    /// [`Overload::origin_answered`].
    pub(crate) fn origin_is_done(&mut self, pass: Pass) -> u32 {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.origin.wants(pass)
    }

    /// Records the status from the origin, or from the gateway on its behalf, for `count` outcomes.
    pub(crate) fn origin_answered(&mut self, pass: Pass, status: u16, count: u32, now_ms: u64) {
        let is_well = !(500..=599).contains(&status);
        self.origin.record(now_ms, pass, is_well, count);
    }

    fn check_in_flight(&self) -> Result<(), Rejection> {
        if self.in_flight < self.in_flight_max {
            return Ok(());
        }
        Err(Verdict::Overloaded.into())
    }
}

fn overloaded(retry_after_ms: u64) -> Rejection {
    Rejection {
        verdict: Verdict::Overloaded,
        retry_after_ms: Some(retry_after_ms),
    }
}
