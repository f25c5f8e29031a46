//! Operators' actions on orders: batch actions and CSV export.
//!
//! | module | contents |
//! |---|---|
//! | this one | cancellation and refund, with a verdict per order |
//! | [`export`] | CSV export, page by page |
//!
//! SQL decides each order on its own ([`store`](super::store)). Redis follows as for all orders
//! ([`orders`](super::orders)), so units return to the shards as usual.

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

/// Applies the action to one order.
///
/// # Errors
/// When SQL does not answer, or a task ends early. The action may be done; calling it again is safe.
pub async fn act(orders: &Orders, action: Action, id: String) -> Result<Verdict, ActError> {
    Ok(match action {
        Action::Cancel => cancelled(&orders.cancel_any(id).await??),
        Action::Refund => refunded(&orders.refund(id).await??),
    })
}

/// It is unknown whether the action was done.
#[derive(Debug, thiserror::Error)]
pub enum ActError {
    /// SQL did not answer.
    #[error(transparent)]
    Sql(#[from] SqlError),
    /// The task ended early.
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
