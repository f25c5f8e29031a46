//! The outbox: each change of an order or a link is told to others, at least once.
//!
//! A change is written in the transaction that makes it, so none is lost and none is told that did not happen. From there it is
//! sent by whichever origin leases its subject.
//!
//! | module | does |
//! |---|---|
//! | [`queue`] | changes in SQL, and who has which of them |
//! | [`runner`] | leases subjects, sends their changes, notes what became of them |
//! | [`webhook`] | the receiver that is a URL |
//!
//! **Of one subject, a change comes after those before it**, to each receiver by itself: while one cannot be sent, those behind
//! it wait, and other subjects do not. If an origin dies, the next one may send one change of a subject again. Only an origin
//! that pauses for longer than its lease during a request may send a change again after a later one; its `sequence` shows that.
//!
//! What is absent: which receivers there are, and how one may be the log of events: start-up says so. What a change says: that is
//! its domain's.

pub mod queue;
pub mod runner;
pub mod webhook;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use crate::background::Backoff;

pub use queue::{Backlog, LeasedSubject, PendingSubject, Queue, SendOutcome, Source};
pub use runner::Outbox;
pub use webhook::ChangeWebhook;

/// A receiver of changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SinkName {
    /// A URL.
    Webhook,
    /// The log of events.
    Events,
}

impl SinkName {
    /// Every receiver.
    pub const ALL: [Self; 2] = [Self::Webhook, Self::Events];

    /// The word in SQL, JSON and metrics.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Webhook => "webhook",
            Self::Events => "events",
        }
    }
}

/// Which receivers changes are written for. Without any, none are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sinks {
    /// A URL.
    pub webhook: bool,
    /// The log of events.
    pub events: bool,
}

impl Sinks {
    /// The sinks that are on.
    pub fn names(self) -> impl Iterator<Item = SinkName> {
        SinkName::ALL.into_iter().filter(move |name| match name {
            SinkName::Webhook => self.webhook,
            SinkName::Events => self.events,
        })
    }

    /// Whether any sink is on.
    pub fn has_any(self) -> bool {
        self.webhook || self.events
    }
}

/// A change, as it is written.
#[derive(Clone, Copy)]
pub struct NewChange<'a> {
    /// What has changed, by its name.
    pub subject: &'a str,
    /// What that belongs to.
    pub belongs_to: &'a str,
    /// What has happened, in a word.
    pub kind: &'static str,
    /// When, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// The JSON that receivers get, by the change's number.
    pub body: &'a (dyn Fn(u64) -> String + Sync),
}

/// A change of a subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The subject: an order, or a link.
    pub subject: String,
    /// 1, 2, 3 … of each subject.
    pub seq: u64,
    /// The order's sale, or the link's domain.
    pub belongs_to: String,
    /// What has happened, in a word such as `order.paid`.
    pub kind: String,
    /// The JSON that receivers get: the same at every try.
    pub body: String,
    /// When it was made, in milliseconds since the Unix epoch.
    pub at_ms: u64,
}

impl Change {
    /// Its name, by which a receiver knows one that comes again.
    pub fn id(&self) -> String {
        change_id(&self.subject, self.seq)
    }
}

/// The ID of a change: its subject and its number in the subject's sequence.
pub fn change_id(subject: &str, seq: u64) -> String {
    format!("{subject}.{seq}")
}

/// Whether a receiver has a change; if not, why.
pub type DeliveryFuture<'a> = Pin<Box<dyn Future<Output = Result<(), String>> + Send + 'a>>;

/// Takes changes.
///
/// Each comes at least once, and after a crash again. A call that is broken off may have told it.
pub trait Sink: fmt::Debug + Send + Sync {
    /// Takes a change; returns once it is the receiver's.
    fn deliver<'a>(&'a self, change: &'a Change) -> DeliveryFuture<'a>;
}

/// Counts what is told.
pub trait Meter: fmt::Debug + Send + Sync {
    /// Counts a change that a receiver has taken (`sent`), or not (`failed`).
    fn count_delivery(&self, receiver: SinkName, outcome: &'static str);

    /// Notes what waits for a receiver.
    fn backlog(&self, receiver: SinkName, backlog: Backlog, now_ms: u64);
}

/// How patient the outbox is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutboxTimes {
    /// How often it looks for changes.
    pub period: Duration,
    /// For how long a subject is an origin's. If that dies, others wait as long.
    pub lease: Duration,
    /// How long a subject waits whose change has failed.
    pub backoff: Backoff,
    /// For how long changes stay that every receiver has.
    pub retention: Duration,
}

impl Default for OutboxTimes {
    fn default() -> Self {
        Self {
            period: Duration::from_millis(250),
            lease: Duration::from_secs(30),
            backoff: Backoff {
                first: Duration::from_secs(1),
                max: Duration::from_secs(600),
            },
            retention: Duration::from_secs(7 * 24 * 60 * 60),
        }
    }
}
