//! What a group tries again, and what waits behind it.
//!
//! Of each customer the first row has a time; those behind it have none until it is done. So a customer's events are handled
//! in their order, however often one of them is tried.

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

/// An event that a group is to try again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewRetry {
    /// Its place in its source.
    pub position: u64,
    /// Whose order counts.
    pub unit: String,
    /// The event.
    pub envelope: Vec<u8>,
    /// When it was received.
    pub received_ms: u64,
    /// How often it was tried.
    pub tries: u32,
    /// When it is tried next; none: when those before it of its unit are done.
    pub due_ms: Option<u64>,
    /// What went wrong.
    pub error: String,
}

/// As it is kept.
pub type Retry = NewRetry;

/// How many there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetryCounts {
    /// Events.
    pub count: u64,
    /// When the oldest of them was received.
    pub oldest_ms: Option<u64>,
}

impl RetryCounts {
    /// Adds those of another source.
    pub fn add(&mut self, other: Self) {
        self.count += other.count;
        self.oldest_ms = self.oldest_ms.into_iter().chain(other.oldest_ms).min();
    }
}

/// The outcome of a try.
#[derive(Clone, Debug)]
pub enum Settlement {
    /// It was handled.
    Done,
    /// It is tried again then.
    Again {
        /// When.
        due_ms: u64,
        /// What went wrong.
        error: String,
    },
    /// It is given up.
    Dead {
        /// As what.
        letter: Box<DeadLetter>,
        /// When its unit is computed anew, if the group can.
        compensate_at_ms: Option<u64>,
    },
}

/// A try, and what became of it.
#[derive(Clone, Debug)]
pub struct SettledRetry<'a> {
    /// What was tried.
    pub retry: &'a Retry,
    /// Its outcome.
    pub settlement: Settlement,
}

/// What a group tries again, and what waits behind it.
#[derive(Clone, Copy, Debug)]
pub struct RetryStore<'a>(pub(super) &'a EventStore);

impl RetryStore<'_> {
    /// Moves a group on, and keeps what it could not handle: all of it or nothing. A try that is given up at once, or
    /// that too many of its unit wait before, is a dead letter.
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

    /// Notes what became of tries, all of it or nothing; what waited behind those that are done is due at `now_ms`. Tells of
    /// each how many events of its unit are left.
    pub async fn settle(
        self,
        group: &str,
        source: &str,
        settled: &[SettledRetry<'_>],
        now_ms: u64,
    ) -> Result<Vec<u64>, SqlError> {
        let once = || async {
            let mut tx = self.0.db.begin().await?;
            let mut left = Vec::with_capacity(settled.len());
            for one in settled {
                left.push(settle_one(&mut tx, group, source, one, now_ms).await?);
            }
            tx.commit().await?;
            Ok(left)
        };
        Ok(retried(once).await?)
    }

    /// What is to be tried now, the longest due first.
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

    /// What is tried again or waits, behind the place `after`.
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

    /// When the next try is due.
    pub async fn next_due(self, group: &str, source: &str) -> Result<Option<u64>, SqlError> {
        let row = self
            .0
            .db
            .one(sql(NEXT_DUE).text(group).text(source))
            .await?;
        Ok(row.map(|row| row.maybe("due_ms")).transpose()?.flatten())
    }

    /// The units of which something is tried again, and how many events each has.
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

    /// How much a group tries again or lets wait, by source.
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

    /// Makes all that is tried again due now; how many that were.
    pub async fn retry_now(self, group: &str, source: &str, now_ms: u64) -> Result<u64, SqlError> {
        let update = sql(ALL_DUE).number(now_ms).text(group).text(source);
        Ok(self.0.db.execute(update.number(now_ms)).await?)
    }

    /// Gives a dead letter of a group back to it, to be tried now. False if the letter is gone.
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
    // It is there already if the group was moved back over it: then it is tried once.
    tx.insert(insert).await?;
    Ok(())
}

/// How many events of the unit are left.
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
    let left = sql(LEFT_OF_UNIT).text(group).text(source).text(&retry.unit);
    let Some(left) = tx.one(left).await? else {
        return Ok(0);
    };
    if let Some(first) = left.maybe("position")? {
        let update = sql(MAKE_DUE).number(now_ms).text(group).text(source);
        tx.execute(update.number(first)).await?;
    }
    left.number("count")
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
