//! What the engine counts, each under a name that stands here once.

use alloc::format;

use weir_engine::Metrics;
use weir_engine::metrics::{Counter, Counters};
use weir_engine::tag;

/// How all names begin.
pub(crate) const PREFIX: &str = "weir_fitment";

tag! {
    /// The outcome of a question.
    Outcome {
        /// It was answered here.
        Answered = "answered",
        /// It was answered here, what Redis does not know as unknown: the origin was asked often enough.
        Limited = "limited",
        /// It went on to the origin.
        Forwarded = "forwarded",
        /// It was refused: no question, or too large.
        Malformed = "malformed",
        /// Too many questions wait for Redis.
        Overloaded = "overloaded",
        /// Redis could not be asked.
        Unavailable = "unavailable",
    }
}

tag! {
    /// What was answered for a pair of SKU and vehicle.
    Pair {
        /// It fits.
        Fits = "fits",
        /// It does not.
        DoesNot = "does_not",
        /// Nobody knows.
        Unknown = "unknown",
    }
}

/// The engine's counters.
#[derive(Debug)]
pub(crate) struct FitmentCounters {
    /// Questions, by outcome.
    pub(crate) requests: Counters<Outcome>,
    /// Pairs that were answered here, by the answer.
    pub(crate) pairs: Counters<Pair>,
    /// SKUs whose place was asked for in Redis.
    pub(crate) places_read: Counter,
    /// Vehicles that were read from Redis.
    pub(crate) vehicles_read: Counter,
    /// Reads of the map of vehicles that failed, or found none.
    pub(crate) polls_failed: Counter,
}

impl FitmentCounters {
    pub(crate) fn new(metrics: &mut Metrics) -> Self {
        let requests = Counters::new(metrics, Outcome::ALL, |outcome| {
            format!("{PREFIX}_requests_total.outcome.{}", outcome.label())
        });
        let pairs = Counters::new(metrics, Pair::ALL, |pair| {
            format!("{PREFIX}_pairs_total.answer.{}", pair.label())
        });
        let mut total = |what: &str| metrics.counter(format!("{PREFIX}_{what}_total"));
        Self {
            requests,
            pairs,
            places_read: total("places_read"),
            vehicles_read: total("vehicles_read"),
            polls_failed: total("polls_failed"),
        }
    }
}
