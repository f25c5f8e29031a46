//! What a user does with orders and reservations. Who the user is, the gateway says, signed.

use axum::Json;
use axum::extract::{FromRequestParts, Path, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use serde_json::{Value, json};
use tokio::task::JoinError;
use tracing::{error, warn};
use weir_base::headers;
use weir_base::id::UserId;
use weir_sale::identity;

use super::input::SalePath;
use super::orders::{OrderView, only};
use crate::Origin;
use crate::clock::now_ms;
use crate::ledger::UserList;
use crate::problem::Problem;
use crate::store::{Cancelled, Paid, Reserved, StoreError};

/// Who asks.
pub(super) struct SignedUser(pub UserId);

impl FromRequestParts<Origin> for SignedUser {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, origin: &Origin) -> Result<Self, Problem> {
        let value = only(&parts.headers, headers::USER, user_missing, user_invalid)?;
        let signature = headers::USER_SIGNATURE;
        let signature = only(&parts.headers, signature, user_missing, user_invalid)?;
        let user = identity::verify(&origin.keys, value, signature, now_ms());
        user.map(Self).map_err(|error| {
            warn!(%error, "a user is refused");
            user_invalid()
        })
    }
}

/// `GET /orders/{id}`: an order of this user.
pub(super) async fn get(
    State(origin): State<Origin>,
    SignedUser(user): SignedUser,
    Path(id): Path<String>,
) -> Result<Json<OrderView>, Problem> {
    let order = origin.orders.sql(origin.store.order(&id, &user)).await;
    let order = order.map_err(|error| sql_failed(&error))?;
    Ok(Json(OrderView::from(&order.ok_or_else(unknown_order)?)))
}

/// `POST /orders/{id}/pay`: pays it, if its time has not passed. Again changes nothing.
pub(super) async fn pay(
    State(origin): State<Origin>,
    SignedUser(user): SignedUser,
    Path(id): Path<String>,
) -> Result<Json<OrderView>, Problem> {
    let paid = origin.orders.pay(id, user).await;
    match ended(paid)? {
        Paid::Now(order) | Paid::Again(order) => Ok(Json(OrderView::from(&order))),
        Paid::Expired => Err(conflict("order_expired", "the time to pay has passed")),
        Paid::Cancelled => Err(conflict("order_cancelled", "the order was cancelled")),
        Paid::SoldOut => Err(conflict("sold_out", "sold out")),
        Paid::Unknown => Err(unknown_order()),
    }
}

/// `POST /orders/{id}/cancel`: takes an unpaid order back. Again changes nothing.
pub(super) async fn cancel(
    State(origin): State<Origin>,
    SignedUser(user): SignedUser,
    Path(id): Path<String>,
) -> Result<Json<OrderView>, Problem> {
    let cancelled = origin.orders.cancel(id, user).await;
    match ended(cancelled)? {
        Cancelled::Now(order) | Cancelled::Again(order) => Ok(Json(OrderView::from(&order))),
        Cancelled::Expired(_) => Err(conflict("order_expired", "the order has expired before")),
        Cancelled::Paid(_) => Err(conflict("order_paid", "the order is paid, and stays")),
        Cancelled::Unknown => Err(unknown_order()),
    }
}

/// `POST /sales/{id}/reservations`: 201 for a new one, 200 for one that was made before.
pub(super) async fn reserve(
    State(origin): State<Origin>,
    SignedUser(user): SignedUser,
    SalePath(id): SalePath,
) -> Result<(StatusCode, Json<Value>), Problem> {
    let call = origin.store.reserve(&id, &user, now_ms());
    let reserved = origin.orders.sql(call).await;
    let status = match reserved.map_err(|error| sql_failed(&error))? {
        Reserved::Now => StatusCode::CREATED,
        Reserved::Again => StatusCode::OK,
        refused => return Err(not_reserved(refused)),
    };
    // After SQL has it, so that a warm-up under way finds it there; and whether or not the sale is
    // warm, so that none falls between.
    let sale = origin.store.sale(&id).await;
    let sale = sale.map_err(|error| sql_failed(&error))?;
    let sale = sale.ok_or_else(|| not_reserved(Reserved::Unknown))?.sale;
    let users = std::slice::from_ref(&user);
    let added = origin.ledger.add_users(&sale, UserList::Reserved, users);
    added.await.map_err(|error| {
        warn!(%error, sale = %id, "a reservation is not in Redis");
        Problem::redis()
    })?;
    Ok((status, Json(json!({ "sale": id, "user": user.as_str() }))))
}

fn not_reserved(refused: Reserved) -> Problem {
    match refused {
        Reserved::NotOpen { wait_ms } => {
            let detail = format!("reservations open in {wait_ms} ms");
            Problem::new(
                StatusCode::CONFLICT,
                "reservation_not_open",
                "Too early",
                detail,
            )
        }
        Reserved::Closed => conflict("reservation_closed", "reservations have ended"),
        Reserved::NoReservation => {
            conflict("no_reservation", "nobody needs to reserve for this sale")
        }
        _ => Problem::unknown_sale(StatusCode::NOT_FOUND),
    }
}

type Ended<T> = Result<Result<T, StoreError>, JoinError>;

fn ended<T>(outcome: Ended<T>) -> Result<T, Problem> {
    let answer = outcome.map_err(|error| {
        // A panic in the task: a fault of ours, with the outcome unknown.
        error!(%error, "an order's task ended early");
        Problem::sql()
    })?;
    answer.map_err(|error| sql_failed(&error))
}

pub(super) fn sql_failed(failure: &StoreError) -> Problem {
    error!(error = %failure, "no answer from SQL");
    match failure {
        StoreError::Overloaded => Problem::overloaded(),
        StoreError::Sql(_) => Problem::sql(),
    }
}

fn conflict(code: &'static str, detail: &'static str) -> Problem {
    Problem::new(StatusCode::CONFLICT, code, "Not possible", detail)
}

fn unknown_order() -> Problem {
    let status = StatusCode::NOT_FOUND;
    let detail = "you have no such order";
    Problem::new(status, "unknown_order", "Unknown order", detail)
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
