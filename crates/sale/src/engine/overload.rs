//! Beyond what Redis and the origin can do, the fast answer, so that what was accepted is finished.

use alloc::format;

use crate::admission::Rejection;
use crate::verdict::Verdict;
use weir_base::breaker::Pass;
use weir_engine::Metrics;
use weir_engine::breaker::CountedBreaker;

use crate::engine::config::OverloadConfig;
use crate::engine::metrics::PREFIX;

/// What one worker knows of the load on what stands behind it.
#[derive(Debug)]
pub(crate) struct Overload {
    in_flight_max: usize,
    /// Granted requests that the origin has not answered yet.
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

    /// Whether a request may ask Redis for a claim. What becomes of it is for [`Overload::redis_answered`].
    pub(crate) fn enter(&mut self, now_ms: u64) -> Result<Pass, Rejection> {
        self.check_in_flight()?;
        // Whether a request will get as far as the origin is not known before its claim, and only those that do may try
        // it out.
        if let Some(retry_after_ms) = self.origin.refusal(now_ms) {
            return Err(overloaded(retry_after_ms));
        }
        self.redis.permit(now_ms).map_err(overloaded)
    }

    /// Whether a request may ask Redis for something else than a claim. As [`Overload::enter`], but the origin does not matter.
    pub(crate) fn ask_redis(&mut self, now_ms: u64) -> Result<Pass, Rejection> {
        self.redis.permit(now_ms).map_err(overloaded)
    }

    /// Redis has answered a request, or has not.
    pub(crate) fn redis_answered(&mut self, pass: Option<Pass>, is_answered: bool, now_ms: u64) {
        if let Some(pass) = pass {
            self.redis.record(now_ms, pass, is_answered, 1);
        }
    }

    /// Whether a granted request may go on to the origin: then it is in flight until [`Overload::origin_is_done`].
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

    /// A request in flight is over. For how many its status stands: if for any, it is for
    /// [`Overload::origin_answered`].
    pub(crate) fn origin_is_done(&mut self, pass: Pass) -> u32 {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.origin.wants(pass)
    }

    /// The origin has answered with this status, or the gateway in its place; it stands for `count`.
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
