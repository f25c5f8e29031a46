//! How SQLite goes about a statement, for tests: a table that grows with a sale must not be walked through by what is asked
//! again and again.

use sqlx::sqlite::SqliteConnection;
use sqlx::{AssertSqlSafe, Connection as _, Row as _, query};

use super::Database;

/// The plan's steps, with all of the origin's tables there and empty, as SQLite sees them: it keeps no statistics.
pub(crate) async fn plan(statement: &str) -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}/weir.db", dir.path().display());
    let database = Database::open(&url, &crate::migrations::ALL).await.unwrap();
    let mut connection = SqliteConnection::connect(&url).await.unwrap();
    let explain = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {statement}"));
    let steps = query(explain).fetch_all(&mut connection).await.unwrap();
    database.close().await;
    steps.iter().map(|step| step.get("detail")).collect()
}
