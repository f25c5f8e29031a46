//! Groups: each reads the log at its own pace and handles every event at least once.
//!
//! | module | does |
//! |---|---|
//! | [`runner`] | reads for one group: where it goes on, whether it runs |
//! | `store` | the group `store`: events and dead letters into SQL |
//! | `work` | every other group: handles events, tries again, gives up |
//! | [`marks`] | notices that what a group has done is lost |
//! | `health` | tells an outage from a poisoned event |
//! | [`webhook`] | the group `webhook`: events to a URL |
//! | `status` | what is told of a group |
//!
//! **Once it is written that a group has handled an event, it has, or the event is in the group's retries, or in the dead
//! letters.** What a crash interrupts is handled again, so a [`Handler`] must bear that.
//!
//! **A customer's events are handled in their order.** If one of them fails, those behind it wait, however long it is tried
//! again. A handler whose order does not count says so, and nothing waits.
//!
//! **An outage is no poison.** If more than half of what is handled together fails, nothing is written: the group tries the
//! same again until it works. So a receiver that is away costs no event its tries.
//!
//! One's own group is a [`Handler`], given to [`Settings`](super::Settings):
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

/// How patient groups are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupTimes {
    /// How long a handler may take for what it is given at once.
    pub handle_max: Duration,
    /// After how long a failed event is tried again, in milliseconds: after the first try, the second, and so on. After
    /// the last one it is given up.
    pub retries_after_ms: [u64; 5],
    /// How long after that its customer is computed anew, in milliseconds: the store should have the rest by then.
    pub recompute_after_ms: u64,
    /// The pauses of an outage.
    pub outage: Backoff,
    /// How often a group looks whether it was paused or moved by another origin.
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

/// An event, handed to a group.
#[derive(Clone, Debug, PartialEq)]
pub struct Delivery {
    /// What happened.
    pub envelope: Envelope,
    /// Its place in its log.
    pub position: u64,
    /// How often it was tried before.
    pub tries: u32,
}

/// The outcome of one event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was handled.
    Done,
    /// Not yet: it is tried again later.
    Failed(String),
    /// It never will be: it is a dead letter at once.
    Refused(String),
}

/// One outcome for each event, in their order.
pub type HandleFuture<'a> = Pin<Box<dyn Future<Output = Vec<Outcome>> + Send + 'a>>;

/// A unit, computed anew or not.
pub type RecomputeFuture<'a> = Pin<Box<dyn Future<Output = Result<(), String>> + Send + 'a>>;

/// Handles events for a group.
///
/// Each event comes at least once: twice after a crash, after a seek, or if a client has sent it twice. What handles it
/// must do the same thing once, by the event's id or by its own nature.
pub trait Handler: fmt::Debug + Send + Sync {
    /// Handles events. If order counts, no two of them are of one customer, and a customer's next event comes when this
    /// one is done.
    fn handle<'a>(&'a self, events: &'a [Delivery]) -> HandleFuture<'a>;

    /// Whether the order of a customer's events counts.
    fn keeps_order(&self) -> bool {
        true
    }

    /// How what it knows of a customer is computed anew, if it can be: `events` are all that the store has of them, the
    /// oldest first. It is called some time after an event of theirs was given up.
    fn recompute<'a>(
        &'a self,
        _unit: &'a Unit,
        _events: &'a [Envelope],
    ) -> Option<RecomputeFuture<'a>> {
        None
    }

    /// Whether [`Handler::recompute`] does anything.
    fn can_recompute(&self) -> bool {
        false
    }
}

/// A group that is to run.
#[derive(Clone, Debug)]
pub struct NewGroup {
    /// Its name: 1 to 64 of `a-z`, `0-9`, `-` and `_`, and not `store`.
    pub name: String,
    /// What it does.
    pub handler: Arc<dyn Handler>,
    /// Of which topics; none: of all.
    pub topics: Option<BTreeSet<String>>,
    /// What notices that its effects are lost, if they may be.
    pub marks: Option<Arc<dyn marks::Marks>>,
}

impl NewGroup {
    /// A group of all topics.
    pub fn new(name: impl Into<String>, handler: Arc<dyn Handler>) -> Self {
        Self {
            name: name.into(),
            handler,
            topics: None,
            marks: None,
        }
    }
}

/// Whose events stay in their order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unit {
    /// A customer's.
    Customer(String),
    /// Those of a visitor whom nobody knows.
    Visitor(String),
    /// Nobody's: it has no order.
    Nobody,
}

impl Unit {
    /// Whose an event is.
    pub fn from_envelope(envelope: &Envelope) -> Self {
        match (&envelope.customer, &envelope.visitor) {
            (Some(customer), _) => Self::Customer(customer.as_str().to_owned()),
            (None, Some(visitor)) => Self::Visitor(visitor.as_str().to_owned()),
            (None, None) => Self::Nobody,
        }
    }

    /// As SQL has it.
    pub fn to_text(&self) -> String {
        match self {
            Self::Customer(id) => format!("c:{id}"),
            Self::Visitor(id) => format!("v:{id}"),
            Self::Nobody => String::new(),
        }
    }

    /// As SQL has it, read.
    pub fn from_text(text: &str) -> Self {
        match text.split_once(':') {
            Some(("c", id)) => Self::Customer(id.to_owned()),
            Some(("v", id)) => Self::Visitor(id.to_owned()),
            _ => Self::Nobody,
        }
    }
}
