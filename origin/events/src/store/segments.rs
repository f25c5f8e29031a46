//! Segments, their members, and the progress of their evaluation.
//!
//! One origin leases a segment and evaluates its customers in order, in chunks. The transaction of a chunk changes the
//! members and moves the progress on, only if the progress is still the expected one.

use std::collections::HashMap;

use sqlx::Error;

use super::EventStore;
use weir_origin_core::sql::{MANY, Row, SqlError, Tx, filled, in_many_then, retried, sql};

/// A text after all customers, which are at most 128 visible characters.
pub(super) const END: &str = "~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~";

/// Number of events, or members, whose customers are a chunk.
pub(super) const CHUNK: u32 = 1_000;

const SELECT_ALL: &str = "
    SELECT name, version, document, changed_at_ms, is_deleted, run_ms, run_customer, run_members,
        evaluated_ms, members, is_complete
    FROM event_segments WHERE is_deleted = 0 ORDER BY name";

const SELECT_ONE: &str = "
    SELECT name, version, document, changed_at_ms, is_deleted, run_ms, run_customer, run_members,
        evaluated_ms, members, is_complete
    FROM event_segments WHERE name = ?";

const SELECT_DUE: &str = "
    SELECT name, leased_until_ms FROM event_segments WHERE due_ms <= ? AND leased_until_ms <= ?
    ORDER BY due_ms, name LIMIT 1";

const LEASE: &str =
    "UPDATE event_segments SET leased_until_ms = ? WHERE name = ? AND leased_until_ms = ?";

const COUNT: &str = "SELECT COUNT(*) AS total FROM event_segments";

/// A change begins a new evaluation.
const UPDATE: &str = "
    UPDATE event_segments
    SET version = version + 1, document = ?, changed_at_ms = ?, due_ms = ?, leased_until_ms = 0, run_ms = 0
    WHERE name = ? AND is_deleted = 0";

const INSERT: &str = "
    INSERT INTO event_segments
        (document, changed_at_ms, due_ms, name, version, is_deleted, leased_until_ms, run_ms, run_customer,
        run_members, evaluated_ms, members, is_complete)
    VALUES (?, ?, ?, ?, 1, 0, 0, 0, '', 0, NULL, 0, 1)";

const SET_DUE: &str = "UPDATE event_segments SET due_ms = ? WHERE name = ? AND is_deleted = 0";

const SET_DELETED: &str = "
    UPDATE event_segments
    SET is_deleted = 1, version = version + 1, due_ms = 0, leased_until_ms = 0, run_ms = 0
    WHERE name = ? AND is_deleted = 0";

const DELETE: &str = "DELETE FROM event_segments WHERE name = ? AND is_deleted = 1";

const BEGIN_RUN: &str = "
    UPDATE event_segments SET run_ms = ?, run_customer = '', run_members = 0
    WHERE name = ? AND version = ? AND run_ms = 0";

const MOVE_RUN: &str = "
    UPDATE event_segments SET leased_until_ms = ?, run_customer = ?, run_members = ?
    WHERE name = ? AND version = ? AND run_ms = ? AND run_customer = ?";

const END_RUN: &str = "
    UPDATE event_segments
    SET due_ms = ?, leased_until_ms = 0, evaluated_ms = ?, members = ?, is_complete = ?, run_ms = 0
    WHERE name = ? AND version = ? AND run_ms = ? AND run_customer = ?";

pub(super) const SELECT_CHUNK: &str = "
    SELECT customer FROM events WHERE type = ? AND customer > ?
    ORDER BY customer LIMIT 1 OFFSET ?";

const SELECT_MEMBER_CHUNK: &str = "
    SELECT customer FROM event_segment_members WHERE segment = ? AND customer > ? AND customer <= ?
    ORDER BY customer LIMIT 1 OFFSET ?";

const COUNT_CHUNK: &str = "
    SELECT customer, COUNT(*) AS total FROM events
    WHERE type = ? AND customer > ? AND customer <= ? AND at_ms >= ? AND at_ms <= ?
    GROUP BY customer";

const COUNT_CUSTOMERS: &str = in_many_then!(
    "SELECT customer, COUNT(*) AS total FROM events
    WHERE type = ? AND at_ms >= ? AND at_ms <= ? AND customer",
    " GROUP BY customer"
);

const SELECT_MEMBERS: &str = "
    SELECT customer, since_ms, is_sent FROM event_segment_members
    WHERE segment = ? AND customer > ? AND customer <= ? ORDER BY customer LIMIT ?";

const INSERT_MEMBER: &str = "
    INSERT INTO event_segment_members (segment, customer, since_ms, is_sent) VALUES (?, ?, ?, ?)";

const SET_SENT: &str =
    "UPDATE event_segment_members SET is_sent = 1 WHERE segment = ? AND customer = ?";

const DELETE_MEMBER: &str = "DELETE FROM event_segment_members WHERE segment = ? AND customer = ?";

const DELETE_MEMBERS: &str =
    "DELETE FROM event_segment_members WHERE segment = ? AND customer <= ?";

const SELECT_OF_CUSTOMER: &str = "
    SELECT m.segment, m.since_ms FROM event_segment_members m
    JOIN event_segments s ON s.name = m.segment
    WHERE m.customer = ? AND s.is_deleted = 0 ORDER BY m.segment";

/// A stored segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredSegment {
    /// Its name.
    pub name: String,
    /// 1, incremented by each change.
    pub version: u64,
    /// The definition from the API, as JSON.
    pub document: String,
    /// Time of the last change, in milliseconds since the Unix epoch.
    pub changed_at_ms: u64,
    /// Whether its members are being deleted.
    pub is_deleted: bool,
    /// End of the windows of the evaluation that has begun, in milliseconds since the Unix epoch; 0: none has.
    pub run_ms: u64,
    /// Customers up to this one are evaluated.
    pub run_customer: String,
    /// Number of members among them.
    pub run_members: u64,
    /// Time of the last complete evaluation, in milliseconds since the Unix epoch.
    pub evaluated_ms: Option<u64>,
    /// Number of members then.
    pub members: u64,
    /// Whether these are all members.
    pub is_complete: bool,
}

/// A member of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The customer.
    pub customer: String,
    /// Time of the evaluation that found the customer first, in milliseconds since the Unix epoch.
    pub since_ms: u64,
    /// Whether the log has the event that the customer entered.
    pub is_sent: bool,
}

/// The customers after one and up to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CustomerRange {
    /// The customer before the first.
    pub after: String,
    /// The last customer.
    pub to: String,
    /// Whether no customer follows.
    pub is_last: bool,
}

/// The outcome of a chunk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberChanges {
    /// New members.
    pub entered: Vec<String>,
    /// Members who no longer belong to the segment.
    pub left: Vec<String>,
    /// Members whose event was sent now.
    pub sent: Vec<String>,
    /// Whether new members are marked as sent.
    pub is_sent: bool,
}

/// Progress of an evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The next chunk follows; until then, this origin evaluates the segment.
    Chunk {
        /// End of the lease, in milliseconds since the Unix epoch.
        leased_until_ms: u64,
    },
    /// The evaluation has ended.
    Done {
        /// Time of the next evaluation, in milliseconds since the Unix epoch.
        due_ms: u64,
        /// Whether all members are stored.
        is_complete: bool,
    },
}

/// Outcome of a change of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentPut {
    /// It is stored.
    Stored,
    /// The members of a deleted segment with this name are still being deleted.
    Deleting,
    /// The maximum number of segments is reached.
    TooMany,
}

/// Stores segments.
#[derive(Clone, Copy, Debug)]
pub struct SegmentStore<'a>(pub(super) &'a EventStore);

impl SegmentStore<'_> {
    /// Lists all segments.
    pub async fn segments(self) -> Result<Vec<StoredSegment>, SqlError> {
        let rows = self.0.db.all(sql(SELECT_ALL)).await?;
        Ok(rows.iter().map(stored).collect::<Result<_, _>>()?)
    }

    /// A segment, also one that is being deleted.
    pub async fn segment(self, name: &str) -> Result<Option<StoredSegment>, SqlError> {
        let row = self.0.db.one(sql(SELECT_ONE).text(name)).await?;
        Ok(row.as_ref().map(stored).transpose()?)
    }

    /// Creates or changes a segment, if there are less than `max`. It is due at once.
    pub async fn put_segment(
        self,
        name: &str,
        document: &str,
        now_ms: u64,
        max: u64,
    ) -> Result<SegmentPut, SqlError> {
        let put = |statement| {
            let statement = sql(statement).text(document).number(now_ms);
            statement.number(now_ms).text(name)
        };
        if self.0.db.execute(put(UPDATE)).await? > 0 {
            return Ok(SegmentPut::Stored);
        }
        let row = self.0.db.one(sql(COUNT)).await?;
        let count: Option<u64> = row.map(|row| row.number("total")).transpose()?;
        if count.is_some_and(|count| count >= max) {
            return Ok(SegmentPut::TooMany);
        }
        match self.0.db.insert(put(INSERT)).await? {
            true => Ok(SegmentPut::Stored),
            false => Ok(SegmentPut::Deleting),
        }
    }

    /// Makes a segment due at once. Returns false if it does not exist.
    pub async fn set_due(self, name: &str, now_ms: u64) -> Result<bool, SqlError> {
        let update = sql(SET_DUE).number(now_ms).text(name);
        Ok(self.0.db.execute(update).await? > 0)
    }

    /// Marks a segment for deletion. Returns false if it does not exist.
    pub async fn delete_segment(self, name: &str) -> Result<bool, SqlError> {
        Ok(self.0.db.execute(sql(SET_DELETED).text(name)).await? > 0)
    }

    /// Leases a due segment, if there is one.
    pub async fn lease_segment(
        self,
        now_ms: u64,
        until_ms: u64,
    ) -> Result<Option<StoredSegment>, SqlError> {
        let due = sql(SELECT_DUE).number(now_ms).number(now_ms);
        let Some(row) = self.0.db.one(due).await? else {
            return Ok(None);
        };
        let (name, before_ms): (_, u64) = (row.text("name")?, row.number("leased_until_ms")?);
        let lease = sql(LEASE).number(until_ms).text(&name).number(before_ms);
        match self.0.db.execute(lease).await? {
            0 => Ok(None),
            _ => self.segment(&name).await,
        }
    }

    /// Begins an evaluation whose windows end at `run_ms`. Returns false if the segment was changed.
    pub async fn begin_run(self, segment: &StoredSegment, run_ms: u64) -> Result<bool, SqlError> {
        let begin = sql(BEGIN_RUN).number(run_ms).text(&segment.name);
        let changed = self.0.db.execute(begin.number(segment.version)).await?;
        Ok(changed > 0)
    }

    /// The next customers to evaluate: about 1,000 events of the type and at most 1,000 members belong to them.
    pub async fn customer_range(
        self,
        segment: &StoredSegment,
        event_type: &str,
    ) -> Result<CustomerRange, SqlError> {
        let after = &segment.run_customer;
        let CustomerRange { to, .. } = self.0.funnels().customer_range(event_type, after).await?;
        let select = sql(SELECT_MEMBER_CHUNK).text(&segment.name).text(after);
        let row = self.0.db.one(select.text(&to).number(CHUNK - 1)).await?;
        let to = match row {
            Some(row) => row.text("customer")?,
            None => to,
        };
        Ok(CustomerRange {
            after: after.clone(),
            is_last: to == END,
            to,
        })
    }

    /// The number of events by customer, of customers in a range with at least one event.
    pub async fn count_range(
        self,
        event_type: &str,
        range: &CustomerRange,
        (from_ms, end_ms): (u64, u64),
    ) -> Result<HashMap<String, u64>, SqlError> {
        let select = sql(COUNT_CHUNK).text(event_type);
        let select = select.text(&range.after).text(&range.to);
        let rows = self.0.db.all(select.number(from_ms).number(end_ms)).await?;
        Ok(rows.iter().map(total).collect::<Result<_, _>>()?)
    }

    /// The number of events by customer, of these customers with at least one event.
    pub async fn count_customers(
        self,
        event_type: &str,
        customers: &[&str],
        (from_ms, end_ms): (u64, u64),
    ) -> Result<HashMap<String, u64>, SqlError> {
        let mut found = HashMap::new();
        for some in customers.chunks(MANY) {
            let select = sql(COUNT_CUSTOMERS).text(event_type);
            let select = select.number(from_ms).number(end_ms);
            let select = filled(some).fold(select, |select, customer| select.text(customer));
            for row in self.0.db.all(select).await? {
                found.extend([total(&row)?]);
            }
        }
        Ok(found)
    }

    /// The members in a range.
    pub async fn members_in(
        self,
        segment: &str,
        range: &CustomerRange,
    ) -> Result<Vec<Member>, SqlError> {
        self.members_between(segment, &range.after, &range.to, CHUNK)
            .await
    }

    /// The members after a customer, at most `limit`.
    pub async fn members(
        self,
        segment: &str,
        after: &str,
        limit: u32,
    ) -> Result<Vec<Member>, SqlError> {
        self.members_between(segment, after, END, limit).await
    }

    async fn members_between(
        self,
        segment: &str,
        after: &str,
        to: &str,
        limit: u32,
    ) -> Result<Vec<Member>, SqlError> {
        let select = sql(SELECT_MEMBERS).text(segment).text(after).text(to);
        let rows = self.0.db.all(select.number(limit)).await?;
        Ok(rows.iter().map(member).collect::<Result<_, _>>()?)
    }

    /// Stores the outcome of a chunk. Returns false if the segment was changed, or another origin evaluates it.
    pub async fn settle_chunk(
        self,
        segment: &StoredSegment,
        range: &CustomerRange,
        changes: &MemberChanges,
        members: u64,
        progress: Progress,
    ) -> Result<bool, SqlError> {
        let once = || async {
            let mut tx = self.0.db.begin().await?;
            if !move_run(&mut tx, segment, range, members, progress).await? {
                tx.rollback().await?;
                return Ok(false);
            }
            for customer in &changes.entered {
                let insert = sql(INSERT_MEMBER).text(&segment.name).text(customer);
                let insert = insert.number(segment.run_ms);
                tx.execute(insert.number(u8::from(changes.is_sent))).await?;
            }
            for (statement, customers) in
                [(DELETE_MEMBER, &changes.left), (SET_SENT, &changes.sent)]
            {
                for customer in customers {
                    let change = sql(statement).text(&segment.name).text(customer);
                    tx.execute(change).await?;
                }
            }
            tx.commit().await?;
            Ok(true)
        };
        Ok(retried(once).await?)
    }

    /// Deletes some members of a deleted segment, or the segment if it has none. Returns whether it is gone.
    pub async fn clean_segment(self, name: &str) -> Result<bool, SqlError> {
        let range = sql(SELECT_MEMBER_CHUNK).text(name).text("").text(END);
        let row = self.0.db.one(range.number(CHUNK - 1)).await?;
        let to = row.map(|row| row.text("customer")).transpose()?;
        let is_last = to.is_none();
        let to = to.unwrap_or_else(|| END.to_owned());
        let delete = sql(DELETE_MEMBERS).text(name).text(&to);
        self.0.db.execute(delete).await?;
        if is_last {
            self.0.db.execute(sql(DELETE).text(name)).await?;
        }
        Ok(is_last)
    }

    /// The segments of a customer, each with the time since when.
    pub async fn of_customer(self, customer: &str) -> Result<Vec<(String, u64)>, SqlError> {
        let rows = self
            .0
            .db
            .all(sql(SELECT_OF_CUSTOMER).text(customer))
            .await?;
        let one = |row: &Row| Ok((row.text("segment")?, row.number("since_ms")?));
        Ok(rows.iter().map(one).collect::<Result<_, Error>>()?)
    }
}

async fn move_run(
    tx: &mut Tx,
    segment: &StoredSegment,
    range: &CustomerRange,
    members: u64,
    progress: Progress,
) -> Result<bool, Error> {
    let update = match progress {
        Progress::Chunk { leased_until_ms } => {
            let update = sql(MOVE_RUN).number(leased_until_ms);
            update.text(&range.to).number(members)
        }
        Progress::Done {
            due_ms,
            is_complete,
        } => {
            let update = sql(END_RUN).number(due_ms).number(segment.run_ms);
            update.number(members).number(u8::from(is_complete))
        }
    };
    let update = update.text(&segment.name).number(segment.version);
    let update = update.number(segment.run_ms).text(&range.after);
    Ok(tx.execute(update).await? > 0)
}

fn stored(row: &Row) -> Result<StoredSegment, Error> {
    Ok(StoredSegment {
        name: row.text("name")?,
        version: row.number("version")?,
        document: row.text("document")?,
        changed_at_ms: row.number("changed_at_ms")?,
        is_deleted: row.flag("is_deleted")?,
        run_ms: row.number("run_ms")?,
        run_customer: row.text("run_customer")?,
        run_members: row.number("run_members")?,
        evaluated_ms: row.maybe("evaluated_ms")?,
        members: row.number("members")?,
        is_complete: row.flag("is_complete")?,
    })
}

fn member(row: &Row) -> Result<Member, Error> {
    Ok(Member {
        customer: row.text("customer")?,
        since_ms: row.number("since_ms")?,
        is_sent: row.flag("is_sent")?,
    })
}

fn total(row: &Row) -> Result<(String, u64), Error> {
    Ok((row.text("customer")?, row.number("total")?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_origin_core::sql::plan::plan;

    /// The query of a chunk reads only its own part of an index, without the events.
    #[tokio::test]
    async fn segment_queries_read_parts_of_an_index() {
        for (statement, index) in [
            (
                SELECT_CHUNK,
                "COVERING INDEX events_by_type (type=? AND customer>?)",
            ),
            (
                COUNT_CHUNK,
                "COVERING INDEX events_by_type (type=? AND customer>?",
            ),
            (
                COUNT_CUSTOMERS,
                "COVERING INDEX events_by_type (type=? AND customer=?",
            ),
            (SELECT_MEMBERS, "PRIMARY KEY (segment=? AND customer>?"),
            (
                SELECT_OF_CUSTOMER,
                "event_segment_members_by_customer (customer=?)",
            ),
        ] {
            let plan = plan(&[crate::MIGRATIONS], statement).await;
            assert!(
                plan.iter().any(|step| step.contains(index)),
                "{statement}: {plan:?}"
            );
        }
    }
}
