//! Events that a group retries, and events waiting behind them.
//!
//! The first row of each customer has a due time; the rows behind it get one when it is done. A customer's events are
//! therefore handled in order, regardless of the number of attempts.

use std::collections::BTreeMap;

use sqlx::Error;

use super::dead::{DeadLetter, insert_dead};
use super::groups::move_in;
use super::{EventStore, Move, Step, compensations, cut};
use weir_origin_core::sql::{Row, SqlError, Tx, retried, sql};

const INSERT: &str = "
    INSERT INTO event_retries
        (group_name, source, position, unit, envelope, received_ms, tries, due_ms, error)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)";

const SELECT_DUE: &str = "
    SELECT position, unit, envelope, received_ms, tries, due_ms, error FROM event_retries
    WHERE group_name = ? AND source = ? AND due_ms <= ?
    ORDER BY due_ms, position LIMIT ?";

const SELECT_LIST: &str = "
    SELECT position, unit, envelope, received_ms, tries, due_ms, error FROM event_retries
    WHERE group_name = ? AND source = ? AND position > ?
    ORDER BY position LIMIT ?";

const NEXT_DUE: &str = "
    SELECT MIN(due_ms) AS due_ms FROM event_retries WHERE group_name = ? AND source = ?";

const UNITS: &str = "
    SELECT unit, COUNT(*) AS count FROM event_retries
    WHERE group_name = ? AND source = ? GROUP BY unit";

const COUNT: &str = "
    SELECT source, COUNT(*) AS count, MIN(received_ms) AS oldest_ms FROM event_retries
    WHERE group_name = ? GROUP BY source";

const DELETE: &str =
    "DELETE FROM event_retries WHERE group_name = ? AND source = ? AND position = ?";

const POSTPONE: &str = "
    UPDATE event_retries SET tries = ?, due_ms = ?, error = ?
    WHERE group_name = ? AND source = ? AND position = ?";

const LEFT_OF_UNIT: &str = "
    SELECT COUNT(*) AS count, MIN(position) AS position FROM event_retries
    WHERE group_name = ? AND source = ? AND unit = ?";

const MAKE_DUE: &str = "
    UPDATE event_retries SET due_ms = ?
    WHERE group_name = ? AND source = ? AND position = ? AND due_ms IS NULL";

const ALL_DUE: &str = "
    UPDATE event_retries SET due_ms = ?
    WHERE group_name = ? AND source = ? AND due_ms IS NOT NULL AND due_ms > ?";

/// An event to retry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewRetry {
    /// Its position in the source.
    pub position: u64,
    /// Its ordering key.
    pub unit: String,
    /// The encoded envelope.
    pub envelope: Vec<u8>,
    /// Receipt time, in milliseconds since the Unix epoch.
    pub received_ms: u64,
    /// Number of attempts.
    pub tries: u32,
    /// Time of the next attempt, in milliseconds since the Unix epoch; `None`: after the earlier events of its unit.
    pub due_ms: Option<u64>,
    /// The last error; empty: none.
    pub error: String,
}

/// A stored retry.
pub type Retry = NewRetry;

/// Number and age of retries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetryCounts {
    /// Number of events.
    pub count: u64,
    /// Receipt time of the oldest event, in milliseconds since the Unix epoch.
    pub oldest_ms: Option<u64>,
}

impl RetryCounts {
    /// Adds the counts of another source.
    pub fn add(&mut self, other: Self) {
        self.count += other.count;
        self.oldest_ms = self.oldest_ms.into_iter().chain(other.oldest_ms).min();
    }
}

/// Outcome of an attempt.
#[derive(Clone, Debug)]
pub enum Settlement {
    /// The event was handled.
    Done,
    /// The event is retried later.
    Again {
        /// Time of the next attempt, in milliseconds since the Unix epoch.
        due_ms: u64,
        /// The error.
        error: String,
    },
    /// The event was given up.
    Dead {
        /// Its dead letter.
        letter: Box<DeadLetter>,
        /// When to recompute its unit, in milliseconds since the Unix epoch; `None`: never.
        compensate_at_ms: Option<u64>,
    },
}

/// An attempt with its outcome.
#[derive(Clone, Debug)]
pub struct SettledRetry<'a> {
    /// The retried event.
    pub retry: &'a Retry,
    /// The outcome.
    pub settlement: Settlement,
}

/// Stores retries.
#[derive(Clone, Copy, Debug)]
pub struct RetryStore<'a>(pub(super) &'a EventStore);

impl RetryStore<'_> {
    /// Moves a group and stores the events that it did not handle, in one transaction. An event becomes a dead letter
    /// if it is given up immediately, or if too many of its unit already wait.
    pub async fn step_with(
        self,
        to: Move<'_>,
        retries: &[NewRetry],
        dead: &[SettledRetry<'_>],
    ) -> Result<Step, SqlError> {
        let once = || async {
            let mut tx = self.0.db.begin().await?;
            if move_in(&mut tx, to).await? == Step::Moved {
                tx.rollback().await?;
                return Ok(Step::Moved);
            }
            for retry in retries {
                insert(&mut tx, to.group, to.source, retry).await?;
            }
            for settled in dead {
                bury(&mut tx, to.group, settled).await?;
            }
            tx.commit().await?;
            Ok(Step::Taken)
        };
        Ok(retried(once).await?)
    }

    /// Stores outcomes of attempts, in one transaction. Events behind finished ones become due at `now_ms`. Returns the
    /// number of remaining events of each unit.
    pub async fn settle(
        self,
        group: &str,
        source: &str,
        settled: &[SettledRetry<'_>],
        now_ms: u64,
    ) -> Result<Vec<u64>, SqlError> {
        let once = || async {
            let mut tx = self.0.db.begin().await?;
            let mut remaining = Vec::with_capacity(settled.len());
            for one in settled {
                remaining.push(settle_one(&mut tx, group, source, one, now_ms).await?);
            }
            tx.commit().await?;
            Ok(remaining)
        };
        Ok(retried(once).await?)
    }

    /// Lists due retries, longest due first.
    pub async fn due(
        self,
        group: &str,
        source: &str,
        now_ms: u64,
        limit: u32,
    ) -> Result<Vec<Retry>, SqlError> {
        let select = sql(SELECT_DUE).text(group).text(source);
        let rows = self.0.db.all(select.number(now_ms).number(limit)).await?;
        Ok(rows.iter().map(retry).collect::<Result<_, _>>()?)
    }

    /// Lists retries and waiting events after the position `after`.
    pub async fn retries(
        self,
        group: &str,
        source: &str,
        after: Option<u64>,
        limit: u32,
    ) -> Result<Vec<Retry>, SqlError> {
        let after = after.and_then(|after| i64::try_from(after).ok());
        let select = sql(SELECT_LIST).text(group).text(source);
        let select = select.signed(after.unwrap_or(-1)).number(limit);
        let rows = self.0.db.all(select).await?;
        Ok(rows.iter().map(retry).collect::<Result<_, _>>()?)
    }

    /// Time of the next due retry, in milliseconds since the Unix epoch.
    pub async fn next_due(self, group: &str, source: &str) -> Result<Option<u64>, SqlError> {
        let row = self
            .0
            .db
            .one(sql(NEXT_DUE).text(group).text(source))
            .await?;
        Ok(row.map(|row| row.maybe("due_ms")).transpose()?.flatten())
    }

    /// Lists the units in retry, each with its number of events.
    pub async fn retried_units(
        self,
        group: &str,
        source: &str,
    ) -> Result<Vec<(String, u64)>, SqlError> {
        let rows = self.0.db.all(sql(UNITS).text(group).text(source)).await?;
        let units = rows
            .iter()
            .map(|row| Ok((row.text("unit")?, row.number("count")?)));
        Ok(units.collect::<Result<_, Error>>()?)
    }

    /// Counts retries and waiting events by source.
    pub async fn retry_counts(
        self,
        group: &str,
    ) -> Result<BTreeMap<String, RetryCounts>, SqlError> {
        let rows = self.0.db.all(sql(COUNT).text(group)).await?;
        let counts = |row: &Row| {
            let counts = RetryCounts {
                count: row.number("count")?,
                oldest_ms: row.maybe("oldest_ms")?,
            };
            Ok((row.text("source")?, counts))
        };
        Ok(rows.iter().map(counts).collect::<Result<_, Error>>()?)
    }

    /// Makes all retries due now and returns their number.
    pub async fn retry_now(self, group: &str, source: &str, now_ms: u64) -> Result<u64, SqlError> {
        let update = sql(ALL_DUE).number(now_ms).text(group).text(source);
        Ok(self.0.db.execute(update.number(now_ms)).await?)
    }

    /// Returns a dead letter to its group, due now. Returns false if the letter does not exist.
    pub async fn revive(
        self,
        group: &str,
        source: &str,
        retry: &NewRetry,
        letter_id: &str,
    ) -> Result<bool, SqlError> {
        let once = || async {
            let mut tx = self.0.db.begin().await?;
            if !super::dead::delete_in(&mut tx, letter_id).await? {
                return Ok(false);
            }
            insert(&mut tx, group, source, retry).await?;
            tx.commit().await?;
            Ok(true)
        };
        Ok(retried(once).await?)
    }
}

async fn insert(tx: &mut Tx, group: &str, source: &str, retry: &NewRetry) -> Result<(), Error> {
    let error = cut(&retry.error);
    let insert = sql(INSERT).text(group).text(source);
    let insert = insert.number(retry.position).text(&retry.unit);
    let insert = insert.bytes(&retry.envelope).number(retry.received_ms);
    let insert = insert.number(retry.tries).maybe(retry.due_ms).text(&error);
    // The row already exists if the group was moved back before this event: then it is retried once.
    tx.insert(insert).await?;
    Ok(())
}

/// Stores one outcome. Returns the number of remaining events of the unit.
async fn settle_one(
    tx: &mut Tx,
    group: &str,
    source: &str,
    settled: &SettledRetry<'_>,
    now_ms: u64,
) -> Result<u64, Error> {
    let retry = settled.retry;
    if let Settlement::Again { due_ms, error } = &settled.settlement {
        let error = cut(error);
        let update = sql(POSTPONE).number(retry.tries + 1).number(*due_ms);
        let update = update.text(&error).text(group).text(source);
        tx.execute(update.number(retry.position)).await?;
    } else {
        bury(tx, group, settled).await?;
        let delete = sql(DELETE).text(group).text(source);
        tx.execute(delete.number(retry.position)).await?;
    }
    let remaining = sql(LEFT_OF_UNIT).text(group).text(source).text(&retry.unit);
    let Some(remaining) = tx.one(remaining).await? else {
        return Ok(0);
    };
    if let Some(first) = remaining.maybe("position")? {
        let update = sql(MAKE_DUE).number(now_ms).text(group).text(source);
        tx.execute(update.number(first)).await?;
    }
    remaining.number("count")
}

async fn bury(tx: &mut Tx, group: &str, settled: &SettledRetry<'_>) -> Result<(), Error> {
    let Settlement::Dead {
        letter,
        compensate_at_ms,
    } = &settled.settlement
    else {
        return Ok(());
    };
    insert_dead(tx, letter).await?;
    if let Some(due_ms) = compensate_at_ms {
        compensations::ask_in(tx, group, &settled.retry.unit, *due_ms).await?;
    }
    Ok(())
}

fn retry(row: &Row) -> Result<Retry, Error> {
    Ok(Retry {
        position: row.number("position")?,
        unit: row.text("unit")?,
        envelope: row.bytes("envelope")?,
        received_ms: row.number("received_ms")?,
        tries: row.number("tries")?,
        due_ms: row.maybe("due_ms")?,
        error: row.text("error")?,
    })
}
