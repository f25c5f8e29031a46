//! Order changes for receivers: kinds and JSON bodies.

use serde::Serialize;
use serde_json::json;
use utoipa::ToSchema;
use utoipa::openapi::Object;

use super::{OrderStatus, PaymentState, StoredOrder, StoredPayment};
use crate::model::payload::Payload;
use crate::model::price::OrderPrice;
use weir_origin_core::api::words;
use weir_origin_core::outbox::change_id;

/// Kind of an order change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChangeKind {
    /// The order was created.
    Created,
    /// The order was paid.
    Paid,
    /// The buyer or an operator cancelled the order.
    Cancelled,
    /// The order was not paid in time.
    Expired,
    /// The payment failed.
    PaymentFailed,
    /// The payment is due for refund.
    RefundDue,
    /// The payment was refunded.
    Refunded,
}

impl ChangeKind {
    /// All kinds.
    pub const ALL: [Self; 7] = [
        Self::Created,
        Self::Paid,
        Self::Cancelled,
        Self::Expired,
        Self::PaymentFailed,
        Self::RefundDue,
        Self::Refunded,
    ];

    /// The label in SQL and JSON.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Created => "order.created",
            Self::Paid => "order.paid",
            Self::Cancelled => "order.cancelled",
            Self::Expired => "order.expired",
            Self::PaymentFailed => "order.payment_failed",
            Self::RefundDue => "order.refund_due",
            Self::Refunded => "order.refunded",
        }
    }
}

/// A change to store.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewChange<'a> {
    pub(super) kind: ChangeKind,
    /// The order after the change.
    pub(super) order: &'a StoredOrder,
    /// The payment after the change, if the change concerns one.
    pub(super) payment: Option<&'a StoredPayment>,
    /// Cause of the change; empty: the kind implies it.
    pub(super) cause: &'a str,
}

/// The body of the webhook `order.…`.
#[derive(Serialize, ToSchema)]
pub struct OrderChange<'a> {
    /// Id of the change, the same for every attempt.
    id: String,
    /// Kind of change.
    #[serde(rename = "type")]
    #[schema(schema_with = kinds)]
    kind: &'static str,
    /// 1, 2, 3 … per order.
    sequence: u64,
    /// Time, in milliseconds since the Unix epoch.
    at_ms: u64,
    /// Cause of the end; null: not ended.
    #[schema(required)]
    cause: Option<&'a str>,
    /// The order after the change.
    order: ChangedOrder<'a>,
    /// The payment after the change; null: none.
    #[schema(required)]
    payment: Option<ChangedPayment<'a>>,
}

/// An order after a change.
#[derive(Serialize, ToSchema)]
struct ChangedOrder<'a> {
    /// The order's id.
    order: &'a str,
    /// The sale's id.
    sale: &'a str,
    /// The user's id.
    user: &'a str,
    /// Number of units.
    quantity: u32,
    /// The SKU; null: none.
    #[schema(required)]
    sku: Option<&'a str>,
    /// Price; null: the sale has none.
    #[schema(required)]
    price: Option<OrderPrice>,
    /// Its state.
    status: OrderStatus,
    /// Payment deadline, in milliseconds since the Unix epoch; null: none.
    #[schema(required)]
    pay_by_ms: Option<u64>,
    /// Creation time, in milliseconds since the Unix epoch.
    created_at_ms: u64,
    /// The buyer's data, as required by the sale's payload_schema; null: the sale has none.
    #[schema(required, value_type = Option<serde_json::Value>)]
    payload: Option<&'a Payload>,
    /// The attributed link, by domain and code; null: none.
    #[schema(required)]
    link: Option<&'a str>,
}

/// A payment after a change.
#[derive(Serialize, ToSchema)]
struct ChangedPayment<'a> {
    /// The payment's id.
    payment: &'a str,
    /// Its state.
    state: PaymentState,
    /// Reason of the refund; null: none.
    #[schema(required)]
    reason: Option<&'a str>,
    /// Refund reference from the operator; null: none.
    #[schema(required)]
    reference: Option<&'a str>,
}

fn kinds() -> Object {
    words("Kind of change.", ChangeKind::ALL.map(ChangeKind::label))
}

impl<'a> NewChange<'a> {
    /// The JSON for receivers.
    pub(super) fn body(self, payload: Option<&'a Payload>, seq: u64, now_ms: u64) -> String {
        let Self {
            kind,
            order,
            payment,
            cause,
        } = self;
        let unless_empty = |text: &'a str| Some(text).filter(|text| !text.is_empty());
        let payment = payment.map(|payment| ChangedPayment {
            payment: &payment.id,
            state: payment.state,
            reason: unless_empty(&payment.reason),
            reference: unless_empty(&payment.reference),
        });
        let change = OrderChange {
            id: change_id(&order.id, seq),
            kind: kind.label(),
            sequence: seq,
            at_ms: now_ms,
            cause: unless_empty(cause),
            order: ChangedOrder {
                order: &order.id,
                sale: order.sale.as_str(),
                user: order.user.as_str(),
                quantity: order.units,
                sku: order.sku.as_deref(),
                price: order.cost(),
                status: order.status,
                pay_by_ms: order.pay_by_ms,
                created_at_ms: order.created_at_ms,
                payload,
                link: order.click.as_ref().map(|click| click.link.as_str()),
            },
            payment,
        };
        // Members are sorted, as in all earlier changes.
        json!(change).to_string()
    }
}
