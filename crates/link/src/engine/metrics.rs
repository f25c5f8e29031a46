//! The engine's counters; each name is defined here once.

use alloc::format;

use weir_engine::Metrics;
use weir_engine::metrics::{Counter, Counters};
use weir_engine::tag;

/// The prefix of all names.
pub(crate) const PREFIX: &str = "weir_shortlink";

tag! {
    /// Responses to requests.
    AnswerKind {
        /// A redirect.
        Redirect = "redirect",
        /// A page that opens an app.
        App = "app",
        /// A link preview for programs.
        Preview = "preview",
        /// None: the link has a password, which the origin checks.
        Guarded = "guarded",
        /// The link has ended.
        Gone = "gone",
        /// The link does not exist.
        Unknown = "unknown",
        /// A file for apps.
        File = "file",
        /// The link does not redirect this method.
        NotAllowed = "not_allowed",
        /// A prefetch of a link that counts its clicks.
        NotBeforeClick = "not_before_click",
        /// Too many requests wait for the origin.
        Overloaded = "overloaded",
        /// Neither Redis nor the origin is available.
        Unavailable = "unavailable",
        /// None: the host is not a link domain, or no domains are loaded yet.
        Passed = "passed",
    }
}

impl AnswerKind {
    /// The response details for access logs.
    pub(crate) const fn details(self) -> &'static str {
        match self {
            Self::Redirect => "weir_link_redirect",
            Self::App => "weir_link_app",
            Self::Preview => "weir_link_preview",
            Self::Guarded => "weir_link_guarded",
            Self::Gone => "weir_link_gone",
            Self::Unknown => "weir_link_unknown",
            Self::File => "weir_link_file",
            Self::NotAllowed => "weir_link_not_allowed",
            Self::NotBeforeClick => "weir_link_not_before_click",
            Self::Overloaded => "weir_link_overloaded",
            Self::Unavailable => "weir_link_unavailable",
            // The filter does not answer these requests.
            Self::Passed => "weir_link_passed",
        }
    }
}

tag! {
    /// Where a link was found.
    Place {
        /// In the cache.
        Memory = "memory",
        /// In the cache, as unknown.
        MemoryUnknown = "memory_unknown",
        /// In the cache, stale: neither Redis nor the origin could revalidate it.
        Stale = "stale",
        /// In Redis.
        Redis = "redis",
        /// At the origin, or nowhere.
        Origin = "origin",
    }
}

tag! {
    /// What happened to clicks.
    ClickOutcome {
        /// Counted.
        Counted = "counted",
        /// Sent to the stream.
        Sent = "sent",
        /// Dropped: Redis accepted too few batches.
        Dropped = "dropped",
        /// Returned clicks of links with a click limit.
        Returned = "returned",
    }
}

/// The counters of clicks.
pub(crate) type ClickCounters = Counters<ClickOutcome>;

/// Defines the counters of clicks.
pub(crate) fn click_counters(metrics: &mut Metrics) -> ClickCounters {
    Counters::new(metrics, ClickOutcome::ALL, |outcome| {
        format!("{PREFIX}_clicks_total.outcome.{}", outcome.label())
    })
}

/// The engine's counters.
#[derive(Debug)]
pub(crate) struct LinkCounters {
    /// Requests, by response.
    pub(crate) answers: Counters<AnswerKind>,
    /// Requests for links, by where the link was found.
    pub(crate) found: Counters<Place>,
    /// Clicks, by outcome.
    pub(crate) clicks: ClickCounters,
    /// Reads without a reply from Redis.
    pub(crate) redis_failed: Counter,
    /// Origin lookups.
    pub(crate) lookups: Counter,
    /// Origin lookups without an answer, or with a server error.
    pub(crate) lookups_failed: Counter,
    /// Links evicted from the cache for space.
    pub(crate) evictions: Counter,
    /// Edited links reported by polls.
    pub(crate) changes: Counter,
    /// Polls that could not report all edits.
    pub(crate) changes_missed: Counter,
    /// Loads of domains.
    pub(crate) domains_loaded: Counter,
    /// Polls that failed, or returned invalid domains.
    pub(crate) polls_failed: Counter,
    /// Records that could not be decoded.
    pub(crate) records_refused: Counter,
}

impl LinkCounters {
    pub(crate) fn new(metrics: &mut Metrics) -> Self {
        let answers = Counters::new(metrics, AnswerKind::ALL, |kind| {
            format!("{PREFIX}_answers_total.answer.{}", kind.label())
        });
        let found = Counters::new(metrics, Place::ALL, |place| {
            format!("{PREFIX}_found_total.place.{}", place.label())
        });
        // Defined even if clicks are not counted.
        let clicks = click_counters(metrics);
        let mut total = |subject: &str| metrics.counter(format!("{PREFIX}_{subject}_total"));
        Self {
            answers,
            found,
            clicks,
            redis_failed: total("redis_failed"),
            lookups: total("lookups"),
            lookups_failed: total("lookups_failed"),
            evictions: total("evictions"),
            changes: total("changes"),
            changes_missed: total("changes_missed"),
            domains_loaded: total("domains_loaded"),
            polls_failed: total("polls_failed"),
            records_refused: total("records_refused"),
        }
    }
}
