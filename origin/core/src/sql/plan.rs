//! SQLite query plans for tests: frequent queries must not scan tables that grow with a sale.

#![allow(clippy::unwrap_used)] // only tests call it

use sqlx::sqlite::SqliteConnection;
use sqlx::{AssertSqlSafe, Connection as _, Row as _, query, raw_sql};

use super::Migrations;

/// The steps of a statement's plan, on empty tables of these domains. SQLite plans without statistics.
pub async fn plan(domains: &[Migrations], statement: &str) -> Vec<String> {
    let mut connection = SqliteConnection::connect("sqlite::memory:").await.unwrap();
    for (_, _, statements) in domains.iter().flat_map(|domain| domain.sqlite) {
        raw_sql(*statements).execute(&mut connection).await.unwrap();
    }
    let explain = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {statement}"));
    let steps = query(explain).fetch_all(&mut connection).await.unwrap();
    steps.iter().map(|step| step.get("detail")).collect()
}
