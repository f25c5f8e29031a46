//! A user's orders and reservations. The gateway says who the user is, and signs it.

use axum::Json;
use axum::extract::{FromRequestParts, Path, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::task::JoinError;
use tracing::{error, warn};
use weir_base::headers;
use weir_base::id::{SaleId, UserId};
use weir_sale::identity;

use super::orders::{OrderView, only};
use super::payments::PaymentView;
use super::{SalePath, unknown_sale};
use crate::clock::now_ms;
use crate::http::Problem;
use crate::sales::Sales;
use crate::sales::ledger::UserList;
use crate::sales::store::{Cancelled, Reserved, Visitor};
use crate::sql::SqlError;

/// The characters that are kept of a client's address and of its `User-Agent`, for the risk check.
const ADDRESS_LEN_MAX: usize = 64;
const AGENT_LEN_MAX: usize = 512;

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

/// `POST /sales/{id}/reservations`: 201 for a new one, 200 for one that was made before.
pub(super) async fn reserve(
    State(sales): State<Sales>,
    SignedUser(user): SignedUser,
    SalePath(id): SalePath,
    headers: HeaderMap,
) -> Result<(StatusCode, Json<Value>), Problem> {
    let visitor = visitor(&headers);
    let call = sales.store.reserve_from(&id, &user, &visitor, now_ms());
    let reserved = sales.orders.sql(call).await;
    let status = match reserved? {
        Reserved::Now => StatusCode::CREATED,
        Reserved::Again => StatusCode::OK,
        refused => return Err(not_reserved(refused)),
    };
    let state = match sales.store.risk_fails_closed() {
        true if !sales.store.is_checked(&id, &user).await? => "checking",
        _ => "reserved",
    };
    if state == "checking" {
        // Gateways hear of it when the risk check has passed the user.
        return Ok((status, Json(reservation(&id, &user, state))));
    }
    // After SQL has it, so that a warm-up under way finds it there; and whether or not the sale is
    // warm, so that none falls between.
    let sale = sales.store.sale(&id).await?;
    let sale = sale.ok_or_else(|| not_reserved(Reserved::Unknown))?.sale;
    let users = std::slice::from_ref(&user);
    let added = sales.ledger.add_users(&sale, UserList::Reserved, users);
    added.await.map_err(|error| {
        warn!(%error, sale = %id, "a reservation is not in Redis");
        Problem::redis()
    })?;
    Ok((status, Json(reservation(&id, &user, state))))
}

fn reservation(id: &SaleId, user: &UserId, state: &str) -> Value {
    json!({ "sale": id, "user": user.as_str(), "state": state })
}

/// Where a request came from, as the gateway says: Envoy appends the connection's address to what a client may have
/// sent.
fn visitor(headers: &HeaderMap) -> Visitor {
    let text = |name| {
        let value = headers.get_all(name).iter().next_back();
        value.map_or_else(String::new, |value| {
            String::from_utf8_lossy(value.as_bytes()).into_owned()
        })
    };
    let forwarded = text("x-forwarded-for");
    let address = forwarded.rsplit(',').next().unwrap_or_default().trim();
    Visitor {
        address: address.chars().take(ADDRESS_LEN_MAX).collect(),
        agent: text("user-agent").chars().take(AGENT_LEN_MAX).collect(),
    }
}

fn not_reserved(refused: Reserved) -> Problem {
    match refused {
        Reserved::NotOpen { wait_ms } => {
            let detail = format!("reservations open in {wait_ms} ms");
            Problem::conflict("reservation_not_open", "Too early", detail)
        }
        Reserved::Closed => conflict("reservation_closed", "reservations have ended"),
        Reserved::Blocked => {
            let status = StatusCode::FORBIDDEN;
            Problem::new(status, "blocked", "Blocked", "you may not reserve or buy")
        }
        Reserved::NoReservation => {
            conflict("no_reservation", "nobody needs to reserve for this sale")
        }
        _ => unknown_sale(),
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
