//! A user's orders. The gateway says who the user is, and signs it.

use axum::Json;
use axum::extract::{FromRequestParts, Path, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use serde::Serialize;
use tokio::task::JoinError;
use tracing::{error, warn};
use weir_base::headers;
use weir_base::id::UserId;
use weir_sale::identity;

use super::orders::{OrderView, only};
use super::payments::PaymentView;
use crate::Sales;
use crate::payload::Payload;
use crate::store::Cancelled;
use weir_origin_core::clock::now_ms;
use weir_origin_core::http::Problem;
use weir_origin_core::sql::SqlError;

/// Who asks.
pub(super) struct SignedUser(pub UserId);

impl FromRequestParts<Sales> for SignedUser {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, sales: &Sales) -> Result<Self, Problem> {
        signed_user(sales, &parts.headers).map(Self)
    }
}

/// Who asks, by the headers that a gateway has signed.
pub(super) fn signed_user(sales: &Sales, headers: &HeaderMap) -> Result<UserId, Problem> {
    let value = only(headers, headers::USER, user_missing, user_invalid)?;
    let signature = headers::USER_SIGNATURE;
    let signature = only(headers, signature, user_missing, user_invalid)?;
    let user = identity::verify(&sales.keys, value, signature, now_ms());
    user.map_err(|error| {
        warn!(%error, "a user is refused");
        user_invalid()
    })
}

/// An order with its last payment.
#[derive(Debug, Serialize)]
pub(super) struct PaidOrderView {
    #[serde(flatten)]
    order: OrderView,
    /// null: nobody has started to pay.
    payment: Option<PaymentView>,
    /// What the user has said with it; null: the sale wants nothing.
    payload: Option<Payload>,
}

/// `GET /orders/{id}`: an order of this user.
pub(super) async fn get(
    State(sales): State<Sales>,
    SignedUser(user): SignedUser,
    Path(id): Path<String>,
) -> Result<Json<PaidOrderView>, Problem> {
    let order = sales.orders.sql(sales.store.order(&id, &user)).await;
    let order = order?.ok_or_else(unknown_order)?;
    let payment = sales.orders.sql(sales.store.last_payment(&id)).await?;
    Ok(Json(PaidOrderView {
        order: OrderView::from(&order),
        payment: payment.map(PaymentView::from),
        payload: sales.orders.sql(sales.store.payload(&id)).await?,
    }))
}

/// `POST /orders/{id}/cancel`: takes an unpaid order back. Again changes nothing.
pub(super) async fn cancel(
    State(sales): State<Sales>,
    SignedUser(user): SignedUser,
    Path(id): Path<String>,
) -> Result<Json<OrderView>, Problem> {
    let cancelled = sales.orders.cancel(id, user).await;
    match ended(cancelled)? {
        Cancelled::Now(order) | Cancelled::Again(order) => Ok(Json(OrderView::from(&order))),
        Cancelled::Expired(_) => Err(conflict("order_expired", "the order has expired before")),
        Cancelled::Paid(_) => Err(conflict("order_paid", "the order is paid, and stays")),
        Cancelled::Unknown => Err(unknown_order()),
    }
}

/// The outcome of a task that decides an order.
type Ended<T> = Result<Result<T, SqlError>, JoinError>;

pub(super) fn ended<T>(outcome: Ended<T>) -> Result<T, Problem> {
    let answer = outcome.map_err(|error| {
        // A panic in the task: a fault of ours, with the outcome unknown.
        error!(%error, "an order's task ended early");
        Problem::sql()
    })?;
    Ok(answer?)
}

pub(super) fn conflict(code: &'static str, detail: &'static str) -> Problem {
    Problem::conflict(code, "Not possible", detail)
}

pub(super) fn unknown_order() -> Problem {
    Problem::not_found("unknown_order", "Unknown order", "you have no such order")
}

fn user_missing() -> Problem {
    let status = StatusCode::UNAUTHORIZED;
    let detail = "requests come with a user that a gateway signed";
    Problem::new(status, "user_missing", "No user", detail).challenge("Weir-User")
}

fn user_invalid() -> Problem {
    let status = StatusCode::FORBIDDEN;
    let detail = "the user is not one that this origin's gateways signed";
    Problem::new(status, "user_invalid", "Invalid user", detail)
}
