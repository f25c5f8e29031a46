//! The engine's counters; each name is defined here once. The limits count as `weir_ratelimit_…`.

use alloc::format;

use weir_engine::Metrics;
use weir_engine::metrics::{Counter, Counters};
use weir_engine::tag;

/// The prefix of all names.
const PREFIX: &str = "weir_events";

tag! {
    /// The outcome of a request with events.
    Outcome {
        /// It passed to the origin.
        Forwarded = "forwarded",
        /// No consent.
        Dropped = "dropped",
        /// The visitor is outside the sample.
        Sampled = "sampled",
        /// A preflight.
        Preflight = "preflight",
        /// The write key is missing or unknown.
        Unauthorized = "unauthorized",
        /// The page's origin is not allowed.
        OriginNotAllowed = "origin_not_allowed",
        /// The method is not allowed.
        Method = "method",
        /// Neither JSON nor text.
        ContentType = "content_type",
        /// Its length is missing or too large.
        Length = "length",
        /// Its head is malformed.
        Malformed = "malformed",
        /// A limit refused it, or could not be checked.
        Limited = "limited",
    }
}

tag! {
    /// The outcome of a request on an observed route.
    Observed {
        /// A view.
        View = "view",
        /// A crawler, a link preview, a monitor.
        Bot = "bot",
        /// A browser prefetch.
        Prefetch = "prefetch",
        /// No consent.
        Dropped = "dropped",
        /// The response was an error or missing.
        Failed = "failed",
        /// The captured path segment is not a valid attribute.
        Malformed = "malformed",
        /// Too many requests on observed routes were open.
        Overloaded = "overloaded",
    }
}

tag! {
    /// The outcomes of views.
    Views {
        /// The origin accepted them, or had them already.
        Accepted = "accepted",
        /// The origin rejected them.
        Rejected = "rejected",
        /// The origin refused their batch.
        Refused = "refused",
        /// They were dropped: the origin accepted too few batches.
        Dropped = "dropped",
    }
}

/// The engine's counters.
#[derive(Debug)]
pub(crate) struct EventCounters {
    /// Requests with events, by outcome.
    pub(crate) requests: Counters<Outcome>,
    /// Requests that were made anonymous.
    pub(crate) anonymous: Counter,
    /// Requests with metadata headers from the client.
    pub(crate) forged: Counter,
    /// Requests on observed routes, by outcome.
    pub(crate) observed: Counters<Observed>,
    /// Views, by outcome.
    pub(crate) views: Counters<Views>,
    /// Failed deliveries of batches, which are retried.
    pub(crate) batches_failed: Counter,
}

impl EventCounters {
    pub(crate) fn new(metrics: &mut Metrics) -> Self {
        let requests = Counters::new(metrics, Outcome::ALL, |outcome| {
            format!("{PREFIX}_requests_total.outcome.{}", outcome.label())
        });
        let observed = Counters::new(metrics, Observed::ALL, |outcome| {
            format!("{PREFIX}_observed_total.outcome.{}", outcome.label())
        });
        let views = Counters::new(metrics, Views::ALL, |outcome| {
            format!("{PREFIX}_views_total.outcome.{}", outcome.label())
        });
        let mut total = |subject: &str| metrics.counter(format!("{PREFIX}_{subject}_total"));
        Self {
            requests,
            observed,
            views,
            anonymous: total("anonymous"),
            forged: total("forged"),
            batches_failed: total("batches_failed"),
        }
    }
}
