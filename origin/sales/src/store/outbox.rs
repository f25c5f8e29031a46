//! Stores order changes for the [outbox](weir_origin_core::outbox), in the transactions that make them.

use sqlx::Error;

use super::order_change::{ChangeKind, NewChange};
use super::{StoredOrder, payloads};
use crate::model::payload::Payload;
use weir_origin_core::outbox::{self, Sinks, Source, queue};
use weir_origin_core::sql::Tx;

/// Stores the creation of an order, in its transaction.
pub(super) async fn note_created(
    tx: &mut Tx,
    sinks: Sinks,
    order: &StoredOrder,
) -> Result<(), Error> {
    if !sinks.has_any() {
        return Ok(());
    }
    let change = NewChange {
        kind: ChangeKind::Created,
        order,
        payment: None,
        cause: "",
    };
    let (payload, at_ms) = (
        payloads::in_transaction(tx, &order.id).await?,
        order.created_at_ms,
    );
    let body = |seq| change.body(payload.as_ref(), seq, at_ms);
    queue::note_first(tx, Source::Order, sinks, written(change, &body, at_ms)).await
}

/// Stores a change in the transaction that makes it.
pub(super) async fn note(
    tx: &mut Tx,
    sinks: Sinks,
    change: NewChange<'_>,
    now_ms: u64,
) -> Result<(), Error> {
    if !sinks.has_any() {
        return Ok(());
    }
    let payload: Option<Payload> = payloads::in_transaction(tx, &change.order.id).await?;
    let body = |seq| change.body(payload.as_ref(), seq, now_ms);
    queue::note(tx, Source::Order, sinks, written(change, &body, now_ms)).await
}

fn written<'a>(
    change: NewChange<'a>,
    body: &'a (dyn Fn(u64) -> String + Sync),
    at_ms: u64,
) -> outbox::NewChange<'a> {
    outbox::NewChange {
        subject: &change.order.id,
        belongs_to: change.order.sale.as_str(),
        kind: change.kind.label(),
        at_ms,
        body,
    }
}
