//! `POST /orders`: a signed claim becomes an order.

use std::time::Duration;
use std::{fmt, str};

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use http_body_util::{BodyExt, Limited};
use ring::digest::{SHA256, digest};
use serde::Serialize;
use tracing::warn;
use utoipa::ToSchema;
use weir_base::headers;
use weir_base::id::SaleId;
use weir_base::key::KeyRing;
use weir_base::language::Language;
use weir_sale::claim::{Ticket, TicketError};
use weir_sale::idempotency::IdempotencyKey;
use weir_sale::verdict::Verdict;

use super::refusals::{
    BARRED, CLAIM_INVALID, CLAIM_MISSING, CLAIM_RELEASED, COOLING_DOWN, GROUP_CAP,
    IDEMPOTENCY_KEY_REUSED, INVALID_IDEMPOTENCY_KEY, INVALID_PAYLOAD, SALE_GONE, SOLD_OUT,
    UNPAID_HOLDS, USER_CAP,
};
use super::user_orders::ended;
use crate::Sales;
use crate::model::click::OrderClick;
use crate::model::payload::{PAYLOAD_LEN_MAX, Payloads};
use crate::model::price::OrderPrice;
use crate::orders::ClaimOutcome;
use crate::store::{Attempt, OrderRequest, OrderStatus, Shortage, StoredOrder};
use weir_origin_core::http::{Problem, ValidationError};

/// An order for its buyer.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Order)]
pub(super) struct OrderView {
    /// The order's id.
    order: String,
    /// The sale's id.
    sale: String,
    /// The user's id.
    user: String,
    /// Number of units.
    quantity: u32,
    /// The SKU; null: the sale has none.
    #[schema(required)]
    sku: Option<String>,
    /// Price; null: the sale has none.
    #[schema(required)]
    price: Option<OrderPrice>,
    /// Its state.
    status: OrderStatus,
    /// Payment deadline; null: none, or already decided.
    #[schema(required)]
    pay_by_ms: Option<u64>,
}

/// Data that matches the sale's payload_schema, such as a contact, an address or a variant. A sale without a schema
/// accepts any body and does not store it.
#[derive(ToSchema)]
struct OrderPayload(#[expect(dead_code, reason = "describes a body")] serde_json::Value);

/// Maximum length of a body with an idempotency key and without a payload schema, in bytes.
const BODY_LEN_MAX: usize = 64 * 1024;

/// Timeout for reading such a body. Its claim holds units meanwhile.
const BODY_TIME_MAX: Duration = Duration::from_secs(2);

/// Turn a signed claim into an order
///
/// Repeating the same claim, or the same `Idempotency-Key` of a user, returns the same order.
#[utoipa::path(
    post,
    path = "/orders",
    operation_id = "createOrder",
    params(
        ("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: the same key returns the same order."),
    ),
    request_body(content = Option<OrderPayload>, description = "JSON that matches the sale's payload_schema, at most 8 KiB. A sale without a schema accepts any body and does not store it."),
    security(("claim" = [], "claimSignature" = [])),
    responses(
        (status = 200, description = "The order existed already", body = OrderView),
        (status = 201, description = "The order is created", body = OrderView),
    ),
)]
pub(super) async fn post(
    State(sales): State<Sales>,
    headers: HeaderMap,
    body: Body,
) -> Result<(StatusCode, Json<OrderView>), Problem> {
    let ticket = match shadow_refusal(&headers) {
        Some(refusal) => return Err(refusal),
        None => sales.read_ticket(&headers)?,
    };
    let click = sales.click(&headers);
    let requested = read_asked(sales.payloads.clone(), ticket.sale.clone(), headers, body);
    let requested = async move {
        requested
            .await
            .map(|requested| OrderRequest { click, ..requested })
    };
    match ended(sales.orders.start(ticket, requested).await)?? {
        ClaimOutcome::Ordered(order) => Ok((StatusCode::CREATED, Json(OrderView::from(&order)))),
        ClaimOutcome::OrderedBefore(order) => Ok((StatusCode::OK, Json(OrderView::from(&order)))),
        ClaimOutcome::KeyReused => Err(key_reused()),
        ClaimOutcome::Released => Err(claim_released()),
        ClaimOutcome::Short(Shortage::SoldOut) => Err(sold_out()),
        ClaimOutcome::Short(Shortage::UserCap) => Err(user_cap()),
        ClaimOutcome::Short(Shortage::GroupCap) => Err(group_cap()),
        ClaimOutcome::Short(Shortage::CoolingDown { wait_ms }) => Err(cooling_down(wait_ms)),
        ClaimOutcome::Short(Shortage::UnpaidHolds) => Err(unpaid_holds()),
        ClaimOutcome::Short(Shortage::Barred) => Err(blocked_problem()),
        ClaimOutcome::Short(Shortage::UnknownSale) => Err(SALE_GONE.because("sale not found")),
    }
}

impl From<&StoredOrder> for OrderView {
    fn from(order: &StoredOrder) -> Self {
        Self {
            order: order.id.clone(),
            sale: order.sale.to_string(),
            user: order.user.to_string(),
            quantity: order.units,
            sku: order.sku.clone(),
            price: order.cost(),
            status: order.status,
            pay_by_ms: order.pay_by_ms,
        }
    }
}

impl Sales {
    /// Reads a request's claim and verifies its signature. Counts invalid claims for an alert.
    fn read_ticket(&self, headers: &HeaderMap) -> Result<Ticket, Problem> {
        read_ticket(headers, &self.keys).inspect_err(|refusal| {
            if refusal.code == CLAIM_INVALID.code {
                self.metrics.order(CLAIM_INVALID.code);
            }
        })
    }

    /// Reads the click that led to a request. An invalid or expired click does not affect the order.
    fn click(&self, headers: &HeaderMap) -> Option<OrderClick> {
        let reply = headers.get(headers::CLICK)?;
        let click = self.clicks.read(reply.as_bytes());
        self.metrics.click(click.is_some());
        click
    }
}

/// The answer to a request without a claim for a sale in dry run. It is the verdict that the gateway would have
/// returned, from a header that only gateways set. The header grants nothing.
fn shadow_refusal(headers: &HeaderMap) -> Option<Problem> {
    let word = headers.get(headers::SHADOW)?.as_bytes();
    if headers.contains_key(headers::CLAIM) {
        return None;
    }
    let mut verdicts = Verdict::ALL.into_iter();
    let verdict = verdicts.find(|verdict| verdict.label().as_bytes() == word)?;
    let status = StatusCode::from_u16(verdict.status()?).ok()?;
    let refusal = Problem::new(
        status,
        verdict.label(),
        "Refused",
        verdict.message(Language::English),
    );
    Some(match verdict.may_be_retried() {
        true => refusal.retry(),
        false => refusal,
    })
}

/// Reads idempotency key and payload of a request.
async fn read_asked(
    payloads: Payloads,
    sale: SaleId,
    headers: HeaderMap,
    body: Body,
) -> Result<OrderRequest, Problem> {
    let rules = payloads.of(&sale).await?;
    let key = read_key(&headers)?;
    if rules.is_none() && key.is_none() {
        return Ok(OrderRequest::default());
    }
    let len_max = match rules {
        Some(_) => PAYLOAD_LEN_MAX,
        None => BODY_LEN_MAX,
    };
    let body = Limited::new(body, len_max).collect();
    let body = tokio::time::timeout(BODY_TIME_MAX, body).await;
    let body = body.ok().and_then(Result::ok);
    let body = body.ok_or_else(|| unread_body(len_max))?.to_bytes();
    let payload = rules.map(|rules| rules.read(&body)).transpose();
    let attempt = key.map(|key| Attempt {
        key,
        body_sha256: hex::encode(digest(&SHA256, &body)),
    });
    Ok(OrderRequest {
        attempt,
        payload: payload.map_err(invalid_payload)?,
        click: None,
    })
}

/// Reads the idempotency key, if the request has one.
fn read_key(headers: &HeaderMap) -> Result<Option<IdempotencyKey>, Problem> {
    if !headers.contains_key(headers::IDEMPOTENCY_KEY) {
        return Ok(None);
    }
    let missing = || invalid_key("is missing");
    let twice = || invalid_key("appears more than once");
    let key = only(headers, headers::IDEMPOTENCY_KEY, missing, twice)?;
    let key = IdempotencyKey::read(key).map_err(invalid_key)?;
    Ok(Some(key))
}

fn invalid_payload(validation_errors: Vec<ValidationError>) -> Problem {
    let reply = |fault: &ValidationError| format!("{}: {}", fault.pointer, fault.detail);
    let reply: Vec<String> = validation_errors.iter().map(reply).collect();
    let detail = format!(
        "the body does not match the sale's payload_schema: {}",
        reply.join("; ")
    );
    INVALID_PAYLOAD
        .because(detail)
        .with_validation_errors(validation_errors)
}

fn invalid_key(reason: impl fmt::Display) -> Problem {
    let detail = format!("Idempotency-Key {reason}");
    INVALID_IDEMPOTENCY_KEY.because(detail)
}

fn unread_body(len_max: usize) -> Problem {
    let detail = format!(
        "the body is longer than {len_max} bytes, or took longer than {} s",
        BODY_TIME_MAX.as_secs()
    );
    Problem::invalid_body(detail)
}

/// draft-ietf-httpapi-idempotency-key-header, section 2.7.
fn key_reused() -> Problem {
    let detail = "this Idempotency-Key was used for a different request; use a new one";
    IDEMPOTENCY_KEY_REUSED.because(detail)
}

/// Redis has lost orders of this user, so it granted another claim.
fn user_cap() -> Problem {
    let detail = "you have reached the limit per user";
    USER_CAP.because(detail)
}

/// Gateways do not check this limit: only SQL counts a user's units in other sales.
fn group_cap() -> Problem {
    let detail = "this order would exceed the limit per user for these sales together";
    GROUP_CAP.because(detail)
}

/// Gateways refuse such users, unless Redis has lost their cooldown.
fn cooling_down(wait_ms: u64) -> Problem {
    let detail = "an order of yours was not paid in time; please wait before you buy again";
    let wait_s = wait_ms.div_ceil(1_000).max(1);
    COOLING_DOWN.because(detail).retry_after(wait_s)
}

fn unpaid_holds() -> Problem {
    let detail =
        "several orders of yours were not paid in time; you can no longer buy in this sale";
    UNPAID_HOLDS.because(detail)
}

/// Redis has lost the block, or has granted a claim to a user without a reservation.
fn blocked_problem() -> Problem {
    let detail = "you cannot buy in this sale: you are blocked or have no reservation";
    BARRED.because(detail)
}

/// Reads the claim. Verifies the signature before it parses the claim.
fn read_ticket(headers: &HeaderMap, keys: &KeyRing) -> Result<Ticket, Problem> {
    let claim = only(headers, headers::CLAIM, claim_missing, claim_invalid)?;
    let signature = headers::CLAIM_SIGNATURE;
    let signature = only(headers, signature, claim_missing, claim_invalid)?;
    check(claim, signature, keys).map_err(|error| {
        warn!(%error, "claim refused");
        claim_invalid()
    })
}

fn check(claim: &[u8], signature: &[u8], keys: &KeyRing) -> Result<Ticket, TicketError> {
    // Gateways send ASCII, so other bytes have no valid signature.
    let claim = str::from_utf8(claim).map_err(|_| TicketError::Malformed)?;
    let signature = str::from_utf8(signature).map_err(|_| TicketError::SignatureMalformed)?;
    keys.verify(claim, signature)?;
    Ticket::decode(claim)
}

/// Returns the header's value. It must occur exactly once, because none of several values can be trusted.
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
    let detail = "the claim is missing: order through a gateway";
    CLAIM_MISSING.because(detail).challenge("Weir-Claim")
}

/// One answer to all invalid claims; the log contains the cause.
fn claim_invalid() -> Problem {
    let detail = "the claim is not signed by a known gateway";
    CLAIM_INVALID.because(detail)
}

fn claim_released() -> Problem {
    let detail = "the claim has expired; please try again";
    CLAIM_RELEASED.because(detail).retry()
}

fn sold_out() -> Problem {
    SOLD_OUT.because("sold out")
}
