//! `POST /orders`: a signed claim becomes an order.

use std::str;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use serde::Serialize;
use tracing::{error, warn};
use weir_core::claim::{SigningKey, Ticket, TicketError};
use weir_core::headers;

use crate::Origin;
use crate::orders::Fate;
use crate::problem::Problem;
use crate::store::Shortage;

/// An order, as its buyer sees it.
#[derive(Debug, Serialize)]
pub(super) struct OrderView {
    order: String,
    sale: String,
    user: String,
    quantity: u32,
}

/// 201 for a new order, 200 for one that the same claim made before.
pub(super) async fn post(
    State(origin): State<Origin>,
    // Not the body: it is the client's, and an order must not depend on it. A client that sends too
    // much of it, or not all, would else hold a unit without buying it.
    headers: HeaderMap,
) -> Result<(StatusCode, Json<OrderView>), Problem> {
    let ticket = read_ticket(&headers, &origin.claim_key)?;
    let order = OrderView::new(&ticket);
    let fate = origin.orders.start(ticket).await.map_err(|error| {
        // A panic in the task: a fault of ours, with the outcome unknown.
        error!(%error, "an order's task ended early");
        Problem::sql()
    })?;
    let fate = fate.map_err(|error| {
        error!(%error, "no answer on an order");
        Problem::sql()
    })?;
    match fate {
        Fate::Ordered => Ok((StatusCode::CREATED, Json(order))),
        Fate::OrderedBefore => Ok((StatusCode::OK, Json(order))),
        Fate::Released => Err(claim_released()),
        Fate::Short(Shortage::SoldOut) => Err(sold_out()),
        Fate::Short(Shortage::UserCap) => Err(user_cap()),
        Fate::Short(Shortage::UnknownSale) => Err(Problem::unknown_sale(StatusCode::CONFLICT)),
    }
}

impl OrderView {
    fn new(ticket: &Ticket) -> Self {
        Self {
            order: ticket.claim_id().to_string(),
            sale: ticket.sale.to_string(),
            user: ticket.user.to_string(),
            quantity: ticket.quantity,
        }
    }
}

/// Redis has lost orders of this user and let the user claim again.
fn user_cap() -> Problem {
    let detail = "you have all units that one user may have";
    Problem::new(StatusCode::CONFLICT, "user_cap", "Cap reached", detail)
}

/// The claim that a gateway signed. Nothing of it is read before its signature is checked.
fn read_ticket(headers: &HeaderMap, key: &SigningKey) -> Result<Ticket, Problem> {
    let claim = only(headers, headers::CLAIM)?;
    let signature = only(headers, headers::CLAIM_SIGNATURE)?;
    check(claim, signature, key).map_err(|error| {
        warn!(%error, "a claim is refused");
        claim_invalid()
    })
}

fn check(claim: &[u8], signature: &[u8], key: &SigningKey) -> Result<Ticket, TicketError> {
    // A gateway writes ASCII: bytes that are not even UTF-8 were never signed.
    let claim = str::from_utf8(claim).map_err(|_| TicketError::Malformed)?;
    let signature = str::from_utf8(signature).map_err(|_| TicketError::SignatureMalformed)?;
    key.verify(claim, signature)?;
    Ticket::decode(claim)
}

/// The header's value, which must stand there once: of two it is unknown which one to trust.
fn only<'a>(headers: &'a HeaderMap, name: &'static str) -> Result<&'a [u8], Problem> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => Ok(value.as_bytes()),
        (None, _) => Err(claim_missing()),
        (Some(_), Some(_)) => Err(claim_invalid()),
    }
}

fn claim_missing() -> Problem {
    let status = StatusCode::UNAUTHORIZED;
    let detail = "orders come with a gateway's signed claim";
    Problem::new(status, "claim_missing", "No claim", detail).challenge("Weir-Claim")
}

/// One answer to every wrong claim: which part of it is wrong is in the log.
fn claim_invalid() -> Problem {
    let status = StatusCode::FORBIDDEN;
    let detail = "the claim is not one that this origin's gateways signed";
    Problem::new(status, "claim_invalid", "Invalid claim", detail)
}

fn claim_released() -> Problem {
    let detail = "the claim has ended and never becomes an order; please try again";
    Problem::new(
        StatusCode::CONFLICT,
        "claim_released",
        "Claim released",
        detail,
    )
    .retry()
}

fn sold_out() -> Problem {
    Problem::new(StatusCode::CONFLICT, "sold_out", "Sold out", "sold out")
}
