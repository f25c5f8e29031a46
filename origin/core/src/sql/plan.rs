//! How SQLite goes about a statement, for tests: a table that grows with a sale must not be walked through by what is asked
//! again and again.

#![allow(clippy::unwrap_used)] // only tests call it

use std::path::Path;

use sqlx::sqlite::SqliteConnection;
use sqlx::{AssertSqlSafe, Connection as _, Row as _, query, raw_sql};

/// The plan's steps, with all of the origin's tables there and empty, as SQLite sees them: it keeps no statistics.
pub async fn plan(statement: &str) -> Vec<String> {
    let mut connection = SqliteConnection::connect("sqlite::memory:").await.unwrap();
    let migrations = Path::new(env!("CARGO_MANIFEST_DIR")).join("../migrations/sqlite");
    let files = std::fs::read_dir(migrations).unwrap();
    let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    // Their names begin with their numbers.
    files.sort();
    for file in files {
        let statements = AssertSqlSafe(std::fs::read_to_string(file).unwrap());
        raw_sql(statements).execute(&mut connection).await.unwrap();
    }
    let explain = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {statement}"));
    let steps = query(explain).fetch_all(&mut connection).await.unwrap();
    steps.iter().map(|step| step.get("detail")).collect()
}
