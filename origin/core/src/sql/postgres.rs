//! PostgreSQL: its connections, and the translation of statements that SQLite and MySQL share.

use std::str::FromStr;

use sqlx::postgres::{PgConnectOptions, PgConnection, PgDatabaseError, PgPoolOptions};
use sqlx::{ConnectOptions, Error, query_scalar, raw_sql};

use super::database::Pools;
use super::open::{ACQUIRE_LIMIT, Migrations, OpenError, SERVER_CONNECTIONS, why_away};

/// Settings of each connection, as for MySQL. The last statement fails on a standby, which would refuse every write:
/// the pool then connects again instead of keeping the connection after a failover.
const SETUP: &str = "
    SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE;
    SET lock_timeout = '2s';
    SET client_min_messages = warning;
    SET transaction_read_only = off";

/// Errors after which a transaction was rolled back and may be repeated: serialization failure and deadlock.
const ABORTED: [&str; 2] = ["40001", "40P01"];

/// Whether the URL's scheme is PostgreSQL's.
pub(super) fn is_url(url: &str) -> bool {
    url.starts_with("postgres:") || url.starts_with("postgresql:")
}

/// Parses a URL that names a database.
pub(super) fn options(url: &str) -> Result<PgConnectOptions, OpenError> {
    let options = PgConnectOptions::from_str(url).map_err(|_| OpenError::Url("PostgreSQL"))?;
    match options.get_database().is_none_or(str::is_empty) {
        true => Err(OpenError::NoDatabase("postgres")),
        false => Ok(options),
    }
}

/// Opens a PostgreSQL database.
pub(super) async fn open(url: &str, migrations: &[Migrations]) -> Result<Pools, OpenError> {
    let options = options(url)?;
    let pool = PgPoolOptions::new()
        .max_connections(SERVER_CONNECTIONS)
        .acquire_timeout(ACQUIRE_LIMIT)
        .after_connect(|connection, _| Box::pin(set_up(connection)))
        .connect_with(options.clone());
    let pool = match pool.await {
        // The pool does not report why it has no connection.
        Err(Error::PoolTimedOut) => {
            return Err(OpenError::Connect(why_away(options.connect()).await));
        }
        opened => opened.map_err(OpenError::Connect)?,
    };
    // Other encodings cannot store all texts.
    let encoding: String = query_scalar("SHOW server_encoding")
        .fetch_one(&pool)
        .await
        .map_err(OpenError::Connect)?;
    if encoding != "UTF8" {
        return Err(OpenError::Encoding(encoding));
    }
    for domain in migrations {
        let migrated = domain.migrator(domain.postgres).run(&pool).await;
        migrated.map_err(|error| domain.failed(error))?;
    }
    Ok(Pools::Postgres(pool))
}

async fn set_up(connection: &mut PgConnection) -> Result<(), Error> {
    raw_sql(SETUP).execute(connection).await.map(drop)
}

/// Whether PostgreSQL rolled the transaction back because of other transactions.
pub(super) fn is_aborted(error: &Error) -> bool {
    let error = error.as_database_error();
    let error = error.and_then(|error| error.try_downcast_ref::<PgDatabaseError>());
    error.is_some_and(|error| ABORTED.contains(&error.code()))
}

/// Translates a statement for PostgreSQL:
///
/// - `?` becomes `$1`, `$2`, …
/// - `REPLACE INTO` becomes `INSERT … ON CONFLICT DO UPDATE`. The statement must list all columns.
/// - `CAST(… AS SIGNED)` becomes `CAST(… AS BIGINT)`.
/// - `CROSS JOIN … ON` becomes `JOIN … ON`, and `+column` becomes `column`: both are hints for SQLite.
pub(super) fn translate(sql: &str) -> String {
    let text = numbered(sql).replace("CROSS JOIN", "JOIN");
    let text = text.replace(" AS SIGNED)", " AS BIGINT)");
    upsert(&text).unwrap_or(text)
}

/// Numbers the parameters, and drops the sign of `+column`.
pub(super) fn numbered(sql: &str) -> String {
    let mut text = String::with_capacity(sql.len() + 64);
    let (mut number, mut is_quoted) = (0, false);
    let mut rest = sql.chars().peekable();
    while let Some(char) = rest.next() {
        is_quoted ^= char == '\'';
        let is_sign = char == '+' && rest.peek().is_some_and(char::is_ascii_alphabetic);
        match char {
            '?' if !is_quoted => {
                number += 1;
                text.push_str(&format!("${number}"));
            }
            '+' if is_sign && !is_quoted => {}
            _ => text.push(char),
        }
    }
    text
}

/// `REPLACE INTO <table> (<columns>) …` as an insert or update by primary key.
fn upsert(sql: &str) -> Option<String> {
    let rest = sql.trim_start().strip_prefix("REPLACE INTO ")?;
    let (table, columns) = rest.split_once(" (")?;
    let (columns, _) = columns.split_once(')')?;
    let updates = columns
        .split(", ")
        .map(|column| format!("{column} = EXCLUDED.{column}"));
    let updates = updates.collect::<Vec<_>>().join(", ");
    Some(format!(
        "INSERT INTO {rest} ON CONFLICT ON CONSTRAINT {table}_pkey DO UPDATE SET {updates}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_translated() {
        for (statement, translated) in [
            (
                "SELECT a FROM t WHERE b = '?' AND +c = ? LIMIT ?",
                "SELECT a FROM t WHERE b = '?' AND c = $1 LIMIT $2",
            ),
            ("UPDATE t SET a = a + ?", "UPDATE t SET a = a + $1"),
            (
                "SELECT CAST(SUM(a) AS SIGNED) FROM t CROSS JOIN u ON u.b = t.b",
                "SELECT CAST(SUM(a) AS BIGINT) FROM t JOIN u ON u.b = t.b",
            ),
            (
                "\n    REPLACE INTO t (a, b) VALUES (?, ?)",
                "INSERT INTO t (a, b) VALUES ($1, $2) ON CONFLICT ON CONSTRAINT t_pkey DO UPDATE SET a = EXCLUDED.a, b = EXCLUDED.b",
            ),
        ] {
            assert_eq!(translate(statement), translated);
        }
    }
}
