//! What is told of an order: kinds, and the JSON that receivers get.

use serde_json::json;

use super::{StoredOrder, StoredPayment};
use crate::payload::Payload;
use weir_origin_core::outbox::change_id;

/// What has happened to an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChangeKind {
    /// It was made: the unit is the buyer's.
    Created,
    /// It was paid.
    Paid,
    /// Its buyer or an operator has ended it.
    Cancelled,
    /// It was not paid in time.
    Expired,
    /// The provider could not take the money.
    PaymentFailed,
    /// The provider has money that must be given back.
    RefundDue,
    /// That was given back.
    Refunded,
}

impl ChangeKind {
    /// Every kind.
    pub const ALL: [Self; 7] = [
        Self::Created,
        Self::Paid,
        Self::Cancelled,
        Self::Expired,
        Self::PaymentFailed,
        Self::RefundDue,
        Self::Refunded,
    ];

    /// The word in SQL and JSON.
    pub const fn word(self) -> &'static str {
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

/// A change, as it is written.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewChange<'a> {
    pub(super) kind: ChangeKind,
    /// The order as it is now.
    pub(super) order: &'a StoredOrder,
    /// The payment that it is about, as it is now.
    pub(super) payment: Option<&'a StoredPayment>,
    /// Who or what made it, in a word; empty: its kind says it all.
    pub(super) cause: &'a str,
}

impl NewChange<'_> {
    /// The JSON that receivers get.
    pub(super) fn body(self, payload: Option<&Payload>, seq: u64, now_ms: u64) -> String {
        let Self {
            kind,
            order,
            payment,
            cause,
        } = self;
        let payment = payment.map(|payment| {
            json!({
                "payment": payment.id, "state": payment.state.word(),
                "reason": Some(&payment.reason).filter(|reason| !reason.is_empty()),
                "reference": Some(&payment.reference).filter(|text| !text.is_empty()),
            })
        });
        json!({
            "id": change_id(&order.id, seq),
            "type": kind.word(),
            "sequence": seq,
            "at_ms": now_ms,
            "cause": Some(cause).filter(|cause| !cause.is_empty()),
            "order": {
                "order": order.id, "sale": order.sale.as_str(), "user": order.user.as_str(),
                "quantity": order.units, "sku": order.sku, "price": order.cost(), "link": order.click.as_ref().map(|click| &click.link),
                "status": order.status.word(), "pay_by_ms": order.pay_by_ms,
                "created_at_ms": order.created_at_ms, "payload": payload,
            },
            "payment": payment,
        })
        .to_string()
    }
}
