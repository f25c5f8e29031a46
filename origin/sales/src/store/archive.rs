//! What an ended sale leaves: decided orders move to an archive, what only served the sale goes.
//!
//! Every step may be done again, and by several origins at once.

use sqlx::Error;
use weir_base::id::SaleId;

use super::sales::sale_id;
use super::{SaleStore, groups};
use weir_origin_core::sql::{Database, Row, SqlError, Statement, Tx, retried, sql};

/// The rows of one transaction: other orders wait no longer than for them.
const ROWS_MAX: u64 = 500;

const SELECT_DUE: &str = "
    SELECT id, shards, ends_at_ms, archived_at_ms, cleared_at_ms FROM sales
    WHERE archive_done_at_ms IS NULL AND paused_at_ms IS NULL AND ends_at_ms <= ?
    ORDER BY ends_at_ms, id
    LIMIT ?";

// Its end may have been moved since it was looked at. While it is paused, Redis has the only list of its lost orders. A change of
// its stock must be done first: Redis may hold units of it.
const MARK_ARCHIVED: &str = "
    UPDATE sales SET archived_at_ms = ?
    WHERE id = ? AND archived_at_ms IS NULL AND paused_at_ms IS NULL AND ends_at_ms <= ? AND NOT EXISTS (
        SELECT 1 FROM stock_changes
        WHERE stock_changes.sale_id = sales.id AND stock_changes.done_at_ms IS NULL)";

const MARK_CLEARED: &str = "
    UPDATE sales SET cleared_at_ms = ? WHERE id = ? AND cleared_at_ms IS NULL";

const MARK_DONE: &str = "
    UPDATE sales SET archive_done_at_ms = ? WHERE id = ? AND archive_done_at_ms IS NULL";

// Changes nothing, and makes origins that archive one sale take turns.
const LOCK_SALE: &str = "UPDATE sales SET archived_at_ms = archived_at_ms WHERE id = ?";

// An order's id is its claim's, which begins with the sale's, and a dot: `/` is the character behind it. `+` keeps the index
// by sale out of it: a batch would walk through all orders of the sale.
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

/// How a batch of a table's rows of one sale, in the order of their users, ends, and how it goes.
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

/// What only served a sale while it ran, by table. The outcomes of its claims did, too.
const SERVING: [(&str, &str); 4] = [
    batch!("reservations"),
    batch!("blocked_users"),
    batch!("buyers"),
    batch!("idempotency_keys"),
];

/// A sale that is to be archived, and how far that is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedSale {
    /// The sale.
    pub id: SaleId,
    /// Over how many shards it is spread.
    pub shards: u32,
    /// When it ended.
    pub ends_at_ms: u64,
    /// Since when nothing of it may change but what is unpaid; `None`: it may.
    pub archived_at_ms: Option<u64>,
    /// Since when Redis holds nothing of it.
    pub cleared_at_ms: Option<u64>,
}

/// What an ended sale leaves: decided orders move to an archive, what only served the sale goes.
#[derive(Clone, Copy, Debug)]
pub struct ArchiveStore<'a>(pub(super) &'a SaleStore);

impl ArchiveStore<'_> {
    /// At most `limit` sales that ended at `ended_by_ms` or before and are not archived, the first to end first.
    pub async fn due_to_archive(
        self,
        ended_by_ms: u64,
        limit: usize,
    ) -> Result<Vec<EndedSale>, SqlError> {
        let select = sql(SELECT_DUE).number(ended_by_ms).number(limit);
        let rows = self.0.db.all(select).await?;
        Ok(rows.iter().map(ended).collect::<Result<_, _>>()?)
    }

    /// Notes that a sale is being archived: from now on it takes no orders and is not put on Redis again. False if it has
    /// not ended at `ended_by_ms`, is paused, a change of its stock is under way, or another has noted it.
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

    /// Notes that Redis holds nothing of it.
    pub async fn mark_cleared(self, id: &SaleId, now_ms: u64) -> Result<(), SqlError> {
        self.mark(MARK_CLEARED, id, now_ms).await
    }

    /// Notes that nothing is left to archive.
    pub async fn mark_archive_done(self, id: &SaleId, now_ms: u64) -> Result<(), SqlError> {
        self.mark(MARK_DONE, id, now_ms).await
    }

    async fn mark(self, statement: &'static str, id: &SaleId, now_ms: u64) -> Result<(), SqlError> {
        let mark = || sql(statement).number(now_ms).text(id.as_str());
        retried(|| self.0.db.execute(mark())).await?;
        Ok(())
    }

    /// Archives some of what a sale has left, in one transaction. False if nothing more can be.
    pub async fn archive_some(self, id: &SaleId) -> Result<bool, SqlError> {
        Ok(retried(|| archive_once(&self.0.db, id)).await?)
    }

    /// Whether a sale has orders that are neither paid nor ended: these stay until they are.
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
    // Orders that can still change need what served the sale.
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

/// The last name of a batch; `None` if the batch is empty.
async fn last_of(tx: &mut Tx, select: Statement<'_>) -> Result<Option<String>, Error> {
    let row = tx.one(select).await?;
    row.map_or(Ok(None), |row| row.maybe_text("last"))
}

/// What the ids of a sale's claims, and so those of its orders, lie between.
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
    async fn a_batch_is_found_without_a_walk_through_the_whole_sale() {
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
