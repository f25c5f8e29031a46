//! Refunds by operators.

use sqlx::Error;

use super::claims::insert_change;
use super::counts::Changes;
use super::order_change::{ChangeKind, NewChange};
use super::outbox;
use super::payments::{change, order_units, return_stock, take_from_buyer};
use super::{OrderStatus, PaymentState, SaleStore, StoredOrder, StoredPayment, orders, provider};
use weir_origin_core::sql::{SqlError, Tx, retried, sql};

/// Cause of a change, and reason of a refund, by an operator.
const OPERATOR: &str = "operator";

// Locks the rows without a change, so that callbacks about these payments wait; callbacks also lock the payment before
// the order.
const LOCK_PAYMENTS: &str = "
    UPDATE payments SET started_at_ms = started_at_ms WHERE order_id = ?";

const END_PAID: &str = "
    UPDATE orders SET status = 'cancelled', ended_at_ms = ? WHERE id = ? AND status = 'paid'";

const END_PAID_ARCHIVED: &str = "
    UPDATE orders_archive SET status = 'cancelled', ended_at_ms = ?
    WHERE id = ? AND status = 'paid'";

const SELECT_UNFOLLOWED: &str = "SELECT 1 AS one FROM unfollowed_orders WHERE order_id = ?";

/// The outcome of a refund.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refund {
    /// The order is ended, and its units are in stock again. Its payment, if known, is due for refund.
    Now(StoredOrder, Option<StoredPayment>),
    /// The order was refunded before; with its payment's current state.
    Again(StoredOrder, Option<StoredPayment>),
    /// The order is not paid.
    NotPaid(StoredOrder),
    /// Redis has not followed the order's payment yet. Nothing was changed.
    Busy,
    /// The order does not exist.
    Unknown,
}

/// The table that contained a paid order.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OrderTable {
    Orders,
    Archive,
}

/// Refunds by operators.
#[derive(Clone, Copy, Debug)]
pub struct OrderAdminStore<'a>(pub(super) &'a SaleStore);

impl OrderAdminStore<'_> {
    /// Refunds a paid order in one transaction: its units return to stock, and its payment is due for refund.
    pub async fn refund(self, order_id: &str, now_ms: u64) -> Result<Refund, SqlError> {
        Ok(retried(|| refund_once(self.0, order_id, now_ms)).await?)
    }
}

async fn refund_once(store: &SaleStore, order_id: &str, now_ms: u64) -> Result<Refund, Error> {
    let mut tx = store.db.begin().await?;
    let refund = refund_in(&mut tx, store, order_id, now_ms).await?;
    match refund {
        Refund::Now(..) => tx.commit().await?,
        _ => tx.rollback().await?,
    }
    Ok(refund)
}

async fn refund_in(
    tx: &mut Tx,
    store: &SaleStore,
    order_id: &str,
    now_ms: u64,
) -> Result<Refund, Error> {
    tx.execute(sql(LOCK_PAYMENTS).text(order_id)).await?;
    let place = end_paid(tx, order_id, now_ms).await?;
    let Some(order) = orders::select(tx, order_id).await? else {
        return Ok(Refund::Unknown);
    };
    let Some(place) = place else {
        return not_ended(tx, order).await;
    };
    if place == OrderTable::Orders {
        // The row of the unfollowed payment would be reused for the refund, and a concurrent update for the payment
        // would delete it.
        let unfollowed = sql(SELECT_UNFOLLOWED).text(order_id);
        if tx.one(unfollowed).await?.is_some() {
            return Ok(Refund::Busy);
        }
        take_from_buyer(tx, &order).await?;
        orders::note_unfollowed(tx, order_id, now_ms).await?;
    }
    let units = order_units(&order);
    let signed = i64::try_from(units).unwrap_or(i64::MAX);
    insert_change(tx, &order, signed, "cancel", now_ms).await?;
    let before = StoredOrder {
        status: OrderStatus::Paid,
        ..order.clone()
    };
    Changes::between(Some(&before), &order).write(tx).await?;
    let cancelled = change(ChangeKind::Cancelled, &order, OPERATOR);
    outbox::note(tx, store.sinks, cancelled, now_ms).await?;
    let payment = due(tx, store, &order, now_ms).await?;
    return_stock(tx, &order.sale, units).await?;
    Ok(Refund::Now(order, payment))
}

/// Ends the order if it is paid. Returns its table. Checks the archive last, because orders only move to it.
async fn end_paid(tx: &mut Tx, order_id: &str, now_ms: u64) -> Result<Option<OrderTable>, Error> {
    for (statement, place) in [
        (END_PAID, OrderTable::Orders),
        (END_PAID_ARCHIVED, OrderTable::Archive),
    ] {
        let end = sql(statement).number(now_ms).text(order_id);
        if tx.execute(end).await? == 1 {
            return Ok(Some(place));
        }
    }
    Ok(None)
}

async fn not_ended(tx: &mut Tx, order: StoredOrder) -> Result<Refund, Error> {
    let payments = provider::of_order(tx, &order.id).await?;
    let is_ours = |payment: &StoredPayment| {
        payment.reason == OPERATOR
            && matches!(
                payment.state,
                PaymentState::RefundDue | PaymentState::Refunded
            )
    };
    Ok(match payments.into_iter().find(is_ours) {
        Some(payment) => Refund::Again(order, Some(payment)),
        None => Refund::NotPaid(order),
    })
}

/// Marks the payment of the order as due for refund.
async fn due(
    tx: &mut Tx,
    store: &SaleStore,
    order: &StoredOrder,
    now_ms: u64,
) -> Result<Option<StoredPayment>, Error> {
    let payments = provider::of_order(tx, &order.id).await?;
    let has_paid = |payment: &StoredPayment| payment.state == PaymentState::Paid;
    let Some(paid) = payments.into_iter().find(has_paid) else {
        return Ok(None);
    };
    provider::decide(tx, &paid, PaymentState::RefundDue, OPERATOR, now_ms).await?;
    let payment = StoredPayment {
        state: PaymentState::RefundDue,
        reason: OPERATOR.to_owned(),
        ..paid
    };
    let change = NewChange {
        kind: ChangeKind::RefundDue,
        order,
        payment: Some(&payment),
        cause: OPERATOR,
    };
    outbox::note(tx, store.sinks, change, now_ms).await?;
    Ok(Some(payment))
}
