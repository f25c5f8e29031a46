//! Routes of a user's reservation. Gateways authenticate the user with a signature.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use serde::Serialize;
use tracing::{info, warn};
use utoipa::ToSchema;
use weir_base::id::{SaleId, UserId};

use super::refusals::{
    BLOCKED, NO_RESERVATION, RESERVATION_CLOSED, RESERVATION_GONE, RESERVATION_NOT_OPEN,
    UNKNOWN_RESERVATION,
};
use super::user_orders::SignedUser;
use super::{SalePath, unknown_sale};
use crate::Sales;
use crate::ledger::UserList;
use crate::store::{ReservationOutcome, StoredReservation, Visitor, WithdrawOutcome};
use weir_origin_core::clock::now_ms;
use weir_origin_core::http::Problem;

/// Maximum characters of a client's address and `User-Agent` that are stored for the risk check.
const ADDRESS_LEN_MAX: usize = 64;
const AGENT_LEN_MAX: usize = 512;

const NO_RESERVATION_YET: &str = "you have no reservation for this sale";

/// State of a reservation: `checking`: valid after the risk check; `entered`: not drawn yet; `not_drawn`: the draw chose
/// others; `cancelled`: no reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum ReservationState {
    Reserved,
    Checking,
    Entered,
    NotDrawn,
    Cancelled,
}

/// A reservation for its user.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Reservation)]
pub(super) struct ReservationView {
    /// The sale's id.
    #[schema(value_type = String)]
    sale: SaleId,
    /// The user's id.
    user: String,
    /// `checking`: valid after the risk check; `entered`: not drawn yet; `not_drawn`: the draw chose others; `cancelled`:
    /// no reservation.
    state: ReservationState,
    /// Creation time; null: no reservation.
    #[schema(required)]
    at_ms: Option<u64>,
    /// The user's ticket in the sale's draw.
    #[schema(required)]
    ticket: Option<String>,
    /// A winner's rank: 1, 2, 3 …
    #[schema(required)]
    place: Option<u64>,
}

/// Reserve
///
/// Creates a reservation of the signed-in user for a sale with reservations. Repeating it changes nothing.
#[utoipa::path(
    post,
    path = "/sales/{id}/reservations",
    operation_id = "createReservation",
    params(("id" = String, Path, description = "The sale's id.")),
    security(("user" = [], "userSignature" = [])),
    responses(
        (status = 200, description = "The reservation existed already", body = ReservationView),
        (status = 201, description = "Reserved", body = ReservationView),
    ),
)]
pub(super) async fn reserve(
    State(sales): State<Sales>,
    SignedUser(user): SignedUser,
    SalePath(id): SalePath,
    headers: HeaderMap,
) -> Result<(StatusCode, Json<ReservationView>), Problem> {
    let visitor = visitor(&headers);
    let at_ms = now_ms();
    let call = sales
        .store
        .reservations()
        .reserve_from(&id, &user, &visitor, at_ms);
    let status = match sales.orders.sql(call).await? {
        ReservationOutcome::Now => StatusCode::CREATED,
        ReservationOutcome::Again => StatusCode::OK,
        refused => return Err(not_reserved(refused)),
    };
    let call = sales.store.reservations().reservation(&id, &user);
    let reservation = sales.orders.sql(call).await?;
    let Some(reservation) = reservation else {
        // A concurrent request of the user has cancelled it.
        return Err(RESERVATION_GONE.because(NO_RESERVATION_YET));
    };
    let view = view(&sales, &id, &user, reservation).await?;
    if view.state != ReservationState::Reserved {
        // Gateways learn of the reservation after the risk check and the draw.
        return Ok((status, Json(view)));
    }
    // Write to Redis after SQL, so that a concurrent warm-up finds the reservation in SQL. Write even if the sale is
    // not warm, so that none is missed.
    let sale = sales.store.sale(&id).await?;
    let sale = sale
        .ok_or_else(|| not_reserved(ReservationOutcome::Unknown))?
        .sale;
    let users = std::slice::from_ref(&user);
    let added = sales.ledger.add_users(&sale, UserList::Reserved, users);
    added.await.map_err(|error| {
        warn!(%error, sale = %id, "cannot write a reservation to Redis");
        Problem::redis()
    })?;
    Ok((status, Json(view)))
}

/// Get the signed-in user's reservation
#[utoipa::path(
    get,
    path = "/sales/{id}/reservations",
    operation_id = "getReservation",
    params(("id" = String, Path, description = "The sale's id.")),
    security(("user" = [], "userSignature" = [])),
    responses((status = 200, description = "The reservation", body = ReservationView)),
)]
pub(super) async fn get(
    State(sales): State<Sales>,
    SignedUser(user): SignedUser,
    SalePath(id): SalePath,
) -> Result<Json<ReservationView>, Problem> {
    let call = sales.store.reservations().reservation(&id, &user);
    match sales.orders.sql(call).await? {
        Some(reservation) => Ok(Json(view(&sales, &id, &user, reservation).await?)),
        None if sales.orders.sql(sales.store.sale(&id)).await?.is_none() => Err(unknown_sale()),
        None => Err(UNKNOWN_RESERVATION.because(NO_RESERVATION_YET)),
    }
}

/// Cancel a reservation
///
/// Cancels the signed-in user's reservation. If the sale requires reservations, none of the user's claims can become an
/// order from then on; existing orders stay. While reservations are open, the user can reserve again. Repeating it
/// changes nothing.
#[utoipa::path(
    delete,
    path = "/sales/{id}/reservations",
    operation_id = "cancelReservation",
    params(("id" = String, Path, description = "The sale's id.")),
    security(("user" = [], "userSignature" = [])),
    responses((status = 200, description = "The reservation is removed", body = ReservationView)),
)]
pub(super) async fn cancel(
    State(sales): State<Sales>,
    SignedUser(user): SignedUser,
    SalePath(id): SalePath,
) -> Result<Json<ReservationView>, Problem> {
    let sale = sales.orders.sql(sales.store.sale(&id)).await?;
    let sale = sale.ok_or_else(unknown_sale)?.sale;
    let cancelled = sales
        .orders
        .sql(sales.store.reservations().cancel_reservation(&id, &user));
    match cancelled.await? {
        WithdrawOutcome::Now => info!(sale = %id, "reservation cancelled"),
        WithdrawOutcome::Again => {}
        WithdrawOutcome::Closed => {
            let detail = "the list of the draw is final";
            return Err(RESERVATION_CLOSED.because(detail));
        }
    }
    let removed = sales.ledger.remove_user(&sale, UserList::Reserved, &user);
    removed.await.map_err(|error| {
        warn!(%error, sale = %id, "cannot remove a reservation from Redis");
        Problem::redis()
    })?;
    Ok(Json(ReservationView {
        sale: id,
        user: user.to_string(),
        state: ReservationState::Cancelled,
        at_ms: None,
        ticket: None,
        place: None,
    }))
}

async fn view(
    sales: &Sales,
    id: &SaleId,
    user: &UserId,
    reservation: StoredReservation,
) -> Result<ReservationView, Problem> {
    let state = if !reservation.is_admitted {
        let draw = sales.orders.sql(sales.store.draws().draw(id)).await?;
        match draw.and_then(|draw| draw.drawn_at_ms) {
            Some(_) => ReservationState::NotDrawn,
            None => ReservationState::Entered,
        }
    } else if sales.store.risk_fails_closed() && !reservation.is_checked {
        ReservationState::Checking
    } else {
        ReservationState::Reserved
    };
    Ok(ReservationView {
        sale: id.clone(),
        user: user.to_string(),
        state,
        at_ms: Some(reservation.at_ms),
        ticket: reservation.ticket,
        place: reservation.place,
    })
}

/// Address and agent of the client, according to the gateway: Envoy appends the connection's address to the header that
/// a client may have sent.
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

fn not_reserved(refused: ReservationOutcome) -> Problem {
    match refused {
        ReservationOutcome::NotOpen { wait_ms } => {
            let detail = format!("reservations open in {wait_ms} ms");
            RESERVATION_NOT_OPEN.because(detail)
        }
        ReservationOutcome::Closed => RESERVATION_CLOSED.because("reservations have ended"),
        ReservationOutcome::Blocked => BLOCKED.because("you cannot reserve or buy"),
        ReservationOutcome::NoReservation => {
            NO_RESERVATION.because("this sale needs no reservation")
        }
        _ => unknown_sale(),
    }
}
