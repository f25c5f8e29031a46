//! How SQLite goes about a statement, for tests: a table that grows with a sale must not be walked through by what is asked
//! again and again.

#![allow(clippy::unwrap_used)] // only tests call it

use sqlx::sqlite::SqliteConnection;
use sqlx::{AssertSqlSafe, Connection as _, Row as _, query, raw_sql};

use super::Migrations;

/// The plan's steps, with the tables of these domains there and empty, as SQLite sees them: it keeps no statistics.
pub async fn plan(domains: &[Migrations], statement: &str) -> Vec<String> {
    let mut connection = SqliteConnection::connect("sqlite::memory:").await.unwrap();
    for (_, _, statements) in domains.iter().flat_map(|domain| domain.sqlite) {
        raw_sql(*statements).execute(&mut connection).await.unwrap();
    }
    let explain = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {statement}"));
    let steps = query(explain).fetch_all(&mut connection).await.unwrap();
    steps.iter().map(|step| step.get("detail")).collect()
}
