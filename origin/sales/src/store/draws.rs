//! Draws: seeds, lists and winners.
//!
//! Each step is recorded once, in the order of the columns. Any origin may repeat a step before it is recorded, with
//! the same result, because the list is closed and the seed is stored.

use std::fmt;

use ring::rand::{SecureRandom, SystemRandom};
use sqlx::Error;
use weir_base::id::{SaleId, UserId};

use super::orders::user_id;
use super::sales::sale_id;
use super::{SaleStore, reservations};
use crate::model::draw_order::{SEED_LEN, TICKET_LEN, commitment};
use crate::model::sale::DrawRules;
use weir_origin_core::sql::{Row, SqlError, Tx, damaged, retried, sql};

/// Maximum number of winners stored per transaction, so that other writers do not wait long.
const TOGETHER: usize = 500;

/// Number of users per page of the list.
const PAGE_LEN: usize = 5_000;

const SELECT: &str = "SELECT * FROM draws WHERE sale_id = ?";

const INSERT: &str = "INSERT INTO draws (seed, commitment, winners, sale_id) VALUES (?, ?, ?, ?)";

const SET_WINNERS: &str = "UPDATE draws SET winners = ? WHERE sale_id = ?";

const DELETE: &str = "DELETE FROM draws WHERE sale_id = ?";

// Locks the row for reservations and cancellations, so that none happens between the list and its closing.
const LOCK_OPEN: &str =
    "UPDATE draws SET winners = winners WHERE sale_id = ? AND closed_at_ms IS NULL";

const SELECT_DUE: &str = "
    SELECT draws.sale_id FROM draws JOIN sales ON sales.id = draws.sale_id
    WHERE admitted_at_ms IS NULL AND reserve_until_ms <= ? AND archived_at_ms IS NULL
    ORDER BY reserve_until_ms, draws.sale_id";

const CLOSE: &str = "
    UPDATE draws SET closed_at_ms = ? WHERE sale_id = ? AND closed_at_ms IS NULL";

const SELECT_ENTRIES: &str = "
    SELECT user_id, ticket FROM reservations
    WHERE sale_id = ? AND user_id > ? ORDER BY user_id LIMIT ?";

const SELECT_TICKETS: &str = "
    SELECT ticket FROM reservations
    WHERE sale_id = ? AND ticket > ? ORDER BY ticket LIMIT ?";

const SET_LIST: &str = "
    UPDATE draws SET entries = ?, list_sha256 = ? WHERE sale_id = ? AND list_sha256 IS NULL";

const SET_PLACE: &str = "
    UPDATE reservations SET admitted = 1, place = ? WHERE sale_id = ? AND user_id = ?";

const SET_DRAWN: &str = "
    UPDATE draws SET drawn_at_ms = ? WHERE sale_id = ? AND drawn_at_ms IS NULL";

const SET_ADMITTED: &str = "
    UPDATE draws SET admitted_at_ms = ? WHERE sale_id = ? AND admitted_at_ms IS NULL";

/// The seed of a draw. It is secret until it is published.
#[derive(Clone, PartialEq, Eq)]
pub struct Seed(Vec<u8>);

impl Seed {
    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The seed in hex, for publication.
    pub fn reveal(&self) -> String {
        hex::encode(&self.0)
    }
}

impl fmt::Debug for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seed(secret)")
    }
}

/// A sale's draw and its progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredDraw {
    /// The sale.
    pub sale: SaleId,
    /// The seed.
    pub seed: Seed,
    /// The commitment, published before reservations open.
    pub commitment: String,
    /// Number of winners.
    pub winners: u64,
    /// Closing time of the list.
    pub closed_at_ms: Option<u64>,
    /// Number of entries and the hash of their tickets; `None`: not computed yet.
    pub list: Option<(u64, String)>,
    /// Time at which the winners were stored.
    pub drawn_at_ms: Option<u64>,
    /// Time at which gateways learned the winners.
    pub admitted_at_ms: Option<u64>,
}

/// An entry of a draw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Who.
    pub user: UserId,
    /// The user's ticket in the list.
    pub ticket: String,
}

/// Draws: seeds, lists and winners.
#[derive(Clone, Copy, Debug)]
pub struct DrawStore<'a>(pub(super) &'a SaleStore);

impl DrawStore<'_> {
    /// Returns a sale's draw, if it has one.
    pub async fn draw(self, sale: &SaleId) -> Result<Option<StoredDraw>, SqlError> {
        let row = self.0.db.one(sql(SELECT).text(sale.as_str())).await?;
        Ok(row.as_ref().map(stored).transpose()?)
    }

    /// Returns the sales whose reservations have ended and whose winners are not published to gateways yet.
    pub async fn draws_due(self, now_ms: u64) -> Result<Vec<SaleId>, SqlError> {
        let rows = self.0.db.all(sql(SELECT_DUE).number(now_ms)).await?;
        rows.iter()
            .map(|row| Ok(sale_id(row, "sale_id")?))
            .collect()
    }

    /// Closes the list of a draw: no one can enter or leave it.
    pub async fn close_draw(self, sale: &SaleId, now_ms: u64) -> Result<(), SqlError> {
        self.note_draw(CLOSE, sale, now_ms).await
    }

    /// Returns all entries of a closed draw.
    pub async fn draw_entries(self, sale: &SaleId) -> Result<Vec<Entry>, SqlError> {
        let mut entries: Vec<Entry> = Vec::new();
        loop {
            // User ids are never empty.
            let after = entries.last().map_or("", |entry| entry.user.as_str());
            let select = sql(SELECT_ENTRIES).text(sale.as_str()).text(after);
            let rows = self.0.db.all(select.number(PAGE_LEN)).await?;
            let page = rows.iter().map(entry).collect::<Result<Vec<_>, _>>()?;
            let is_last = page.len() < PAGE_LEN;
            entries.extend(page);
            if is_last {
                return Ok(entries);
            }
        }
    }

    /// Returns up to `limit` tickets of a draw after `after`, sorted.
    pub async fn draw_tickets(
        self,
        sale: &SaleId,
        after: &str,
        limit: usize,
    ) -> Result<Vec<String>, SqlError> {
        let select = sql(SELECT_TICKETS).text(sale.as_str()).text(after);
        let rows = self.0.db.all(select.number(limit)).await?;
        rows.iter().map(|row| Ok(row.text("ticket")?)).collect()
    }

    /// Stores the number of entries and the hash of their tickets, unless they are stored already. Returns the stored
    /// draw.
    pub async fn set_draw_list(
        self,
        sale: &SaleId,
        entries: u64,
        list_sha256: &str,
    ) -> Result<Option<StoredDraw>, SqlError> {
        let set = || {
            let set = sql(SET_LIST).number(entries).text(list_sha256);
            set.text(sale.as_str())
        };
        retried(|| self.0.db.execute(set())).await?;
        self.draw(sale).await
    }

    /// Stores the winners in the order of their ranks. Their reservations are valid from then on.
    pub async fn set_winners(
        self,
        sale: &SaleId,
        winners: &[UserId],
        now_ms: u64,
    ) -> Result<(), SqlError> {
        let placed: Vec<(u64, &UserId)> = (1..).zip(winners).collect();
        for some in placed.chunks(TOGETHER) {
            let once = || async {
                let mut tx = self.0.db.begin().await?;
                for (place, user) in some {
                    let set = sql(SET_PLACE).number(*place).text(sale.as_str());
                    tx.execute(set.text(user.as_str())).await?;
                }
                tx.commit().await
            };
            retried(once).await?;
        }
        self.note_draw(SET_DRAWN, sale, now_ms).await
    }

    /// Records that gateways have the winners.
    pub async fn set_admitted(self, sale: &SaleId, now_ms: u64) -> Result<(), SqlError> {
        self.note_draw(SET_ADMITTED, sale, now_ms).await
    }

    async fn note_draw(
        self,
        statement: &'static str,
        sale: &SaleId,
        now_ms: u64,
    ) -> Result<(), SqlError> {
        let note = || sql(statement).number(now_ms).text(sale.as_str());
        retried(|| self.0.db.execute(note())).await?;
        Ok(())
    }

    /// Enters a user in a draw. Returns `None` if the list is closed, and false if the user has entered before.
    pub(super) async fn enter(
        self,
        new: &reservations::NewReservation<'_>,
    ) -> Result<Option<bool>, SqlError> {
        let ticket = random(TICKET_LEN / 2)?;
        let ticket = hex::encode(ticket);
        let once = || async {
            let mut tx = self.0.db.begin().await?;
            if !lock_open(&mut tx, new.sale).await? {
                tx.rollback().await?;
                return Ok(None);
            }
            let is_new = tx.insert(new.insert(&ticket, false)).await?;
            tx.commit().await?;
            Ok(Some(is_new))
        };
        Ok(retried(once).await?)
    }
}

/// Locks a draw's row if its list is open, so that the list cannot close before this transaction ends.
pub(super) async fn lock_open(tx: &mut Tx, sale: &SaleId) -> Result<bool, Error> {
    Ok(tx.execute(sql(LOCK_OPEN).text(sale.as_str())).await? == 1)
}

/// Reads a sale's draw in a transaction.
pub(super) async fn in_transaction(
    tx: &mut Tx,
    sale: &SaleId,
) -> Result<Option<StoredDraw>, Error> {
    let row = tx.one(sql(SELECT).text(sale.as_str())).await?;
    row.as_ref().map(stored).transpose()
}

/// Adds a draw with a permanent seed, updates its winners, or deletes it.
pub(super) async fn set(tx: &mut Tx, sale: &SaleId, rules: Option<DrawRules>) -> Result<(), Error> {
    let Some(DrawRules { winners }) = rules else {
        tx.execute(sql(DELETE).text(sale.as_str())).await?;
        return Ok(());
    };
    let seed = random(SEED_LEN)?;
    let (text, commitment) = (hex::encode(&seed), commitment(&seed));
    let insert = sql(INSERT).text(&text).text(&commitment);
    if !tx
        .insert(insert.number(winners).text(sale.as_str()))
        .await?
    {
        let set = sql(SET_WINNERS).number(winners).text(sale.as_str());
        tx.execute(set).await?;
    }
    Ok(())
}

/// Returns random bytes from the operating system.
fn random(len: usize) -> Result<Vec<u8>, Error> {
    let mut bytes = vec![0; len];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| damaged("seed", "no random numbers from the operating system"))?;
    Ok(bytes)
}

fn entry(row: &Row) -> Result<Entry, Error> {
    Ok(Entry {
        user: user_id(row)?,
        ticket: row.text("ticket")?,
    })
}

fn stored(row: &Row) -> Result<StoredDraw, Error> {
    let seed = hex::decode(row.text("seed")?).map_err(|error| damaged("seed", error))?;
    let entries = row.maybe("entries")?;
    Ok(StoredDraw {
        sale: sale_id(row, "sale_id")?,
        seed: Seed(seed),
        commitment: row.text("commitment")?,
        winners: row.number("winners")?,
        closed_at_ms: row.maybe("closed_at_ms")?,
        list: entries.zip(row.maybe_text("list_sha256")?),
        drawn_at_ms: row.maybe("drawn_at_ms")?,
        admitted_at_ms: row.maybe("admitted_at_ms")?,
    })
}
