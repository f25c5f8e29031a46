//! Outcomes of claims.

use sqlx::Error;
use weir_sale::claim::Ticket;

use super::counts::Changes;
use super::outbox;
use super::payments::take_stock;
use super::reservations::is_barred;
use super::{
    OrderOutcome, OrderRequest, OrderStatus, SaleStore, Shortage, StoredOrder, StoredSale,
};
use super::{attempts, cooldowns, groups, orders, payloads, sales};
use crate::model::sale::Payment;
use crate::model::site::LocalFence;
use weir_origin_core::sql::{SqlError, Tx, retried, sql};

const INSERT_OUTCOME: &str = "
    INSERT INTO claim_outcomes (claim_id, sale_id, user_id, outcome, void, at_ms)
    VALUES (?, ?, ?, ?, ?, ?)";

const SELECT_OUTCOME: &str = "SELECT user_id, outcome, void FROM claim_outcomes WHERE claim_id = ?";

const INSERT_BUYER: &str = "INSERT INTO buyers (units, sale_id, user_id) VALUES (?, ?, ?)";

const ADD_TO_BUYER: &str = "
    UPDATE buyers SET units = units + ?
    WHERE sale_id = ? AND user_id = ? AND units + ? <= ?
        AND (cooldown_until_ms IS NULL OR cooldown_until_ms <= ?)";

const INSERT_ORDER: &str = "
    INSERT INTO orders
        (id, sale_id, shard, generation, user_id, quantity, status, deducted, pay_by_ms,
        created_at_ms, sku, unit_amount, currency, click_link, click_id)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";

const INSERT_CHANGE: &str = "
    INSERT INTO change_log (sale_id, order_id, units, reason, at_ms)
    VALUES (?, ?, ?, ?, ?)";

/// The stored outcome of a claim.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Ordered,
    Released,
    Void,
}

/// Outcomes of claims.
#[derive(Clone, Copy, Debug)]
pub struct ClaimStore<'a>(pub(super) &'a SaleStore);

impl ClaimStore<'_> {
    /// Turns a claim into an order in one transaction. It updates the outcome, the order, the change log, and the stock
    /// last, so that the row shared by all orders of the sale is locked shortest. A sale with payment `at_payment` does
    /// not deduct stock yet.
    pub async fn place(self, ticket: &Ticket, now_ms: u64) -> Result<OrderOutcome, SqlError> {
        let request = OrderRequest::default();
        self.place_asked(ticket, &request, now_ms).await
    }

    /// Like `ClaimStore::place`, with the data of the request. An idempotency key becomes an order only once: see
    /// [`OrderOutcome::Elsewhere`] and [`OrderOutcome::KeyReused`]. The data of an existing order does not change.
    pub async fn place_asked(
        self,
        ticket: &Ticket,
        request: &OrderRequest,
        now_ms: u64,
    ) -> Result<OrderOutcome, SqlError> {
        Ok(retried(|| place_once(self.0, ticket, request, now_ms)).await?)
    }

    /// Decides that a claim without units never becomes an order. Returns false if it was decided before.
    pub async fn void(self, ticket: &Ticket, now_ms: u64) -> Result<bool, SqlError> {
        let once = || async {
            let mut tx = self.0.db.begin().await?;
            let won = insert_outcome(&mut tx, ticket, Outcome::Void, now_ms).await?;
            tx.commit().await?;
            Ok(won)
        };
        Ok(retried(once).await?)
    }

    /// Decides that a claim never becomes an order. If it was decided before, returns that outcome.
    pub async fn release(
        self,
        ticket: &Ticket,
        now_ms: u64,
    ) -> Result<Option<OrderOutcome>, SqlError> {
        let once = || async {
            let mut tx = self.0.db.begin().await?;
            if insert_outcome(&mut tx, ticket, Outcome::Released, now_ms).await? {
                tx.commit().await?;
                return Ok(None);
            }
            let existing = known_outcome(&mut tx, ticket).await?;
            tx.rollback().await?;
            Ok(Some(existing))
        };
        Ok(retried(once).await?)
    }
}

async fn place_once(
    store: &SaleStore,
    ticket: &Ticket,
    request: &OrderRequest,
    now_ms: u64,
) -> Result<OrderOutcome, Error> {
    let mut tx = store.db.begin().await?;
    let placed = place_in(&mut tx, store, ticket, request, now_ms).await?;
    let is_kept = match placed {
        OrderOutcome::New(_) => true,
        // The claim came before, with another idempotency key or without one. Store that this key has the same order.
        OrderOutcome::Again(_) => request.attempt.is_some(),
        _ => false,
    };
    if is_kept {
        tx.commit().await?;
    } else {
        tx.rollback().await?;
    }
    Ok(placed)
}

/// The steps of placing an order. The caller rolls back unless the result is an order.
async fn place_in(
    tx: &mut Tx,
    store: &SaleStore,
    ticket: &Ticket,
    request: &OrderRequest,
    now_ms: u64,
) -> Result<OrderOutcome, Error> {
    if let Some(attempt) = &request.attempt
        && let Some(bound) = attempts::bind(tx, ticket, attempt).await?
    {
        return Ok(bound);
    }
    if !insert_outcome(tx, ticket, Outcome::Ordered, now_ms).await? {
        return known_outcome(tx, ticket).await;
    }
    let Some((sale, is_fenced)) = sale_of(tx, store, ticket).await? else {
        return Ok(OrderOutcome::Short(Shortage::UnknownSale));
    };
    if is_fenced {
        // Another site has the claim's unit. The fence stays closed, so this needs no record.
        return Ok(OrderOutcome::Released { void: true });
    }
    if sale.archived_at_ms.is_some() {
        // The claim was decided long ago, and its outcome is deleted.
        return Ok(OrderOutcome::Released { void: false });
    }
    if is_barred(tx, &sale.sale, &ticket.user).await? {
        return Ok(OrderOutcome::Short(Shortage::Barred));
    }
    if !add_to_buyer(tx, ticket, sale.sale.user_cap, now_ms).await? {
        let shortage = cooldowns::shortage(tx, &ticket.sale, &ticket.user, now_ms);
        return Ok(OrderOutcome::Short(shortage.await?));
    }
    if let Some(group) = &sale.fields.group
        && !groups::add(tx, ticket, group).await?
    {
        return Ok(OrderOutcome::Short(Shortage::GroupCap));
    }
    let order = StoredOrder {
        click: request.click.clone(),
        ..new_order(ticket, &sale, now_ms)
    };
    insert_order(tx, &order).await?;
    if let Some(payload) = &request.payload {
        payloads::insert(tx, &order.id, payload).await?;
    }
    outbox::note_created(tx, store.sinks, &order).await?;
    let accepted = if order.deducted { order.units } else { 0 };
    insert_change(tx, &order, -i64::from(accepted), "order", now_ms).await?;
    Changes::between(None, &order).write(tx).await?;
    if order.deducted && !take_stock(tx, &order).await? {
        return Ok(OrderOutcome::Short(Shortage::SoldOut));
    }
    Ok(OrderOutcome::New(order))
}

/// The sale of a claim, and whether the claim's fence is closed.
async fn sale_of(
    tx: &mut Tx,
    store: &SaleStore,
    ticket: &Ticket,
) -> Result<Option<(StoredSale, bool)>, Error> {
    if store.site.is_some() {
        return sales::select_for_claim(tx, &ticket.sale, ticket.shard).await;
    }
    let sale = sales::select_one(tx, &ticket.sale, LocalFence::ALONE).await?;
    Ok(sale.map(|sale| (sale, false)))
}

/// Sums the units of these open claims that neither an order nor a void claim has taken from the stock.
pub(super) async fn held_units(tx: &mut Tx, open: &[Ticket]) -> Result<u64, Error> {
    let mut held = 0;
    for ticket in open {
        let id = ticket.claim_id();
        let is_known = tx
            .one(sql(SELECT_OUTCOME).text(id.as_str()))
            .await?
            .is_some();
        let is_held = match is_known {
            true => is_held(known_outcome(tx, ticket).await?),
            false => true,
        };
        if is_held {
            held += u64::from(ticket.quantity);
        }
    }
    Ok(held)
}

/// Whether SQL counts the units of a claim that is open in Redis as remaining. A claim whose name is taken never
/// becomes an order, so its units return.
fn is_held(outcome: OrderOutcome) -> bool {
    match outcome {
        OrderOutcome::New(order) | OrderOutcome::Again(order) => {
            !(order.deducted && order.status.is_active())
        }
        OrderOutcome::Released { void } => !void,
        _ => true,
    }
}

/// Stores the claim's outcome. Returns false if it was decided before.
async fn insert_outcome(
    tx: &mut Tx,
    ticket: &Ticket,
    outcome: Outcome,
    now_ms: u64,
) -> Result<bool, Error> {
    let word = match outcome {
        Outcome::Ordered => "ordered",
        Outcome::Released | Outcome::Void => "released",
    };
    let id = ticket.claim_id();
    let insert = sql(INSERT_OUTCOME)
        .text(id.as_str())
        .text(ticket.sale.as_str())
        .text(ticket.user.as_str())
        .text(word)
        .number(outcome == Outcome::Void)
        .number(now_ms);
    tx.insert(insert).await
}

/// Reads the outcome that was decided before.
async fn known_outcome(tx: &mut Tx, ticket: &Ticket) -> Result<OrderOutcome, Error> {
    let id = ticket.claim_id();
    let row = tx.one(sql(SELECT_OUTCOME).text(id.as_str())).await?;
    let row = row.ok_or(Error::RowNotFound)?;
    if row.text("user_id")? != ticket.user.as_str() {
        return Ok(OrderOutcome::NameTaken);
    }
    // The column's CHECK allows only two values.
    if row.text("outcome")? != "ordered" {
        let void = row.flag("void")?;
        return Ok(OrderOutcome::Released { void });
    }
    let order = orders::select(tx, id.as_str()).await?;
    Ok(OrderOutcome::Again(order.ok_or(Error::RowNotFound)?))
}

/// Adds the units to the user's total. Returns false if that exceeds the limit per user, or the user has a cooldown.
/// Tries the insert first, because most users have one order.
async fn add_to_buyer(
    tx: &mut Tx,
    ticket: &Ticket,
    user_cap: u32,
    now_ms: u64,
) -> Result<bool, Error> {
    if ticket.quantity > user_cap {
        return Ok(false);
    }
    let with = |statement| {
        sql(statement)
            .number(ticket.quantity)
            .text(ticket.sale.as_str())
            .text(ticket.user.as_str())
    };
    if tx.insert(with(INSERT_BUYER)).await? {
        return Ok(true);
    }
    let add = with(ADD_TO_BUYER).number(ticket.quantity).number(user_cap);
    let add = add.number(now_ms);
    Ok(tx.execute(add).await? == 1)
}

/// Creates the order according to the sale's payment type.
fn new_order(ticket: &Ticket, sale: &StoredSale, now_ms: u64) -> StoredOrder {
    let pay_by_ms = match sale.fields.payment {
        Payment::Hold { pay_within_ms } => Some(now_ms.saturating_add(pay_within_ms)),
        Payment::AtOrder | Payment::AtPayment => None,
    };
    StoredOrder {
        id: ticket.claim_id().to_string(),
        sale: ticket.sale.clone(),
        shard: ticket.shard,
        generation: ticket.generation,
        user: ticket.user.clone(),
        units: ticket.quantity,
        status: OrderStatus::Unpaid,
        deducted: sale.fields.payment != Payment::AtPayment,
        pay_by_ms,
        created_at_ms: now_ms,
        sku: sale.fields.sku.clone(),
        price: sale.fields.price,
        click: None,
    }
}

async fn insert_order(tx: &mut Tx, order: &StoredOrder) -> Result<(), Error> {
    let insert = sql(INSERT_ORDER)
        .text(&order.id)
        .text(order.sale.as_str())
        .number(order.shard)
        .number(order.generation)
        .text(order.user.as_str())
        .number(order.units)
        .text(order.status.label())
        .number(order.deducted)
        .maybe(order.pay_by_ms)
        .number(order.created_at_ms)
        .maybe_text(order.sku.as_deref())
        .maybe(order.price.map(|price| price.unit_amount))
        .maybe_text(order.price.as_ref().map(|price| price.currency.as_str()))
        .maybe_text(order.click.as_ref().map(|click| click.link.as_str()))
        .maybe_text(order.click.as_ref().map(|click| click.id.as_str()));
    tx.execute(insert).await.map(drop)
}

/// Logs a change of the sale's stock by `units`.
pub(super) async fn insert_change(
    tx: &mut Tx,
    order: &StoredOrder,
    units: i64,
    reason: &'static str,
    now_ms: u64,
) -> Result<(), Error> {
    let insert = sql(INSERT_CHANGE)
        .text(order.sale.as_str())
        .text(&order.id)
        .signed(units)
        .text(reason)
        .number(now_ms);
    tx.execute(insert).await.map(drop)
}
