//! SQLite, MySQL and PostgreSQL behind one interface.
//!
//! Statements use SQL that SQLite and MySQL accept; `postgres::translate` translates them for PostgreSQL. This module
//! contains the other differences: how a transaction begins, and which errors mean "try again". [`super::open`] opens a
//! database.

use std::future::Future;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::mysql::{MySql, MySqlPool, MySqlRow};
use sqlx::postgres::{PgArguments, PgPool, PgRow, Postgres};
use sqlx::query::Query;
use sqlx::sqlite::{Sqlite, SqlitePool, SqliteRow};
use sqlx::{
    AssertSqlSafe, Connection as _, Encode, Error, Row as _, SqlSafeStr, Transaction, Type, query,
};

use super::open::{Migrations, OpenError, open_mysql, open_sqlite};
use super::{SqlError, postgres};
use crate::traces::traced_call;

/// System name in trace spans.
const SQL: &str = "sql";

/// Maximum number of attempts for a transaction that the server aborts because of a deadlock.
const ATTEMPTS_MAX: u32 = 5;

/// Pause after the first deadlock; it doubles with each further one.
const RETRY_PAUSE: Duration = Duration::from_millis(5);

/// MySQL's error "deadlock found": the transaction was rolled back at once. "Lock wait timeout exceeded" is not
/// retried: it has already taken 2 s, and a second wait would exceed the request timeout.
const MYSQL_DEADLOCK: u16 = 1213;

/// An open database. Cloning it is cheap: clones share its connections.
#[derive(Clone, Debug)]
pub struct Database(Pools);

/// The connection pools of one database.
#[derive(Clone, Debug)]
pub(super) enum Pools {
    Sqlite {
        writer: SqlitePool,
        readers: SqlitePool,
        file: File,
    },
    MySql(MySqlPool),
    Postgres(PgPool),
}

/// The file of a SQLite database, as it was when opened.
#[derive(Clone, Debug)]
pub(super) struct File {
    path: PathBuf,
    /// Its device and inode number.
    identity: (u64, u64),
}

impl File {
    pub(super) fn from_path(path: &Path) -> std::io::Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            identity: identity(path)?,
        })
    }

    /// Checks that the path still names the same file. Otherwise open connections write to an orphaned file, and the
    /// next process starts with a new one.
    fn check(&self) -> Result<(), Error> {
        match identity(&self.path) {
            Ok(identity) if identity == self.identity => Ok(()),
            Ok(_) => Err(Error::Io(std::io::Error::other(
                "the database file was replaced: restart the origin",
            ))),
            Err(error) => Err(Error::Io(error)),
        }
    }
}

fn identity(path: &Path) -> std::io::Result<(u64, u64)> {
    let found = std::fs::metadata(path)?;
    Ok((found.dev(), found.ino()))
}

/// A statement and its values.
pub struct Statement<'a> {
    sql: &'static str,
    values: Vec<Bound<'a>>,
}

/// A bound value.
enum Bound<'a> {
    Text(Option<&'a str>),
    Owned(String),
    Bytes(&'a [u8]),
    Number(Option<i64>),
}

/// A row of one of the databases.
pub enum Row {
    /// A row of SQLite.
    Sqlite(SqliteRow),
    /// A row of MySQL.
    MySql(MySqlRow),
    /// A row of PostgreSQL.
    Postgres(PgRow),
}

/// A transaction, rolled back unless it is committed.
pub enum Tx {
    /// A transaction of SQLite.
    Sqlite(Transaction<'static, Sqlite>),
    /// A transaction of MySQL.
    MySql(Transaction<'static, MySql>),
    /// A transaction of PostgreSQL.
    Postgres(Transaction<'static, Postgres>),
}

/// Creates a statement; bind a value for each `?`, in order.
pub fn sql<'a>(sql: &'static str) -> Statement<'a> {
    let values = Vec::new();
    Statement { sql, values }
}

impl<'a> Statement<'a> {
    /// Binds text.
    pub fn text(self, text: &'a str) -> Self {
        self.with(Bound::Text(Some(text)))
    }

    /// Binds text or NULL.
    pub fn maybe_text(self, text: Option<&'a str>) -> Self {
        self.with(Bound::Text(text))
    }

    /// Binds owned text or NULL.
    pub(super) fn maybe_owned_text(self, text: Option<String>) -> Self {
        match text {
            Some(text) => self.with(Bound::Owned(text)),
            None => self.maybe_text(None),
        }
    }

    fn with(mut self, value: Bound<'a>) -> Self {
        self.values.push(value);
        self
    }

    /// Binds bytes.
    pub fn bytes(self, bytes: &'a [u8]) -> Self {
        self.with(Bound::Bytes(bytes))
    }

    /// Binds a number. Values beyond SQL's range exceed all limits checked before, and fail the statement's own CHECK
    /// or comparison.
    pub fn number(self, number: impl TryInto<i64>) -> Self {
        self.signed(number.try_into().unwrap_or(i64::MAX))
    }

    /// Binds a signed number.
    pub fn signed(self, number: i64) -> Self {
        self.with(Bound::Number(Some(number)))
    }

    /// Binds a number or NULL.
    pub fn maybe(self, number: Option<u64>) -> Self {
        match number {
            Some(number) => self.number(number),
            None => self.null(),
        }
    }

    fn null(self) -> Self {
        self.with(Bound::Number(None))
    }

    fn query<DB>(self) -> Query<'a, DB, DB::Arguments>
    where
        DB: sqlx::Database,
        Option<&'a str>: Encode<'a, DB> + Type<DB>,
        String: Encode<'a, DB> + Type<DB>,
        &'a [u8]: Encode<'a, DB> + Type<DB>,
        Option<i64>: Encode<'a, DB> + Type<DB>,
    {
        let text = self.sql;
        self.query_with(text)
    }

    fn query_postgres(self) -> Query<'a, Postgres, PgArguments> {
        let text = AssertSqlSafe(postgres::translate(self.sql));
        self.query_with(text)
    }

    /// An insert that changes nothing if the key exists: an error would end PostgreSQL's transaction.
    fn query_postgres_insert(self) -> Query<'a, Postgres, PgArguments> {
        let text = postgres::translate(self.sql) + " ON CONFLICT DO NOTHING";
        self.query_with(AssertSqlSafe(text))
    }

    fn query_with<DB>(self, text: impl SqlSafeStr) -> Query<'a, DB, DB::Arguments>
    where
        DB: sqlx::Database,
        Option<&'a str>: Encode<'a, DB> + Type<DB>,
        String: Encode<'a, DB> + Type<DB>,
        &'a [u8]: Encode<'a, DB> + Type<DB>,
        Option<i64>: Encode<'a, DB> + Type<DB>,
    {
        let bind = |query: Query<'a, DB, DB::Arguments>, value| match value {
            Bound::Text(text) => query.bind(text),
            Bound::Owned(text) => query.bind(text),
            Bound::Bytes(bytes) => query.bind(bytes),
            Bound::Number(number) => query.bind(number),
        };
        self.values.into_iter().fold(query(text), bind)
    }
}

impl Row {
    /// Reads a column of text.
    ///
    /// # Errors
    /// When the column is missing or of another type.
    pub fn text(&self, column: &str) -> Result<String, Error> {
        match self {
            Self::Sqlite(row) => row.try_get(column),
            Self::MySql(row) => row.try_get(column),
            Self::Postgres(row) => row.try_get(column),
        }
    }

    /// Reads a column of bytes. Errors as [`text`](Self::text).
    pub fn bytes(&self, column: &str) -> Result<Vec<u8>, Error> {
        match self {
            Self::Sqlite(row) => row.try_get(column),
            Self::MySql(row) => row.try_get(column),
            Self::Postgres(row) => row.try_get(column),
        }
    }

    /// Reads a column that is 0 or 1. Errors as [`text`](Self::text).
    pub fn flag(&self, column: &str) -> Result<bool, Error> {
        Ok(self.signed(column)? != 0)
    }

    /// Reads a column without negative numbers, as its CHECK or its writers ensure.
    pub fn number<N: TryFrom<i64>>(&self, column: &str) -> Result<N, Error> {
        let number = self.signed(column)?;
        N::try_from(number).map_err(|_| damaged(column, "is out of range"))
    }

    /// Reads a column that is a number or NULL. Errors as [`number`](Self::number).
    pub fn maybe(&self, column: &str) -> Result<Option<u64>, Error> {
        let number: Option<i64> = match self {
            Self::Sqlite(row) => row.try_get(column),
            Self::MySql(row) => row.try_get(column),
            Self::Postgres(row) => row.try_get(column),
        }?;
        let unsigned = |number| u64::try_from(number).map_err(|error| damaged(column, error));
        number.map(unsigned).transpose()
    }

    /// Reads a column of text or NULL.
    pub fn maybe_text(&self, column: &str) -> Result<Option<String>, Error> {
        match self {
            Self::Sqlite(row) => row.try_get(column),
            Self::MySql(row) => row.try_get(column),
            Self::Postgres(row) => row.try_get(column),
        }
    }

    /// Reads a column that may contain negative numbers.
    pub fn signed(&self, column: &str) -> Result<i64, Error> {
        match self {
            Self::Sqlite(row) => row.try_get(column),
            Self::MySql(row) => row.try_get(column),
            // A literal is an INT4, unlike all columns.
            Self::Postgres(row) => row.try_get(column).or_else(|error| {
                let literal = row.try_get::<i32, _>(column).map_err(|_| error)?;
                Ok(i64::from(literal))
            }),
        }
    }
}

/// An error for a row that Weir cannot have written.
pub fn damaged(column: &str, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::ColumnDecode {
        index: column.to_owned(),
        source: error.into(),
    }
}

impl Database {
    /// Opens the database at `url`, `sqlite://<path>`, or `mysql` or `postgres` in `mysql://<user>@<host>/<database>`,
    /// and applies the migrations of these domains.
    ///
    /// # Errors
    /// Describes the problem without the URL, which may contain a password.
    pub async fn open(url: &str, migrations: &[Migrations]) -> Result<Self, OpenError> {
        // SQLite's parser would treat any other URL as a file name.
        if url.starts_with("sqlite:") {
            return open_sqlite(url, migrations).await.map(Self);
        }
        if url.starts_with("mysql:") || url.starts_with("mariadb:") {
            return open_mysql(url, migrations).await.map(Self);
        }
        if postgres::is_url(url) {
            return postgres::open(url, migrations).await.map(Self);
        }
        Err(OpenError::Unknown)
    }

    /// Checks that the database answers.
    ///
    /// # Errors
    /// When it does not.
    pub async fn ping(&self) -> Result<(), SqlError> {
        if let Pools::Sqlite { file, .. } = &self.0 {
            file.check()?;
        }
        self.one(sql("SELECT 1")).await?;
        Ok(())
    }

    /// Path of the SQLite file; `None` for servers.
    pub fn file(&self) -> Option<&Path> {
        match &self.0 {
            Pools::Sqlite { file, .. } => Some(&file.path),
            Pools::MySql(_) | Pools::Postgres(_) => None,
        }
    }

    /// Begins a transaction that writes.
    pub async fn begin(&self) -> Result<Tx, Error> {
        // Trace it: writers wait for each other here.
        traced_call(SQL, "BEGIN", self.begin_now()).await
    }

    async fn begin_now(&self) -> Result<Tx, Error> {
        match &self.0 {
            // IMMEDIATE: a transaction that reads before it writes could otherwise fail on a locked file.
            Pools::Sqlite { writer, .. } => {
                Ok(Tx::Sqlite(writer.begin_with("BEGIN IMMEDIATE").await?))
            }
            Pools::MySql(pool) => Ok(Tx::MySql(pool.begin().await?)),
            Pools::Postgres(pool) => Ok(Tx::Postgres(pool.begin().await?)),
        }
    }

    /// Begins a read-only transaction on a consistent snapshot.
    pub async fn snapshot(&self) -> Result<Tx, Error> {
        match &self.0 {
            Pools::Sqlite { readers, .. } => Ok(Tx::Sqlite(readers.begin().await?)),
            Pools::MySql(pool) => {
                let begin = "START TRANSACTION WITH CONSISTENT SNAPSHOT";
                Ok(Tx::MySql(pool.begin_with(begin).await?))
            }
            Pools::Postgres(pool) => {
                let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
                Ok(Tx::Postgres(pool.begin_with(begin).await?))
            }
        }
    }

    /// Changes rows without a transaction. Returns the number of matched rows.
    pub async fn execute(&self, statement: Statement<'_>) -> Result<u64, Error> {
        traced_call(SQL, statement.sql, self.execute_now(statement)).await
    }

    async fn execute_now(&self, statement: Statement<'_>) -> Result<u64, Error> {
        match &self.0 {
            Pools::Sqlite { writer, .. } => {
                let done = statement.query::<Sqlite>().execute(writer).await?;
                Ok(done.rows_affected())
            }
            Pools::MySql(pool) => {
                let done = statement.query::<MySql>().execute(pool).await?;
                Ok(done.rows_affected())
            }
            Pools::Postgres(pool) => {
                let done = statement.query_postgres().execute(pool).await?;
                Ok(done.rows_affected())
            }
        }
    }

    /// Inserts a row without a transaction. Returns false if its key exists.
    pub async fn insert(&self, statement: Statement<'_>) -> Result<bool, Error> {
        let Pools::Postgres(pool) = &self.0 else {
            return unless_there(self.execute(statement).await);
        };
        let text = statement.sql;
        let insert = statement.query_postgres_insert().execute(pool);
        Ok(traced_call(SQL, text, insert).await?.rows_affected() > 0)
    }

    /// Runs a query and returns all its rows.
    pub async fn all(&self, statement: Statement<'_>) -> Result<Vec<Row>, Error> {
        traced_call(SQL, statement.sql, self.all_now(statement)).await
    }

    async fn all_now(&self, statement: Statement<'_>) -> Result<Vec<Row>, Error> {
        match &self.0 {
            Pools::Sqlite { readers, .. } => {
                let rows = statement.query::<Sqlite>().fetch_all(readers).await?;
                Ok(rows.into_iter().map(Row::Sqlite).collect())
            }
            Pools::MySql(pool) => {
                let rows = statement.query::<MySql>().fetch_all(pool).await?;
                Ok(rows.into_iter().map(Row::MySql).collect())
            }
            Pools::Postgres(pool) => {
                let rows = statement.query_postgres().fetch_all(pool).await?;
                Ok(rows.into_iter().map(Row::Postgres).collect())
            }
        }
    }

    /// Runs a query and returns its first row.
    pub async fn one(&self, statement: Statement<'_>) -> Result<Option<Row>, Error> {
        Ok(self.all(statement).await?.into_iter().next())
    }

    /// Closes all connections after their running work.
    pub async fn close(&self) {
        match &self.0 {
            Pools::Sqlite {
                writer, readers, ..
            } => {
                readers.close().await;
                // Close the writer last: the last connection moves the WAL into the file.
                writer.close().await;
            }
            Pools::MySql(pool) => pool.close().await,
            Pools::Postgres(pool) => pool.close().await,
        }
    }
}

impl Tx {
    /// Changes rows. Returns the number of matched rows.
    pub async fn execute(&mut self, statement: Statement<'_>) -> Result<u64, Error> {
        traced_call(SQL, statement.sql, self.execute_now(statement)).await
    }

    async fn execute_now(&mut self, statement: Statement<'_>) -> Result<u64, Error> {
        match self {
            Self::Sqlite(tx) => {
                let done = statement.query::<Sqlite>().execute(&mut **tx).await?;
                Ok(done.rows_affected())
            }
            Self::MySql(tx) => {
                let done = statement.query::<MySql>().execute(&mut **tx).await?;
                Ok(done.rows_affected())
            }
            Self::Postgres(tx) => {
                let done = statement.query_postgres().execute(&mut **tx).await?;
                Ok(done.rows_affected())
            }
        }
    }

    /// Inserts a row. Returns false if its key exists. The transaction stays usable either way.
    pub async fn insert(&mut self, statement: Statement<'_>) -> Result<bool, Error> {
        let Self::Postgres(tx) = self else {
            return unless_there(self.execute(statement).await);
        };
        let text = statement.sql;
        let insert = statement.query_postgres_insert().execute(&mut **tx);
        Ok(traced_call(SQL, text, insert).await?.rows_affected() > 0)
    }

    /// Inserts several rows, or none of them if one of the keys exists: then returns false. The transaction stays usable
    /// either way.
    pub async fn insert_all(&mut self, statement: Statement<'_>) -> Result<bool, Error> {
        let Self::Postgres(tx) = self else {
            return self.insert(statement).await;
        };
        let text = statement.sql;
        let insert = async {
            let mut savepoint = tx.begin().await?;
            let inserted = statement.query_postgres().execute(&mut *savepoint).await;
            let inserted = unless_there(inserted.map(|done| done.rows_affected()))?;
            match inserted {
                true => savepoint.commit().await?,
                false => savepoint.rollback().await?,
            }
            Ok(inserted)
        };
        traced_call(SQL, text, insert).await
    }

    /// Runs a query and returns all its rows.
    pub async fn all(&mut self, statement: Statement<'_>) -> Result<Vec<Row>, Error> {
        traced_call(SQL, statement.sql, self.all_now(statement)).await
    }

    async fn all_now(&mut self, statement: Statement<'_>) -> Result<Vec<Row>, Error> {
        match self {
            Self::Sqlite(tx) => {
                let rows = statement.query::<Sqlite>().fetch_all(&mut **tx).await?;
                Ok(rows.into_iter().map(Row::Sqlite).collect())
            }
            Self::MySql(tx) => {
                let rows = statement.query::<MySql>().fetch_all(&mut **tx).await?;
                Ok(rows.into_iter().map(Row::MySql).collect())
            }
            Self::Postgres(tx) => {
                let rows = statement.query_postgres().fetch_all(&mut **tx).await?;
                Ok(rows.into_iter().map(Row::Postgres).collect())
            }
        }
    }

    /// Runs a query and returns its first row.
    pub async fn one(&mut self, statement: Statement<'_>) -> Result<Option<Row>, Error> {
        Ok(self.all(statement).await?.into_iter().next())
    }

    /// Commits. After an error the outcome is unknown.
    pub async fn commit(self) -> Result<(), Error> {
        traced_call(SQL, "COMMIT", async {
            match self {
                Self::Sqlite(tx) => tx.commit().await,
                Self::MySql(tx) => tx.commit().await,
                Self::Postgres(tx) => tx.commit().await,
            }
        })
        .await
    }

    /// Rolls back.
    pub async fn rollback(self) -> Result<(), Error> {
        match self {
            Self::Sqlite(tx) => tx.rollback().await,
            Self::MySql(tx) => tx.rollback().await,
            Self::Postgres(tx) => tx.rollback().await,
        }
    }
}

fn unless_there(inserted: Result<u64, Error>) -> Result<bool, Error> {
    match inserted {
        Ok(_) => Ok(true),
        Err(Error::Database(error)) if error.is_unique_violation() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Runs a whole transaction, and repeats it after a deadlock.
pub async fn retried<T, F>(transaction: impl Fn() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    let mut pause = RETRY_PAUSE;
    for _ in 1..ATTEMPTS_MAX {
        match transaction().await {
            Err(error) if is_deadlock(&error) || postgres::is_aborted(&error) => {
                tokio::time::sleep(pause).await
            }
            decided => return decided,
        }
        pause *= 2;
    }
    transaction().await
}

fn is_deadlock(error: &Error) -> bool {
    let error = error.as_database_error();
    let error = error.and_then(|error| error.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>());
    error.is_some_and(|error| error.number() == MYSQL_DEADLOCK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_deadlocks_are_retried() {
        let tries = std::sync::atomic::AtomicU32::new(0);
        let failed: Result<(), Error> = retried(async || {
            tries.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            Err(Error::PoolTimedOut)
        })
        .await;
        assert!(failed.is_err());
        assert_eq!(tries.into_inner(), 1);
    }
}
