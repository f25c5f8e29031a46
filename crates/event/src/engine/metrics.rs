//! What the engine counts, each under a name that stands here once. What its limits count is
//! `weir_ratelimit_…`, as everywhere.

use alloc::format;

use weir_engine::Metrics;
use weir_engine::metrics::{Counter, Counters};
use weir_engine::tag;

/// How all names begin.
const PREFIX: &str = "weir_events";

tag! {
    /// The outcome of a request with events.
    Outcome {
        /// It went on to the origin.
        Forwarded = "forwarded",
        /// The person has not agreed.
        Dropped = "dropped",
        /// The visitor is not in the sample.
        Sampled = "sampled",
        /// A browser asked whether it may send.
        Preflight = "preflight",
        /// It has no key, or none that is known.
        Unauthorized = "unauthorized",
        /// It comes from a page that may not send.
        OriginNotAllowed = "origin_not_allowed",
        /// A method that sends no events.
        Method = "method",
        /// Neither JSON nor text.
        ContentType = "content_type",
        /// It does not say how long it is, or is too long.
        Length = "length",
        /// Something else is wrong with its head.
        Malformed = "malformed",
        /// A limit refused it, or could not be checked.
        Limited = "limited",
    }
}

tag! {
    /// The outcome of a request of an observed route.
    Observed {
        /// A view.
        View = "view",
        /// A crawler, a link preview, a monitor.
        Bot = "bot",
        /// A browser that fetches before anybody has clicked.
        Prefetch = "prefetch",
        /// The person has not agreed.
        Dropped = "dropped",
        /// The response was an error, or there was none.
        Failed = "failed",
        /// What stands in the path is no text that an event may have.
        Malformed = "malformed",
        /// Too many requests of observed routes were open.
        Overloaded = "overloaded",
    }
}

tag! {
    /// The outcomes of views.
    Views {
        /// The origin accepted them, or knew them already.
        Accepted = "accepted",
        /// The origin rejected them.
        Rejected = "rejected",
        /// The origin refused their batch.
        Refused = "refused",
        /// They were dropped: the origin took too few batches.
        Dropped = "dropped",
    }
}

/// The engine's counters.
#[derive(Debug)]
pub(crate) struct EventCounters {
    /// Requests with events, by outcome.
    pub(crate) requests: Counters<Outcome>,
    /// Requests that went on without who they are of.
    pub(crate) anonymous: Counter,
    /// Requests with stamps that a client forged.
    pub(crate) forged: Counter,
    /// Requests of observed routes, by outcome.
    pub(crate) observed: Counters<Observed>,
    /// Views, by outcome.
    pub(crate) views: Counters<Views>,
    /// Batches of views that the origin did not take, and that were kept.
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
        let mut total = |what: &str| metrics.counter(format!("{PREFIX}_{what}_total"));
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
