//! Changes of orders, to be told to others: each is written in the transaction that makes it, with a number of its order's
//! own, and is there until every receiver has it.
//!
//! For each receiver an order has one row while something of it waits: so its changes are sent one after another, by whoever
//! has leased that row.

use sqlx::Error;

use super::order_change::{ChangeKind, NewChange, OrderChange, SinkName, Sinks};
use super::{SaleStore, StoredOrder, payloads};
use crate::sql::{Row, SqlError, Statement, Tx, damaged, retried, sql};
use crate::tenants::NameRange;

/// The changes that are pruned in one transaction: orders wait no longer than for them.
const PRUNE_TOGETHER: usize = 100;

/// How often a number is looked for while others take them, in one transaction.
const NUMBER_TRIES_MAX: u32 = 8;

/// The longest text of an error that is kept, in bytes.
const ERROR_LEN_MAX: usize = 200;

const INSERT_CHANGE: &str = "
    INSERT INTO order_changes (order_id, seq, sale_id, kind, body, at_ms, kept_ms)
    VALUES (?, ?, ?, ?, ?, ?, ?)";

const SELECT_LAST: &str = "
    SELECT COALESCE(MAX(seq), 0) AS last FROM order_changes WHERE order_id = ?";

const DELETE_PRUNED: &str = "
    DELETE FROM order_changes WHERE order_id = ? AND seq < ? AND kept_ms IS NULL";

const EXTEND_DELIVERY: &str = "
    UPDATE order_deliveries SET last_seq = ? WHERE order_id = ? AND sink = ?";

const INSERT_DELIVERY: &str = "
    INSERT INTO order_deliveries (order_id, sink, next_seq, last_seq, since_ms, due_at_ms)
    VALUES (?, ?, ?, ?, ?, ?)";

const SELECT_DUE: &str = "
    SELECT order_id, next_seq, tries FROM order_deliveries
    WHERE sink = ? AND due_at_ms <= ?
    ORDER BY due_at_ms LIMIT ?";

const LEASE: &str = "
    UPDATE order_deliveries SET holder = ?, due_at_ms = ?
    WHERE order_id = ? AND sink = ? AND next_seq = ? AND due_at_ms <= ?";

const SELECT_FROM: &str = "
    SELECT order_id, seq, sale_id, kind, body, at_ms FROM order_changes
    WHERE order_id = ? AND seq >= ? ORDER BY seq LIMIT ?";

// The time since when what is next waits is that of the change itself, in the same transaction.
const MOVE_ON: &str = "
    UPDATE order_deliveries SET next_seq = ?, holder = 0, tries = ?, due_at_ms = ?, last_error = ?
    WHERE order_id = ? AND sink = ? AND holder = ? AND next_seq = ?";

const SET_SINCE: &str = "
    UPDATE order_deliveries SET since_ms = COALESCE(
        (SELECT at_ms FROM order_changes
        WHERE order_changes.order_id = order_deliveries.order_id AND seq = next_seq), since_ms)
    WHERE order_id = ? AND sink = ?";

const DELETE_DONE: &str = "
    DELETE FROM order_deliveries WHERE order_id = ? AND sink = ? AND next_seq > last_seq";

const RELEASE: &str = "
    UPDATE order_deliveries SET holder = 0, due_at_ms = ? WHERE sink = ? AND holder = ?";

const RETRY_NOW: &str = "
    UPDATE order_deliveries SET due_at_ms = ? WHERE sink = ? AND holder = 0 AND due_at_ms > ?
        AND (? = '' OR (order_id >= ? AND order_id < ?))";

const MEASURE: &str = "
    SELECT COUNT(*) AS waiting, MIN(since_ms) AS oldest_ms FROM order_deliveries
    WHERE sink = ? AND (? = '' OR (order_id >= ? AND order_id < ?))";

const SELECT_WAITING: &str = "
    SELECT order_id, sink, next_seq, last_seq, since_ms, due_at_ms, tries, last_error
    FROM order_deliveries WHERE sink = ? AND (? = '' OR (order_id >= ? AND order_id < ?))
    ORDER BY since_ms, order_id LIMIT ?";

const SELECT_PRUNABLE: &str = "
    SELECT order_id, seq FROM order_changes
    WHERE kept_ms <= ? AND NOT EXISTS (
        SELECT 1 FROM order_deliveries
        WHERE order_deliveries.order_id = order_changes.order_id AND next_seq <= seq)
    ORDER BY kept_ms LIMIT ?";

const PRUNE: &str = "
    UPDATE order_changes SET body = '', kept_ms = NULL WHERE order_id = ? AND seq = ?";

/// An order that is this origin's to send, for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leased {
    /// The order.
    pub order: String,
    /// The first change that the receiver does not have.
    pub next_seq: u64,
    /// How often that has failed.
    pub tries: u32,
}

/// What became of a leased order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// As it was leased.
    pub leased: Leased,
    /// The first change that the receiver does not have now.
    pub next_seq: u64,
    /// Why that one failed; `None`: it was not tried.
    pub error: Option<String>,
    /// When the order's turn comes again, in milliseconds since the Unix epoch.
    pub due_at_ms: u64,
}

/// An order of which a receiver does not have every change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The order.
    pub order: String,
    /// The first change that is missing, and the last one.
    pub next_seq: u64,
    /// See there.
    pub last_seq: u64,
    /// Since when, in milliseconds since the Unix epoch.
    pub since_ms: u64,
    /// When it is tried again.
    pub due_at_ms: u64,
    /// How often it has failed.
    pub tries: u32,
    /// Why, the last time.
    pub last_error: String,
}

/// How much waits for a receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Orders.
    pub orders: u64,
    /// Since when the oldest change waits, in milliseconds since the Unix epoch; `None`: nothing does.
    pub oldest_ms: Option<u64>,
}

impl SaleStore {
    /// At most `limit` orders whose turn has come, which are `holder`'s until `until_ms`.
    pub async fn lease_deliveries(
        &self,
        sink: SinkName,
        holder: u32,
        now_ms: u64,
        until_ms: u64,
        limit: usize,
    ) -> Result<Vec<Leased>, SqlError> {
        let select = sql(SELECT_DUE);
        let select = select.text(sink.word()).number(now_ms).number(limit);
        let rows = self.db.all(select).await?;
        let due: Vec<Leased> = rows.iter().map(leased).collect::<Result<_, _>>()?;
        if due.is_empty() {
            return Ok(due);
        }
        let once = || async {
            let mut tx = self.db.begin().await?;
            let mut ours = Vec::with_capacity(due.len());
            for one in &due {
                let lease = sql(LEASE)
                    .number(holder)
                    .number(until_ms)
                    .text(&one.order)
                    .text(sink.word())
                    .number(one.next_seq)
                    .number(now_ms);
                if tx.execute(lease).await? == 1 {
                    ours.push(one.clone());
                }
            }
            tx.commit().await?;
            Ok(ours)
        };
        Ok(retried(once).await?)
    }

    /// At most `limit` changes of an order, from this one on, in their order.
    pub async fn order_changes(
        &self,
        order_id: &str,
        from_seq: u64,
        limit: usize,
    ) -> Result<Vec<OrderChange>, SqlError> {
        let select = sql(SELECT_FROM).text(order_id);
        let rows = self.db.all(select.number(from_seq).number(limit)).await?;
        Ok(rows.iter().map(change).collect::<Result<_, _>>()?)
    }

    /// Notes what became of orders that `holder` has leased. What it holds no longer stays as it is.
    pub async fn settle_deliveries(
        &self,
        sink: SinkName,
        holder: u32,
        sent: &[Sent],
    ) -> Result<(), SqlError> {
        let once = || async {
            let mut tx = self.db.begin().await?;
            for one in sent {
                settle(&mut tx, sink, holder, one).await?;
            }
            tx.commit().await
        };
        Ok(retried(once).await?)
    }

    /// Gives back all that `holder` has leased: others may send it at once.
    pub async fn release_deliveries(
        &self,
        sink: SinkName,
        holder: u32,
        now_ms: u64,
    ) -> Result<(), SqlError> {
        let release = || sql(RELEASE).number(now_ms).text(sink.word()).number(holder);
        retried(|| self.db.execute(release())).await?;
        Ok(())
    }

    /// Makes it everybody's turn who waits for another try; tells how many.
    pub async fn retry_deliveries(
        &self,
        sink: SinkName,
        orders: &NameRange,
        now_ms: u64,
    ) -> Result<u64, SqlError> {
        let retry = || {
            let retry = sql(RETRY_NOW).number(now_ms).text(sink.word());
            of_orders(retry.number(now_ms), orders)
        };
        Ok(retried(|| self.db.execute(retry())).await?)
    }

    /// How much of orders of these names waits for a receiver.
    pub async fn backlog(&self, sink: SinkName, orders: &NameRange) -> Result<Backlog, SqlError> {
        let measure = of_orders(sql(MEASURE).text(sink.word()), orders);
        let row = self.db.one(measure).await?;
        let Some(row) = row else {
            return Ok(Backlog::default());
        };
        Ok(Backlog {
            orders: row.number("waiting")?,
            oldest_ms: row.maybe("oldest_ms")?,
        })
    }

    /// At most `limit` orders of these names that wait for a receiver, those that have waited longest first.
    pub async fn waiting(
        &self,
        sink: SinkName,
        orders: &NameRange,
        limit: usize,
    ) -> Result<Vec<Waiting>, SqlError> {
        let select = of_orders(sql(SELECT_WAITING).text(sink.word()), orders);
        let rows = self.db.all(select.number(limit)).await?;
        Ok(rows.iter().map(waiting).collect::<Result<_, _>>()?)
    }

    /// Forgets some of what every receiver has and was made at `before_ms` or earlier. False if nothing was left.
    pub async fn prune_changes(&self, before_ms: u64) -> Result<bool, SqlError> {
        let select = sql(SELECT_PRUNABLE);
        let rows = self.db.all(select.number(before_ms).number(PRUNE_TOGETHER));
        let rows = rows.await?;
        let once = || async {
            let mut tx = self.db.begin().await?;
            for row in &rows {
                let (order, seq) = (row.text("order_id")?, row.number::<u64>("seq")?);
                tx.execute(sql(PRUNE).text(&order).number(seq)).await?;
                let last = last_seq(&mut tx, &order).await?;
                delete_pruned(&mut tx, &order, last).await?;
            }
            tx.commit().await
        };
        retried(once).await?;
        Ok(rows.len() == PRUNE_TOGETHER)
    }
}

fn of_orders<'a>(statement: Statement<'a>, orders: &'a NameRange) -> Statement<'a> {
    let (from, to) = (orders.first(), orders.end());
    statement.text(from).text(from).text(to)
}

/// Writes the first change of an order that is made in this transaction.
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
    let at_ms = order.created_at_ms;
    if !insert(tx, change, 1, at_ms).await? {
        // An order of this name was there, and somebody has taken it out of SQL: receivers know its numbers.
        return note(tx, sinks, change, at_ms).await;
    }
    for sink in sinks.names() {
        insert_delivery(tx, sink, &order.id, 1, at_ms).await?;
    }
    Ok(())
}

/// Writes a change in the transaction that makes it.
pub(super) async fn note(
    tx: &mut Tx,
    sinks: Sinks,
    change: NewChange<'_>,
    now_ms: u64,
) -> Result<(), Error> {
    if !sinks.has_any() {
        return Ok(());
    }
    let order_id = &change.order.id;
    let seq = insert_next(tx, change, now_ms).await?;
    delete_pruned(tx, order_id, seq).await?;
    for sink in sinks.names() {
        let extend = sql(EXTEND_DELIVERY).number(seq).text(order_id);
        // What waits already is waited for: its row is locked until this transaction ends, so nobody who has just sent
        // the change before takes the order for done.
        if tx.execute(extend.text(sink.word())).await? == 0 {
            insert_delivery(tx, sink, order_id, seq, now_ms).await?;
        }
    }
    Ok(())
}

/// Two transactions may change one order at once, one of them its payment: then one waits for the other's number and takes
/// the next.
async fn insert_next(tx: &mut Tx, change: NewChange<'_>, now_ms: u64) -> Result<u64, Error> {
    for _ in 0..NUMBER_TRIES_MAX {
        let seq = last_seq(tx, &change.order.id).await? + 1;
        if insert(tx, change, seq, now_ms).await? {
            return Ok(seq);
        }
    }
    Err(damaged("seq", "is taken by others all the time"))
}

async fn last_seq(tx: &mut Tx, order_id: &str) -> Result<u64, Error> {
    let row = tx.one(sql(SELECT_LAST).text(order_id)).await?;
    row.map_or(Ok(0), |row| row.number("last"))
}

async fn insert(tx: &mut Tx, change: NewChange<'_>, seq: u64, now_ms: u64) -> Result<bool, Error> {
    let payload = payloads::of(tx, &change.order.id).await?;
    let body = change.body(payload.as_ref(), seq, now_ms);
    let insert = sql(INSERT_CHANGE)
        .text(&change.order.id)
        .number(seq)
        .text(change.order.sale.as_str())
        .text(change.kind.word())
        .text(&body)
        .number(now_ms)
        .number(now_ms);
    tx.insert(insert).await
}

async fn insert_delivery(
    tx: &mut Tx,
    sink: SinkName,
    order_id: &str,
    seq: u64,
    now_ms: u64,
) -> Result<(), Error> {
    let insert = sql(INSERT_DELIVERY)
        .text(order_id)
        .text(sink.word())
        .number(seq)
        .number(seq)
        .number(now_ms)
        .number(now_ms);
    tx.execute(insert).await.map(drop)
}

/// Numbers stay as long as their order has no later one.
async fn delete_pruned(tx: &mut Tx, order_id: &str, before: u64) -> Result<(), Error> {
    let delete = sql(DELETE_PRUNED).text(order_id).number(before);
    tx.execute(delete).await.map(drop)
}

async fn settle(tx: &mut Tx, sink: SinkName, holder: u32, sent: &Sent) -> Result<(), Error> {
    let Leased {
        order,
        next_seq,
        tries,
    } = &sent.leased;
    let error = sent.error.as_deref().unwrap_or_default();
    let end = error.floor_char_boundary(ERROR_LEN_MAX.min(error.len()));
    let has_moved = sent.next_seq > *next_seq;
    let tries = match &sent.error {
        Some(_) if has_moved => 1,
        Some(_) => tries.saturating_add(1),
        None if has_moved => 0,
        None => *tries,
    };
    let move_on = sql(MOVE_ON)
        .number(sent.next_seq)
        .number(tries)
        .number(sent.due_at_ms)
        .text(error.get(..end).unwrap_or_default())
        .text(order)
        .text(sink.word())
        .number(holder)
        .number(*next_seq);
    if tx.execute(move_on).await? == 0 || !has_moved {
        return Ok(());
    }
    tx.execute(sql(DELETE_DONE).text(order).text(sink.word()))
        .await?;
    tx.execute(sql(SET_SINCE).text(order).text(sink.word()))
        .await?;
    Ok(())
}

fn leased(row: &Row) -> Result<Leased, Error> {
    Ok(Leased {
        order: row.text("order_id")?,
        next_seq: row.number("next_seq")?,
        tries: row.number("tries")?,
    })
}

fn change(row: &Row) -> Result<OrderChange, Error> {
    Ok(OrderChange {
        order: row.text("order_id")?,
        seq: row.number("seq")?,
        sale: row.text("sale_id")?,
        kind: row.text("kind")?,
        body: row.text("body")?,
        at_ms: row.number("at_ms")?,
    })
}

fn waiting(row: &Row) -> Result<Waiting, Error> {
    Ok(Waiting {
        order: row.text("order_id")?,
        next_seq: row.number("next_seq")?,
        last_seq: row.number("last_seq")?,
        since_ms: row.number("since_ms")?,
        due_at_ms: row.number("due_at_ms")?,
        tries: row.number("tries")?,
        last_error: row.text("last_error")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::plan::plan;

    #[tokio::test]
    async fn whose_turn_it_is_is_found_without_a_walk_through_all_that_waits() {
        let due = plan(SELECT_DUE).await;
        assert!(due[0].contains("order_deliveries_by_turn"), "{due:?}");
        assert!(!due.iter().any(|step| step.contains("TEMP")), "{due:?}");
        let prunable = plan(SELECT_PRUNABLE).await;
        assert!(prunable[0].contains("order_changes_by_age"), "{prunable:?}");
        assert!(
            !prunable.iter().any(|step| step.contains("SCAN")),
            "{prunable:?}"
        );
    }
}
