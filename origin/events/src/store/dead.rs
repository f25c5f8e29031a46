//! Dead letters: events refused on arrival, or given up by a group.

use sqlx::Error;

use super::{EventStore, cut};
use weir_origin_core::sql::{Row, SqlError, Tx, sql};

const INSERT: &str = "
    INSERT INTO event_dead_letters (id, group_name, reason, message, content, dead_at_ms)
    VALUES (?, ?, ?, ?, ?, ?)";

const SELECT_ONE: &str = "
    SELECT id, group_name, reason, message, content, dead_at_ms, edited_at_ms FROM event_dead_letters
    WHERE id = ?";

const SELECT_LIST: &str = "
    SELECT id, group_name, reason, message, content, dead_at_ms, edited_at_ms FROM event_dead_letters
    WHERE (dead_at_ms < ? OR (dead_at_ms = ? AND id < ?))
        AND (? = '*' OR group_name = ?) AND (? = '' OR reason = ?)
    ORDER BY dead_at_ms DESC, id DESC LIMIT ?";

const COUNT: &str = "SELECT COUNT(*) AS count FROM event_dead_letters WHERE group_name = ?";

const EDIT: &str = "UPDATE event_dead_letters SET content = ?, edited_at_ms = ? WHERE id = ?";

const DELETE: &str = "DELETE FROM event_dead_letters WHERE id = ?";

const CLEAN: &str = "DELETE FROM event_dead_letters WHERE dead_at_ms < ?";

/// A refused or given-up event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// Its id, derived from its log position: each read of the record gives the same id.
    pub id: String,
    /// The group that gave it up; empty: refused on arrival.
    pub group: String,
    /// Reason code.
    pub reason: String,
    /// Reason in a sentence.
    pub message: String,
    /// The content: [`DeadLetterContent`](crate::model::dead_letter::DeadLetterContent) as JSON.
    pub content: String,
    /// When it became a dead letter, in milliseconds since the Unix epoch.
    pub dead_at_ms: u64,
    /// When an operator last edited it, in milliseconds since the Unix epoch.
    pub edited_at_ms: Option<u64>,
}

/// Selects dead letters.
#[derive(Clone, Debug)]
pub struct DeadFilter<'a> {
    /// Only of this group; empty: refused on arrival; `None`: all.
    pub group: Option<&'a str>,
    /// Only with this reason; `None`: all.
    pub reason: Option<&'a str>,
    /// Only those after this time and id.
    pub after: Option<(u64, &'a str)>,
    /// Maximum number of entries.
    pub limit: u32,
}

/// Stores dead letters.
#[derive(Clone, Copy, Debug)]
pub struct DeadLetterStore<'a>(pub(super) &'a EventStore);

impl DeadLetterStore<'_> {
    /// Lists dead letters, newest first.
    pub async fn dead_letters(self, filter: DeadFilter<'_>) -> Result<Vec<DeadLetter>, SqlError> {
        let (at_ms, id) = filter.after.unwrap_or((u64::MAX, ""));
        let (group, reason) = (filter.group.unwrap_or("*"), filter.reason.unwrap_or(""));
        let select = sql(SELECT_LIST).number(at_ms).number(at_ms).text(id);
        let select = select.text(group).text(group).text(reason).text(reason);
        let rows = self.0.db.all(select.number(filter.limit)).await?;
        Ok(rows.iter().map(letter).collect::<Result<_, _>>()?)
    }

    /// Reads one dead letter.
    pub async fn dead_letter(self, id: &str) -> Result<Option<DeadLetter>, SqlError> {
        let row = self.0.db.one(sql(SELECT_ONE).text(id)).await?;
        Ok(row.as_ref().map(letter).transpose()?)
    }

    /// Number of dead letters of a group.
    pub async fn dead_letter_count(self, group: &str) -> Result<u64, SqlError> {
        let row = self.0.db.one(sql(COUNT).text(group)).await?;
        Ok(row.map_or(Ok(0), |row| row.number("count"))?)
    }

    /// Edits a dead letter. Returns false if it does not exist.
    pub async fn edit_dead_letter(
        self,
        id: &str,
        content: &str,
        now_ms: u64,
    ) -> Result<bool, SqlError> {
        let update = sql(EDIT).text(content).number(now_ms).text(id);
        Ok(self.0.db.execute(update).await? > 0)
    }

    /// Deletes a dead letter. Returns false if it does not exist.
    pub async fn delete_dead_letter(self, id: &str) -> Result<bool, SqlError> {
        Ok(self.0.db.execute(sql(DELETE).text(id)).await? > 0)
    }

    /// Deletes dead letters from before this time.
    pub async fn clean_dead_letters(self, before_ms: u64) -> Result<u64, SqlError> {
        Ok(self.0.db.execute(sql(CLEAN).number(before_ms)).await?)
    }
}

/// Inserts a dead letter. Repeated inserts count once.
pub(super) async fn insert_dead(tx: &mut Tx, letter: &DeadLetter) -> Result<(), Error> {
    let message = cut(&letter.message);
    let insert = sql(INSERT).text(&letter.id).text(&letter.group);
    let insert = insert.text(&letter.reason).text(&message);
    let insert = insert.text(&letter.content).number(letter.dead_at_ms);
    tx.insert(insert).await?;
    Ok(())
}

pub(super) async fn delete_in(tx: &mut Tx, id: &str) -> Result<bool, Error> {
    Ok(tx.execute(sql(DELETE).text(id)).await? > 0)
}

fn letter(row: &Row) -> Result<DeadLetter, Error> {
    Ok(DeadLetter {
        id: row.text("id")?,
        group: row.text("group_name")?,
        reason: row.text("reason")?,
        message: row.text("message")?,
        content: row.text("content")?,
        dead_at_ms: row.number("dead_at_ms")?,
        edited_at_ms: row.maybe("edited_at_ms")?,
    })
}
