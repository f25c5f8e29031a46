//! Customers and visitors whose state in a group must be recomputed.

use serde::Serialize;
use sqlx::Error;
use utoipa::ToSchema;

use super::{EventStore, cut};
use weir_origin_core::sql::{Row, SqlError, Tx, sql};

const ASK_AGAIN: &str = "
    UPDATE event_compensations SET tries = 0, due_ms = ?, error = ''
    WHERE group_name = ? AND unit = ?";

const INSERT: &str = "
    INSERT INTO event_compensations (due_ms, group_name, unit, tries, error) VALUES (?, ?, ?, 0, '')";

const SELECT_DUE: &str = "
    SELECT unit, tries, due_ms, error FROM event_compensations
    WHERE group_name = ? AND due_ms <= ? ORDER BY due_ms, unit LIMIT ?";

const SELECT_LIST: &str = "
    SELECT unit, tries, due_ms, error FROM event_compensations
    WHERE group_name = ? AND unit > ? ORDER BY unit LIMIT ?";

const POSTPONE: &str = "
    UPDATE event_compensations SET tries = ?, due_ms = ?, error = ?
    WHERE group_name = ? AND unit = ? AND due_ms = ?";

const DELETE: &str =
    "DELETE FROM event_compensations WHERE group_name = ? AND unit = ? AND due_ms = ?";

const COUNT: &str = "SELECT COUNT(*) AS count FROM event_compensations WHERE group_name = ?";

/// A customer or visitor to recompute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = CompensationsCompensation)]
pub struct Compensation {
    /// `c:` and a customer, or `v:` and a visitor.
    pub unit: String,
    /// Number of attempts.
    pub tries: u32,
    /// Time of the next attempt, in milliseconds since the Unix epoch; null: too many attempts.
    #[schema(required)]
    pub due_ms: Option<u64>,
    /// The last error; empty: none.
    pub error: String,
}

/// Stores the pending recomputations of groups.
#[derive(Clone, Copy, Debug)]
pub struct CompensationStore<'a>(pub(super) &'a EventStore);

impl CompensationStore<'_> {
    /// Lists recomputations that are due.
    pub async fn compensations_due(
        self,
        group: &str,
        now_ms: u64,
        limit: u32,
    ) -> Result<Vec<Compensation>, SqlError> {
        let select = sql(SELECT_DUE).text(group).number(now_ms).number(limit);
        let rows = self.0.db.all(select).await?;
        Ok(rows.iter().map(compensation).collect::<Result<_, _>>()?)
    }

    /// Lists all pending recomputations after the unit `after`.
    pub async fn compensations(
        self,
        group: &str,
        after: &str,
        limit: u32,
    ) -> Result<Vec<Compensation>, SqlError> {
        let select = sql(SELECT_LIST).text(group).text(after).number(limit);
        let rows = self.0.db.all(select).await?;
        Ok(rows.iter().map(compensation).collect::<Result<_, _>>()?)
    }

    /// Number of pending recomputations.
    pub async fn compensation_count(self, group: &str) -> Result<u64, SqlError> {
        let row = self.0.db.one(sql(COUNT).text(group)).await?;
        Ok(row.map_or(Ok(0), |row| row.number("count"))?)
    }

    /// Deletes a finished recomputation, unless it was requested again meanwhile.
    pub async fn compensated(self, group: &str, done: &Compensation) -> Result<(), SqlError> {
        let delete = sql(DELETE).text(group).text(&done.unit);
        self.0.db.execute(delete.maybe(done.due_ms)).await?;
        Ok(())
    }

    /// Postpones a recomputation, or gives it up.
    pub async fn postpone_compensation(
        self,
        group: &str,
        failed: &Compensation,
        due_ms: Option<u64>,
        error: &str,
    ) -> Result<(), SqlError> {
        let error = cut(error);
        let update = sql(POSTPONE).number(failed.tries + 1).maybe(due_ms);
        let update = update.text(&error).text(group).text(&failed.unit);
        self.0.db.execute(update.maybe(failed.due_ms)).await?;
        Ok(())
    }
}

/// Requests a recomputation. Repeated requests count once.
pub(super) async fn ask_in(tx: &mut Tx, group: &str, unit: &str, due_ms: u64) -> Result<(), Error> {
    let ask = |statement| sql(statement).number(due_ms).text(group).text(unit);
    if tx.execute(ask(ASK_AGAIN)).await? == 0 {
        tx.insert(ask(INSERT)).await?;
    }
    Ok(())
}

fn compensation(row: &Row) -> Result<Compensation, Error> {
    Ok(Compensation {
        unit: row.text("unit")?,
        tries: row.number("tries")?,
        due_ms: row.maybe("due_ms")?,
        error: row.text("error")?,
    })
}
