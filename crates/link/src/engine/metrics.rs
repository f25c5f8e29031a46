//! What the engine counts, each under a name that stands here once.

use alloc::format;

use weir_engine::Metrics;
use weir_engine::metrics::{Counter, Counters};
use weir_engine::tag;

/// How all names begin.
pub(crate) const PREFIX: &str = "weir_shortlink";

tag! {
    /// What a request was answered.
    AnswerKind {
        /// A redirect.
        Redirect = "redirect",
        /// A page that opens an app.
        App = "app",
        /// What a program that previews links is shown.
        Preview = "preview",
        /// Nothing: the link has a password, which the origin asks for.
        Guarded = "guarded",
        /// The link has ended.
        Gone = "gone",
        /// There is no such link.
        Unknown = "unknown",
        /// A file for apps.
        File = "file",
        /// The link does not redirect this method.
        NotAllowed = "not_allowed",
        /// A prefetch of a link that counts its clicks.
        NotBeforeClick = "not_before_click",
        /// Too many requests wait for the origin.
        Overloaded = "overloaded",
        /// Neither Redis nor the origin could be asked.
        Unavailable = "unavailable",
        /// Nothing: the host is no domain of links, or no domains are known yet.
        Passed = "passed",
    }
}

impl AnswerKind {
    /// The details of such an answer, for access logs.
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
            // It is not answered here.
            Self::Passed => "weir_link_passed",
        }
    }
}

tag! {
    /// Where a link was found.
    Place {
        /// In memory.
        Memory = "memory",
        /// In memory, as unknown.
        MemoryUnknown = "memory_unknown",
        /// In memory, while nobody could be asked whether it still holds.
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
        /// Sent: they are in the stream.
        Sent = "sent",
        /// Dropped: Redis took too few batches.
        Dropped = "dropped",
        /// Given back: a link with a click limit has the click again.
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

/// The counters of links.
#[derive(Debug)]
pub(crate) struct LinkCounters {
    /// Requests, by what they were answered.
    pub(crate) answers: Counters<AnswerKind>,
    /// Requests for links, by where the link was found.
    pub(crate) found: Counters<Place>,
    /// Clicks, by what happened to them.
    pub(crate) clicks: ClickCounters,
    /// Reads without a reply of Redis.
    pub(crate) redis_failed: Counter,
    /// Look-ups at the origin.
    pub(crate) lookups: Counter,
    /// Look-ups that the origin did not answer, or with an error of its own.
    pub(crate) lookups_failed: Counter,
    /// Links that were forgotten to make room for others.
    pub(crate) evictions: Counter,
    /// Edited links of which polls told.
    pub(crate) changes: Counter,
    /// How often a poll could not tell of all edits.
    pub(crate) changes_missed: Counter,
    /// How often domains were read.
    pub(crate) domains_loaded: Counter,
    /// Polls that failed, or found invalid domains.
    pub(crate) polls_failed: Counter,
    /// Records that could not be read.
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
        // They are there even if clicks are not counted.
        let clicks = click_counters(metrics);
        let mut total = |what: &str| metrics.counter(format!("{PREFIX}_{what}_total"));
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
