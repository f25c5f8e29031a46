//! Admin routes of orders that SQL has lost.

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use tracing::error;
use utoipa::ToSchema;
use weir_base::id::SaleId;

use super::refusals::{CLAIMS_OPEN, SALE_NOT_PAUSED};
use super::switches::stored;
use super::{SalePath, unknown_sale};
use crate::Sales;
use crate::jobs::catalogue::PublishError;
use crate::lost_orders::{DecideError, DecidedOrder, Decision, LostOrder};
use weir_origin_core::http::{Problem, TypedBody};

/// Maximum number of orders in one answer. `count` is the full number.
const ORDERS_MAX: usize = 1_000;

/// Orders of a sale that SQL has lost.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = LostOrders)]
pub(super) struct LostOrdersView {
    /// The sale's id.
    #[schema(value_type = String)]
    id: SaleId,
    /// Time of the pause, in milliseconds since the Unix epoch; null: not paused.
    #[schema(required)]
    paused_at_ms: Option<u64>,
    /// Number of lost order changes in Redis: a created order is one, an ended order another.
    changes_lost: u64,
    /// Number of lost orders that Redis still has, without orders that ended.
    count: usize,
    /// These orders, at most 1,000.
    orders: Vec<LostOrder>,
}

/// Decision about lost orders.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = LostOrdersDecided)]
pub(super) struct NewDecision {
    /// `accept`: SQL is right. `restore`: the orders are created again, as far as stock and limits allow.
    decision: Decision,
}

/// Result of the decision.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = LostOrdersOutcome)]
pub(super) struct OutcomeView {
    /// The sale's id.
    #[schema(value_type = String)]
    id: SaleId,
    /// The decision.
    decision: Decision,
    /// Number of affected orders.
    count: usize,
    /// These orders, at most 1,000. The origin's log has all.
    orders: Vec<DecidedOrder>,
}

/// List confirmed orders that SQL has lost
///
/// Lists orders that Redis has and SQL does not. It reads all orders of the sale.
#[utoipa::path(
    get,
    path = "/sales/{id}/lost-orders",
    operation_id = "listLostOrders",
    params(("id" = String, Path, description = "The name of the sale.")),
    responses((status = 200, description = "The lost orders", body = LostOrdersView)),
)]
pub(super) async fn list(
    State(sales): State<Sales>,
    SalePath(id): SalePath,
) -> Result<Json<LostOrdersView>, Problem> {
    let stored = stored(&sales, &id).await?;
    let lost_orders = sales.lost_orders();
    let changes_lost = lost_orders.changes_lost(&stored.sale).await?;
    let mut orders = lost_orders.list(&stored.sale).await?;
    let count = orders.len();
    orders.truncate(ORDERS_MAX);
    Ok(Json(LostOrdersView {
        id,
        paused_at_ms: stored.paused_at_ms,
        changes_lost,
        count,
        orders,
    }))
}

/// Accept or restore lost orders, and resume the sale
///
/// Drops the lost orders or creates them again. Then the origin rebuilds Redis from SQL, and the sale resumes. After a
/// timeout, send the request again.
#[utoipa::path(
    post,
    path = "/sales/{id}/lost-orders",
    operation_id = "decideLostOrders",
    params(("id" = String, Path, description = "The name of the sale.")),
    request_body = NewDecision,
    responses((status = 200, description = "The sale resumes", body = OutcomeView)),
)]
pub(super) async fn decide(
    State(sales): State<Sales>,
    SalePath(id): SalePath,
    TypedBody(new): TypedBody<NewDecision>,
) -> Result<Json<OutcomeView>, Problem> {
    let (lost_orders, sale, decision) = (sales.lost_orders(), id.clone(), new.decision);
    // A large sale takes longer than the request timeout. The task continues after the request ends.
    let work = tokio::spawn(async move { lost_orders.decide(&sale, decision).await });
    let decided = work.await.map_err(|_| Problem::sql())?;
    let mut orders = decided.map_err(|failure| undecided(&id, failure))?;
    let count = orders.len();
    orders.truncate(ORDERS_MAX);
    Ok(Json(OutcomeView {
        id,
        decision: new.decision,
        count,
        orders,
    }))
}

fn undecided(id: &SaleId, failure: DecideError) -> Problem {
    match failure {
        DecideError::UnknownSale => unknown_sale(),
        DecideError::NotPaused => SALE_NOT_PAUSED
            .because("the sale has no lost orders, or another operator has already decided"),
        DecideError::ClaimsOpen(_) => CLAIMS_OPEN.because(failure.to_string()).retry(),
        DecideError::Unavailable(error) => error.into(),
        DecideError::Publish(failure) => {
            error!(error = %failure, sale = %id, "the sale resumes, but cannot update the catalogue yet; retrying");
            match failure {
                PublishError::Ledger(_) => Problem::redis(),
                _ => Problem::sql(),
            }
        }
    }
}
