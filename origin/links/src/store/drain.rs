//! Stores new links in bulk.

use std::sync::LazyLock;

use sqlx::Error;
use weir_log::Position;

use super::columns::LinkRow;
use super::edits::named;
use super::outbox::LinkNotifications;
use super::{Entry, LinkStore, NewLink, feed};
use weir_origin_core::sql::{Columns, SqlError, Statement, Tx, insert_into, retried, sql};

/// Rows per statement. Each statement costs a round trip, and a parse in SQLite.
const ROWS: usize = 64;

static INSERT_ONE: LazyLock<String> =
    LazyLock::new(|| insert_into::<LinkRow>("links", &["domain", "code"]));

static INSERT_MANY: LazyLock<String> = LazyLock::new(|| {
    let row = vec!["?"; LinkRow::NAMES.len() + 2].join(", ");
    format!("{}{}", *INSERT_ONE, format!(", ({row})").repeat(ROWS - 1))
});

pub(super) const INSERT_TAG: &str =
    "INSERT INTO link_tags (tag, created_at_ms, domain, code) VALUES (?, ?, ?, ?)";

/// Only this exact link, and only if it was never edited.
const DELETE_VOID: &str = "
    DELETE FROM links
    WHERE domain = ? AND code = ? AND created_at_ms = ? AND version = 1 AND record = ?";

const DELETE_VOID_TAGS: &str =
    "DELETE FROM link_tags WHERE domain = ? AND code = ? AND created_at_ms = ?";

const SELECT_POSITION: &str = "SELECT file_no, at_byte FROM link_logs WHERE id = ?";

const UPDATE_POSITION: &str = "UPDATE link_logs SET file_no = ?, at_byte = ? WHERE id = ?";

const INSERT_POSITION: &str = "INSERT INTO link_logs (file_no, at_byte, id) VALUES (?, ?, ?)";

/// Stores new links in bulk.
#[derive(Clone, Copy, Debug)]
pub struct LogStore<'a>(pub(super) &'a LinkStore);

impl LogStore<'_> {
    /// The position in the log named `log` up to which the store has the entries.
    pub async fn log_position(self, log: &str) -> Result<Position, SqlError> {
        let row = self.0.db.one(sql(SELECT_POSITION).text(log)).await?;
        let Some(row) = row else {
            return Ok(Position::default());
        };
        Ok(Position {
            file: row.number("file_no")?,
            byte: row.number("at_byte")?,
        })
    }

    /// Stores entries of the log named `log` and the position `position`, in one transaction. Links whose code is taken
    /// are left out; returns their number.
    pub async fn drain(
        self,
        log: &str,
        position: Position,
        entries: &[Entry],
    ) -> Result<u64, SqlError> {
        Ok(retried(|| drain_once(self.0, log, position, entries)).await?)
    }

    /// Inserts a link. Returns false if its code is taken.
    pub async fn insert(self, link: &NewLink) -> Result<bool, SqlError> {
        let once = || async {
            let mut tx = self.0.db.begin().await?;
            let is_new = insert_in(&mut tx, &self.0.notifications, link).await?;
            tx.commit().await?;
            Ok(is_new)
        };
        Ok(retried(once).await?)
    }
}

async fn drain_once(
    store: &LinkStore,
    log: &str,
    position: Position,
    entries: &[Entry],
) -> Result<u64, Error> {
    let (mut tx, telling) = (store.db.begin().await?, &store.notifications);
    let mut used = 0;
    // Keep the order: a void entry takes back an earlier one.
    for run in entries.chunk_by(|a, b| is_made(a) && is_made(b)) {
        match run {
            [Entry::Void(link)] => void_link(&mut tx, telling, link).await?,
            created => used += insert_made(&mut tx, telling, created).await?,
        }
    }
    move_on(&mut tx, log, position).await?;
    tx.commit().await?;
    Ok(used)
}

fn is_made(entry: &Entry) -> bool {
    matches!(entry, Entry::Made(_))
}

async fn insert_made(
    tx: &mut Tx,
    telling: &LinkNotifications,
    run: &[Entry],
) -> Result<u64, Error> {
    let created = |entry: &'_ Entry| match entry {
        Entry::Made(link) => Some(link.clone()),
        Entry::Void(_) => None,
    };
    let links: Vec<NewLink> = run.iter().filter_map(created).collect();
    let mut used = 0;
    for chunk in links.chunks(ROWS) {
        used += insert_chunk(tx, telling, chunk).await?;
    }
    Ok(used)
}

/// Returns the number of links left out because their codes are taken.
async fn insert_chunk(
    tx: &mut Tx,
    telling: &LinkNotifications,
    chunk: &[NewLink],
) -> Result<u64, Error> {
    let is_whole = chunk.len() == ROWS;
    if is_whole && insert_whole(tx, telling, chunk).await? {
        return Ok(0);
    }
    let mut used = 0;
    for link in chunk {
        used += u64::from(!insert_in(tx, telling, link).await?);
    }
    Ok(used)
}

/// Inserts all links with one statement. Returns false if any code is taken; then nothing was written.
async fn insert_whole(
    tx: &mut Tx,
    telling: &LinkNotifications,
    chunk: &[NewLink],
) -> Result<bool, Error> {
    let rows: Vec<LinkRow> = chunk.iter().map(LinkRow::new).collect::<Result<_, _>>()?;
    let named_rows = rows.iter().zip(chunk);
    let statement = named_rows.fold(sql(&INSERT_MANY), |all, (row, link)| {
        named(row.bind(all), &link.id)
    });
    if !tx.insert_all(statement).await? {
        return Ok(false);
    }
    for link in chunk {
        insert_tags(tx, link).await?;
        telling.created(tx, link).await?;
    }
    let ids: Vec<_> = chunk.iter().map(|link| &link.id).collect();
    feed::mark(tx, &ids).await?;
    Ok(true)
}

/// Inserts one link. Returns false if the code is taken.
async fn insert_in(
    tx: &mut Tx,
    telling: &LinkNotifications,
    link: &NewLink,
) -> Result<bool, Error> {
    let row = LinkRow::new(link)?;
    let insert = named(row.bind(sql(&INSERT_ONE)), &link.id);
    if !tx.insert(insert).await? {
        return Ok(false);
    }
    insert_tags(tx, link).await?;
    telling.created(tx, link).await?;
    feed::mark(tx, &[&link.id]).await?;
    Ok(true)
}

async fn insert_tags(tx: &mut Tx, link: &NewLink) -> Result<(), Error> {
    for key in &link.labels.keys() {
        let id = &link.id;
        let insert = sql(INSERT_TAG).text(key).number(link.created_at_ms);
        let insert = insert.text(id.domain.as_str()).text(id.code.as_str());
        tx.insert(insert).await?;
    }
    Ok(())
}

async fn void_link(tx: &mut Tx, telling: &LinkNotifications, link: &NewLink) -> Result<(), Error> {
    let (domain, code) = (link.id.domain.as_str(), link.id.code.as_str());
    let delete = sql(DELETE_VOID).text(domain).text(code);
    let delete = delete.number(link.created_at_ms).text(&link.record);
    if tx.execute(delete).await? > 0 {
        let delete = sql(DELETE_VOID_TAGS).text(domain).text(code);
        tx.execute(delete.number(link.created_at_ms)).await?;
        telling.never_was(tx, &link.id).await?;
        feed::mark(tx, &[&link.id]).await?;
    }
    Ok(())
}

async fn move_on(tx: &mut Tx, log: &str, position: Position) -> Result<(), Error> {
    let set = |statement| {
        let statement: Statement<'_> = sql(statement);
        statement
            .number(position.file)
            .number(position.byte)
            .text(log)
    };
    if tx.execute(set(UPDATE_POSITION)).await? == 0 {
        tx.insert(set(INSERT_POSITION)).await?;
    }
    Ok(())
}
