//! Routes of payments: buyers start them, the provider's callbacks decide them, operators list and refund them.

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use tracing::{info, warn};
use utoipa::ToSchema;
use utoipa::openapi::Object;
use weir_base::headers;

use super::orders::only;
use super::refusals::{
    EVENT_REUSED, INVALID_REFERENCE, NO_REFUND_DUE, ORDER_CANCELLED, ORDER_EXPIRED, ORDER_PAID,
    PAYMENTS_NOT_CONFIGURED, SIGNATURE_INVALID, SIGNATURE_MISSING, SOLD_OUT,
    TIMESTAMP_OUT_OF_WINDOW,
};
use super::user_orders::{SignedUser, ended, unknown_order};
use crate::Sales;
use crate::model::callback::{self, CallbackError};
use crate::model::payment::Payments;
use crate::model::price::{Currency, Money};
use crate::store::{PaymentEvent, PaymentNoted, PaymentStart, PaymentState, StoredPayment};
use weir_origin_core::access::Caller;
use weir_origin_core::access::tenancy::UNKNOWN_PAYMENT;
use weir_origin_core::api::words;
use weir_origin_core::clock::now_ms;
use weir_origin_core::http::{Problem, ReadQuery, page_len, read_typed};

/// Maximum number of payments per page.
const PAGE_MAX: usize = 1_000;

/// Maximum length of a refund reference, in characters.
const REFERENCE_LEN_MAX: usize = 128;

/// Maximum length of an event id, in bytes.
const EVENT_LEN_MAX: usize = 128;

/// A payment.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Payment)]
pub(super) struct PaymentView {
    /// Payment id, as sent to the provider.
    payment: String,
    /// The order's id.
    order: String,
    /// Its state.
    state: PaymentState,
    /// Reason of the refund; null: none.
    #[schema(required)]
    reason: Option<String>,
    /// Refund reference from the operator.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    reference: Option<String>,
    /// Payment page; null: your site provides it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pay_url: Option<String>,
}

impl From<StoredPayment> for PaymentView {
    fn from(payment: StoredPayment) -> Self {
        Self {
            payment: payment.id,
            order: payment.order,
            state: payment.state,
            reason: Some(payment.reason).filter(|reason| !reason.is_empty()),
            reference: Some(payment.reference).filter(|text| !text.is_empty()),
            pay_url: None,
        }
    }
}

/// Start a payment
///
/// Starts a payment of an unpaid order, or returns the existing one. Only the provider's callback marks an order as paid.
#[utoipa::path(
    post,
    path = "/orders/{id}/pay",
    operation_id = "startPayment",
    params(("id" = String, Path, description = "The order's id.")),
    security(("user" = [], "userSignature" = [])),
    responses(
        (status = 200, description = "The payment existed already", body = PaymentView),
        (status = 201, description = "A new payment", body = PaymentView),
    ),
)]
pub(super) async fn start(
    State(sales): State<Sales>,
    SignedUser(user): SignedUser,
    Path(id): Path<String>,
) -> Result<(StatusCode, Json<PaymentView>), Problem> {
    let payments = configured(&sales)?;
    let start = sales.store.provider().start_payment(&id, &user, now_ms());
    let (status, payment) = match sales.orders.sql(start).await? {
        PaymentStart::New(payment) => (StatusCode::CREATED, payment),
        PaymentStart::Again(payment) => (StatusCode::OK, payment),
        PaymentStart::Paid => return Err(ORDER_PAID.because("the order is paid")),
        PaymentStart::Expired => {
            return Err(ORDER_EXPIRED.because("the time to pay has passed"));
        }
        PaymentStart::Cancelled => {
            return Err(ORDER_CANCELLED.because("the order was cancelled"));
        }
        PaymentStart::SoldOut => return Err(SOLD_OUT.because("sold out")),
        PaymentStart::Unknown => return Err(unknown_order()),
    };
    let pay_url = match payment.state {
        PaymentState::Started => payments.pay_url(&payment.id),
        _ => None,
    };
    let view = PaymentView {
        pay_url,
        ..payment.into()
    };
    Ok((status, Json(view)))
}

/// Callback of a payment provider.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = PaymentCallback)]
struct Callback {
    /// Event id, the same for each delivery attempt.
    #[schema(max_length = 128)]
    event: String,
    /// The payment's id.
    payment: String,
    /// Its state.
    state: CallbackState,
    /// Paid amount, in the currency's smallest unit; requires `currency`.
    amount: Option<u64>,
    /// ISO 4217 code.
    #[schema(value_type = Option<String>, pattern = "^[A-Z]{3}$")]
    currency: Option<Currency>,
}

/// The outcome of a payment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[schema(as = PaymentOutcome)]
#[serde(rename_all = "snake_case")]
enum CallbackState {
    Paid,
    Failed,
}

/// Receive a payment callback
///
/// Records the state of a payment. Each event id counts once; the body is signed with WEIR_PAYMENT_SECRET.
#[utoipa::path(
    post,
    path = "/payments/callback",
    operation_id = "notePayment",
    params(
        ("x-weir-payment-timestamp" = String, Header, description = "When it was signed, in seconds since the Unix epoch."),
        ("x-weir-payment-signature" = String, Header, description = "<key id>;<HMAC-SHA256 of \"<timestamp>.<body>\", in hex>."),
    ),
    request_body = Callback,
    responses((status = 200, description = "The current state of the payment", body = PaymentView)),
)]
pub(super) async fn callback(
    State(sales): State<Sales>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Json<PaymentView>, Problem> {
    let payments = configured(&sales)?;
    let event = read_callback(payments, &headers, &body)?;
    let recorded = ended(sales.orders.note_payment(event.clone()).await)?;
    let payment = match recorded {
        PaymentNoted::Noted(payment, _) => *payment,
        PaymentNoted::Unknown => return Err(unknown_payment()),
        PaymentNoted::EventReused => {
            let detail = "the payment has another event with this name";
            return Err(EVENT_REUSED.because(detail));
        }
    };
    sales.metrics.payment(payment.state.label());
    if payment.state == PaymentState::RefundDue {
        let (id, reason) = (&payment.id, &payment.reason);
        warn!(payment = %id, %reason, "paid, but the order has no unit: refund due");
    }
    Ok(Json(payment.into()))
}

fn read_callback(
    payments: &Payments,
    headers: &HeaderMap,
    body: &Bytes,
) -> Result<PaymentEvent, Problem> {
    let timestamp = headers::PAYMENT_TIMESTAMP;
    let timestamp = only(headers, timestamp, signature_missing, signature_invalid)?;
    let signature = headers::PAYMENT_SIGNATURE;
    let signature = only(headers, signature, signature_missing, signature_invalid)?;
    callback::verify(payments.keys(), timestamp, signature, body, now_ms()).map_err(|error| {
        warn!(%error, "payment callback refused");
        match error {
            CallbackError::Signature(_) | CallbackError::Malformed => signature_invalid(),
            CallbackError::Age => out_of_window(),
        }
    })?;
    let callback: Callback =
        serde_json::from_slice(body).map_err(|error| Problem::invalid_body(error.to_string()))?;
    if callback.event.is_empty() || callback.event.len() > EVENT_LEN_MAX {
        let detail = format!("event: must have 1 to {EVENT_LEN_MAX} bytes");
        return Err(Problem::invalid_body(detail));
    }
    if callback.amount.is_some() != callback.currency.is_some() {
        let detail = "amount, currency: set both or none";
        return Err(Problem::invalid_body(detail));
    }
    let money = callback.amount.zip(callback.currency);
    Ok(PaymentEvent {
        id: callback.event,
        payment: callback.payment,
        money: money.map(|(amount, currency)| Money { amount, currency }),
        is_paid: callback.state == CallbackState::Paid,
        body_sha256: hex::encode(digest(&SHA256, body)),
    })
}

/// Filters of the payment list.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ListQuery {
    /// Only payments in this state.
    #[param(required, schema_with = states)]
    state: String,
    /// The `next` of the previous page.
    after: Option<String>,
    /// Maximum number of entries.
    #[param(minimum = 1, maximum = 1000, default = 1000)]
    limit: Option<usize>,
}

/// List payments in a state, such as refund_due
///
/// Longest in this state first.
#[utoipa::path(
    get,
    path = "/payments",
    operation_id = "listPayments",
    params(ListQuery),
    responses((status = 200, description = "Longest in this state first", body = PaymentList)),
)]
pub(super) async fn list(
    State(sales): State<Sales>,
    caller: Caller,
    ReadQuery(query): ReadQuery<ListQuery>,
) -> Result<Json<PaymentList>, Problem> {
    let words = PaymentState::ALL.map(PaymentState::label).join(", ");
    let must_be = || Problem::invalid_query(format!("state: must be one of {words}"));
    let mut states = PaymentState::ALL.into_iter();
    let state = states.find(|state| state.label() == query.state);
    let state = state.ok_or_else(must_be)?;
    let after = query.after.as_deref().map(parse_cursor).transpose()?;
    let limit = page_len(query.limit, PAGE_MAX)?.unwrap_or(PAGE_MAX);
    // One more payment shows whether there is another page.
    let (orders, after) = (caller.names(), after.unwrap_or((0, "")));
    let found = sales
        .store
        .provider()
        .payments_in(state, &orders, after, limit + 1);
    let mut payments = found.await?;
    let has_more = payments.len() > limit;
    payments.truncate(limit);
    let next = payments.last().filter(|_| has_more);
    let next = next.map(|last| format!("{}.{}", last.decided_at_ms, last.id));
    let payments = payments.into_iter().map(Into::into).collect();
    Ok(Json(PaymentList { payments, next }))
}

fn states() -> Object {
    words(
        "Only payments in this state.",
        PaymentState::ALL.map(PaymentState::label),
    )
}

/// A page of payments.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct PaymentList {
    /// The payments of this page.
    payments: Vec<PaymentView>,
    /// `after` of the next page; null: this is the last page.
    #[schema(required)]
    next: Option<String>,
}

/// Parses a cursor: the time since which the previous page's last payment was in its state, and its id.
fn parse_cursor(after: &str) -> Result<(u64, &str), Problem> {
    let parts = after.split_once('.');
    let place = parts.and_then(|(at_ms, id)| Some((at_ms.parse().ok()?, id)));
    // SQL's number range ends there.
    let place = place.filter(|(at_ms, _): &(u64, &str)| i64::try_from(*at_ms).is_ok());
    place.ok_or_else(|| Problem::invalid_query("after: must be the `next` of an earlier page"))
}

/// Operator's note about a refund.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct RefundNote {
    /// Reference, such as the provider's refund id.
    #[serde(default)]
    #[schema(max_length = 128)]
    reference: String,
}

/// Mark a due refund as done
///
/// Repeating it changes nothing.
#[utoipa::path(
    post,
    path = "/payments/{id}/refunded",
    operation_id = "noteRefund",
    params(("id" = String, Path, description = "The payment's id.")),
    request_body = Option<RefundNote>,
    responses((status = 200, description = "The refund is recorded", body = PaymentView)),
)]
pub(super) async fn refunded(
    State(sales): State<Sales>,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<Json<PaymentView>, Problem> {
    let note: RefundNote = match body.trim_ascii() {
        b"" | b"null" => RefundNote::default(),
        body => read_typed(body)?,
    };
    if note.reference.chars().count() > REFERENCE_LEN_MAX {
        let detail = format!("reference: must have at most {REFERENCE_LEN_MAX} characters");
        return Err(INVALID_REFERENCE.because(detail));
    }
    let payment = sales
        .store
        .provider()
        .note_refund(&id, &note.reference, now_ms())
        .await?;
    let payment = payment.ok_or_else(unknown_payment)?;
    if payment.state != PaymentState::Refunded {
        let detail = "no refund is due for this payment";
        return Err(NO_REFUND_DUE.because(detail));
    }
    info!(payment = %payment.id, "refunded");
    Ok(Json(payment.into()))
}

fn configured(sales: &Sales) -> Result<&Payments, Problem> {
    sales.payments.as_deref().ok_or_else(|| {
        let detail = "this origin has no payment provider: set WEIR_PAYMENT_SECRET";
        PAYMENTS_NOT_CONFIGURED.because(detail)
    })
}

fn unknown_payment() -> Problem {
    let detail = "payment not found";
    UNKNOWN_PAYMENT.because(detail)
}

fn signature_missing() -> Problem {
    let detail = "the callback has no signature";
    SIGNATURE_MISSING.because(detail).challenge("Weir-Payment")
}

fn signature_invalid() -> Problem {
    let detail = "the callback's signature is invalid";
    SIGNATURE_INVALID.because(detail)
}

fn out_of_window() -> Problem {
    let detail = "the callback was signed too long ago, or in the future; sign it again";
    TIMESTAMP_OUT_OF_WINDOW.because(detail)
}
