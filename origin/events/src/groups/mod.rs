//! Consumer groups: each reads the log at its own pace and handles every event at least once.
//!
//! | module | does |
//! |---|---|
//! | [`runner`] | reads for one group: position, pauses, retries after an outage |
//! | `store` | the group `store`: writes events and dead letters to SQL |
//! | `work` | all other groups: handle events, retry, give up |
//! | [`marks`] | checkpoints that detect lost effects of a group |
//! | `health` | distinguishes an outage from a poison event |
//! | [`webhook`] | the group `webhook`: sends events to a URL |
//! | `status` | the status of a group |
//!
//! **Every event before a group's position is handled, in retry, or a dead letter.** Events interrupted by a crash are
//! handled again, so a [`Handler`] must be idempotent.
//!
//! **A customer's events are handled in order.** If one fails, the customer's later events wait until its retries end.
//! A handler that does not need order turns this off, and then no event waits.
//!
//! **An outage does not create dead letters.** If more than half of a batch fails, nothing is written. The group then
//! retries the same batch until it succeeds. An unavailable receiver therefore uses up no retries.
//!
//! To add a group, implement [`Handler`] and pass it in [`Settings`](super::Settings):
//!
//! ```
//! use weir_origin_events::groups::{Delivery, HandleFuture, Handler, Outcome};
//!
//! #[derive(Debug)]
//! struct Printer;
//!
//! impl Handler for Printer {
//!     fn handle<'a>(&'a self, events: &'a [Delivery]) -> HandleFuture<'a> {
//!         Box::pin(async move {
//!             let print = |event: &Delivery| {
//!                 println!("{} {}", event.envelope.event_type, event.envelope.id);
//!                 Outcome::Done
//!             };
//!             events.iter().map(print).collect()
//!         })
//!     }
//! }
//! ```

mod call;
pub mod health;
pub mod marks;
pub mod runner;
pub mod status;
pub mod store;
pub mod webhook;
pub mod work;

use std::collections::BTreeSet;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use weir_event::envelope::Envelope;

use weir_origin_core::background::Backoff;

/// Timeouts and retry intervals of groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupTimes {
    /// Time limit of one handler call.
    pub handle_max: Duration,
    /// Delay before each retry of a failed event, in milliseconds. After the last one the event becomes a dead letter.
    pub retries_after_ms: [u64; 5],
    /// Delay between a dead letter and the recomputation of its customer, in milliseconds. The store should have the
    /// customer's other events by then.
    pub recompute_after_ms: u64,
    /// Backoff during an outage.
    pub outage: Backoff,
    /// How often a group checks whether another origin paused or moved it.
    pub look: Duration,
}

impl Default for GroupTimes {
    /// 1 s, 10 s, 1 min, 10 min, 1 h.
    fn default() -> Self {
        Self {
            handle_max: Duration::from_secs(30),
            retries_after_ms: [1_000, 10_000, 60_000, 600_000, 3_600_000],
            recompute_after_ms: 60_000,
            outage: Backoff {
                first: Duration::from_secs(1),
                max: Duration::from_secs(60),
            },
            look: Duration::from_secs(1),
        }
    }
}

/// An event delivered to a group.
#[derive(Clone, Debug, PartialEq)]
pub struct Delivery {
    /// The event.
    pub envelope: Envelope,
    /// Its position in the log.
    pub position: u64,
    /// Number of previous attempts.
    pub tries: u32,
}

/// Outcome of one event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The event was handled.
    Done,
    /// The event failed; it is retried later.
    Failed(String),
    /// The event can never be handled: it becomes a dead letter immediately.
    Refused(String),
}

/// One outcome per event, in the same order.
pub type HandleFuture<'a> = Pin<Box<dyn Future<Output = Vec<Outcome>> + Send + 'a>>;

/// Result of a recomputation; the error is a message.
pub type RecomputeFuture<'a> = Pin<Box<dyn Future<Output = Result<(), String>> + Send + 'a>>;

/// Handles events of a group.
///
/// Each event is delivered at least once: again after a crash, after a seek, or if a client sent it twice. The handler
/// must be idempotent, by the event's id or by the nature of its effect.
pub trait Handler: fmt::Debug + Send + Sync {
    /// Handles events. If order matters, no two of them belong to the same customer, and a customer's next event is
    /// delivered after this one is done.
    fn handle<'a>(&'a self, events: &'a [Delivery]) -> HandleFuture<'a>;

    /// Whether a customer's events must be handled in order.
    fn keeps_order(&self) -> bool {
        true
    }

    /// Recomputes a customer's state in the group from `events`: all of the customer's stored events, oldest first. It
    /// runs some time after one of these events became a dead letter.
    fn recompute<'a>(
        &'a self,
        _unit: &'a Unit,
        _events: &'a [Envelope],
    ) -> Option<RecomputeFuture<'a>> {
        None
    }

    /// Whether [`Handler::recompute`] is implemented.
    fn can_recompute(&self) -> bool {
        false
    }
}

/// A group to run.
#[derive(Clone, Debug)]
pub struct NewGroup {
    /// Its name: 1 to 64 characters of `a-z`, `0-9`, `-` and `_`, except `store`.
    pub name: String,
    /// Handles its events.
    pub handler: Arc<dyn Handler>,
    /// Topics that it handles; `None`: all.
    pub topics: Option<BTreeSet<String>>,
    /// Checkpoints that detect lost effects, if effects can be lost.
    pub marks: Option<Arc<dyn marks::Marks>>,
}

impl NewGroup {
    /// A group that handles all topics.
    pub fn new(name: impl Into<String>, handler: Arc<dyn Handler>) -> Self {
        Self {
            name: name.into(),
            handler,
            topics: None,
            marks: None,
        }
    }
}

/// Ordering key of an event: events of one unit are handled in order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unit {
    /// A signed-in customer.
    Customer(String),
    /// An anonymous visitor.
    Visitor(String),
    /// Neither: the event has no order.
    Nobody,
}

impl Unit {
    /// The unit of an event.
    pub fn from_envelope(envelope: &Envelope) -> Self {
        match (&envelope.customer, &envelope.visitor) {
            (Some(customer), _) => Self::Customer(customer.as_str().to_owned()),
            (None, Some(visitor)) => Self::Visitor(visitor.as_str().to_owned()),
            (None, None) => Self::Nobody,
        }
    }

    /// Encodes the unit as stored in SQL.
    pub fn to_text(&self) -> String {
        match self {
            Self::Customer(id) => format!("c:{id}"),
            Self::Visitor(id) => format!("v:{id}"),
            Self::Nobody => String::new(),
        }
    }

    /// Decodes the unit as stored in SQL.
    pub fn from_text(text: &str) -> Self {
        match text.split_once(':') {
            Some(("c", id)) => Self::Customer(id.to_owned()),
            Some(("v", id)) => Self::Visitor(id.to_owned()),
            _ => Self::Nobody,
        }
    }
}
