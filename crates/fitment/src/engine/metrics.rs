//! The engine's counters; each name is defined here once.

use alloc::format;

use weir_engine::Metrics;
use weir_engine::metrics::{Counter, Counters};
use weir_engine::tag;

/// The prefix of all names.
pub(crate) const PREFIX: &str = "weir_fitment";

tag! {
    /// The outcome of a query.
    Outcome {
        /// It was answered here.
        Answered = "answered",
        /// It was answered here, with unknown for SKUs that are not in Redis: the rate limit of origin queries is
        /// reached.
        Limited = "limited",
        /// It passed to the origin.
        Forwarded = "forwarded",
        /// It was refused as invalid or too large.
        Malformed = "malformed",
        /// Too many queries wait for Redis.
        Overloaded = "overloaded",
        /// Redis is unavailable.
        Unavailable = "unavailable",
    }
}

tag! {
    /// The answer for a pair of SKU and vehicle.
    Pair {
        /// It fits.
        Fits = "fits",
        /// It does not fit.
        DoesNot = "does_not",
        /// Unknown.
        Unknown = "unknown",
    }
}

/// The engine's counters.
#[derive(Debug)]
pub(crate) struct FitmentCounters {
    /// Queries, by outcome.
    pub(crate) requests: Counters<Outcome>,
    /// Pairs answered here, by answer.
    pub(crate) pairs: Counters<Pair>,
    /// SKUs whose location was read from Redis.
    pub(crate) places_read: Counter,
    /// Vehicles read from Redis.
    pub(crate) vehicles_read: Counter,
    /// Reads of the vehicle map that failed, or found no map.
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
        let mut total = |subject: &str| metrics.counter(format!("{PREFIX}_{subject}_total"));
        Self {
            requests,
            pairs,
            places_read: total("places_read"),
            vehicles_read: total("vehicles_read"),
            polls_failed: total("polls_failed"),
        }
    }
}
