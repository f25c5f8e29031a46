//! Removals: deletions and clears. SQL stores them before Redis does. The same transaction marks them as pending for
//! Redis.

use ring::rand::{SecureRandom, SystemRandom};
use sqlx::Error;
use weir_history::{DELETIONS_MAX, Owner, REMOVALS_MS, Removals, Sku, ViewedProduct};

use super::HistoryStore;
use weir_origin_core::sql::{Row, SqlError, Tx, damaged, retried, sql};

const SELECT_CLEARED: &str = "SELECT at_ms FROM history_cleared WHERE owner = ?";

const SELECT_DELETED: &str = "SELECT sku, at_ms FROM history_deleted WHERE owner = ?";

const COUNT_DELETED: &str = "SELECT COUNT(*) AS n FROM history_deleted WHERE owner = ?";

/// Keeps a later deletion.
const UPDATE_DELETED: &str = "
    UPDATE history_deleted SET at_ms = CASE WHEN at_ms < ? THEN ? ELSE at_ms END
    WHERE owner = ? AND sku = ?";

const INSERT_DELETED: &str = "INSERT INTO history_deleted (owner, sku, at_ms) VALUES (?, ?, ?)";

const UPDATE_CLEARED: &str = "
    UPDATE history_cleared SET at_ms = CASE WHEN at_ms < ? THEN ? ELSE at_ms END
    WHERE owner = ?";

const INSERT_CLEARED: &str = "INSERT INTO history_cleared (owner, at_ms) VALUES (?, ?)";

/// A clear covers these deletions.
const FORGET_DELETED: &str = "DELETE FROM history_deleted WHERE owner = ? AND at_ms <= ?";

const INSERT_UNAPPLIED: &str =
    "INSERT INTO history_unapplied (owner, op, since_ms) VALUES (?, ?, ?)";

const SELECT_UNAPPLIED: &str = "
    SELECT owner, op FROM history_unapplied WHERE since_ms <= ? ORDER BY since_ms LIMIT ?";

const DELETE_UNAPPLIED: &str = "DELETE FROM history_unapplied WHERE owner = ? AND op = ?";

const SELECT_OLD_DELETED: &str =
    "SELECT owner, sku FROM history_deleted WHERE at_ms < ? ORDER BY at_ms LIMIT ?";

const DELETE_OLD_DELETED: &str =
    "DELETE FROM history_deleted WHERE owner = ? AND sku = ? AND at_ms < ?";

const SELECT_OLD_CLEARED: &str =
    "SELECT owner FROM history_cleared WHERE at_ms < ? ORDER BY at_ms LIMIT ?";

const DELETE_OLD_CLEARED: &str = "DELETE FROM history_cleared WHERE owner = ? AND at_ms < ?";

/// A removal in SQL that Redis may not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingRemoval {
    /// The owner of the list.
    pub owner: Owner,
    /// The unique id of the removal.
    pub name: String,
}

/// Result of a removal in SQL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RemovalOutcome {
    /// It is stored; Redis must be updated.
    Done(PendingRemoval),
    /// The owner has the maximum number of stored deletions. Nothing was done.
    TooMany,
}

/// Stores removals.
#[derive(Clone, Copy, Debug)]
pub struct RemovalStore<'a>(pub(super) &'a HistoryStore);

impl RemovalStore<'_> {
    /// All removals of an owner.
    pub async fn removals(self, owner: &Owner) -> Result<Removals, SqlError> {
        // Read one snapshot, because a clear deletes deletions.
        let mut tx = self.0.db.snapshot().await?;
        let cleared = tx.one(sql(SELECT_CLEARED).text(owner.as_str())).await?;
        let deleted = tx.all(sql(SELECT_DELETED).text(owner.as_str())).await?;
        tx.rollback().await?;
        let cleared_ms = cleared.map_or(Ok(0), |row| row.number("at_ms"))?;
        let mut removals = Removals {
            cleared_ms,
            ..Removals::default()
        };
        for row in &deleted {
            removals.delete(sku(row)?, row.number("at_ms")?);
        }
        Ok(removals)
    }

    /// Deletes views of each product up to its given time.
    pub async fn delete(
        self,
        owner: &Owner,
        deleted: &[ViewedProduct],
    ) -> Result<RemovalOutcome, SqlError> {
        let op = self.new_op(owner)?;
        let mut deleted: Vec<&ViewedProduct> = deleted.iter().collect();
        // A fixed order avoids deadlocks between two deletions.
        deleted.sort_unstable_by(|a, b| a.sku.cmp(&b.sku));
        let is_done = retried(|| self.try_delete(&op, &deleted)).await?;
        Ok(if is_done {
            RemovalOutcome::Done(op)
        } else {
            RemovalOutcome::TooMany
        })
    }

    async fn try_delete(
        self,
        op: &PendingRemoval,
        deleted: &[&ViewedProduct],
    ) -> Result<bool, Error> {
        let owner = op.owner.as_str();
        let mut tx = self.0.db.begin().await?;
        for observed in deleted {
            let (sku, at_ms) = (observed.sku.as_str(), observed.at_ms);
            let update = || sql(UPDATE_DELETED).number(at_ms).number(at_ms);
            let insert = sql(INSERT_DELETED).text(owner).text(sku).number(at_ms);
            if tx.execute(update().text(owner).text(sku)).await? == 0 && !tx.insert(insert).await? {
                tx.execute(update().text(owner).text(sku)).await?;
            }
        }
        let count = tx.one(sql(COUNT_DELETED).text(owner)).await?;
        let count: u64 = count.map_or(Ok(0), |row| row.number("n"))?;
        if count > DELETIONS_MAX as u64 {
            tx.rollback().await?;
            return Ok(false);
        }
        self.note_unapplied(&mut tx, op).await?;
        tx.commit().await?;
        Ok(true)
    }

    /// Clears views up to `at_ms`.
    pub async fn clear(self, owner: &Owner, at_ms: u64) -> Result<PendingRemoval, SqlError> {
        let op = self.new_op(owner)?;
        retried(|| self.try_clear(&op, at_ms)).await?;
        Ok(op)
    }

    async fn try_clear(self, op: &PendingRemoval, at_ms: u64) -> Result<(), Error> {
        let owner = op.owner.as_str();
        let mut tx = self.0.db.begin().await?;
        let update = || sql(UPDATE_CLEARED).number(at_ms).number(at_ms).text(owner);
        let insert = sql(INSERT_CLEARED).text(owner).number(at_ms);
        if tx.execute(update()).await? == 0 && !tx.insert(insert).await? {
            tx.execute(update()).await?;
        }
        tx.execute(sql(FORGET_DELETED).text(owner).number(at_ms))
            .await?;
        self.note_unapplied(&mut tx, op).await?;
        tx.commit().await
    }

    async fn note_unapplied(self, tx: &mut Tx, op: &PendingRemoval) -> Result<(), Error> {
        let insert = sql(INSERT_UNAPPLIED);
        let insert = insert.text(op.owner.as_str()).text(&op.name);
        tx.insert(insert.number((self.0.clock)())).await.map(drop)
    }

    fn new_op(self, owner: &Owner) -> Result<PendingRemoval, SqlError> {
        let mut name = [0; 16];
        let filled = SystemRandom::new().fill(&mut name);
        // Treat it like a failed connection: nothing is done, and the client may retry.
        filled.map_err(|_| {
            Error::Io(std::io::Error::other(
                "no random numbers from the operating system",
            ))
        })?;
        Ok(PendingRemoval {
            owner: owner.clone(),
            name: hex::encode(name),
        })
    }

    /// Marks a removal as applied in Redis.
    pub async fn applied(self, op: &PendingRemoval) -> Result<(), SqlError> {
        let delete = sql(DELETE_UNAPPLIED).text(op.owner.as_str()).text(&op.name);
        self.0.db.execute(delete).await?;
        Ok(())
    }

    /// The oldest removals made until `until_ms` that Redis may not have, at most `max`.
    pub async fn unapplied(
        self,
        until_ms: u64,
        max: usize,
    ) -> Result<Vec<PendingRemoval>, SqlError> {
        let select = sql(SELECT_UNAPPLIED).number(until_ms).number(max as u64);
        let rows = self.0.db.all(select).await?;
        let op = |row: &Row| {
            let owner = Owner::from_text(&row.text("owner")?);
            Ok(PendingRemoval {
                owner: owner.map_err(|error| damaged("owner", error))?,
                name: row.text("op")?,
            })
        };
        Ok(rows.iter().map(op).collect::<Result<_, Error>>()?)
    }

    /// Deletes at most `max` removals of each kind that can no longer affect any view. Returns their number.
    pub async fn forget_removals(self, now_ms: u64, max: usize) -> Result<u64, SqlError> {
        let before_ms = now_ms.saturating_sub(REMOVALS_MS);
        let old = |select| sql(select).number(before_ms).number(max as u64);
        let mut forgotten = 0;
        for row in self.0.db.all(old(SELECT_OLD_DELETED)).await? {
            let (owner, sku) = (row.text("owner")?, row.text("sku")?);
            let delete = sql(DELETE_OLD_DELETED).text(&owner).text(&sku);
            forgotten += self.0.db.execute(delete.number(before_ms)).await?;
        }
        for row in self.0.db.all(old(SELECT_OLD_CLEARED)).await? {
            let owner = row.text("owner")?;
            let delete = sql(DELETE_OLD_CLEARED).text(&owner).number(before_ms);
            forgotten += self.0.db.execute(delete).await?;
        }
        Ok(forgotten)
    }
}

pub(super) fn sku(row: &Row) -> Result<Sku, Error> {
    Sku::new(row.text("sku")?).map_err(|error| damaged("sku", error))
}
