//! The outbox: each change of an order is told to others, at least once.
//!
//! A change is written in the transaction that makes it ([`store`](super::store)), so none is lost and none is told that did
//! not happen. From there it is sent by whichever origin leases its order.
//!
//! | module | does |
//! |---|---|
//! | [`runner`] | leases orders, sends their changes, notes what became of them |
//! | [`webhook`] | the receiver that is a URL |
//!
//! **Of one order, a change comes after those before it**, to each receiver by itself: while one cannot be sent, those behind
//! it wait, and other orders do not. Only an origin that stands still for longer than its lease while a request is under way
//! may send one change again after a later one; the `sequence` in it tells.
//!
//! What is absent: which receivers there are. Start-up says so.

pub mod runner;
pub mod webhook;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use super::store::OrderChange;
use crate::background::Backoff;

pub use runner::Outbox;
pub use webhook::OrderWebhook;

/// Whether a receiver has a change; if not, why.
pub type Delivered<'a> = Pin<Box<dyn Future<Output = Result<(), String>> + Send + 'a>>;

/// Takes changes of orders.
///
/// Each comes at least once, and after a crash again. A call that is broken off may have told it.
pub trait Sink: fmt::Debug + Send + Sync {
    /// Takes a change; returns once it is the receiver's.
    fn deliver<'a>(&'a self, change: &'a OrderChange) -> Delivered<'a>;
}

/// How patient the outbox is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutboxTimes {
    /// How often it looks for changes.
    pub period: Duration,
    /// For how long an order is an origin's. If that dies, others wait as long.
    pub lease: Duration,
    /// How long an order waits whose change has failed.
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
