//! Data of ended sales: decided orders move to an archive, and data that only served the sale is deleted.
//!
//! All steps can be repeated, also by several origins concurrently.

use sqlx::Error;
use weir_base::id::SaleId;

use super::sales::sale_id;
use super::{SaleStore, groups};
use weir_origin_core::sql::{Database, Row, SqlError, Statement, Tx, retried, sql};

/// Maximum number of rows per transaction, so that other orders do not wait long.
const ROWS_MAX: u64 = 500;

const SELECT_DUE: &str = "
    SELECT id, shards, ends_at_ms, archived_at_ms, cleared_at_ms FROM sales
    WHERE archive_done_at_ms IS NULL AND paused_at_ms IS NULL AND ends_at_ms <= ?
    ORDER BY ends_at_ms, id
    LIMIT ?";

// Checks the end again, because it may have moved. A paused sale stays, because Redis has the only list of its lost
// orders. An open stock change must finish first, because Redis may hold its units.
const MARK_ARCHIVED: &str = "
    UPDATE sales SET archived_at_ms = ?
    WHERE id = ? AND archived_at_ms IS NULL AND paused_at_ms IS NULL AND ends_at_ms <= ? AND NOT EXISTS (
        SELECT 1 FROM stock_changes
        WHERE stock_changes.sale_id = sales.id AND stock_changes.done_at_ms IS NULL)";

const MARK_CLEARED: &str = "
    UPDATE sales SET cleared_at_ms = ? WHERE id = ? AND cleared_at_ms IS NULL";

const MARK_DONE: &str = "
    UPDATE sales SET archive_done_at_ms = ? WHERE id = ? AND archive_done_at_ms IS NULL";

// Locks the row without a change, so that origins archive a sale one at a time.
const LOCK_SALE: &str = "UPDATE sales SET archived_at_ms = archived_at_ms WHERE id = ?";

// Order ids start with the sale's id and a dot; `/` follows the dot in byte order. `+` prevents SQLite from using the
// index by sale, with which each batch would scan all orders of the sale.
const SELECT_LAST_ORDER: &str = "
    SELECT MAX(id) AS last FROM (
        SELECT id FROM orders
        WHERE id >= ? AND id < ? AND +sale_id = ? AND status <> 'unpaid' ORDER BY id LIMIT ?
    ) AS batch";

const COPY_ORDERS: &str = "
    INSERT INTO orders_archive
    SELECT * FROM orders WHERE id >= ? AND id <= ? AND +sale_id = ? AND status <> 'unpaid'";

const DELETE_ORDERS: &str = "
    DELETE FROM orders WHERE id >= ? AND id <= ? AND +sale_id = ? AND status <> 'unpaid'";

const SELECT_UNPAID: &str = "
    SELECT id FROM orders WHERE id >= ? AND id < ? AND +sale_id = ? AND status = 'unpaid' LIMIT 1";

const SELECT_LAST_OUTCOME: &str = "
    SELECT MAX(claim_id) AS last FROM (
        SELECT claim_id FROM claim_outcomes
        WHERE claim_id >= ? AND claim_id < ? AND +sale_id = ? ORDER BY claim_id LIMIT ?
    ) AS batch";

const DELETE_OUTCOMES: &str = "
    DELETE FROM claim_outcomes WHERE claim_id >= ? AND claim_id <= ? AND +sale_id = ?";

/// The SELECT of a batch's last user, and the DELETE of the batch, for a table of one sale.
macro_rules! batch {
    ($table:literal) => {
        (
            concat!(
                "SELECT MAX(user_id) AS last FROM (SELECT user_id FROM ",
                $table,
                " WHERE sale_id = ? ORDER BY user_id LIMIT ?) AS batch"
            ),
            concat!(
                "DELETE FROM ",
                $table,
                " WHERE sale_id = ? AND user_id <= ?"
            ),
        )
    };
}

/// Tables that only served the sale while it ran, besides claim outcomes.
const SERVING: [(&str, &str); 4] = [
    batch!("reservations"),
    batch!("blocked_users"),
    batch!("buyers"),
    batch!("idempotency_keys"),
];

/// A sale to archive, and its progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedSale {
    /// The sale.
    pub id: SaleId,
    /// Number of its shards.
    pub shards: u32,
    /// Its end, in milliseconds since the Unix epoch.
    pub ends_at_ms: u64,
    /// Time of archiving, after which only unpaid orders can change; `None`: not archived.
    pub archived_at_ms: Option<u64>,
    /// Time since which Redis has no data of it.
    pub cleared_at_ms: Option<u64>,
}

/// Data of ended sales: decided orders move to an archive, and data that only served the sale is deleted.
#[derive(Clone, Copy, Debug)]
pub struct ArchiveStore<'a>(pub(super) &'a SaleStore);

impl ArchiveStore<'_> {
    /// Returns up to `limit` sales that ended at `ended_by_ms` or earlier and are not completely archived, earliest end
    /// first.
    pub async fn due_to_archive(
        self,
        ended_by_ms: u64,
        limit: usize,
    ) -> Result<Vec<EndedSale>, SqlError> {
        let select = sql(SELECT_DUE).number(ended_by_ms).number(limit);
        let rows = self.0.db.all(select).await?;
        Ok(rows.iter().map(ended).collect::<Result<_, _>>()?)
    }

    /// Marks a sale as archived: it then accepts no orders and is not warmed again. Returns false if it ends after
    /// `ended_by_ms`, is paused, has an open stock change, or is already marked.
    pub async fn mark_archived(
        self,
        id: &SaleId,
        ended_by_ms: u64,
        now_ms: u64,
    ) -> Result<bool, SqlError> {
        let mark = || {
            let mark = sql(MARK_ARCHIVED).number(now_ms).text(id.as_str());
            mark.number(ended_by_ms)
        };
        Ok(retried(|| self.0.db.execute(mark())).await? == 1)
    }

    /// Records that Redis has no data of the sale.
    pub async fn mark_cleared(self, id: &SaleId, now_ms: u64) -> Result<(), SqlError> {
        self.mark(MARK_CLEARED, id, now_ms).await
    }

    /// Records that nothing is left to archive.
    pub async fn mark_archive_done(self, id: &SaleId, now_ms: u64) -> Result<(), SqlError> {
        self.mark(MARK_DONE, id, now_ms).await
    }

    async fn mark(self, statement: &'static str, id: &SaleId, now_ms: u64) -> Result<(), SqlError> {
        let mark = || sql(statement).number(now_ms).text(id.as_str());
        retried(|| self.0.db.execute(mark())).await?;
        Ok(())
    }

    /// Archives some data of a sale in one transaction. Returns false if nothing more can be archived now.
    pub async fn archive_some(self, id: &SaleId) -> Result<bool, SqlError> {
        Ok(retried(|| archive_once(&self.0.db, id)).await?)
    }

    /// Whether a sale has unpaid orders, which are not archived until they are decided.
    pub async fn has_unpaid(self, id: &SaleId) -> Result<bool, SqlError> {
        let (first, behind) = claim_ids(id);
        let row = self.0.db.one(of_claims(SELECT_UNPAID, &first, &behind, id));
        Ok(row.await?.is_some())
    }
}

async fn archive_once(db: &Database, id: &SaleId) -> Result<bool, Error> {
    let mut tx = db.begin().await?;
    let some = archive_in(&mut tx, id).await?;
    tx.commit().await?;
    Ok(some)
}

async fn archive_in(tx: &mut Tx, id: &SaleId) -> Result<bool, Error> {
    tx.execute(sql(LOCK_SALE).text(id.as_str())).await?;
    let (first, behind) = claim_ids(id);
    let select = of_claims(SELECT_LAST_ORDER, &first, &behind, id).number(ROWS_MAX);
    if let Some(last) = last_of(tx, select).await? {
        tx.execute(of_claims(COPY_ORDERS, &first, &last, id))
            .await?;
        tx.execute(of_claims(DELETE_ORDERS, &first, &last, id))
            .await?;
        return Ok(true);
    }
    // Undecided orders still need this data.
    let unpaid = tx
        .one(of_claims(SELECT_UNPAID, &first, &behind, id))
        .await?;
    if unpaid.is_some() {
        return Ok(false);
    }
    for (select, delete) in SERVING {
        let select = sql(select).text(id.as_str()).number(ROWS_MAX);
        if let Some(last) = last_of(tx, select).await? {
            tx.execute(sql(delete).text(id.as_str()).text(&last))
                .await?;
            return Ok(true);
        }
    }
    if groups::forget(tx, id, ROWS_MAX).await? {
        return Ok(true);
    }
    let select = of_claims(SELECT_LAST_OUTCOME, &first, &behind, id).number(ROWS_MAX);
    let Some(last) = last_of(tx, select).await? else {
        return Ok(false);
    };
    tx.execute(of_claims(DELETE_OUTCOMES, &first, &last, id))
        .await?;
    Ok(true)
}

/// The last key of a batch; `None` if the batch is empty.
async fn last_of(tx: &mut Tx, select: Statement<'_>) -> Result<Option<String>, Error> {
    let row = tx.one(select).await?;
    row.map_or(Ok(None), |row| row.maybe_text("last"))
}

/// The range of a sale's claim ids, which are also its order ids.
fn claim_ids(id: &SaleId) -> (String, String) {
    (format!("{id}."), format!("{id}/"))
}

fn of_claims<'a>(
    statement: &'static str,
    first: &'a str,
    last: &'a str,
    id: &'a SaleId,
) -> Statement<'a> {
    sql(statement).text(first).text(last).text(id.as_str())
}

fn ended(row: &Row) -> Result<EndedSale, Error> {
    Ok(EndedSale {
        id: sale_id(row, "id")?,
        shards: row.number("shards")?,
        ends_at_ms: row.number("ends_at_ms")?,
        archived_at_ms: row.maybe("archived_at_ms")?,
        cleared_at_ms: row.maybe("cleared_at_ms")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_origin_core::sql::plan::plan;

    #[tokio::test]
    async fn archive_batch_is_found_without_a_full_scan_of_the_sale() {
        let claims = [
            (SELECT_LAST_ORDER, "(id>? AND id<?)"),
            (COPY_ORDERS, "(id>? AND id<?)"),
            (DELETE_ORDERS, "(id>? AND id<?)"),
            (SELECT_UNPAID, "(id>? AND id<?)"),
            (SELECT_LAST_OUTCOME, "(claim_id>? AND claim_id<?)"),
            (DELETE_OUTCOMES, "(claim_id>? AND claim_id<?)"),
        ];
        let served = SERVING
            .iter()
            .map(|&(_, delete)| (delete, "(sale_id=? AND user_id<?)"));
        for (statement, range) in claims.into_iter().chain(served) {
            let steps = plan(&[crate::MIGRATIONS], statement).await;
            assert!(steps.iter().any(|step| step.ends_with(range)), "{steps:?}");
        }
        for select in SERVING.map(|(select, _)| select) {
            let steps = plan(&[crate::MIGRATIONS], select).await;
            assert!(
                steps[1].ends_with("USING PRIMARY KEY (sale_id=?)"),
                "{steps:?}"
            );
            assert!(!steps.iter().any(|step| step.contains("TEMP")), "{steps:?}");
        }
    }
}
