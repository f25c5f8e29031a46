//! The filter's counters, each named here once.

use weir_base::breaker::State;
use weir_filter_kit::metrics::Counter;
use weir_filter_kit::pump::Counts;

/// What a request was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnswerKind {
    /// A redirect.
    Redirect,
    /// A page that opens an app.
    App,
    /// The link leads nowhere any more.
    Gone,
    /// There is no such link.
    Unknown,
    /// A file for apps.
    File,
    /// A method that the link does not redirect.
    NotAllowed,
    /// What the origin said.
    Relayed,
    /// Too many look-ups, or too many that wait.
    Overloaded,
    /// Neither Redis nor the origin could be asked.
    Unavailable,
    /// Nothing: it is no link's domain, or none is known yet.
    Passed,
}

/// Where a link was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum From {
    /// In this VM's memory.
    Memory,
    /// In this VM's memory, known to be unknown.
    MemoryUnknown,
    /// In this VM's memory, since nobody could be asked.
    Stale,
    /// In Redis.
    Redis,
    /// At the origin, or nowhere.
    Origin,
}

/// What became of clicks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clicks {
    /// They are counted.
    Counted,
    /// They stand in the stream.
    Sent,
    /// Redis took too few batches, so that they are lost.
    Dropped,
}

/// What one VM counts.
#[derive(Debug)]
pub(crate) struct Metrics {
    answers: [(AnswerKind, Counter); 10],
    found: [(From, Counter); 5],
    clicks: [(Clicks, Counter); 3],
    breaker: [(State, Counter); State::ALL.len()],
    batches: Counter,
    commands: Counter,
    batch_requests: Counter,
    /// Requests that got no reply of Redis.
    pub(crate) redis_failed: Counter,
    /// Look-ups at the origin.
    pub(crate) lookups: Counter,
    /// Look-ups without an answer, or with one of the origin's own trouble.
    pub(crate) lookups_failed: Counter,
    /// Links that made room for others.
    pub(crate) evictions: Counter,
    /// Links that were dropped since they were edited.
    pub(crate) changes: Counter,
    /// How often changes were missed.
    pub(crate) changes_missed: Counter,
    /// How often other domains were read, and count.
    pub(crate) domains_loaded: Counter,
    /// Polls without an answer, or with domains that are none.
    pub(crate) polls_failed: Counter,
    /// Records that are none.
    pub(crate) records_refused: Counter,
}

impl Metrics {
    pub(crate) fn define() -> Self {
        let counter = |what: &str| Counter::define(&format!("weir_shortlink_{what}"));
        let total = |what: &str| counter(&format!("{what}_total"));
        Self {
            answers: AnswerKind::ALL.map(|kind| {
                (
                    kind,
                    counter(&format!("answers_total.answer.{}", kind.word())),
                )
            }),
            found: From::ALL
                .map(|from| (from, counter(&format!("found_total.place.{}", from.word())))),
            clicks: Clicks::ALL.map(|outcome| {
                (
                    outcome,
                    counter(&format!("clicks_total.outcome.{}", outcome.word())),
                )
            }),
            breaker: State::ALL.map(|state| {
                (
                    state,
                    counter(&format!("redis_breaker_total.state.{}", state.word())),
                )
            }),
            batches: total("redis_batches"),
            commands: total("redis_commands"),
            batch_requests: total("redis_requests"),
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

    /// A request was answered.
    pub(crate) fn answered(&self, kind: AnswerKind) {
        count(&self.answers, kind, 1);
    }

    /// A link was found, or not.
    pub(crate) fn found(&self, from: From) {
        count(&self.found, from, 1);
    }

    /// So many clicks have fared so.
    pub(crate) fn clicks(&self, outcome: Clicks, clicks: u64) {
        count(
            &self.clicks,
            outcome,
            usize::try_from(clicks).unwrap_or(usize::MAX),
        );
    }

    /// The breaker has entered a state.
    pub(crate) fn breaker_entered(&self, state: State) {
        count(&self.breaker, state, 1);
    }

    /// What the pump has sent.
    pub(crate) fn sent(&self, counts: Counts) {
        self.batches.add(counts.batches);
        self.commands.add(counts.commands);
        self.batch_requests.add(counts.requests);
    }
}

fn count<T: Copy + PartialEq>(counters: &[(T, Counter)], of: T, by: usize) {
    let mut counters = counters.iter();
    if let Some((_, counter)) = counters.find(|(known, _)| *known == of) {
        counter.add(by);
    }
}

impl AnswerKind {
    const ALL: [Self; 10] = [
        Self::Redirect,
        Self::App,
        Self::Gone,
        Self::Unknown,
        Self::File,
        Self::NotAllowed,
        Self::Relayed,
        Self::Overloaded,
        Self::Unavailable,
        Self::Passed,
    ];

    const fn word(self) -> &'static str {
        match self {
            Self::Redirect => "redirect",
            Self::App => "app",
            Self::Gone => "gone",
            Self::Unknown => "unknown",
            Self::File => "file",
            Self::NotAllowed => "not_allowed",
            Self::Relayed => "relayed",
            Self::Overloaded => "overloaded",
            Self::Unavailable => "unavailable",
            Self::Passed => "passed",
        }
    }
}

impl From {
    const ALL: [Self; 5] = [
        Self::Memory,
        Self::MemoryUnknown,
        Self::Stale,
        Self::Redis,
        Self::Origin,
    ];

    const fn word(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::MemoryUnknown => "memory_unknown",
            Self::Stale => "stale",
            Self::Redis => "redis",
            Self::Origin => "origin",
        }
    }
}

impl Clicks {
    const ALL: [Self; 3] = [Self::Counted, Self::Sent, Self::Dropped];

    const fn word(self) -> &'static str {
        match self {
            Self::Counted => "counted",
            Self::Sent => "sent",
            Self::Dropped => "dropped",
        }
    }
}
