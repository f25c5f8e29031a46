//! What operators do with orders: many at once, and as a table.
//!
//! | module | does |
//! |---|---|
//! | here | cancels and refunds, with a verdict for each order |
//! | [`export`] | orders as CSV, a page at a time |
//!
//! One order at a time is decided in SQL ([`store`](super::store)); Redis follows as it does everywhere
//! ([`orders`](super::orders)), so units come back to the shards by the one way that there is.

pub mod export;

use serde::{Deserialize, Serialize};
use tokio::task::JoinError;
use utoipa::ToSchema;

use super::orders::Orders;
use super::store::{CancelOutcome, Refund, StoredOrder};
use weir_origin_core::sql::SqlError;

/// Action on orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[schema(as = OrderAction)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Cancel unpaid orders.
    Cancel,
    /// End paid orders; their refund becomes due.
    Refund,
}

/// The outcome of one order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = OrderActionVerdict)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It is done.
    Done,
    /// Already done.
    DoneBefore,
    /// The order is paid; refund it instead.
    OrderPaid,
    /// The order is not paid, or has ended; nothing to refund.
    OrderNotPaid,
    /// The order has already expired.
    OrderExpired,
    /// There is no such order.
    UnknownOrder,
    /// Not possible now; try again.
    TryAgain,
}

/// Does this with one order.
///
/// # Errors
/// When SQL does not answer, or a task ends early: then it may be done, and asking again is safe.
pub async fn act(orders: &Orders, action: Action, id: String) -> Result<Verdict, ActError> {
    Ok(match action {
        Action::Cancel => cancelled(&orders.cancel_any(id).await??),
        Action::Refund => refunded(&orders.refund(id).await??),
    })
}

/// It is not known whether it was done.
#[derive(Debug, thiserror::Error)]
pub enum ActError {
    /// SQL did not answer.
    #[error(transparent)]
    Sql(#[from] SqlError),
    /// The task that did it ended early.
    #[error(transparent)]
    Ended(#[from] JoinError),
}

fn cancelled(cancelled: &CancelOutcome) -> Verdict {
    match cancelled {
        CancelOutcome::Now(_) => Verdict::Done,
        CancelOutcome::Again(_) => Verdict::DoneBefore,
        CancelOutcome::Expired(_) => Verdict::OrderExpired,
        CancelOutcome::Paid(_) => Verdict::OrderPaid,
        CancelOutcome::Unknown => Verdict::UnknownOrder,
    }
}

fn refunded(refund: &Refund) -> Verdict {
    match refund {
        Refund::Now(..) => Verdict::Done,
        Refund::Again(..) => Verdict::DoneBefore,
        Refund::NotPaid(StoredOrder { .. }) => Verdict::OrderNotPaid,
        Refund::Busy => Verdict::TryAgain,
        Refund::Unknown => Verdict::UnknownOrder,
    }
}
