//! `POST /orders`: a signed claim becomes an order.

use std::str;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use serde::Serialize;
use tracing::warn;
use weir_base::headers;
use weir_base::key::KeyRing;
use weir_sale::claim::{Ticket, TicketError};

use super::unknown_sale_with;
use super::user_orders::ended;
use crate::http::Problem;
use crate::sales::Sales;
use crate::sales::orders::ClaimOutcome;
use crate::sales::store::{Shortage, StoredOrder};

/// An order, as its buyer sees it.
#[derive(Debug, Serialize)]
pub(super) struct OrderView {
    order: String,
    sale: String,
    user: String,
    quantity: u32,
    status: &'static str,
    /// Until when it must be paid; null: no limit, or decided.
    pay_by_ms: Option<u64>,
}

/// 201 for a new order, 200 for one that the same claim made before.
pub(super) async fn post(
    State(sales): State<Sales>,
    // Not the body: it is the client's, and an order must not depend on it. Otherwise a client that sends too much of
    // it, or only a part, would hold a unit without buying it.
    headers: HeaderMap,
) -> Result<(StatusCode, Json<OrderView>), Problem> {
    let ticket = read_ticket(&headers, &sales.keys)?;
    match ended(sales.orders.start(ticket).await)? {
        ClaimOutcome::Ordered(order) => Ok((StatusCode::CREATED, Json(OrderView::from(&order)))),
        ClaimOutcome::OrderedBefore(order) => Ok((StatusCode::OK, Json(OrderView::from(&order)))),
        ClaimOutcome::Released => Err(claim_released()),
        ClaimOutcome::Short(Shortage::SoldOut) => Err(sold_out()),
        ClaimOutcome::Short(Shortage::UserCap) => Err(user_cap()),
        ClaimOutcome::Short(Shortage::UnknownSale) => Err(unknown_sale_with(StatusCode::CONFLICT)),
    }
}

impl From<&StoredOrder> for OrderView {
    fn from(order: &StoredOrder) -> Self {
        Self {
            order: order.id.clone(),
            sale: order.sale.to_string(),
            user: order.user.to_string(),
            quantity: order.units,
            status: order.status.word(),
            pay_by_ms: order.pay_by_ms,
        }
    }
}

/// Redis has lost orders of this user and let the user claim again.
fn user_cap() -> Problem {
    let detail = "you have all units that one user may have";
    Problem::conflict("user_cap", "Cap reached", detail)
}

/// The claim that a gateway signed. Nothing of it is read before its signature is checked.
fn read_ticket(headers: &HeaderMap, keys: &KeyRing) -> Result<Ticket, Problem> {
    let claim = only(headers, headers::CLAIM, claim_missing, claim_invalid)?;
    let signature = headers::CLAIM_SIGNATURE;
    let signature = only(headers, signature, claim_missing, claim_invalid)?;
    check(claim, signature, keys).map_err(|error| {
        warn!(%error, "a claim is refused");
        claim_invalid()
    })
}

fn check(claim: &[u8], signature: &[u8], keys: &KeyRing) -> Result<Ticket, TicketError> {
    // A gateway writes ASCII: bytes that are not even UTF-8 were never signed.
    let claim = str::from_utf8(claim).map_err(|_| TicketError::Malformed)?;
    let signature = str::from_utf8(signature).map_err(|_| TicketError::SignatureMalformed)?;
    keys.verify(claim, signature)?;
    Ticket::decode(claim)
}

/// The header's value. It must be there exactly once: of two, neither can be trusted.
pub(super) fn only<'a>(
    headers: &'a HeaderMap,
    name: &'static str,
    missing: fn() -> Problem,
    invalid: fn() -> Problem,
) -> Result<&'a [u8], Problem> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => Ok(value.as_bytes()),
        (None, _) => Err(missing()),
        (Some(_), Some(_)) => Err(invalid()),
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
    Problem::conflict("claim_released", "Claim released", detail).retry()
}

fn sold_out() -> Problem {
    Problem::conflict("sold_out", "Sold out", "sold out")
}
