//! Payments: started by buyers, decided by the provider's callback, looked after by operators.

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tracing::{info, warn};
use weir_base::headers;

use super::orders::only;
use super::user_orders::{SignedUser, conflict, ended, unknown_order};
use crate::Sales;
use crate::callback::{self, CallbackError};
use crate::model::price::{Currency, Money};
use crate::payment::Payments;
use crate::store::{PaymentEvent, PaymentNoted, PaymentStart, PaymentState, StoredPayment};
use weir_origin_core::access::Caller;
use weir_origin_core::clock::now_ms;
use weir_origin_core::http::{Problem, ReadQuery, page_len, read_json_of};

/// The most payments on one page.
const PAGE_MAX: usize = 1_000;

/// The longest reference of a refund, in characters.
const REFERENCE_LEN_MAX: usize = 128;

/// The longest name of an event, in bytes.
const EVENT_LEN_MAX: usize = 128;

/// A payment, as its buyer sees it.
#[derive(Debug, Serialize)]
pub(super) struct PaymentView {
    /// By this name the provider speaks of it.
    payment: String,
    order: String,
    state: &'static str,
    /// Why money must be given back; null: it must not.
    reason: Option<String>,
    /// What the operator who gave it back wrote down.
    #[serde(skip_serializing_if = "Option::is_none")]
    reference: Option<String>,
    /// Where the buyer pays; null: the site's own page knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pay_url: Option<String>,
}

impl From<StoredPayment> for PaymentView {
    fn from(payment: StoredPayment) -> Self {
        Self {
            payment: payment.id,
            order: payment.order,
            state: payment.state.word(),
            reason: Some(payment.reason).filter(|reason| !reason.is_empty()),
            reference: Some(payment.reference).filter(|text| !text.is_empty()),
            pay_url: None,
        }
    }
}

/// `POST /orders/{id}/pay`: starts a payment; 201 for a new one, 200 for the one that was started, or has paid, before.
/// The order is paid when the provider says so.
pub(super) async fn start(
    State(sales): State<Sales>,
    SignedUser(user): SignedUser,
    Path(id): Path<String>,
) -> Result<(StatusCode, Json<PaymentView>), Problem> {
    let payments = configured(&sales)?;
    let start = sales.store.start_payment(&id, &user, now_ms());
    let (status, payment) = match sales.orders.sql(start).await? {
        PaymentStart::New(payment) => (StatusCode::CREATED, payment),
        PaymentStart::Again(payment) => (StatusCode::OK, payment),
        PaymentStart::Paid => return Err(conflict("order_paid", "the order is paid")),
        PaymentStart::Expired => {
            return Err(conflict("order_expired", "the time to pay has passed"));
        }
        PaymentStart::Cancelled => {
            return Err(conflict("order_cancelled", "the order was cancelled"));
        }
        PaymentStart::SoldOut => return Err(conflict("sold_out", "sold out")),
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

/// What a provider says.
#[derive(Debug, Deserialize)]
struct Callback {
    /// The event's name: the same for each try to deliver it.
    event: String,
    /// The payment's name.
    payment: String,
    state: CallbackState,
    /// How much was paid, in the currency's smallest unit. It goes with `currency`.
    amount: Option<u64>,
    currency: Option<Currency>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum CallbackState {
    Paid,
    Failed,
}

/// `POST /payments/callback`: the provider says what became of a payment. Again changes nothing.
pub(super) async fn callback(
    State(sales): State<Sales>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Json<PaymentView>, Problem> {
    let payments = configured(&sales)?;
    let event = read_callback(payments, &headers, &body)?;
    let noted = ended(sales.orders.note_payment(event.clone()).await)?;
    let payment = match noted {
        PaymentNoted::Noted(payment, _) => *payment,
        PaymentNoted::Unknown => return Err(unknown_payment()),
        PaymentNoted::EventReused => {
            let detail = "another event of this name was noted before";
            return Err(Problem::unprocessable("event_reused", "Not new", detail));
        }
    };
    sales.metrics.payment(payment.state.word());
    if payment.state == PaymentState::RefundDue {
        let (id, reason) = (&payment.id, &payment.reason);
        warn!(payment = %id, %reason, "paid, and nothing to be had for it: a refund is due");
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
        warn!(%error, "a payment callback is refused");
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
        let detail = "amount, currency: one goes with the other";
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

/// What is asked of the list of payments.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    state: String,
    /// `next` of an earlier page.
    after: Option<String>,
    limit: Option<usize>,
}

/// `GET /payments?state=refund_due`: those that have been in this state for longest come first, page by page.
pub(super) async fn list(
    State(sales): State<Sales>,
    caller: Caller,
    ReadQuery(query): ReadQuery<ListQuery>,
) -> Result<Json<Value>, Problem> {
    let words = PaymentState::ALL.map(PaymentState::word).join(", ");
    let must_be = || Problem::invalid_query(format!("state: must be one of {words}"));
    let mut states = PaymentState::ALL.into_iter();
    let state = states.find(|state| state.word() == query.state);
    let state = state.ok_or_else(must_be)?;
    let after = query.after.as_deref().map(place).transpose()?;
    let limit = page_len(query.limit, PAGE_MAX)?.unwrap_or(PAGE_MAX);
    // One more tells whether there is another page.
    let (orders, after) = (caller.names(), after.unwrap_or((0, "")));
    let found = sales.store.payments_in(state, &orders, after, limit + 1);
    let mut payments = found.await?;
    let has_more = payments.len() > limit;
    payments.truncate(limit);
    let next = payments.last().filter(|_| has_more);
    let next = next.map(|last| format!("{}.{}", last.decided_at_ms, last.id));
    let payments: Vec<PaymentView> = payments.into_iter().map(Into::into).collect();
    Ok(Json(json!({ "payments": payments, "next": next })))
}

/// Where a page begins: since when the last payment of the page before it was in its state, and its name.
fn place(after: &str) -> Result<(u64, &str), Problem> {
    let parts = after.split_once('.');
    let place = parts.and_then(|(at_ms, id)| Some((at_ms.parse().ok()?, id)));
    // SQL's numbers end there.
    let place = place.filter(|(at_ms, _): &(u64, &str)| i64::try_from(*at_ms).is_ok());
    place.ok_or_else(|| Problem::invalid_query("after: is no `next` of an earlier page"))
}

/// What an operator writes down of a refund.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RefundNote {
    /// Such as the provider's name of it.
    #[serde(default)]
    reference: String,
}

/// `POST /payments/{id}/refunded`: notes that its money was given back, with a reference if the body has one. Again changes
/// nothing.
pub(super) async fn refunded(
    State(sales): State<Sales>,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<Json<PaymentView>, Problem> {
    let note: RefundNote = match body.trim_ascii() {
        b"" | b"null" => RefundNote::default(),
        body => read_json_of(body, "RefundNote")?,
    };
    if note.reference.chars().count() > REFERENCE_LEN_MAX {
        let detail = format!("reference: must have at most {REFERENCE_LEN_MAX} characters");
        return Err(Problem::unprocessable(
            "invalid_reference",
            "Too long",
            detail,
        ));
    }
    let payment = sales
        .store
        .note_refund(&id, &note.reference, now_ms())
        .await?;
    let payment = payment.ok_or_else(unknown_payment)?;
    if payment.state != PaymentState::Refunded {
        let detail = "no refund is due for this payment";
        return Err(Problem::conflict("no_refund_due", "Not possible", detail));
    }
    info!(payment = %payment.id, "refunded");
    Ok(Json(payment.into()))
}

fn configured(sales: &Sales) -> Result<&Payments, Problem> {
    sales.payments.as_deref().ok_or_else(|| {
        let status = StatusCode::NOT_IMPLEMENTED;
        let detail = "this origin has no payment provider: see WEIR_PAYMENT_SECRET";
        Problem::new(status, "payments_not_configured", "No payments", detail)
    })
}

fn unknown_payment() -> Problem {
    let detail = "there is no such payment";
    Problem::not_found("unknown_payment", "Unknown payment", detail)
}

fn signature_missing() -> Problem {
    let status = StatusCode::UNAUTHORIZED;
    let detail = "callbacks are signed by the provider";
    Problem::new(status, "signature_missing", "No signature", detail).challenge("Weir-Payment")
}

fn signature_invalid() -> Problem {
    let status = StatusCode::FORBIDDEN;
    let detail = "the callback is not one that the provider signed";
    Problem::new(status, "signature_invalid", "Invalid signature", detail)
}

fn out_of_window() -> Problem {
    let status = StatusCode::FORBIDDEN;
    let detail = "the callback was signed too long ago, or in the future; sign it anew";
    Problem::new(status, "timestamp_out_of_window", "Too old", detail)
}
