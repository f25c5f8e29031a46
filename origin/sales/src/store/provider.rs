//! Payments at a provider: started by buyers, decided by the provider's callbacks.

use serde::Serialize;
use sqlx::Error;
use utoipa::ToSchema;
use weir_base::id::UserId;

use super::order_change::{ChangeKind, NewChange};
use super::outbox;
use super::payments::pay_in;
use super::{OrderStatus, PaymentOutcome, SaleStore, StoredOrder, orders, sales};
use crate::model::price::Money;
use crate::model::site::LocalFence;
use weir_origin_core::outbox::Sinks;
use weir_origin_core::sql::{Database, Row, SqlError, Tx, damaged, retried, sql};
use weir_origin_core::tenants::NameRange;

const SELECT_PAYMENT: &str = "SELECT * FROM payments WHERE id = ?";

const SELECT_OF_ORDER: &str = "
    SELECT * FROM payments WHERE order_id = ? ORDER BY started_at_ms, id";

const SELECT_IN_STATE: &str = "
    SELECT * FROM payments
    WHERE state = ? AND (COALESCE(decided_at_ms, 0) > ? OR (COALESCE(decided_at_ms, 0) = ? AND id > ?))
        AND (? = '' OR (order_id >= ? AND order_id < ?))
    ORDER BY decided_at_ms, id LIMIT ?";

const INSERT_PAYMENT: &str = "
    INSERT INTO payments (id, order_id, user_id, state, started_at_ms)
    VALUES (?, ?, ?, 'started', ?)";

const DECIDE: &str = "
    UPDATE payments SET state = ?, reason = ?, decided_at_ms = ? WHERE id = ? AND state = ?";

const SET_REFERENCE: &str = "UPDATE payments SET reference = ? WHERE id = ?";

// Locks the row without a change, so that events of one payment wait for each other.
const LOCK_PAYMENT: &str = "UPDATE payments SET started_at_ms = started_at_ms WHERE id = ?";

const INSERT_EVENT: &str = "
    INSERT INTO payment_events (event_id, payment_id, body_sha256, at_ms) VALUES (?, ?, ?, ?)";

const SELECT_EVENT: &str = "SELECT payment_id, body_sha256 FROM payment_events WHERE event_id = ?";

/// State of a payment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PaymentState {
    /// The provider has not reported yet.
    Started,
    /// The order is paid; final.
    Paid,
    /// The payment failed; a later callback may still succeed.
    Failed,
    /// The provider has the money, but the order has no unit: refund it.
    RefundDue,
    /// An operator has marked it as refunded.
    Refunded,
}

impl PaymentState {
    /// All states.
    pub const ALL: [Self; 5] = [
        Self::Started,
        Self::Paid,
        Self::Failed,
        Self::RefundDue,
        Self::Refunded,
    ];

    /// The label in SQL and JSON.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Paid => "paid",
            Self::Failed => "failed",
            Self::RefundDue => "refund_due",
            Self::Refunded => "refunded",
        }
    }
}

/// A payment of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredPayment {
    /// Payment id, as sent to the provider: `<order>.p<number>`.
    pub id: String,
    /// Id of the order.
    pub order: String,
    /// The user of the order.
    pub user: UserId,
    /// Its state.
    pub state: PaymentState,
    /// Reason of the refund: see [`PaymentOutcome`]; empty: none.
    pub reason: String,
    /// Refund reference from the operator; empty: none.
    pub reference: String,
    /// Time since which it is in this state, in milliseconds since the Unix epoch; 0 for a started payment.
    pub decided_at_ms: u64,
}

/// The outcome of starting a payment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PaymentStart {
    /// A new payment.
    New(StoredPayment),
    /// The payment that was started, or has paid the order, before.
    Again(StoredPayment),
    /// The order is paid, but without a known payment.
    Paid,
    /// The payment deadline has passed.
    Expired,
    /// The order was cancelled.
    Cancelled,
    /// The order's units are deducted at payment, and too few remain.
    SoldOut,
    /// The user has no such order.
    Unknown,
}

/// A provider's report about a payment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PaymentEvent {
    /// Event id; an event with a known id is a repetition.
    pub id: String,
    /// Id of the payment.
    pub payment: String,
    /// Whether the payment succeeded.
    pub is_paid: bool,
    /// The paid amount, if the provider reports it.
    pub money: Option<Money>,
    /// SHA-256 of the request's body, in hex.
    pub body_sha256: String,
}

/// The outcome of a payment event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PaymentNoted {
    /// The payment after the event, and its order.
    Noted(Box<StoredPayment>, Box<StoredOrder>),
    /// The payment does not exist. Nothing was changed.
    Unknown,
    /// The event id was used for a different event. Nothing was changed.
    EventReused,
}

/// Payments at a provider: started by buyers, decided by the provider's callbacks.
#[derive(Clone, Copy, Debug)]
pub struct ProviderStore<'a>(pub(super) &'a SaleStore);

impl ProviderStore<'_> {
    /// Starts a payment of a user's order. Repeating it returns the same payment, until the provider reports a failure.
    pub async fn start_payment(
        self,
        order_id: &str,
        user: &UserId,
        now_ms: u64,
    ) -> Result<PaymentStart, SqlError> {
        Ok(retried(|| start_once(&self.0.db, order_id, user, now_ms)).await?)
    }

    /// Applies a payment event, and its effect on the order, in one transaction. A repeated event changes nothing.
    pub async fn note_payment(
        self,
        event: &PaymentEvent,
        now_ms: u64,
    ) -> Result<PaymentNoted, SqlError> {
        let once = || async {
            match note_once(self.0, event, false, now_ms).await? {
                Some(recorded) => Ok(recorded),
                // No units are left for the order, so it stays unpaid; the payment becomes due for refund.
                None => {
                    let recorded = note_once(self.0, event, true, now_ms).await?;
                    recorded.ok_or(Error::RowNotFound)
                }
            }
        };
        Ok(retried(once).await?)
    }

    /// Returns the last payment of an order, if there is one.
    pub async fn last_payment(self, order_id: &str) -> Result<Option<StoredPayment>, SqlError> {
        let rows = self.0.db.all(sql(SELECT_OF_ORDER).text(order_id)).await?;
        Ok(rows.last().map(stored).transpose()?)
    }

    /// Returns up to `limit` payments in this state of orders with these names, longest in the state first, after the
    /// cursor of [`StoredPayment::decided_at_ms`] and payment id.
    pub async fn payments_in(
        self,
        state: PaymentState,
        orders: &NameRange,
        after: (u64, &str),
        limit: usize,
    ) -> Result<Vec<StoredPayment>, SqlError> {
        let (at_ms, id) = after;
        let select = sql(SELECT_IN_STATE).text(state.label());
        let select = select.number(at_ms).number(at_ms).text(id);
        let select = select.text(orders.first()).text(orders.first());
        let rows = self
            .0
            .db
            .all(select.text(orders.end()).number(limit))
            .await?;
        Ok(rows.iter().map(stored).collect::<Result<_, _>>()?)
    }

    /// Records a refund with the operator's reference. Returns the payment; `None` if it does not exist. The first
    /// reference stays.
    pub async fn note_refund(
        self,
        payment_id: &str,
        reference: &str,
        now_ms: u64,
    ) -> Result<Option<StoredPayment>, SqlError> {
        let once = || async {
            let mut tx = self.0.db.begin().await?;
            tx.execute(sql(LOCK_PAYMENT).text(payment_id)).await?;
            if let Some(payment) = select(&mut tx, payment_id).await?
                && payment.state == PaymentState::RefundDue
            {
                refunded(&mut tx, self.0.sinks, &payment, reference, now_ms).await?;
            }
            let payment = select(&mut tx, payment_id).await?;
            tx.commit().await?;
            Ok(payment)
        };
        Ok(retried(once).await?)
    }
}

async fn refunded(
    tx: &mut Tx,
    sinks: Sinks,
    payment: &StoredPayment,
    reference: &str,
    now_ms: u64,
) -> Result<(), Error> {
    let (to, reason) = (PaymentState::Refunded, &payment.reason);
    decide(tx, payment, to, reason, now_ms).await?;
    let note = sql(SET_REFERENCE).text(reference).text(&payment.id);
    tx.execute(note).await?;
    let payment = select(tx, &payment.id).await?.ok_or(Error::RowNotFound)?;
    let order = orders::select(tx, &payment.order).await?;
    let order = order.ok_or(Error::RowNotFound)?;
    apply_payment_state(tx, sinks, &order, &payment, now_ms).await
}

/// The payment's number within its order.
pub(super) fn number(payment: &StoredPayment) -> u64 {
    let (_, number) = payment.id.rsplit_once(".p").unwrap_or_default();
    number.parse().unwrap_or_default()
}

async fn start_once(
    db: &Database,
    order_id: &str,
    user: &UserId,
    now_ms: u64,
) -> Result<PaymentStart, Error> {
    let mut tx = db.begin().await?;
    let started = start_in(&mut tx, order_id, user, now_ms).await?;
    tx.commit().await?;
    Ok(started)
}

async fn start_in(
    tx: &mut Tx,
    order_id: &str,
    user: &UserId,
    now_ms: u64,
) -> Result<PaymentStart, Error> {
    let order = orders::select(tx, order_id).await?;
    let Some(order) = order.filter(|order| order.user == *user) else {
        return Ok(PaymentStart::Unknown);
    };
    let payments = of_order(tx, order_id).await?;
    let current = |payment: &&StoredPayment| match order.status {
        OrderStatus::Paid => payment.state == PaymentState::Paid,
        _ => payment.state == PaymentState::Started,
    };
    let is_late = order.pay_by_ms.is_some_and(|by_ms| by_ms <= now_ms);
    match order.status {
        OrderStatus::Cancelled => return Ok(PaymentStart::Cancelled),
        OrderStatus::Expired => return Ok(PaymentStart::Expired),
        OrderStatus::Unpaid if is_late => return Ok(PaymentStart::Expired),
        OrderStatus::Unpaid | OrderStatus::Paid => {}
    }
    if let Some(payment) = payments.iter().find(current) {
        return Ok(PaymentStart::Again(payment.clone()));
    }
    if order.status == OrderStatus::Paid {
        return Ok(PaymentStart::Paid);
    }
    // Only avoids pointless payments: the units go to the first paid order.
    if !order.deducted && remaining(tx, &order).await? < u64::from(order.units) {
        return Ok(PaymentStart::SoldOut);
    }
    let id = format!("{order_id}.p{}", payments.len() + 1);
    let insert = sql(INSERT_PAYMENT)
        .text(&id)
        .text(order_id)
        .text(user.as_str())
        .number(now_ms);
    // False: a concurrent call has just started the same payment.
    let is_new = tx.insert(insert).await?;
    let payment = StoredPayment {
        id,
        order: order_id.to_owned(),
        user: user.clone(),
        state: PaymentState::Started,
        reason: String::new(),
        reference: String::new(),
        decided_at_ms: 0,
    };
    Ok(match is_new {
        true => PaymentStart::New(payment),
        false => PaymentStart::Again(payment),
    })
}

async fn remaining(tx: &mut Tx, order: &StoredOrder) -> Result<u64, Error> {
    let sale = sales::select_one(tx, &order.sale, LocalFence::ALONE).await?;
    Ok(sale.map_or(0, |sale| sale.remaining))
}

/// Applies an event. Returns `None`, with nothing changed, if the order's units must be deducted and too few remain;
/// the caller then calls it again with `is_sold_out`.
async fn note_once(
    store: &SaleStore,
    event: &PaymentEvent,
    is_sold_out: bool,
    now_ms: u64,
) -> Result<Option<PaymentNoted>, Error> {
    let mut tx = store.db.begin().await?;
    let recorded = note_in(&mut tx, store.sinks, event, is_sold_out, now_ms).await?;
    match recorded {
        Some(PaymentNoted::Noted(..)) => tx.commit().await?,
        _ => tx.rollback().await?,
    }
    Ok(recorded)
}

async fn note_in(
    tx: &mut Tx,
    sinks: Sinks,
    event: &PaymentEvent,
    is_sold_out: bool,
    now_ms: u64,
) -> Result<Option<PaymentNoted>, Error> {
    let insert = sql(INSERT_EVENT)
        .text(&event.id)
        .text(&event.payment)
        .text(&event.body_sha256)
        .number(now_ms);
    // Insert first, then read, so that a concurrent event is visible.
    let is_new = tx.insert(insert).await?;
    if !is_new && !is_same(tx, event).await? {
        return Ok(Some(PaymentNoted::EventReused));
    }
    tx.execute(sql(LOCK_PAYMENT).text(&event.payment)).await?;
    let Some(payment) = select(tx, &event.payment).await? else {
        return Ok(Some(PaymentNoted::Unknown));
    };
    let before = payment.state;
    if is_new && !follow_event(tx, event, &payment, is_sold_out, now_ms).await? {
        return Ok(None);
    }
    let payment = select(tx, &payment.id).await?.ok_or(Error::RowNotFound)?;
    let order = orders::select(tx, &payment.order).await?;
    let order = order.ok_or(Error::RowNotFound)?;
    if payment.state != before {
        apply_payment_state(tx, sinks, &order, &payment, now_ms).await?;
    }
    Ok(Some(PaymentNoted::Noted(
        Box::new(payment),
        Box::new(order),
    )))
}

/// Applies a new event. Returns false if the order's units are not available; the caller must then roll back.
async fn follow_event(
    tx: &mut Tx,
    event: &PaymentEvent,
    payment: &StoredPayment,
    is_sold_out: bool,
    now_ms: u64,
) -> Result<bool, Error> {
    let is_open = matches!(payment.state, PaymentState::Started | PaymentState::Failed);
    if !is_open {
        return Ok(true);
    }
    if !event.is_paid {
        decide(tx, payment, PaymentState::Failed, "", now_ms).await?;
        return Ok(true);
    }
    let refusal = match is_sold_out {
        true => "sold_out",
        false if !is_right(tx, event, payment).await? => "wrong_amount",
        false => match pay_in(tx, &payment.order, &payment.user, now_ms).await? {
            PaymentOutcome::Now(_) => "",
            PaymentOutcome::SoldOut => return Ok(false),
            PaymentOutcome::Again(_) => "order_paid",
            PaymentOutcome::Expired => "order_expired",
            PaymentOutcome::Cancelled => "order_cancelled",
            PaymentOutcome::Unknown => return Err(Error::RowNotFound),
        },
    };
    let state = match refusal {
        "" => PaymentState::Paid,
        _ => PaymentState::RefundDue,
    };
    decide(tx, payment, state, refusal, now_ms).await?;
    Ok(true)
}

/// Whether the paid amount equals the order's price; true if one of them is unknown.
async fn is_right(
    tx: &mut Tx,
    event: &PaymentEvent,
    payment: &StoredPayment,
) -> Result<bool, Error> {
    let order = orders::select(tx, &payment.order).await?;
    let order = order.ok_or(Error::RowNotFound)?;
    let cost = order.price.map(|price| price.times(order.units));
    Ok(event
        .money
        .zip(cost)
        .is_none_or(|(paid, cost)| paid == cost))
}

/// Stores the change of a payment's state for receivers.
pub(super) async fn apply_payment_state(
    tx: &mut Tx,
    sinks: Sinks,
    order: &StoredOrder,
    payment: &StoredPayment,
    now_ms: u64,
) -> Result<(), Error> {
    let kind = match payment.state {
        PaymentState::Started => return Ok(()),
        PaymentState::Paid => ChangeKind::Paid,
        PaymentState::Failed => ChangeKind::PaymentFailed,
        PaymentState::RefundDue => ChangeKind::RefundDue,
        PaymentState::Refunded => ChangeKind::Refunded,
    };
    let change = NewChange {
        kind,
        order,
        payment: Some(payment),
        cause: "",
    };
    outbox::note(tx, sinks, change, now_ms).await
}

async fn is_same(tx: &mut Tx, event: &PaymentEvent) -> Result<bool, Error> {
    let row = tx.one(sql(SELECT_EVENT).text(&event.id)).await?;
    let row = row.ok_or(Error::RowNotFound)?;
    let is_same =
        row.text("payment_id")? == event.payment && row.text("body_sha256")? == event.body_sha256;
    Ok(is_same)
}

/// Changes a payment's state, if it is still in the state that was read.
pub(super) async fn decide(
    tx: &mut Tx,
    payment: &StoredPayment,
    state: PaymentState,
    reason: &str,
    now_ms: u64,
) -> Result<(), Error> {
    let decide = sql(DECIDE)
        .text(state.label())
        .text(reason)
        .number(now_ms)
        .text(&payment.id)
        .text(payment.state.label());
    match tx.execute(decide).await? {
        1 => Ok(()),
        // Possible only without the lock. The error makes the provider repeat the callback.
        _ => Err(Error::RowNotFound),
    }
}

async fn select(tx: &mut Tx, id: &str) -> Result<Option<StoredPayment>, Error> {
    let row = tx.one(sql(SELECT_PAYMENT).text(id)).await?;
    row.as_ref().map(stored).transpose()
}

pub(super) async fn of_order(tx: &mut Tx, order_id: &str) -> Result<Vec<StoredPayment>, Error> {
    let rows = tx.all(sql(SELECT_OF_ORDER).text(order_id)).await?;
    rows.iter().map(stored).collect()
}

pub(super) fn stored(row: &Row) -> Result<StoredPayment, Error> {
    let word = row.text("state")?;
    let mut states = PaymentState::ALL.into_iter();
    let state = states.find(|state| state.label() == word);
    Ok(StoredPayment {
        id: row.text("id")?,
        order: row.text("order_id")?,
        user: orders::user_id(row)?,
        state: state.ok_or_else(|| damaged("state", "is not a state"))?,
        reason: row.text("reason")?,
        reference: row.text("reference")?,
        decided_at_ms: row.maybe("decided_at_ms")?.unwrap_or(0),
    })
}
