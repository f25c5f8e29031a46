//! A claim becomes an order, or is released for good.
//!
//! SQL decides, Redis follows. Whatever is lost between the two, the same claim sent again finds
//! SQL's decision and has Redis follow it then.

use std::sync::Arc;

use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;
use tracing::{Instrument, Span, info, warn};
use weir_core::claim::Ticket;
use weir_core::ledger::ReleaseKind;

use crate::clock::now_ms;
use crate::ledger::Ledger;
use crate::store::{Placed, Shortage, Store, StoreError};

/// What became of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is an order now.
    Ordered,
    /// It was an order already.
    OrderedBefore,
    /// It was released before and never becomes an order; its user may claim again.
    Released,
    /// There was no unit for it: it is released.
    Short(Shortage),
}

/// Turns claims into orders.
#[derive(Clone, Debug)]
pub struct Orders {
    store: Arc<dyn Store>,
    ledger: Ledger,
    tasks: TaskTracker,
}

impl Orders {
    pub(crate) fn new(store: Arc<dyn Store>, ledger: Ledger) -> Self {
        Self {
            store,
            ledger,
            tasks: TaskTracker::new(),
        }
    }

    /// Decides the claim's fate in a task of its own, so that it ends even if nobody waits for it:
    /// a client that hangs up does not leave a unit hanging between SQL and Redis.
    ///
    /// The task fails with [`StoreError`] when SQL does not answer; then nothing was released.
    pub fn start(&self, ticket: Ticket) -> JoinHandle<Result<Fate, StoreError>> {
        let orders = self.clone();
        let task = async move { orders.decide(&ticket).await };
        self.tasks.spawn(task.instrument(Span::current()))
    }

    /// How many claims are being decided.
    pub fn in_flight(&self) -> usize {
        self.tasks.len()
    }

    /// Waits until none is being decided. To be called when no more can start.
    pub async fn finish(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    async fn decide(&self, ticket: &Ticket) -> Result<Fate, StoreError> {
        let placed = self.store.place(ticket, now_ms()).await?;
        let Placed::Short(shortage) = placed else {
            return Ok(self.follow(ticket, placed).await);
        };
        if self.store.void(ticket, now_ms()).await? {
            warn!(claim = %ticket.claim_id(), ?shortage, "no unit in SQL behind the claim");
            self.release(ticket, ReleaseKind::Void).await;
            return Ok(Fate::Short(shortage));
        }
        // The same claim, sent twice, got its fate in the other request meanwhile.
        let placed = self.store.place(ticket, now_ms()).await?;
        Ok(self.follow(ticket, placed).await)
    }

    /// Ends a claim whose deadline has passed: unless its fate is decided already, it is released for
    /// good. Redis follows.
    ///
    /// # Errors
    /// When SQL does not answer; then nothing was released.
    pub async fn end_overdue(&self, ticket: &Ticket) -> Result<Fate, StoreError> {
        let known = self.store.release(ticket, now_ms()).await?;
        let placed = known.unwrap_or(Placed::Released { void: false });
        Ok(self.follow(ticket, placed).await)
    }

    /// Has Redis follow what SQL has decided.
    async fn follow(&self, ticket: &Ticket, placed: Placed) -> Fate {
        match placed {
            Placed::New(_) => {
                info!(claim = %ticket.claim_id(), units = ticket.quantity, "ordered");
                self.settle(ticket).await;
                Fate::Ordered
            }
            Placed::Again(_) => {
                self.settle(ticket).await;
                Fate::OrderedBefore
            }
            Placed::Released { void: true } => {
                self.release(ticket, ReleaseKind::Void).await;
                Fate::Released
            }
            // A taken name: SQL can never hold an order of this claim, which is a release, too.
            Placed::Released { void: false } | Placed::NameTaken => {
                self.release(ticket, ReleaseKind::Decided).await;
                Fate::Released
            }
            Placed::Short(shortage) => Fate::Short(shortage),
        }
    }

    /// A failure changes nothing for the client: SQL has the order, and Redis learns of it when
    /// the claim is sent again.
    async fn settle(&self, ticket: &Ticket) {
        if let Err(error) = self.ledger.settle(ticket).await {
            warn!(claim = %ticket.claim_id(), %error, "not settled");
        }
    }

    /// As with [`Orders::settle`].
    async fn release(&self, ticket: &Ticket, kind: ReleaseKind) {
        if let Err(error) = self.ledger.release(ticket, kind).await {
            warn!(claim = %ticket.claim_id(), %error, "not released");
        }
    }
}
