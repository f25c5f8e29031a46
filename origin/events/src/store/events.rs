//! Stores events in bulk, each once, and reads the history of a customer or visitor.

use std::sync::LazyLock;

use sqlx::Error;

use super::counts::NewCounts;
use super::dead::{DeadLetter, insert_dead};
use super::groups::move_in;
use super::{EventStore, Move, Step};
use crate::model::dead_letter::of_reused;
use weir_origin_core::sql::{Row, SqlError, Statement, Tx, retried, sql};

/// Rows per statement. Each statement costs a round trip, and a parse in SQLite.
const ROWS: usize = 64;

const INSERT: &str = "
    INSERT INTO events
        (row_key, type, customer, visitor, at_ms, received_ms, position, fingerprint, envelope,
        expires_at_ms)
    VALUES ";

const ROW: &str = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";

static INSERT_ONE: LazyLock<String> = LazyLock::new(|| format!("{INSERT}{ROW}"));

static INSERT_MANY: LazyLock<String> =
    LazyLock::new(|| format!("{INSERT}{}", vec![ROW; ROWS].join(", ")));

const SELECT_FINGERPRINT: &str = "SELECT fingerprint FROM events WHERE row_key = ?";

const SELECT_ONE: &str = "SELECT envelope, at_ms, position FROM events WHERE row_key = ?";

/// Oldest first.
const BY_CUSTOMER: &str = "
    SELECT envelope, at_ms, position FROM events
    WHERE customer = ? AND (? = '' OR type = ?) AND at_ms >= ? AND at_ms < ?
        AND (at_ms > ? OR (at_ms = ? AND position > ?))
    ORDER BY at_ms, position LIMIT ?";

const BY_VISITOR: &str = "
    SELECT envelope, at_ms, position FROM events
    WHERE visitor = ? AND customer IS NULL AND (? = '' OR type = ?) AND at_ms >= ? AND at_ms < ?
        AND (at_ms > ? OR (at_ms = ? AND position > ?))
    ORDER BY at_ms, position LIMIT ?";

const BY_CUSTOMER_LATEST: &str = "
    SELECT envelope, at_ms, position FROM events
    WHERE customer = ? AND (? = '' OR type = ?) AND at_ms >= ? AND at_ms < ?
        AND (at_ms < ? OR (at_ms = ? AND position < ?))
    ORDER BY at_ms DESC, position DESC LIMIT ?";

const BY_VISITOR_LATEST: &str = "
    SELECT envelope, at_ms, position FROM events
    WHERE visitor = ? AND customer IS NULL AND (? = '' OR type = ?) AND at_ms >= ? AND at_ms < ?
        AND (at_ms < ? OR (at_ms = ? AND position < ?))
    ORDER BY at_ms DESC, position DESC LIMIT ?";

/// The latest events of a customer by type.
const BY_TYPE: &str = "
    SELECT type, COUNT(*) AS total, MIN(at_ms) AS first_ms, MAX(at_ms) AS last_ms
    FROM (
        SELECT type, at_ms FROM events WHERE customer = ?
        ORDER BY at_ms DESC, position DESC LIMIT ?
    ) latest
    GROUP BY type ORDER BY total DESC, type";

const SELECT_FIRST: &str = "SELECT MIN(at_ms) AS first_ms FROM events WHERE customer = ?";

const SELECT_EXPIRED: &str =
    "SELECT row_key FROM events WHERE expires_at_ms <= ? ORDER BY expires_at_ms LIMIT ?";

const DELETE_ONE: &str = "DELETE FROM events WHERE row_key = ?";

/// An event to store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEvent {
    /// The row key of its id.
    pub row_key: String,
    /// Its type.
    pub event_type: String,
    /// The signed-in customer.
    pub customer: Option<String>,
    /// The visitor id of the browser or app.
    pub visitor: Option<String>,
    /// Event time, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// Receipt time, in milliseconds since the Unix epoch.
    pub received_ms: u64,
    /// Its position in the log.
    pub position: u64,
    /// Distinguishes it from another event with the same id.
    pub fingerprint: String,
    /// The encoded envelope.
    pub envelope: Vec<u8>,
    /// When it expires, in milliseconds since the Unix epoch.
    pub expires_at_ms: u64,
}

/// The contents of one batch of the log.
#[derive(Clone, Debug, Default)]
pub struct StoreBatch {
    /// Events.
    pub events: Vec<NewEvent>,
    /// Events refused on arrival.
    pub dead: Vec<DeadLetter>,
}

/// Counts of a stored batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreCounts {
    /// New events.
    pub new: u64,
    /// Events that were already stored.
    pub again: u64,
    /// Events that reuse the id of another event.
    pub reused: u64,
}

/// The end of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventCursor {
    /// Time of the page's last event, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// Its position in the log.
    pub position: u64,
}

/// The owner of an event history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CourseOwner<'a> {
    /// A customer.
    Customer(&'a str),
    /// A visitor before sign-in.
    Visitor(&'a str),
}

/// Selects events of a history.
#[derive(Clone, Copy, Debug)]
pub struct CourseFilter<'a> {
    /// Only of this type; `None`: all.
    pub event_type: Option<&'a str>,
    /// From this time, in milliseconds since the Unix epoch.
    pub from_ms: u64,
    /// Before this time, in milliseconds since the Unix epoch.
    pub to_ms: u64,
    /// Newest first.
    pub latest_first: bool,
    /// Only those after this event.
    pub after: Option<EventCursor>,
    /// Maximum number of events.
    pub limit: u32,
}

/// The events of one type in a profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeSummary {
    /// The type.
    pub event_type: String,
    /// Number of events.
    pub events: u64,
    /// Time of the first event, in milliseconds since the Unix epoch.
    pub first_ms: u64,
    /// Time of the last event, in milliseconds since the Unix epoch.
    pub last_ms: u64,
}

impl EventStore {
    /// Stores a batch and moves the group `store`, in one transaction. The first event of an id is kept. A different
    /// event with the same id becomes a dead letter.
    pub async fn store(
        &self,
        to: Move<'_>,
        batch: &StoreBatch,
    ) -> Result<(Step, StoreCounts), SqlError> {
        let once = || async {
            let mut tx = self.db.begin().await?;
            if move_in(&mut tx, to).await? == Step::Moved {
                tx.rollback().await?;
                return Ok((Step::Moved, StoreCounts::default()));
            }
            let (mut stored, mut counts) = (StoreCounts::default(), NewCounts::default());
            for chunk in batch.events.chunks(ROWS) {
                insert_chunk(&mut tx, to, chunk, &mut stored, &mut counts).await?;
            }
            for letter in &batch.dead {
                insert_dead(&mut tx, letter).await?;
            }
            counts.write(&mut tx, to.source).await?;
            tx.commit().await?;
            Ok((Step::Taken, stored))
        };
        Ok(retried(once).await?)
    }

    /// The encoded event with this row key.
    pub async fn event(&self, row_key: &str) -> Result<Option<Vec<u8>>, SqlError> {
        let row = self.db.one(sql(SELECT_ONE).text(row_key)).await?;
        Ok(row.map(|row| row.bytes("envelope")).transpose()?)
    }

    /// The encoded events of a history, each with its position.
    pub async fn course(
        &self,
        course: CourseOwner<'_>,
        filter: CourseFilter<'_>,
    ) -> Result<Vec<(EventCursor, Vec<u8>)>, SqlError> {
        let (statement, user) = match (course, filter.latest_first) {
            (CourseOwner::Customer(id), false) => (BY_CUSTOMER, id),
            (CourseOwner::Visitor(id), false) => (BY_VISITOR, id),
            (CourseOwner::Customer(id), true) => (BY_CUSTOMER_LATEST, id),
            (CourseOwner::Visitor(id), true) => (BY_VISITOR_LATEST, id),
        };
        let event_type = filter.event_type.unwrap_or_default();
        // Before all events, or after all.
        let edge = match filter.latest_first {
            true => (i64::MAX, i64::MAX),
            false => (-1, -1),
        };
        let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let place = |place: EventCursor| (signed(place.at_ms), signed(place.position));
        let (at_ms, position) = filter.after.map_or(edge, place);
        let select = sql(statement).text(user).text(event_type).text(event_type);
        let select = select.number(filter.from_ms).number(filter.to_ms);
        let select = select.signed(at_ms).signed(at_ms).signed(position);
        let rows = self.db.all(select.number(filter.limit)).await?;
        Ok(rows.iter().map(placed).collect::<Result<_, _>>()?)
    }

    /// The types of a customer's latest events, at most `limit` of them, the most frequent type first.
    pub async fn customer_types(
        &self,
        customer: &str,
        limit: u32,
    ) -> Result<Vec<TypeSummary>, SqlError> {
        let select = sql(BY_TYPE).text(customer).number(limit);
        let rows = self.db.all(select).await?;
        Ok(rows.iter().map(summary).collect::<Result<_, _>>()?)
    }

    /// The time of a customer's first event that is still stored, in milliseconds since the Unix epoch.
    pub async fn first_ms(&self, customer: &str) -> Result<Option<u64>, SqlError> {
        let row = self.db.one(sql(SELECT_FIRST).text(customer)).await?;
        Ok(match row {
            Some(row) => row.maybe("first_ms")?,
            None => None,
        })
    }

    /// Deletes at most `limit` expired events and returns their number.
    pub async fn clean_events(&self, now_ms: u64, limit: u32) -> Result<u64, SqlError> {
        let select = sql(SELECT_EXPIRED).number(now_ms).number(limit);
        let rows = self.db.all(select).await?;
        let keys = rows.iter().map(|row| row.text("row_key"));
        let keys: Vec<String> = keys.collect::<Result<_, _>>()?;
        if keys.is_empty() {
            return Ok(0);
        }
        let once = || async {
            let mut tx = self.db.begin().await?;
            for key in &keys {
                tx.execute(sql(DELETE_ONE).text(key)).await?;
            }
            tx.commit().await?;
            Ok(())
        };
        retried(once).await?;
        Ok(keys.len() as u64)
    }
}

async fn insert_chunk<'a>(
    tx: &mut Tx,
    to: Move<'_>,
    chunk: &'a [NewEvent],
    stored: &mut StoreCounts,
    counts: &mut NewCounts<'a>,
) -> Result<(), Error> {
    if chunk.len() == ROWS {
        let all = chunk.iter().fold(sql(&INSERT_MANY), row);
        if tx.insert_all(all).await? {
            stored.new += chunk.len() as u64;
            chunk.iter().for_each(|event| counts.add(event));
            return Ok(());
        }
    }
    // One of them is already stored, or occurs twice in the chunk.
    for event in chunk {
        if tx.insert(row(sql(&INSERT_ONE), event)).await? {
            stored.new += 1;
            counts.add(event);
        } else if is_same(tx, event).await? {
            stored.again += 1;
        } else {
            stored.reused += 1;
            insert_dead(tx, &of_reused(to.source, event, to.now_ms)).await?;
        }
    }
    Ok(())
}

async fn is_same(tx: &mut Tx, event: &NewEvent) -> Result<bool, Error> {
    let existing = tx.one(sql(SELECT_FINGERPRINT).text(&event.row_key)).await?;
    let existing = existing.map(|row| row.text("fingerprint")).transpose()?;
    Ok(existing.as_ref() == Some(&event.fingerprint))
}

fn row<'a>(to: Statement<'a>, event: &'a NewEvent) -> Statement<'a> {
    to.text(&event.row_key)
        .text(&event.event_type)
        .maybe_text(event.customer.as_deref())
        .maybe_text(event.visitor.as_deref())
        .number(event.at_ms)
        .number(event.received_ms)
        .number(event.position)
        .text(&event.fingerprint)
        .bytes(&event.envelope)
        .number(event.expires_at_ms)
}

fn placed(row: &Row) -> Result<(EventCursor, Vec<u8>), Error> {
    let place = EventCursor {
        at_ms: row.number("at_ms")?,
        position: row.number("position")?,
    };
    Ok((place, row.bytes("envelope")?))
}

fn summary(row: &Row) -> Result<TypeSummary, Error> {
    Ok(TypeSummary {
        event_type: row.text("type")?,
        events: row.number("total")?,
        first_ms: row.number("first_ms")?,
        last_ms: row.number("last_ms")?,
    })
}
