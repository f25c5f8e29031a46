//! An external database, SQLite, MySQL or PostgreSQL: read-only access by one query from an operator.

use std::str::FromStr;
use std::time::Duration;

use sqlx::mysql::{MySqlConnectOptions, MySqlPool, MySqlPoolOptions, MySqlRow};
use sqlx::postgres::{PgPool, PgPoolOptions, PgRow};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool, SqlitePoolOptions, SqliteRow};
use sqlx::{AssertSqlSafe, Error, Row, TypeInfo, ValueRef, query};

use super::database::damaged;
use super::{OpenError, postgres};

/// Timeout for a connection from the pool.
const ACQUIRE_LIMIT: Duration = Duration::from_secs(5);

/// How long SQLite waits for a file locked by another process.
const BUSY_LIMIT: Duration = Duration::from_secs(2);

/// Refuses writes, and hides uncommitted changes of others.
const MYSQL_SETUP: &str = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ ONLY";

/// An external database. Cloning it is cheap.
#[derive(Clone)]
pub struct ForeignDatabase(Pool);

#[derive(Clone)]
enum Pool {
    Sqlite(SqlitePool),
    MySql(MySqlPool),
    Postgres(PgPool),
}

/// Omits the URL, which may contain a password.
impl std::fmt::Debug for ForeignDatabase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match &self.0 {
            Pool::Sqlite(_) => "Foreign(SQLite)",
            Pool::MySql(_) => "Foreign(MySQL)",
            Pool::Postgres(_) => "Foreign(PostgreSQL)",
        })
    }
}

/// A row of an event table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedRow {
    /// The column `position`.
    pub position: u64,
    /// The column `event`; `None` if it is NULL.
    pub event: Option<Vec<u8>>,
}

impl ForeignDatabase {
    /// Creates a client of the database at `url`, in the form of [`Database::open`](super::Database::open). It connects
    /// at first use and creates nothing. Needs a tokio runtime.
    ///
    /// # Errors
    /// When the URL is invalid.
    pub fn new(url: &str) -> Result<Self, OpenError> {
        if url.starts_with("sqlite:") {
            return sqlite(url).map(Pool::Sqlite).map(Self);
        }
        if url.starts_with("mysql:") || url.starts_with("mariadb:") {
            return mysql(url).map(Pool::MySql).map(Self);
        }
        if postgres::is_url(url) {
            return postgresql(url).map(Pool::Postgres).map(Self);
        }
        Err(OpenError::Unknown)
    }

    /// Runs a query with `numbers` bound to its `?`.
    ///
    /// # Errors
    /// When the database does not answer, refuses the query, or returns other columns.
    pub async fn rows(&self, text: &str, numbers: &[i64]) -> Result<Vec<PlacedRow>, Error> {
        let text = match &self.0 {
            Pool::Postgres(_) => postgres::numbered(text),
            _ => text.to_owned(),
        };
        let text = AssertSqlSafe(text);
        match &self.0 {
            Pool::Sqlite(pool) => {
                let bound = numbers.iter().fold(query(text), |q, n| q.bind(*n));
                let rows = bound.fetch_all(pool).await?;
                rows.iter().map(of_sqlite).collect()
            }
            Pool::MySql(pool) => {
                let bound = numbers.iter().fold(query(text), |q, n| q.bind(*n));
                let rows = bound.fetch_all(pool).await?;
                rows.iter().map(of_mysql).collect()
            }
            Pool::Postgres(pool) => {
                let bound = numbers.iter().fold(query(text), |q, n| q.bind(*n));
                let rows = bound.fetch_all(pool).await?;
                rows.iter().map(of_postgres).collect()
            }
        }
    }
}

fn sqlite(url: &str) -> Result<SqlitePool, OpenError> {
    let options = SqliteConnectOptions::from_str(url).map_err(|_| OpenError::Url("SQLite"))?;
    let options = options.read_only(true).busy_timeout(BUSY_LIMIT);
    let pool = SqlitePoolOptions::new().max_connections(1);
    let pool = pool.acquire_timeout(ACQUIRE_LIMIT);
    Ok(pool.connect_lazy_with(options))
}

fn mysql(url: &str) -> Result<MySqlPool, OpenError> {
    let options = MySqlConnectOptions::from_str(url).map_err(|_| OpenError::Url("MySQL"))?;
    if options.get_database().is_none_or(str::is_empty) {
        return Err(OpenError::NoDatabase("mysql"));
    }
    let pool = MySqlPoolOptions::new().max_connections(1);
    let pool = pool.acquire_timeout(ACQUIRE_LIMIT);
    let pool = pool.after_connect(|connection, _| {
        Box::pin(async move {
            query(MYSQL_SETUP).execute(&mut *connection).await?;
            Ok(())
        })
    });
    Ok(pool.connect_lazy_with(options))
}

fn postgresql(url: &str) -> Result<PgPool, OpenError> {
    let read_only = [("default_transaction_read_only", "on")];
    let options = postgres::options(url)?.options(read_only);
    let pool = PgPoolOptions::new().max_connections(1);
    let pool = pool.acquire_timeout(ACQUIRE_LIMIT);
    Ok(pool.connect_lazy_with(options))
}

fn placed_row(position: i64, event: Option<Vec<u8>>) -> Result<PlacedRow, Error> {
    let position = u64::try_from(position).map_err(|error| damaged("position", error))?;
    Ok(PlacedRow { position, event })
}

fn of_sqlite(row: &SqliteRow) -> Result<PlacedRow, Error> {
    // Accept any column type of the query.
    placed_row(row.try_get("position")?, row.try_get_unchecked("event")?)
}

fn of_mysql(row: &MySqlRow) -> Result<PlacedRow, Error> {
    let position = row.try_get::<i64, _>("position").or_else(|error| {
        // The column may be unsigned.
        let unsigned = row.try_get::<u64, _>("position").map_err(|_| error)?;
        i64::try_from(unsigned).map_err(|error| damaged("position", error))
    });
    placed_row(position?, row.try_get_unchecked("event")?)
}

fn of_postgres(row: &PgRow) -> Result<PlacedRow, Error> {
    let position = row.try_get::<i64, _>("position").or_else(|error| {
        let narrow = row.try_get::<i32, _>("position").map_err(|_| error)?;
        Ok::<_, Error>(i64::from(narrow))
    });
    let event = row.try_get_raw("event")?;
    // JSONB starts with a version byte.
    let header = usize::from(event.type_info().name() == "JSONB");
    let event: Option<Vec<u8>> = row.try_get_unchecked("event")?;
    placed_row(
        position?,
        event.map(|event| event.into_iter().skip(header).collect()),
    )
}
