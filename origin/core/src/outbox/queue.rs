//! The outbox in SQL. A change is stored in the transaction that makes it, with a sequence number within its subject,
//! until every receiver has accepted it.
//!
//! For each receiver, a subject with pending changes has one delivery row. The origin that leases the row sends the
//! changes one after another.

use std::collections::BTreeMap;

use serde::Serialize;
use sqlx::Error;

use super::{Change, NewChange, SinkName, Sinks};
use crate::sql::{Database, Row, SqlError, Statement, Tx, damaged, retried, sql};
use crate::tenants::NameRange;

/// Maximum number of changes pruned in one transaction, which other writers may have to wait for.
const PRUNE_TOGETHER: usize = 100;

/// Maximum number of tries for the next sequence number in one transaction, under concurrent changes.
const NUMBER_TRIES_MAX: u32 = 8;

/// Maximum number of pending subjects per receiver in [`Queue::backlogs`].
const WAITING_MAX: usize = 200;

/// Maximum length of a stored error, in bytes.
const ERROR_LEN_MAX: usize = 200;

const INSERT_CHANGE: &str = "INSERT INTO outbox_changes (source, subject, seq, belongs_to, kind, body, at_ms, kept_ms) VALUES (?, ?, ?, ?, ?, ?, ?, ?)";

const SELECT_LAST: &str =
    "SELECT COALESCE(MAX(seq), 0) AS last FROM outbox_changes WHERE source = ? AND subject = ?";

const DELETE_PRUNED: &str =
    "DELETE FROM outbox_changes WHERE source = ? AND subject = ? AND seq < ? AND kept_ms IS NULL";

const DELETE_CHANGES: &str = "DELETE FROM outbox_changes WHERE source = ? AND subject = ?";

const DELETE_DELIVERIES: &str = "DELETE FROM outbox_deliveries WHERE source = ? AND subject = ?";

const EXTEND_DELIVERY: &str =
    "UPDATE outbox_deliveries SET last_seq = ? WHERE source = ? AND subject = ? AND sink = ?";

const INSERT_DELIVERY: &str = "INSERT INTO outbox_deliveries (source, subject, sink, next_seq, last_seq, since_ms, due_at_ms) VALUES (?, ?, ?, ?, ?, ?, ?)";

const SELECT_DUE: &str = "SELECT subject, next_seq, tries FROM outbox_deliveries WHERE source = ? AND sink = ? AND due_at_ms <= ? ORDER BY due_at_ms LIMIT ?";

const LEASE: &str = "UPDATE outbox_deliveries SET holder = ?, due_at_ms = ? WHERE source = ? AND subject = ? AND sink = ? AND next_seq = ? AND due_at_ms <= ?";

const SELECT_FROM: &str = "SELECT subject, seq, belongs_to, kind, body, at_ms FROM outbox_changes WHERE source = ? AND subject = ? AND seq >= ? ORDER BY seq LIMIT ?";

const ADVANCE: &str = "UPDATE outbox_deliveries SET next_seq = ?, tries = 0 WHERE source = ? AND subject = ? AND sink = ? AND holder = ? AND next_seq = ?";

/// [`SET_SINCE`] sets the waiting time of the next change in the same transaction.
const MOVE_ON: &str = "UPDATE outbox_deliveries SET next_seq = ?, holder = 0, tries = ?, due_at_ms = ?, last_error = ? WHERE source = ? AND subject = ? AND sink = ? AND holder = ? AND next_seq = ?";

const SET_SINCE: &str = "UPDATE outbox_deliveries SET since_ms = COALESCE((SELECT at_ms FROM outbox_changes AS c WHERE c.source = outbox_deliveries.source AND c.subject = outbox_deliveries.subject AND c.seq = outbox_deliveries.next_seq), since_ms) WHERE source = ? AND subject = ? AND sink = ?";

const DELETE_DONE: &str = "DELETE FROM outbox_deliveries WHERE source = ? AND subject = ? AND sink = ? AND next_seq > last_seq";

const RELEASE: &str = "UPDATE outbox_deliveries SET holder = 0, due_at_ms = ? WHERE source = ? AND sink = ? AND holder = ?";

const RETRY_NOW: &str = "UPDATE outbox_deliveries SET due_at_ms = ? WHERE source = ? AND sink = ? AND holder = 0 AND due_at_ms > ? AND (? = '' OR (subject >= ? AND subject < ?))";

const MEASURE: &str = "SELECT COUNT(*) AS waiting, MIN(since_ms) AS oldest_ms FROM outbox_deliveries WHERE source = ? AND sink = ? AND (? = '' OR (subject >= ? AND subject < ?))";

const SELECT_WAITING: &str = "SELECT subject, sink, next_seq, last_seq, since_ms, due_at_ms, tries, last_error FROM outbox_deliveries WHERE source = ? AND sink = ? AND (? = '' OR (subject >= ? AND subject < ?)) ORDER BY since_ms, subject LIMIT ?";

const SELECT_PRUNABLE: &str = "SELECT subject, seq FROM outbox_changes WHERE source = ? AND kept_ms <= ? AND NOT EXISTS (SELECT 1 FROM outbox_deliveries AS d WHERE d.source = outbox_changes.source AND d.subject = outbox_changes.subject AND d.next_seq <= outbox_changes.seq) ORDER BY kept_ms LIMIT ?";

const PRUNE: &str = "UPDATE outbox_changes SET body = '', kept_ms = NULL WHERE source = ? AND subject = ? AND seq = ?";

/// The kind of subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Orders; they belong to sales.
    Order,
    /// Links; they belong to domains.
    Link,
}

impl Source {
    /// The label in SQL.
    const fn label(self) -> &'static str {
        match self {
            Self::Order => "order",
            Self::Link => "link",
        }
    }

    /// A statement whose first parameter is this source.
    fn sql<'a>(self, statement: &'static str) -> Statement<'a> {
        sql(statement).text(self.label())
    }
}

/// A subject that this origin leases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeasedSubject {
    /// The subject: an order, or a link.
    pub subject: String,
    /// The first change that the receiver has not accepted.
    pub next_seq: u64,
    /// Number of failed attempts to send that change.
    pub tries: u32,
}

/// The outcome of sending a leased subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendOutcome {
    /// The subject as leased.
    pub leased: LeasedSubject,
    /// The first change that the receiver has still not accepted.
    pub next_seq: u64,
    /// Why that change failed; `None`: it was not tried.
    pub error: Option<String>,
    /// Time of the next attempt, in milliseconds since the Unix epoch.
    pub due_at_ms: u64,
}

/// A subject with changes that a receiver does not have yet. Domains add its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct PendingSubject {
    /// The subject.
    #[serde(skip)]
    pub subject: String,
    /// The next change to send.
    #[serde(rename = "next_sequence")]
    pub next_seq: u64,
    /// Its last change.
    #[serde(rename = "last_sequence")]
    pub last_seq: u64,
    /// Waiting since, in milliseconds since the Unix epoch.
    pub since_ms: u64,
    /// Time of the next attempt, in milliseconds since the Unix epoch.
    #[serde(rename = "tried_again_at_ms")]
    pub due_at_ms: u64,
    /// Number of failed attempts.
    pub tries: u32,
    /// Error of the last attempt; null before the first failure.
    #[schema(required)]
    pub last_error: Option<String>,
}

/// Number and age of the changes that wait for a receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Number of subjects.
    pub subjects: u64,
    /// Time of the oldest pending change, in milliseconds since the Unix epoch; `None`: no change is pending.
    pub oldest_ms: Option<u64>,
}

impl Backlog {
    /// Age of the oldest pending change, in milliseconds.
    pub fn age_ms(self, now_ms: u64) -> u64 {
        self.oldest_ms
            .map_or(0, |at_ms| now_ms.saturating_sub(at_ms))
    }
}

/// Changes of one kind of subject in SQL. Cloning it is cheap.
#[derive(Clone, Debug)]
pub struct Queue {
    db: Database,
    source: Source,
}

impl Queue {
    /// Creates the queue of one kind of subject.
    pub fn new(db: Database, source: Source) -> Self {
        Self { db, source }
    }

    /// Leases up to `limit` due subjects for `holder`, until `until_ms`.
    pub async fn lease(
        &self,
        sink: SinkName,
        holder: u32,
        now_ms: u64,
        until_ms: u64,
        limit: usize,
    ) -> Result<Vec<LeasedSubject>, SqlError> {
        let select = self.source.sql(SELECT_DUE);
        let select = select.text(sink.label()).number(now_ms).number(limit);
        let rows = self.db.all(select).await?;
        let due: Vec<LeasedSubject> = rows.iter().map(leased).collect::<Result<_, _>>()?;
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
                    .text(self.source.label())
                    .text(&one.subject)
                    .text(sink.label())
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

    /// Returns up to `limit` changes of a subject, starting at `from_seq`, in order.
    pub async fn changes(
        &self,
        subject: &str,
        from_seq: u64,
        limit: usize,
    ) -> Result<Vec<Change>, SqlError> {
        let select = self.source.sql(SELECT_FROM).text(subject);
        let rows = self.db.all(select.number(from_seq).number(limit)).await?;
        Ok(rows.iter().map(change).collect::<Result<_, _>>()?)
    }

    /// Records that the receiver has accepted the changes before `next_seq`. Returns false if `holder` has lost the
    /// lease.
    pub async fn advance(
        &self,
        sink: SinkName,
        holder: u32,
        leased: &LeasedSubject,
        next_seq: u64,
    ) -> Result<bool, SqlError> {
        let subject = &leased.subject;
        let once = || async {
            let mut tx = self.db.begin().await?;
            let advance = sql(ADVANCE)
                .number(next_seq)
                .text(self.source.label())
                .text(subject)
                .text(sink.label())
                .number(holder)
                .number(leased.next_seq);
            let is_ours = tx.execute(advance).await? == 1;
            let since = self.source.sql(SET_SINCE);
            tx.execute(since.text(subject).text(sink.label())).await?;
            tx.commit().await?;
            Ok(is_ours)
        };
        Ok(retried(once).await?)
    }

    /// Records the outcomes of subjects that `holder` leases. Subjects with a lost lease stay unchanged.
    pub async fn settle(
        &self,
        sink: SinkName,
        holder: u32,
        sent: &[SendOutcome],
    ) -> Result<(), SqlError> {
        let once = || async {
            let mut tx = self.db.begin().await?;
            for one in sent {
                self.settle_one(&mut tx, sink, holder, one).await?;
            }
            tx.commit().await
        };
        Ok(retried(once).await?)
    }

    /// Ends all leases of `holder`, so that other origins can send at once.
    pub async fn release(&self, sink: SinkName, holder: u32, now_ms: u64) -> Result<(), SqlError> {
        let release = || {
            sql(RELEASE)
                .number(now_ms)
                .text(self.source.label())
                .text(sink.label())
                .number(holder)
        };
        retried(|| self.db.execute(release())).await?;
        Ok(())
    }

    /// Makes all subjects due that wait for a retry. Returns their number.
    pub async fn retry(
        &self,
        sink: SinkName,
        names: &NameRange,
        now_ms: u64,
    ) -> Result<u64, SqlError> {
        let retry = || {
            let retry = sql(RETRY_NOW)
                .number(now_ms)
                .text(self.source.label())
                .text(sink.label());
            of_names(retry.number(now_ms), names)
        };
        Ok(retried(|| self.db.execute(retry())).await?)
    }

    /// Returns the backlog of a receiver for subjects in this range of names.
    pub async fn backlog(&self, sink: SinkName, names: &NameRange) -> Result<Backlog, SqlError> {
        let measure = of_names(self.source.sql(MEASURE).text(sink.label()), names);
        let row = self.db.one(measure).await?;
        let Some(row) = row else {
            return Ok(Backlog::default());
        };
        Ok(Backlog {
            subjects: row.number("waiting")?,
            oldest_ms: row.maybe("oldest_ms")?,
        })
    }

    /// Returns the backlog of each receiver with the longest waiting subjects, converted by `view`.
    pub async fn backlogs<T>(
        &self,
        names: &NameRange,
        view: impl Fn(Backlog, Vec<PendingSubject>) -> T,
    ) -> Result<BTreeMap<&'static str, T>, SqlError> {
        let mut receivers = BTreeMap::new();
        for sink in SinkName::ALL {
            let backlog = self.backlog(sink, names).await?;
            let waiting = self.waiting(sink, names, WAITING_MAX).await?;
            receivers.insert(sink.label(), view(backlog, waiting));
        }
        Ok(receivers)
    }

    /// Like [`Queue::retry`], for all receivers.
    pub async fn retry_all(&self, names: &NameRange, now_ms: u64) -> Result<u64, SqlError> {
        let mut retried = 0;
        for sink in SinkName::ALL {
            retried += self.retry(sink, names, now_ms).await?;
        }
        Ok(retried)
    }

    /// Returns up to `limit` subjects in this range of names that wait for a receiver, longest waiting first.
    pub async fn waiting(
        &self,
        sink: SinkName,
        names: &NameRange,
        limit: usize,
    ) -> Result<Vec<PendingSubject>, SqlError> {
        let select = of_names(self.source.sql(SELECT_WAITING).text(sink.label()), names);
        let rows = self.db.all(select.number(limit)).await?;
        Ok(rows.iter().map(waiting).collect::<Result<_, _>>()?)
    }

    /// Deletes some changes that all receivers have accepted and that were made at `before_ms` or earlier. Returns
    /// whether more may remain.
    pub async fn prune(&self, before_ms: u64) -> Result<bool, SqlError> {
        let select = self.source.sql(SELECT_PRUNABLE);
        let rows = self.db.all(select.number(before_ms).number(PRUNE_TOGETHER));
        let rows = rows.await?;
        let once = || async {
            let mut tx = self.db.begin().await?;
            for row in &rows {
                let (subject, seq) = (row.text("subject")?, row.number::<u64>("seq")?);
                let prune = self.source.sql(PRUNE).text(&subject).number(seq);
                tx.execute(prune).await?;
                let last = last_seq(&mut tx, self.source, &subject).await?;
                delete_pruned(&mut tx, self.source, &subject, last).await?;
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
        sent: &SendOutcome,
    ) -> Result<(), Error> {
        let LeasedSubject {
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
        let move_on = sql(MOVE_ON)
            .number(sent.next_seq)
            .number(tries)
            .number(sent.due_at_ms)
            .text(error.get(..end).unwrap_or_default())
            .text(self.source.label())
            .text(subject)
            .text(sink.label())
            .number(holder)
            .number(*next_seq);
        if tx.execute(move_on).await? == 0 || !has_moved {
            return Ok(());
        }
        for statement in [DELETE_DONE, SET_SINCE] {
            let statement = self.source.sql(statement);
            tx.execute(statement.text(subject).text(sink.label()))
                .await?;
        }
        Ok(())
    }
}

fn of_names<'a>(statement: Statement<'a>, names: &'a NameRange) -> Statement<'a> {
    let (from, to) = (names.first(), names.end());
    statement.text(from).text(from).text(to)
}

/// Stores the first change of a new subject in the transaction that makes it.
pub async fn note_first(
    tx: &mut Tx,
    source: Source,
    sinks: Sinks,
    change: NewChange<'_>,
) -> Result<(), Error> {
    if !insert(tx, source, change, 1).await? {
        // A deleted subject had the same name. Continue its sequence, which receivers know.
        return note(tx, source, sinks, change).await;
    }
    for sink in sinks.names() {
        insert_delivery(tx, source, sink, change, 1).await?;
    }
    Ok(())
}

/// Stores a change in the transaction that makes it.
pub async fn note(
    tx: &mut Tx,
    source: Source,
    sinks: Sinks,
    change: NewChange<'_>,
) -> Result<(), Error> {
    let seq = insert_next(tx, source, change).await?;
    delete_pruned(tx, source, change.subject, seq).await?;
    for sink in sinks.names() {
        let extend = sql(EXTEND_DELIVERY).number(seq).text(source.label());
        let extend = extend.text(change.subject).text(sink.label());
        // If a delivery is pending, extend it. Its row stays locked until this transaction ends, so no origin can
        // complete the delivery without this change.
        if tx.execute(extend).await? == 0 {
            insert_delivery(tx, source, sink, change, seq).await?;
        }
    }
    Ok(())
}

/// Deletes all changes of a subject, as if it had never existed.
pub async fn forget(tx: &mut Tx, source: Source, subject: &str) -> Result<(), Error> {
    for delete in [DELETE_DELIVERIES, DELETE_CHANGES] {
        tx.execute(source.sql(delete).text(subject)).await?;
    }
    Ok(())
}

/// If two transactions change one subject concurrently, one waits for the other's number and takes the next.
async fn insert_next(tx: &mut Tx, source: Source, change: NewChange<'_>) -> Result<u64, Error> {
    for _ in 0..NUMBER_TRIES_MAX {
        let seq = last_seq(tx, source, change.subject).await? + 1;
        if insert(tx, source, change, seq).await? {
            return Ok(seq);
        }
    }
    Err(damaged("seq", "is constantly locked by other origins"))
}

async fn last_seq(tx: &mut Tx, source: Source, subject: &str) -> Result<u64, Error> {
    let row = tx.one(source.sql(SELECT_LAST).text(subject)).await?;
    row.map_or(Ok(0), |row| row.number("last"))
}

async fn insert(
    tx: &mut Tx,
    source: Source,
    change: NewChange<'_>,
    seq: u64,
) -> Result<bool, Error> {
    let body = (change.body)(seq);
    let insert = source
        .sql(INSERT_CHANGE)
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
    source: Source,
    sink: SinkName,
    change: NewChange<'_>,
    seq: u64,
) -> Result<(), Error> {
    let insert = source
        .sql(INSERT_DELIVERY)
        .text(change.subject)
        .text(sink.label())
        .number(seq)
        .number(seq)
        .number(change.at_ms)
        .number(change.at_ms);
    tx.execute(insert).await.map(drop)
}

/// Keeps the highest sequence number of a subject, so that numbers are not reused.
async fn delete_pruned(
    tx: &mut Tx,
    source: Source,
    subject: &str,
    before: u64,
) -> Result<(), Error> {
    let delete = source.sql(DELETE_PRUNED).text(subject).number(before);
    tx.execute(delete).await.map(drop)
}

fn leased(row: &Row) -> Result<LeasedSubject, Error> {
    Ok(LeasedSubject {
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

fn waiting(row: &Row) -> Result<PendingSubject, Error> {
    Ok(PendingSubject {
        subject: row.text("subject")?,
        next_seq: row.number("next_seq")?,
        last_seq: row.number("last_seq")?,
        since_ms: row.number("since_ms")?,
        due_at_ms: row.number("due_at_ms")?,
        tries: row.number("tries")?,
        last_error: Some(row.text("last_error")?).filter(|error| !error.is_empty()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MIGRATIONS;
    use crate::sql::plan::plan;

    #[tokio::test]
    async fn due_and_prunable_changes_are_found_by_index() {
        for (statement, index) in [
            (SELECT_DUE, "outbox_deliveries_by_turn"),
            (SELECT_PRUNABLE, "outbox_changes_by_age"),
        ] {
            let steps = plan(&[MIGRATIONS], statement).await;
            assert!(steps[0].contains(index), "{steps:?}");
            let is_slow = |step: &String| step.contains("TEMP") || step.contains("SCAN");
            assert!(!steps.iter().any(is_slow), "{steps:?}");
        }
    }
}
