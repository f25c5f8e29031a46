//! The outbox: delivers each change of an order or a link to receivers at least once.
//!
//! A change is stored in the transaction that makes it. So no change is lost, and no change is sent that did not
//! happen. The origin that leases the subject sends its changes.
//!
//! | module | contents |
//! |---|---|
//! | [`queue`] | changes and deliveries in SQL, with leases |
//! | [`runner`] | leases subjects, sends their changes, stores the outcomes |
//! | [`webhook`] | the receiver that is a URL |
//!
//! **The changes of one subject are sent in order**, to each receiver independently. While a change cannot be sent,
//! later changes of its subject wait; other subjects continue. If an origin crashes, the next one may repeat one change
//! per subject. Only an origin that pauses for longer than its lease during a request may repeat a change after a later
//! one; the `sequence` shows it.
//!
//! Start-up configures the receivers, such as the event log. The domains define the content of changes.

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
    /// The event log.
    Events,
}

impl SinkName {
    /// All receivers.
    pub const ALL: [Self; 2] = [Self::Webhook, Self::Events];

    /// The label in SQL, JSON and metrics.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Webhook => "webhook",
            Self::Events => "events",
        }
    }
}

/// The enabled receivers. Without any, no changes are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sinks {
    /// Whether the webhook is enabled.
    pub webhook: bool,
    /// Whether the event log is enabled.
    pub events: bool,
}

impl Sinks {
    /// The enabled receivers.
    pub fn names(self) -> impl Iterator<Item = SinkName> {
        SinkName::ALL.into_iter().filter(move |name| match name {
            SinkName::Webhook => self.webhook,
            SinkName::Events => self.events,
        })
    }

    /// Whether any receiver is enabled.
    pub fn has_any(self) -> bool {
        self.webhook || self.events
    }
}

/// A change to store.
#[derive(Clone, Copy)]
pub struct NewChange<'a> {
    /// Name of the changed object.
    pub subject: &'a str,
    /// The order's sale, or the link's domain.
    pub belongs_to: &'a str,
    /// Kind of the change, such as `order.paid`.
    pub kind: &'static str,
    /// Time of the change, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// Returns the JSON for receivers, given the change's sequence number.
    pub body: &'a (dyn Fn(u64) -> String + Sync),
}

/// A stored change of a subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The subject: an order, or a link.
    pub subject: String,
    /// Sequence number within the subject: 1, 2, 3 …
    pub seq: u64,
    /// The order's sale, or the link's domain.
    pub belongs_to: String,
    /// Kind of the change, such as `order.paid`.
    pub kind: String,
    /// The JSON for receivers, the same at each try.
    pub body: String,
    /// Time of the change, in milliseconds since the Unix epoch.
    pub at_ms: u64,
}

impl Change {
    /// Id by which receivers deduplicate repeated changes.
    pub fn id(&self) -> String {
        change_id(&self.subject, self.seq)
    }
}

/// Id of a change: its subject and its sequence number.
pub fn change_id(subject: &str, seq: u64) -> String {
    format!("{subject}.{seq}")
}

/// Completes when the receiver has accepted a change, or with the cause of the failure.
pub type DeliveryFuture<'a> = Pin<Box<dyn Future<Output = Result<(), String>> + Send + 'a>>;

/// A receiver of changes.
///
/// Each change is delivered at least once, and may be repeated after a crash. A cancelled call may have delivered the
/// change.
pub trait Sink: fmt::Debug + Send + Sync {
    /// Delivers a change; completes when the receiver has accepted it.
    fn deliver<'a>(&'a self, change: &'a Change) -> DeliveryFuture<'a>;
}

/// Counts deliveries.
pub trait Meter: fmt::Debug + Send + Sync {
    /// Counts a change that a receiver accepted (`sent`) or not (`failed`).
    fn count_delivery(&self, receiver: SinkName, outcome: &'static str);

    /// Records the backlog of a receiver.
    fn backlog(&self, receiver: SinkName, backlog: Backlog, now_ms: u64);
}

/// Intervals and timeouts of the outbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutboxTimes {
    /// Interval between two polls for changes.
    pub period: Duration,
    /// Duration of a lease on a subject. After a crash, other origins wait this long.
    pub lease: Duration,
    /// Pauses of a subject after a failed change.
    pub backoff: Backoff,
    /// How long changes are retained after all receivers have accepted them.
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
