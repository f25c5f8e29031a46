//! A user's reservation. The gateway says who the user is, and signs it.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use serde::Serialize;
use tracing::{info, warn};
use weir_base::id::{SaleId, UserId};

use super::user_orders::{SignedUser, conflict};
use super::{SalePath, unknown_sale};
use crate::Sales;
use crate::ledger::UserList;
use crate::store::{Reserved, StoredReservation, TakenBack, Visitor};
use weir_origin_core::clock::now_ms;
use weir_origin_core::http::Problem;

/// The characters that are kept of a client's address and of its `User-Agent`, for the risk check.
const ADDRESS_LEN_MAX: usize = 64;
const AGENT_LEN_MAX: usize = 512;

/// The state of a reservation that counts.
const RESERVED: &str = "reserved";

/// A reservation, as its user sees it.
#[derive(Debug, Serialize)]
pub(super) struct ReservationView {
    sale: SaleId,
    user: String,
    state: &'static str,
    /// When it was made; null: there is none.
    at_ms: Option<u64>,
    /// The name under which the user stands in the list of the sale's draw.
    ticket: Option<String>,
    /// Of a winner: 1, 2, 3 …
    place: Option<u64>,
}

/// `POST /sales/{id}/reservations`: 201 for a new one, 200 for one that was made before.
pub(super) async fn reserve(
    State(sales): State<Sales>,
    SignedUser(user): SignedUser,
    SalePath(id): SalePath,
    headers: HeaderMap,
) -> Result<(StatusCode, Json<ReservationView>), Problem> {
    let visitor = visitor(&headers);
    let at_ms = now_ms();
    let call = sales.store.reserve_from(&id, &user, &visitor, at_ms);
    let status = match sales.orders.sql(call).await? {
        Reserved::Now => StatusCode::CREATED,
        Reserved::Again => StatusCode::OK,
        refused => return Err(not_reserved(refused)),
    };
    let call = sales.store.reservation(&id, &user);
    let reservation = sales.orders.sql(call).await?;
    let Some(reservation) = reservation else {
        // Another request of the user has taken it back meanwhile.
        return Err(unknown_reservation_with(StatusCode::CONFLICT));
    };
    let view = view(&sales, &id, &user, reservation).await?;
    if view.state != RESERVED {
        // Gateways hear of it when the risk check has passed the user, and the draw has chosen whom it chooses.
        return Ok((status, Json(view)));
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
    Ok((status, Json(view)))
}

/// `GET /sales/{id}/reservations`: what this user has reserved.
pub(super) async fn get(
    State(sales): State<Sales>,
    SignedUser(user): SignedUser,
    SalePath(id): SalePath,
) -> Result<Json<ReservationView>, Problem> {
    let call = sales.store.reservation(&id, &user);
    match sales.orders.sql(call).await? {
        Some(reservation) => Ok(Json(view(&sales, &id, &user, reservation).await?)),
        None if sales.orders.sql(sales.store.sale(&id)).await?.is_none() => Err(unknown_sale()),
        None => Err(unknown_reservation_with(StatusCode::NOT_FOUND)),
    }
}

/// `DELETE /sales/{id}/reservations`: takes it back. Again, or without one, changes nothing.
///
/// SQL first: from then on no claim of the user becomes an order. Then gateways are told, also if there was none in SQL: the
/// answer to the request that took it back may have been that Redis was away.
pub(super) async fn cancel(
    State(sales): State<Sales>,
    SignedUser(user): SignedUser,
    SalePath(id): SalePath,
) -> Result<Json<ReservationView>, Problem> {
    let sale = sales.orders.sql(sales.store.sale(&id)).await?;
    let sale = sale.ok_or_else(unknown_sale)?.sale;
    let cancelled = sales.orders.sql(sales.store.cancel_reservation(&id, &user));
    match cancelled.await? {
        TakenBack::Now => info!(sale = %id, "a reservation is taken back"),
        TakenBack::Again => {}
        TakenBack::Closed => {
            let detail = "the list of the draw is closed, and stays as it is";
            return Err(conflict("reservation_closed", detail));
        }
    }
    let removed = sales.ledger.remove_user(&sale, UserList::Reserved, &user);
    removed.await.map_err(|error| {
        warn!(%error, sale = %id, "a reservation is still in Redis");
        Problem::redis()
    })?;
    Ok(Json(ReservationView {
        sale: id,
        user: user.to_string(),
        state: "cancelled",
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
        let draw = sales.orders.sql(sales.store.draw(id)).await?;
        match draw.and_then(|draw| draw.drawn_at_ms) {
            Some(_) => "not_drawn",
            None => "entered",
        }
    } else if sales.store.risk_fails_closed() && !reservation.is_checked {
        "checking"
    } else {
        RESERVED
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

fn unknown_reservation_with(status: StatusCode) -> Problem {
    let detail = "you have no reservation for this sale";
    Problem::new(status, "unknown_reservation", "No reservation", detail)
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
