//! Changes, to be told to others: each is written in the transaction that makes it, with a number of its subject's own, and is
//! there until every receiver has it.
//!
//! For each receiver a subject has one row while something of it waits: so its changes are sent one after another, by whoever
//! has leased that row.

use sqlx::Error;

use super::{Change, NewChange, SinkName, Sinks};
use crate::sql::{Database, Row, SqlError, Statement, Tx, damaged, retried, sql};
use crate::tenants::NameRange;

/// The changes that are pruned in one transaction: whoever makes changes waits no longer than for them.
const PRUNE_TOGETHER: usize = 100;

/// How often a number is looked for while others take them, in one transaction.
const NUMBER_TRIES_MAX: u32 = 8;

/// The longest text of an error that is kept, in bytes.
const ERROR_LEN_MAX: usize = 200;

/// What is said to the tables of one kind of subject.
#[derive(Debug)]
pub struct Statements {
    insert_change: &'static str,
    select_last: &'static str,
    delete_pruned: &'static str,
    extend_delivery: &'static str,
    insert_delivery: &'static str,
    select_due: &'static str,
    lease: &'static str,
    select_from: &'static str,
    move_on: &'static str,
    set_since: &'static str,
    delete_done: &'static str,
    release: &'static str,
    retry_now: &'static str,
    measure: &'static str,
    select_waiting: &'static str,
    select_prunable: &'static str,
    prune: &'static str,
}

/// The statements for these tables: of changes, and of what waits; with the columns of subjects and of what they belong to.
macro_rules! statements {
    ($changes:literal, $deliveries:literal, $id:literal, $group:literal) => {
        Statements {
            insert_change: concat!("INSERT INTO ", $changes, " (", $id, ", seq, ", $group, ", kind, body, at_ms, kept_ms) VALUES (?, ?, ?, ?, ?, ?, ?)"),
            select_last: concat!("SELECT COALESCE(MAX(seq), 0) AS last FROM ", $changes, " WHERE ", $id, " = ?"),
            delete_pruned: concat!("DELETE FROM ", $changes, " WHERE ", $id, " = ? AND seq < ? AND kept_ms IS NULL"),
            extend_delivery: concat!("UPDATE ", $deliveries, " SET last_seq = ? WHERE ", $id, " = ? AND sink = ?"),
            insert_delivery: concat!("INSERT INTO ", $deliveries, " (", $id, ", sink, next_seq, last_seq, since_ms, due_at_ms) VALUES (?, ?, ?, ?, ?, ?)"),
            select_due: concat!("SELECT ", $id, " AS subject, next_seq, tries FROM ", $deliveries, " WHERE sink = ? AND due_at_ms <= ? ORDER BY due_at_ms LIMIT ?"),
            lease: concat!("UPDATE ", $deliveries, " SET holder = ?, due_at_ms = ? WHERE ", $id, " = ? AND sink = ? AND next_seq = ? AND due_at_ms <= ?"),
            select_from: concat!("SELECT ", $id, " AS subject, seq, ", $group, " AS belongs_to, kind, body, at_ms FROM ", $changes, " WHERE ", $id, " = ? AND seq >= ? ORDER BY seq LIMIT ?"),
            // The time since when what is next waits is that of the change itself, in the same transaction.
            move_on: concat!("UPDATE ", $deliveries, " SET next_seq = ?, holder = 0, tries = ?, due_at_ms = ?, last_error = ? WHERE ", $id, " = ? AND sink = ? AND holder = ? AND next_seq = ?"),
            set_since: concat!("UPDATE ", $deliveries, " SET since_ms = COALESCE( (SELECT at_ms FROM ", $changes, " WHERE ", $changes, ".", $id, " = ", $deliveries, ".", $id, " AND seq = next_seq), since_ms) WHERE ", $id, " = ? AND sink = ?"),
            delete_done: concat!("DELETE FROM ", $deliveries, " WHERE ", $id, " = ? AND sink = ? AND next_seq > last_seq"),
            release: concat!("UPDATE ", $deliveries, " SET holder = 0, due_at_ms = ? WHERE sink = ? AND holder = ?"),
            retry_now: concat!("UPDATE ", $deliveries, " SET due_at_ms = ? WHERE sink = ? AND holder = 0 AND due_at_ms > ? AND (? = '' OR (", $id, " >= ? AND ", $id, " < ?))"),
            measure: concat!("SELECT COUNT(*) AS waiting, MIN(since_ms) AS oldest_ms FROM ", $deliveries, " WHERE sink = ? AND (? = '' OR (", $id, " >= ? AND ", $id, " < ?))"),
            select_waiting: concat!("SELECT ", $id, " AS subject, sink, next_seq, last_seq, since_ms, due_at_ms, tries, last_error FROM ", $deliveries, " WHERE sink = ? AND (? = '' OR (", $id, " >= ? AND ", $id, " < ?)) ORDER BY since_ms, ", $id, " LIMIT ?"),
            select_prunable: concat!("SELECT ", $id, " AS subject, seq FROM ", $changes, " WHERE kept_ms <= ? AND NOT EXISTS ( SELECT 1 FROM ", $deliveries, " WHERE ", $deliveries, ".", $id, " = ", $changes, ".", $id, " AND next_seq <= seq) ORDER BY kept_ms LIMIT ?"),
            prune: concat!("UPDATE ", $changes, " SET body = '', kept_ms = NULL WHERE ", $id, " = ? AND seq = ?"),
        }
    };
}

/// Changes of orders, which belong to sales.
pub static ORDERS: Statements =
    statements!("order_changes", "order_deliveries", "order_id", "sale_id");

/// Changes of links, which belong to domains.
pub static LINKS: Statements = statements!("link_changes", "link_deliveries", "link_id", "domain");

/// A subject that is this origin's to tell of, for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leased {
    /// The subject: an order, or a link.
    pub subject: String,
    /// The first change that the receiver does not have.
    pub next_seq: u64,
    /// How often that has failed.
    pub tries: u32,
}

/// What became of a leased subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// As it was leased.
    pub leased: Leased,
    /// The first change that the receiver does not have now.
    pub next_seq: u64,
    /// Why that one failed; `None`: it was not tried.
    pub error: Option<String>,
    /// When the subject's turn comes again, in milliseconds since the Unix epoch.
    pub due_at_ms: u64,
}

/// A subject of which a receiver does not have every change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The subject.
    pub subject: String,
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
    /// Subjects.
    pub subjects: u64,
    /// Since when the oldest change waits, in milliseconds since the Unix epoch; `None`: nothing does.
    pub oldest_ms: Option<u64>,
}

impl Backlog {
    /// For how long the oldest change has waited.
    pub fn age_ms(self, now_ms: u64) -> u64 {
        self.oldest_ms
            .map_or(0, |at_ms| now_ms.saturating_sub(at_ms))
    }
}

/// Changes of one kind of subject, in SQL. Cloning it is cheap.
#[derive(Clone, Debug)]
pub struct Queue {
    db: Database,
    statements: &'static Statements,
}

impl Queue {
    /// What waits in these tables.
    pub fn new(db: Database, statements: &'static Statements) -> Self {
        Self { db, statements }
    }

    /// At most `limit` subjects whose turn has come, which are `holder`'s until `until_ms`.
    pub async fn lease(
        &self,
        sink: SinkName,
        holder: u32,
        now_ms: u64,
        until_ms: u64,
        limit: usize,
    ) -> Result<Vec<Leased>, SqlError> {
        let select = sql(self.statements.select_due);
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
                let lease = sql(self.statements.lease)
                    .number(holder)
                    .number(until_ms)
                    .text(&one.subject)
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

    /// At most `limit` changes of a subject, from this one on, in their order.
    pub async fn changes(
        &self,
        subject: &str,
        from_seq: u64,
        limit: usize,
    ) -> Result<Vec<Change>, SqlError> {
        let select = sql(self.statements.select_from).text(subject);
        let rows = self.db.all(select.number(from_seq).number(limit)).await?;
        Ok(rows.iter().map(change).collect::<Result<_, _>>()?)
    }

    /// Notes what became of subjects that `holder` has leased. What it holds no longer stays as it is.
    pub async fn settle(&self, sink: SinkName, holder: u32, sent: &[Sent]) -> Result<(), SqlError> {
        let once = || async {
            let mut tx = self.db.begin().await?;
            for one in sent {
                self.settle_one(&mut tx, sink, holder, one).await?;
            }
            tx.commit().await
        };
        Ok(retried(once).await?)
    }

    /// Gives back all that `holder` has leased: others may send it at once.
    pub async fn release(&self, sink: SinkName, holder: u32, now_ms: u64) -> Result<(), SqlError> {
        let release = || {
            sql(self.statements.release)
                .number(now_ms)
                .text(sink.word())
                .number(holder)
        };
        retried(|| self.db.execute(release())).await?;
        Ok(())
    }

    /// Makes it everybody's turn who waits for another try; tells how many.
    pub async fn retry(
        &self,
        sink: SinkName,
        names: &NameRange,
        now_ms: u64,
    ) -> Result<u64, SqlError> {
        let retry = || {
            let retry = sql(self.statements.retry_now)
                .number(now_ms)
                .text(sink.word());
            of_names(retry.number(now_ms), names)
        };
        Ok(retried(|| self.db.execute(retry())).await?)
    }

    /// How much of these names waits for a receiver.
    pub async fn backlog(&self, sink: SinkName, names: &NameRange) -> Result<Backlog, SqlError> {
        let measure = of_names(sql(self.statements.measure).text(sink.word()), names);
        let row = self.db.one(measure).await?;
        let Some(row) = row else {
            return Ok(Backlog::default());
        };
        Ok(Backlog {
            subjects: row.number("waiting")?,
            oldest_ms: row.maybe("oldest_ms")?,
        })
    }

    /// At most `limit` subjects of these names that wait for a receiver, those that have waited longest first.
    pub async fn waiting(
        &self,
        sink: SinkName,
        names: &NameRange,
        limit: usize,
    ) -> Result<Vec<Waiting>, SqlError> {
        let select = of_names(sql(self.statements.select_waiting).text(sink.word()), names);
        let rows = self.db.all(select.number(limit)).await?;
        Ok(rows.iter().map(waiting).collect::<Result<_, _>>()?)
    }

    /// Forgets some of what every receiver has and was made at `before_ms` or earlier. False if nothing was left.
    pub async fn prune(&self, before_ms: u64) -> Result<bool, SqlError> {
        let select = sql(self.statements.select_prunable);
        let rows = self.db.all(select.number(before_ms).number(PRUNE_TOGETHER));
        let rows = rows.await?;
        let once = || async {
            let mut tx = self.db.begin().await?;
            for row in &rows {
                let (subject, seq) = (row.text("subject")?, row.number::<u64>("seq")?);
                tx.execute(sql(self.statements.prune).text(&subject).number(seq))
                    .await?;
                let last = last_seq(&mut tx, self.statements, &subject).await?;
                delete_pruned(&mut tx, self.statements, &subject, last).await?;
            }
            tx.commit().await
        };
        retried(once).await?;
        Ok(rows.len() == PRUNE_TOGETHER)
    }

    async fn settle_one(
        &self,
        tx: &mut Tx,
        sink: SinkName,
        holder: u32,
        sent: &Sent,
    ) -> Result<(), Error> {
        let Leased {
            subject,
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
        let move_on = sql(self.statements.move_on)
            .number(sent.next_seq)
            .number(tries)
            .number(sent.due_at_ms)
            .text(error.get(..end).unwrap_or_default())
            .text(subject)
            .text(sink.word())
            .number(holder)
            .number(*next_seq);
        if tx.execute(move_on).await? == 0 || !has_moved {
            return Ok(());
        }
        tx.execute(
            sql(self.statements.delete_done)
                .text(subject)
                .text(sink.word()),
        )
        .await?;
        tx.execute(
            sql(self.statements.set_since)
                .text(subject)
                .text(sink.word()),
        )
        .await?;
        Ok(())
    }
}

fn of_names<'a>(statement: Statement<'a>, names: &'a NameRange) -> Statement<'a> {
    let (from, to) = (names.first(), names.end());
    statement.text(from).text(from).text(to)
}

/// Writes the first change of a subject that is made in this transaction.
pub async fn note_first(
    tx: &mut Tx,
    statements: &'static Statements,
    sinks: Sinks,
    change: NewChange<'_>,
) -> Result<(), Error> {
    if !insert(tx, statements, change, 1).await? {
        // A subject of this name was there, and is no more: receivers know its numbers.
        return note(tx, statements, sinks, change).await;
    }
    for sink in sinks.names() {
        insert_delivery(tx, statements, sink, change, 1).await?;
    }
    Ok(())
}

/// Writes a change in the transaction that makes it.
pub async fn note(
    tx: &mut Tx,
    statements: &'static Statements,
    sinks: Sinks,
    change: NewChange<'_>,
) -> Result<(), Error> {
    let seq = insert_next(tx, statements, change).await?;
    delete_pruned(tx, statements, change.subject, seq).await?;
    for sink in sinks.names() {
        let extend = sql(statements.extend_delivery).number(seq);
        let extend = extend.text(change.subject).text(sink.word());
        // What waits already is waited for: its row is locked until this transaction ends, so nobody who has just sent
        // the change before takes the subject for done.
        if tx.execute(extend).await? == 0 {
            insert_delivery(tx, statements, sink, change, seq).await?;
        }
    }
    Ok(())
}

/// Two transactions may change one subject at once: then one waits for the other's number and takes the next.
async fn insert_next(
    tx: &mut Tx,
    statements: &'static Statements,
    change: NewChange<'_>,
) -> Result<u64, Error> {
    for _ in 0..NUMBER_TRIES_MAX {
        let seq = last_seq(tx, statements, change.subject).await? + 1;
        if insert(tx, statements, change, seq).await? {
            return Ok(seq);
        }
    }
    Err(damaged("seq", "is taken by others all the time"))
}

async fn last_seq(
    tx: &mut Tx,
    statements: &'static Statements,
    subject: &str,
) -> Result<u64, Error> {
    let row = tx.one(sql(statements.select_last).text(subject)).await?;
    row.map_or(Ok(0), |row| row.number("last"))
}

async fn insert(
    tx: &mut Tx,
    statements: &'static Statements,
    change: NewChange<'_>,
    seq: u64,
) -> Result<bool, Error> {
    let body = (change.body)(seq);
    let insert = sql(statements.insert_change)
        .text(change.subject)
        .number(seq)
        .text(change.belongs_to)
        .text(change.kind)
        .text(&body)
        .number(change.at_ms)
        .number(change.at_ms);
    tx.insert(insert).await
}

async fn insert_delivery(
    tx: &mut Tx,
    statements: &'static Statements,
    sink: SinkName,
    change: NewChange<'_>,
    seq: u64,
) -> Result<(), Error> {
    let insert = sql(statements.insert_delivery)
        .text(change.subject)
        .text(sink.word())
        .number(seq)
        .number(seq)
        .number(change.at_ms)
        .number(change.at_ms);
    tx.execute(insert).await.map(drop)
}

/// Numbers stay as long as their subject has no later one.
async fn delete_pruned(
    tx: &mut Tx,
    statements: &'static Statements,
    subject: &str,
    before: u64,
) -> Result<(), Error> {
    let delete = sql(statements.delete_pruned).text(subject).number(before);
    tx.execute(delete).await.map(drop)
}

fn leased(row: &Row) -> Result<Leased, Error> {
    Ok(Leased {
        subject: row.text("subject")?,
        next_seq: row.number("next_seq")?,
        tries: row.number("tries")?,
    })
}

fn change(row: &Row) -> Result<Change, Error> {
    Ok(Change {
        subject: row.text("subject")?,
        seq: row.number("seq")?,
        belongs_to: row.text("belongs_to")?,
        kind: row.text("kind")?,
        body: row.text("body")?,
        at_ms: row.number("at_ms")?,
    })
}

fn waiting(row: &Row) -> Result<Waiting, Error> {
    Ok(Waiting {
        subject: row.text("subject")?,
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
        for (statements, what) in [(&ORDERS, "order"), (&LINKS, "link")] {
            let due = plan(statements.select_due).await;
            assert!(
                due[0].contains(&format!("{what}_deliveries_by_turn")),
                "{due:?}"
            );
            assert!(!due.iter().any(|step| step.contains("TEMP")), "{due:?}");
            let prunable = plan(statements.select_prunable).await;
            assert!(
                prunable[0].contains(&format!("{what}_changes_by_age")),
                "{prunable:?}"
            );
            assert!(
                !prunable.iter().any(|step| step.contains("SCAN")),
                "{prunable:?}"
            );
        }
    }
}
