//! Payment, cancellation and expiry of orders, each decided in one transaction by the one statement that changes the
//! status.

use std::collections::BTreeMap;

use sqlx::Error;
use weir_base::id::{SaleId, UserId};

use super::claims::insert_change;
use super::counts::Changes;
use super::order_change::{ChangeKind, NewChange};
use super::outbox;
use super::{
    CancelOutcome, HoldRules, OrderStatus, PaymentOutcome, SaleStore, StoredOrder, cooldowns,
    groups, orders,
};
use weir_origin_core::sql::{SqlError, Tx, retried, sql};

/// Maximum number of orders that expire per transaction. The stock's row stays locked until the commit, so other orders
/// wait.
const EXPIRE_TOGETHER: usize = 50;

const TAKE_STOCK: &str = "
    UPDATE stock SET remaining = remaining - ? WHERE sale_id = ? AND remaining >= ?";

const RETURN_STOCK: &str = "UPDATE stock SET remaining = remaining + ? WHERE sale_id = ?";

const TAKE_FROM_BUYER: &str = "
    UPDATE buyers SET units = units - ? WHERE sale_id = ? AND user_id = ?";

// Refuses late payments, whether or not the order has expired yet.
const PAY: &str = "
    UPDATE orders SET status = 'paid', deducted = 1, pay_by_ms = NULL, paid_at_ms = ?
    WHERE id = ? AND user_id = ? AND status = 'unpaid' AND (pay_by_ms IS NULL OR pay_by_ms > ?)";

const CANCEL: &str = "
    UPDATE orders SET status = 'cancelled', pay_by_ms = NULL, ended_at_ms = ?
    WHERE id = ? AND user_id = ? AND status = 'unpaid'";

const EXPIRE: &str = "
    UPDATE orders SET status = 'expired', pay_by_ms = NULL, ended_at_ms = ?
    WHERE id = ? AND status = 'unpaid' AND pay_by_ms <= ?";

const SELECT_OVERDUE: &str = "
    SELECT * FROM orders WHERE pay_by_ms <= ? ORDER BY pay_by_ms LIMIT ?";

/// Payment, cancellation and expiry of orders, each decided in one transaction by the one statement that changes the
/// status.
#[derive(Clone, Copy, Debug)]
pub struct PaymentStore<'a>(pub(super) &'a SaleStore);

impl PaymentStore<'_> {
    /// Pays an order in one transaction. If its units are deducted at payment, deducts them.
    pub async fn pay(
        self,
        order_id: &str,
        user: &UserId,
        now_ms: u64,
    ) -> Result<PaymentOutcome, SqlError> {
        Ok(retried(|| pay_once(self.0, order_id, user, now_ms)).await?)
    }

    /// Cancels an unpaid order in one transaction; its units return to stock. `rules` may start a cooldown for its
    /// user.
    pub async fn cancel(
        self,
        order_id: &str,
        user: &UserId,
        rules: HoldRules,
        now_ms: u64,
    ) -> Result<CancelOutcome, SqlError> {
        let by = Canceller::Buyer(user, rules);
        Ok(retried(|| cancel_once(self.0, order_id, by, now_ms)).await?)
    }

    /// Cancels an unpaid order for an operator, for any user. It does not count against the user.
    pub async fn cancel_any(self, order_id: &str, now_ms: u64) -> Result<CancelOutcome, SqlError> {
        let by = Canceller::Operator;
        Ok(retried(|| cancel_once(self.0, order_id, by, now_ms)).await?)
    }

    /// Expires up to `limit` orders past their payment deadline; their units return to stock. Returns the expired
    /// orders. `rules` may start cooldowns for their users.
    pub async fn expire(
        self,
        rules: HoldRules,
        now_ms: u64,
        limit: usize,
    ) -> Result<Vec<StoredOrder>, SqlError> {
        let rows = self
            .0
            .db
            .all(sql(SELECT_OVERDUE).number(now_ms).number(limit))
            .await?;
        let overdue: Result<Vec<_>, Error> = rows.iter().map(orders::stored).collect();
        let mut expired = Vec::new();
        for together in overdue?.chunks(EXPIRE_TOGETHER) {
            expired.extend(retried(|| expire_once(self.0, together, rules, now_ms)).await?);
        }
        Ok(expired)
    }
}

async fn pay_once(
    store: &SaleStore,
    order_id: &str,
    user: &UserId,
    now_ms: u64,
) -> Result<PaymentOutcome, Error> {
    let mut tx = store.db.begin().await?;
    let paid = pay_in(&mut tx, order_id, user, now_ms).await?;
    if let PaymentOutcome::Now(order) = &paid {
        let change = change(ChangeKind::Paid, order, "");
        outbox::note(&mut tx, store.sinks, change, now_ms).await?;
        tx.commit().await?;
    } else {
        tx.rollback().await?;
    }
    Ok(paid)
}

/// Pays the order. The caller stores the change for receivers, and must roll back on [`PaymentOutcome::SoldOut`].
pub(super) async fn pay_in(
    tx: &mut Tx,
    order_id: &str,
    user: &UserId,
    now_ms: u64,
) -> Result<PaymentOutcome, Error> {
    // The order before the payment shows whether its units must be deducted now.
    let Some(before) = own(tx, order_id, user).await? else {
        return Ok(PaymentOutcome::Unknown);
    };
    let pay = sql(PAY)
        .number(now_ms)
        .text(order_id)
        .text(user.as_str())
        .number(now_ms);
    let changed = tx.execute(pay).await? == 1;
    let order = own(tx, order_id, user).await?.ok_or(Error::RowNotFound)?;
    if !changed {
        return Ok(match order.status {
            OrderStatus::Paid => PaymentOutcome::Again(order),
            OrderStatus::Cancelled => PaymentOutcome::Cancelled,
            OrderStatus::Unpaid | OrderStatus::Expired => PaymentOutcome::Expired,
        });
    }
    if !before.deducted {
        orders::note_unfollowed(tx, order_id, now_ms).await?;
    }
    let accepted = if before.deducted { 0 } else { order.units };
    insert_change(tx, &order, -i64::from(accepted), "pay", now_ms).await?;
    Changes::between(Some(&before), &order).write(tx).await?;
    if !before.deducted && !take_stock(tx, &order).await? {
        return Ok(PaymentOutcome::SoldOut);
    }
    Ok(PaymentOutcome::Now(order))
}

/// Who cancels an order.
#[derive(Clone, Copy)]
enum Canceller<'a> {
    Buyer(&'a UserId, HoldRules),
    Operator,
}

impl Canceller<'_> {
    fn label(self) -> &'static str {
        match self {
            Self::Buyer(..) => "buyer",
            Self::Operator => "operator",
        }
    }

    /// Returns the order if it may be cancelled.
    async fn order(self, tx: &mut Tx, order_id: &str) -> Result<Option<StoredOrder>, Error> {
        match self {
            Self::Buyer(user, _) => own(tx, order_id, user).await,
            Self::Operator => orders::select(tx, order_id).await,
        }
    }
}

async fn cancel_once(
    store: &SaleStore,
    order_id: &str,
    by: Canceller<'_>,
    now_ms: u64,
) -> Result<CancelOutcome, Error> {
    let mut tx = store.db.begin().await?;
    // The order before the cancellation shows how long its units were held. If it is still unpaid, nothing else has
    // changed.
    let Some(before) = by.order(&mut tx, order_id).await? else {
        return Ok(CancelOutcome::Unknown);
    };
    let cancel = sql(CANCEL).number(now_ms).text(order_id);
    let changed = tx.execute(cancel.text(before.user.as_str())).await? == 1;
    let order = by.order(&mut tx, order_id).await?;
    let order = order.ok_or(Error::RowNotFound)?;
    if changed {
        end(&mut tx, &order, "cancel", now_ms).await?;
        if let Canceller::Buyer(_, rules) = by {
            cooldowns::count_cancelled(&mut tx, &before, rules, now_ms).await?;
        }
        Changes::between(Some(&before), &order)
            .write(&mut tx)
            .await?;
        let cancelled = change(ChangeKind::Cancelled, &order, by.label());
        outbox::note(&mut tx, store.sinks, cancelled, now_ms).await?;
        return_stock(&mut tx, &order.sale, order_units(&order)).await?;
        tx.commit().await?;
        return Ok(CancelOutcome::Now(order));
    }
    tx.rollback().await?;
    Ok(match order.status {
        OrderStatus::Cancelled => CancelOutcome::Again(order),
        OrderStatus::Expired => CancelOutcome::Expired(order),
        // Unpaid is impossible here, because nothing was changed. Treating it as paid is the safe answer.
        OrderStatus::Paid | OrderStatus::Unpaid => CancelOutcome::Paid(order),
    })
}

async fn expire_once(
    store: &SaleStore,
    overdue: &[StoredOrder],
    rules: HoldRules,
    now_ms: u64,
) -> Result<Vec<StoredOrder>, Error> {
    let mut tx = store.db.begin().await?;
    let mut expired = Vec::new();
    let mut units = BTreeMap::<&SaleId, u64>::new();
    let mut changes = Changes::default();
    for order in overdue {
        let expire = sql(EXPIRE).number(now_ms).text(&order.id).number(now_ms);
        if tx.execute(expire).await? == 0 {
            continue; // Paid or cancelled meanwhile.
        }
        end(&mut tx, order, "expire", now_ms).await?;
        cooldowns::count_expired(&mut tx, order, rules, now_ms).await?;
        *units.entry(&order.sale).or_default() += order_units(order);
        let ended = StoredOrder {
            status: OrderStatus::Expired,
            pay_by_ms: None,
            ..order.clone()
        };
        changes.add(Some(order), &ended);
        let expiry = change(ChangeKind::Expired, &ended, "");
        outbox::note(&mut tx, store.sinks, expiry, now_ms).await?;
        expired.push(ended);
    }
    changes.write(&mut tx).await?;
    // Return stock last, sorted by sale, so that concurrent transactions cannot deadlock.
    for (sale, units) in units {
        return_stock(&mut tx, sale, units).await?;
    }
    tx.commit().await?;
    Ok(expired)
}

/// Creates a change that does not concern a payment.
pub(super) fn change<'a>(
    kind: ChangeKind,
    order: &'a StoredOrder,
    cause: &'a str,
) -> NewChange<'a> {
    NewChange {
        kind,
        order,
        payment: None,
        cause,
    }
}

async fn own(tx: &mut Tx, order_id: &str, user: &UserId) -> Result<Option<StoredOrder>, Error> {
    let order = orders::select(tx, order_id).await?;
    Ok(order.filter(|order| order.user == *user))
}

/// Steps of each order that ends unpaid, except returning stock.
async fn end(
    tx: &mut Tx,
    order: &StoredOrder,
    reason: &'static str,
    now_ms: u64,
) -> Result<(), Error> {
    take_from_buyer(tx, order).await?;
    orders::note_unfollowed(tx, &order.id, now_ms).await?;
    let units = i64::try_from(order_units(order)).unwrap_or(i64::MAX);
    insert_change(tx, order, units, reason, now_ms).await
}

/// Subtracts the order's units from its user's total.
pub(super) async fn take_from_buyer(tx: &mut Tx, order: &StoredOrder) -> Result<(), Error> {
    let take = sql(TAKE_FROM_BUYER)
        .number(order.units)
        .text(order.sale.as_str())
        .text(order.user.as_str());
    tx.execute(take).await?;
    groups::take(tx, order).await
}

/// Number of units that the order has taken from stock.
pub(super) fn order_units(order: &StoredOrder) -> u64 {
    if order.deducted {
        u64::from(order.units)
    } else {
        0
    }
}

/// Deducts the order's units. Returns false if too few remain.
pub(super) async fn take_stock(tx: &mut Tx, order: &StoredOrder) -> Result<bool, Error> {
    let take = sql(TAKE_STOCK)
        .number(order.units)
        .text(order.sale.as_str())
        .number(order.units);
    Ok(tx.execute(take).await? == 1)
}

pub(super) async fn return_stock(tx: &mut Tx, sale: &SaleId, units: u64) -> Result<(), Error> {
    if units > 0 {
        let give = sql(RETURN_STOCK).number(units).text(sale.as_str());
        tx.execute(give).await?;
    }
    Ok(())
}
