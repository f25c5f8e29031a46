//! The link feed: each link's last change has a number, and edges read changes in this order.
//!
//! A change of a link removes its number in the same transaction ([`mark`]). A read of the feed first assigns numbers
//! to all links without one, in a serialized transaction. A number therefore becomes visible only after all smaller
//! ones. A reader that continues from a number misses nothing, however long a change took to commit.

use std::sync::LazyLock;

use ring::rand::{SecureRandom, SystemRandom};
use sqlx::Error;
use weir_link::code::LinkId;
use weir_link::feed::{Cursor, Entry, PAGE_BYTES_MAX, PAGE_LINKS_MAX, Page, Source, State};
use weir_link::record::Link;

use super::edits::named;
use super::{LinkStore, reads};
use weir_origin_core::sql::{Database, Row, SqlError, Tx, damaged, retried, sql};

/// Links numbered in one transaction. Changes of links do not wait for it.
const NUMBERED: usize = 500;

/// Rows per statement.
pub(super) const MARKED: usize = 64;

/// Lists all columns, as PostgreSQL needs.
const MARK: &str = "REPLACE INTO link_feed (domain, code, seq) VALUES ";

static MARK_ONE: LazyLock<String> = LazyLock::new(|| format!("{MARK}(?, ?, NULL)"));

static MARK_MANY: LazyLock<String> =
    LazyLock::new(|| format!("{MARK}{}", vec!["(?, ?, NULL)"; MARKED].join(", ")));

const HAS_UNNUMBERED: &str = "SELECT 1 AS found FROM link_feed WHERE seq IS NULL LIMIT 1";

const UNNUMBERED: &str = "SELECT domain, code FROM link_feed WHERE seq IS NULL LIMIT ?";

const NUMBER: &str = "UPDATE link_feed SET seq = ? WHERE domain = ? AND code = ? AND seq IS NULL";

const SELECT_HEAD: &str = "SELECT source, seq FROM link_feed_head WHERE id = 1";

const LOCK_HEAD: &str = "UPDATE link_feed_head SET seq = seq WHERE id = 1";

const INSERT_HEAD: &str = "INSERT INTO link_feed_head (id, source, seq) VALUES (1, ?, 0)";

const UPDATE_HEAD: &str = "UPDATE link_feed_head SET seq = ? WHERE id = 1";

const PAGE: &str = "
    SELECT f.seq, f.domain, f.code,
        CASE WHEN l.deleted_at_ms IS NULL THEN l.record END AS record
    FROM link_feed f LEFT JOIN links l ON l.domain = f.domain AND l.code = f.code
    WHERE f.seq > ? ORDER BY f.seq LIMIT ?";

/// The feed's id and its last number.
struct Head {
    source: Source,
    seq: u64,
}

/// Marks these links as changed, inside the transaction.
pub(super) async fn mark(tx: &mut Tx, ids: &[&LinkId]) -> Result<(), Error> {
    let (whole, rest) = ids.as_chunks::<MARKED>();
    for chunk in whole {
        let replace = chunk.iter().fold(sql(&MARK_MANY), |all, id| named(all, id));
        tx.execute(replace).await?;
    }
    for id in rest {
        tx.execute(named(sql(&MARK_ONE), id)).await?;
    }
    Ok(())
}

/// Reads the link feed of edges.
#[derive(Clone, Copy, Debug)]
pub struct FeedStore<'a>(pub(super) &'a LinkStore);

impl FeedStore<'_> {
    /// The page of the feed after `cursor`, or the first one; `None` if the feed has no such position. Pages up to the
    /// last one contain all changes committed before the call. `state` converts a link for edges.
    pub async fn feed(
        self,
        cursor: Option<&Cursor>,
        now_ms: u64,
        state: fn(&Link, String) -> State,
    ) -> Result<Option<Page>, SqlError> {
        let (head, is_numbered) = self.number(now_ms).await?;
        let after = match cursor {
            None => 0,
            Some(cursor) if cursor.source == head.source && cursor.seq <= head.seq => cursor.seq,
            Some(_) => return Ok(None),
        };
        let select = sql(PAGE).number(after).number(PAGE_LINKS_MAX + 1);
        let rows = self.0.db.all(select).await?;
        let links = rows.iter().map(|row| entry(row, state));
        let links = links.collect::<Result<Vec<_>, Error>>()?;
        Ok(Some(page(head.source, after, links, is_numbered)))
    }

    /// Assigns numbers to links without one. Returns whether all links have one now.
    async fn number(self, now_ms: u64) -> Result<(Head, bool), SqlError> {
        let head = self.0.db.one(sql(SELECT_HEAD)).await?;
        if let Some(row) = &head
            && self.0.db.one(sql(HAS_UNNUMBERED)).await?.is_none()
        {
            return Ok((read_head(row)?, true));
        }
        Ok(retried(|| number_once(&self.0.db, now_ms)).await?)
    }
}

async fn number_once(db: &Database, now_ms: u64) -> Result<(Head, bool), Error> {
    let mut tx = db.begin().await?;
    let mut head = lock_head(&mut tx).await?;
    let rows = tx.all(sql(UNNUMBERED).number(NUMBERED)).await?;
    // At least the current time, so that numbers keep rising even after SQL is restored from a backup.
    let first = now_ms.max(head.seq + 1);
    for (row, seq) in rows.iter().zip(first..) {
        let id = reads::id(row)?;
        tx.execute(named(sql(NUMBER).number(seq), &id)).await?;
        head.seq = seq;
    }
    tx.execute(sql(UPDATE_HEAD).number(head.seq)).await?;
    tx.commit().await?;
    Ok((head, rows.len() < NUMBERED))
}

/// Locks the head: no other transaction assigns numbers until this one ends.
async fn lock_head(tx: &mut Tx) -> Result<Head, Error> {
    if tx.execute(sql(LOCK_HEAD)).await? == 0 {
        tx.insert(sql(INSERT_HEAD).text(&new_name()?)).await?;
    }
    let row = tx.one(sql(SELECT_HEAD)).await?;
    read_head(&row.ok_or(Error::RowNotFound)?)
}

fn new_name() -> Result<String, Error> {
    let mut bytes = [0; 8];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| damaged("source", "no random numbers from the operating system"))?;
    Ok(format!("{:016x}", u64::from_be_bytes(bytes)))
}

fn read_head(row: &Row) -> Result<Head, Error> {
    let source = Source::new(row.text("source")?);
    Ok(Head {
        source: source.map_err(|error| damaged("source", error))?,
        seq: row.number("seq")?,
    })
}

/// A record that cannot be decoded is sent as `AtGateway`, so that edges forward its requests.
fn entry(row: &Row, state: fn(&Link, String) -> State) -> Result<Entry, Error> {
    let state = match row.maybe_text("record")? {
        None => State::Gone,
        Some(record) => match Link::decode(record.as_bytes()) {
            Ok(link) => state(&link, record),
            Err(_) => State::AtGateway,
        },
    };
    Ok(Entry {
        seq: row.number("seq")?,
        id: reads::id(row)?,
        state,
    })
}

fn page(source: Source, after: u64, mut links: Vec<Entry>, is_numbered: bool) -> Page {
    let found = links.len();
    let mut bytes = 0;
    let fit = links.iter().position(|entry| {
        let is_full = bytes >= PAGE_BYTES_MAX;
        bytes += record_len(entry);
        is_full
    });
    links.truncate(fit.unwrap_or(found).min(PAGE_LINKS_MAX));
    Page {
        source,
        after,
        next: links.last().map_or(after, |entry| entry.seq),
        is_last: is_numbered && links.len() == found,
        links,
    }
}

fn record_len(entry: &Entry) -> usize {
    match &entry.state {
        State::Record(record) | State::Counted(record) => record.len(),
        State::AtGateway | State::Gone => 0,
    }
}
