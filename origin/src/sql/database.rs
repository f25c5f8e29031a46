//! SQLite and the MySQL protocol behind one interface.
//!
//! Statements are written once, in the SQL that both understand. What differs is here: how a database is opened, how
//! a transaction begins, which errors mean "try again".

use std::future::Future;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};
use sqlx::mysql::{MySql, MySqlConnectOptions, MySqlPool, MySqlPoolOptions, MySqlRow};
use sqlx::query::Query;
use sqlx::sqlite::{
    Sqlite, SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteRow,
    SqliteSynchronous,
};
use sqlx::{Encode, Error, Row as _, SqlSafeStr, Transaction, Type, query};

use super::SqlError;
use crate::traces::asking;

/// What spans of traces call either database.
const SQL: &str = "sql";

/// SQLite has one writer at a time: a second connection would only wait inside SQLite, where no
/// queue is fair.
const SQLITE_WRITERS: u32 = 1;

/// Readers do not wait for the writer (WAL).
const SQLITE_READERS: u32 = 2;

/// MySQL's threads and its group commit want several transactions at once; more would only wait for the same rows.
const MYSQL_CONNECTIONS: u32 = 32;

/// How long a call waits for a connection before it gives up. Below the time limit of a request,
/// so that the answer says why.
const ACQUIRE_LIMIT: Duration = Duration::from_secs(3);

/// How long SQLite waits for another process that holds the file's lock: an operator's shell, a
/// backup, the origin before this one.
const BUSY_LIMIT: Duration = Duration::from_secs(2);

/// What each connection to MySQL is told. READ COMMITTED: no gap locks, which orders of different
/// users would meet at. Strict: what does not fit is refused, not cut. A lock is waited for as long
/// as SQLite's.
const MYSQL_SETUP: [&str; 3] = [
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'",
    "SET SESSION innodb_lock_wait_timeout = 2",
];

/// How often a transaction is run that MySQL keeps ending in favour of another one.
const ATTEMPTS_MAX: u32 = 5;

/// The pause after the first such end; doubled with each further one.
const RETRY_PAUSE: Duration = Duration::from_millis(5);

/// How often tables of SQLite are brought up to date while another origin does the same, and the pause between. One round
/// may fail for each migration.
const MIGRATION_ATTEMPTS_MAX: usize = 50;
const MIGRATION_PAUSE: Duration = Duration::from_millis(100);

/// MySQL's "deadlock found": it has rolled the transaction back at once. "Lock wait timeout exceeded" is
/// not tried again: that has taken 2 s, and a second wait would be longer than a request may take.
const MYSQL_DEADLOCK: u16 = 1213;

/// A migration: its version, its name, its statements.
type NamedMigration = (i64, &'static str, &'static str);

/// The schema's history, in each database's own SQL.
#[derive(Clone, Copy, Debug)]
pub struct Migrations {
    /// For SQLite, in order.
    pub sqlite: &'static [NamedMigration],
    /// For the MySQL protocol, in order.
    pub mysql: &'static [NamedMigration],
}

/// Why a database could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The URL is of another database. It is not shown: it may hold a password.
    #[error("not a URL of SQLite or MySQL, such as sqlite://weir.db or mysql://weir@host/weir")]
    Unknown,
    /// The URL has a parameter that the database does not know, or is otherwise broken. For
    /// MySQL the reason is left out: it may quote the password.
    #[error("not a sound URL of {0}")]
    Url(&'static str),
    /// Each connection to an in-memory database would have a database of its own.
    #[error("data must survive the process: a database in memory will not do")]
    InMemory,
    /// The URL of MySQL names no database.
    #[error("the URL names no database: mysql://<user>@<host>/<database>")]
    NoDatabase,
    /// It could not be opened, or not be read.
    #[error("cannot open the database: {0}")]
    Connect(#[source] Error),
    /// Its tables could not be brought up to date.
    #[error("cannot migrate the database: {0}")]
    Migrate(#[from] MigrateError),
}

/// An open database. Cloning it is cheap: clones share its connections.
#[derive(Clone, Debug)]
pub struct Database(Pools);

#[derive(Clone, Debug)]
enum Pools {
    Sqlite {
        writer: SqlitePool,
        readers: SqlitePool,
        file: File,
    },
    MySql(MySqlPool),
}

/// The file of a SQLite database, as it was when it was opened.
#[derive(Clone, Debug)]
struct File {
    path: PathBuf,
    /// Its device and its number there.
    identity: (u64, u64),
}

impl File {
    fn of(path: &Path) -> std::io::Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            identity: identity(path)?,
        })
    }

    /// That the path still leads to it. If not, connections work on in a file that nobody finds any more, and the next process
    /// begins with another one.
    fn check(&self) -> Result<(), Error> {
        match identity(&self.path) {
            Ok(identity) if identity == self.identity => Ok(()),
            Ok(_) => Err(Error::Io(std::io::Error::other(
                "the file was replaced by another one",
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
pub(crate) struct Statement<'a> {
    sql: &'static str,
    values: Vec<Bound<'a>>,
}

/// A value of a statement.
enum Bound<'a> {
    Text(Option<&'a str>),
    Bytes(&'a [u8]),
    Number(Option<i64>),
}

/// Rows of either database.
pub(crate) enum Row {
    Sqlite(SqliteRow),
    MySql(MySqlRow),
}

/// A transaction, rolled back unless it is committed.
pub(crate) enum Tx {
    Sqlite(Transaction<'static, Sqlite>),
    MySql(Transaction<'static, MySql>),
}

/// A statement without values yet; its `?` are filled in order.
pub(crate) fn sql<'a>(sql: &'static str) -> Statement<'a> {
    let values = Vec::new();
    Statement { sql, values }
}

impl<'a> Statement<'a> {
    pub(crate) fn text(mut self, text: &'a str) -> Self {
        self.values.push(Bound::Text(Some(text)));
        self
    }

    /// A text, or NULL.
    pub(crate) fn maybe_text(mut self, text: Option<&'a str>) -> Self {
        self.values.push(Bound::Text(text));
        self
    }

    pub(crate) fn bytes(mut self, bytes: &'a [u8]) -> Self {
        self.values.push(Bound::Bytes(bytes));
        self
    }

    /// What does not fit into SQL's numbers is beyond every limit that was checked before, and
    /// fails the statement's own CHECK or comparison.
    pub(crate) fn number(self, number: impl TryInto<i64>) -> Self {
        self.signed(number.try_into().unwrap_or(i64::MAX))
    }

    pub(crate) fn signed(mut self, number: i64) -> Self {
        self.values.push(Bound::Number(Some(number)));
        self
    }

    pub(crate) fn maybe(self, number: Option<u64>) -> Self {
        match number {
            Some(number) => self.number(number),
            None => self.null(),
        }
    }

    fn null(mut self) -> Self {
        self.values.push(Bound::Number(None));
        self
    }

    fn query<DB>(self) -> Query<'a, DB, DB::Arguments>
    where
        DB: sqlx::Database,
        Option<&'a str>: Encode<'a, DB> + Type<DB>,
        &'a [u8]: Encode<'a, DB> + Type<DB>,
        Option<i64>: Encode<'a, DB> + Type<DB>,
    {
        let bind = |query: Query<'a, DB, DB::Arguments>, value| match value {
            Bound::Text(text) => query.bind(text),
            Bound::Bytes(bytes) => query.bind(bytes),
            Bound::Number(number) => query.bind(number),
        };
        self.values.into_iter().fold(query(self.sql), bind)
    }
}

impl Row {
    pub(crate) fn text(&self, column: &str) -> Result<String, Error> {
        match self {
            Self::Sqlite(row) => row.try_get(column),
            Self::MySql(row) => row.try_get(column),
        }
    }

    pub(crate) fn bytes(&self, column: &str) -> Result<Vec<u8>, Error> {
        match self {
            Self::Sqlite(row) => row.try_get(column),
            Self::MySql(row) => row.try_get(column),
        }
    }

    pub(crate) fn flag(&self, column: &str) -> Result<bool, Error> {
        Ok(self.signed(column)? != 0)
    }

    /// A column that holds no negative number, by its CHECK or by what is written there.
    pub(crate) fn number<N: TryFrom<i64>>(&self, column: &str) -> Result<N, Error> {
        let number = self.signed(column)?;
        N::try_from(number).map_err(|_| damaged(column, "is out of range"))
    }

    pub(crate) fn maybe(&self, column: &str) -> Result<Option<u64>, Error> {
        let number: Option<i64> = match self {
            Self::Sqlite(row) => row.try_get(column),
            Self::MySql(row) => row.try_get(column),
        }?;
        let unsigned = |number| u64::try_from(number).map_err(|error| damaged(column, error));
        number.map(unsigned).transpose()
    }

    /// A text that may be NULL.
    pub(crate) fn maybe_text(&self, column: &str) -> Result<Option<String>, Error> {
        match self {
            Self::Sqlite(row) => row.try_get(column),
            Self::MySql(row) => row.try_get(column),
        }
    }

    /// A column that may hold negative numbers.
    pub(crate) fn signed(&self, column: &str) -> Result<i64, Error> {
        match self {
            Self::Sqlite(row) => row.try_get(column),
            Self::MySql(row) => row.try_get(column),
        }
    }
}

/// A row that no Weir has written.
pub(crate) fn damaged(
    column: &str,
    error: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> Error {
    Error::ColumnDecode {
        index: column.to_owned(),
        source: error.into(),
    }
}

impl OpenError {
    /// Whether the database is merely away, or busy: it may be there in a moment.
    pub fn is_away(&self) -> bool {
        let error = match self {
            Self::Connect(error) | Self::Migrate(MigrateError::Execute(error)) => error,
            Self::Migrate(MigrateError::ExecuteMigration(error, _)) => error,
            _ => return false,
        };
        match error {
            Error::Io(_) | Error::PoolTimedOut => true,
            Error::Database(error) => error.code().is_some_and(|code| is_away_code(&code)),
            _ => false,
        }
    }
}

/// Whether this is what SQLite says of a file that another process holds, `SQLITE_BUSY` with whatever details in its upper
/// bits, or a SQLSTATE of MySQL for a connection that it does not serve (class 08).
fn is_away_code(code: &str) -> bool {
    const SQLITE_BUSY: u32 = 5;
    let sqlite = code.parse().map(|code: u32| code & 0xff);
    code.starts_with("08") || sqlite == Ok(SQLITE_BUSY)
}

impl Database {
    /// Opens the database that `url` names, `sqlite://<path>` or `mysql://<user>@<host>/<database>`, and brings
    /// its tables up to date.
    ///
    /// # Errors
    /// Says what is wrong, without the URL: it may hold a password.
    pub async fn open(url: &str, migrations: &Migrations) -> Result<Self, OpenError> {
        // SQLite's parser would take any other URL for the name of a file.
        if url.starts_with("sqlite:") {
            return open_sqlite(url, migrations.sqlite).await.map(Self);
        }
        if url.starts_with("mysql:") || url.starts_with("mariadb:") {
            return open_mysql(url, migrations.mysql).await.map(Self);
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

    /// The file that it is in, if it is in one.
    pub(crate) fn file(&self) -> Option<&Path> {
        match &self.0 {
            Pools::Sqlite { file, .. } => Some(&file.path),
            Pools::MySql(_) => None,
        }
    }

    /// A transaction that will write.
    pub(crate) async fn begin(&self) -> Result<Tx, Error> {
        // That is where writers wait for one another.
        asking(SQL, "BEGIN", self.begin_now()).await
    }

    async fn begin_now(&self) -> Result<Tx, Error> {
        match &self.0 {
            // IMMEDIATE: a transaction that first reads and then writes could find the file locked
            // half way.
            Pools::Sqlite { writer, .. } => {
                Ok(Tx::Sqlite(writer.begin_with("BEGIN IMMEDIATE").await?))
            }
            Pools::MySql(pool) => Ok(Tx::MySql(pool.begin().await?)),
        }
    }

    /// A transaction that sees one instant of the database, and only reads.
    pub(crate) async fn snapshot(&self) -> Result<Tx, Error> {
        match &self.0 {
            Pools::Sqlite { readers, .. } => Ok(Tx::Sqlite(readers.begin().await?)),
            Pools::MySql(pool) => {
                let begin = "START TRANSACTION WITH CONSISTENT SNAPSHOT";
                Ok(Tx::MySql(pool.begin_with(begin).await?))
            }
        }
    }

    /// Changes rows without a transaction; tells how many the statement matched.
    pub(crate) async fn execute(&self, statement: Statement<'_>) -> Result<u64, Error> {
        asking(SQL, statement.sql, self.execute_now(statement)).await
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
        }
    }

    /// Inserts a row without a transaction; false if there is one of its key.
    pub(crate) async fn insert(&self, statement: Statement<'_>) -> Result<bool, Error> {
        unless_there(self.execute(statement).await)
    }

    pub(crate) async fn all(&self, statement: Statement<'_>) -> Result<Vec<Row>, Error> {
        asking(SQL, statement.sql, self.all_now(statement)).await
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
        }
    }

    pub(crate) async fn one(&self, statement: Statement<'_>) -> Result<Option<Row>, Error> {
        Ok(self.all(statement).await?.into_iter().next())
    }

    /// Closes all connections once their work is done.
    pub async fn close(&self) {
        match &self.0 {
            Pools::Sqlite {
                writer, readers, ..
            } => {
                readers.close().await;
                // Last: the last connection to close moves the WAL into the file.
                writer.close().await;
            }
            Pools::MySql(pool) => pool.close().await,
        }
    }
}

impl Tx {
    /// Changes rows; tells how many the statement matched.
    pub(crate) async fn execute(&mut self, statement: Statement<'_>) -> Result<u64, Error> {
        asking(SQL, statement.sql, self.execute_now(statement)).await
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
        }
    }

    /// Inserts a row; false if there is one of its key. The transaction goes on either way.
    pub(crate) async fn insert(&mut self, statement: Statement<'_>) -> Result<bool, Error> {
        unless_there(self.execute(statement).await)
    }

    pub(crate) async fn all(&mut self, statement: Statement<'_>) -> Result<Vec<Row>, Error> {
        asking(SQL, statement.sql, self.all_now(statement)).await
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
        }
    }

    pub(crate) async fn one(&mut self, statement: Statement<'_>) -> Result<Option<Row>, Error> {
        Ok(self.all(statement).await?.into_iter().next())
    }

    pub(crate) async fn commit(self) -> Result<(), Error> {
        asking(SQL, "COMMIT", async {
            match self {
                Self::Sqlite(tx) => tx.commit().await,
                Self::MySql(tx) => tx.commit().await,
            }
        })
        .await
    }

    pub(crate) async fn rollback(self) -> Result<(), Error> {
        match self {
            Self::Sqlite(tx) => tx.rollback().await,
            Self::MySql(tx) => tx.rollback().await,
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

/// Runs a whole transaction, again if MySQL has ended it in favour of another one.
pub(crate) async fn retried<T, F>(transaction: impl Fn() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    let mut pause = RETRY_PAUSE;
    for _ in 1..ATTEMPTS_MAX {
        match transaction().await {
            Err(error) if is_deadlock(&error) => tokio::time::sleep(pause).await,
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

async fn open_sqlite(url: &str, migrations: &[NamedMigration]) -> Result<Pools, OpenError> {
    let options = SqliteConnectOptions::from_str(url).map_err(|_| OpenError::Url("SQLite"))?;
    if url.contains(":memory:") || url.contains("mode=memory") {
        return Err(OpenError::InMemory);
    }
    let options = options
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        // With NORMAL a power cut could take back orders that were answered with 201.
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(true)
        .busy_timeout(BUSY_LIMIT);
    // The writer first: a reader can neither make the file nor its WAL.
    let writer = connect_sqlite(SQLITE_WRITERS, options.clone()).await?;
    migrate_sqlite(&writer, migrations).await?;
    let file = File::of(options.get_filename());
    let file = file.map_err(|error| OpenError::Connect(Error::Io(error)))?;
    let readers = connect_sqlite(SQLITE_READERS, options.read_only(true)).await?;
    Ok(Pools::Sqlite {
        writer,
        readers,
        file,
    })
}

/// Two origins may begin with one new file at the same moment. Nothing but SQLite's own lock keeps them apart, so what one has
/// made meanwhile, the other fails to make; it then finds it made.
async fn migrate_sqlite(
    writer: &SqlitePool,
    migrations: &[NamedMigration],
) -> Result<(), MigrateError> {
    let migrator = migrator(migrations);
    for _ in 1..MIGRATION_ATTEMPTS_MAX {
        match migrator.run(writer).await {
            Err(MigrateError::Execute(_) | MigrateError::ExecuteMigration(..)) => {
                tokio::time::sleep(MIGRATION_PAUSE).await;
            }
            ended => return ended,
        }
    }
    migrator.run(writer).await
}

async fn connect_sqlite(
    count: u32,
    options: SqliteConnectOptions,
) -> Result<SqlitePool, OpenError> {
    SqlitePoolOptions::new()
        .max_connections(count)
        .acquire_timeout(ACQUIRE_LIMIT)
        // A file does not drop connections, so none needs to be made anew.
        .idle_timeout(None)
        .max_lifetime(None)
        .connect_with(options)
        .await
        .map_err(OpenError::Connect)
}

async fn open_mysql(url: &str, migrations: &[NamedMigration]) -> Result<Pools, OpenError> {
    let options = MySqlConnectOptions::from_str(url).map_err(|_| OpenError::Url("MySQL"))?;
    if options.get_database().is_none_or(str::is_empty) {
        return Err(OpenError::NoDatabase);
    }
    // `MYSQL_SETUP` sets the mode, all of it.
    let options = options.pipes_as_concat(false).no_engine_substitution(false);
    let pool = MySqlPoolOptions::new()
        .max_connections(MYSQL_CONNECTIONS)
        .acquire_timeout(ACQUIRE_LIMIT)
        .after_connect(|connection, _| {
            Box::pin(async move {
                for setup in MYSQL_SETUP {
                    query(setup).execute(&mut *connection).await?;
                }
                Ok(())
            })
        })
        .connect_with(options)
        .await
        .map_err(OpenError::Connect)?;
    migrator(migrations).run(&pool).await?;
    Ok(Pools::MySql(pool))
}

fn migrator(migrations: &[NamedMigration]) -> Migrator {
    let migration = |&(version, name, sql): &NamedMigration| {
        let sql = sql.into_sql_str();
        Migration::new(version, name.into(), MigrationType::Simple, sql, false)
    };
    Migrator::with_migrations(migrations.iter().map(migration).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use sqlx::query_scalar;

    #[tokio::test]
    async fn each_connection_is_set_up_as_the_design_asks() {
        let dir = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}/weir.db", dir.path().display());
        let migrations = Migrations {
            sqlite: &[(1, "stock", "CREATE TABLE stock (remaining INTEGER)")],
            mysql: &[],
        };
        let database = Database::open(&url, &migrations).await.unwrap();
        let Pools::Sqlite {
            writer, readers, ..
        } = database.0
        else {
            panic!("not SQLite");
        };
        let number = async |pragma: &'static str| -> i64 {
            query_scalar(pragma).fetch_one(&writer).await.unwrap()
        };
        assert_eq!(number("PRAGMA synchronous").await, 2); // FULL
        assert_eq!(number("PRAGMA foreign_keys").await, 1);
        assert_eq!(number("PRAGMA busy_timeout").await, 2_000);
        let mode: String = query_scalar("PRAGMA journal_mode")
            .fetch_one(&writer)
            .await
            .unwrap();
        assert_eq!(mode, "wal");
        let written = query("DELETE FROM stock").execute(&readers).await;
        assert!(written.is_err(), "a reader wrote");
    }

    #[test]
    fn a_database_that_is_busy_is_away_and_one_that_refuses_is_not() {
        for away in ["5", "261", "517", "08004", "08S01"] {
            assert!(is_away_code(away), "{away}");
        }
        // A file that cannot be opened, one that is none, a wrong password, an unknown database.
        for wrong in ["14", "26", "28000", "42000", "HY000", ""] {
            assert!(!is_away_code(wrong), "{wrong}");
        }
        assert!(!OpenError::Unknown.is_away());
        assert!(OpenError::Connect(Error::PoolTimedOut).is_away());
    }

    #[tokio::test]
    async fn only_deadlocks_are_tried_again() {
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
