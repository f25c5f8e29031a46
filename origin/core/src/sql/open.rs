//! Opens databases and applies migrations.

use std::str::FromStr;
use std::time::Duration;

use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};
use sqlx::mysql::{MySqlConnectOptions, MySqlPoolOptions};
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};
use sqlx::{ConnectOptions, Error, SqlSafeStr, query};

use super::database::{File, Pools};

/// SQLite has one writer at a time. A second connection would only wait inside SQLite, without a fair queue.
const SQLITE_WRITERS: u32 = 1;

/// Readers do not wait for the writer (WAL).
const SQLITE_READERS: u32 = 2;

/// Several concurrent transactions benefit a server's group commit; more would only wait for the same rows.
pub(super) const SERVER_CONNECTIONS: u32 = 32;

/// Timeout for a connection from the pool. It is below the request timeout, so that the answer contains the cause.
pub(super) const ACQUIRE_LIMIT: Duration = Duration::from_secs(3);

/// How long SQLite waits for another process that locks the file: an operator's shell, a backup, the previous origin.
const BUSY_LIMIT: Duration = Duration::from_secs(2);

/// Settings of each MySQL connection. READ COMMITTED avoids gap locks, on which orders of different users would
/// collide. Strict mode refuses values that do not fit instead of truncating them. The lock timeout equals SQLite's.
const MYSQL_SETUP: [&str; 3] = [
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'",
    "SET SESSION innodb_lock_wait_timeout = 2",
];

/// Maximum number of tries to migrate SQLite while another origin does the same, and the pause between them. Each
/// migration may cost one failed try.
const MIGRATION_ATTEMPTS_MAX: usize = 50;
const MIGRATION_PAUSE: Duration = Duration::from_millis(100);

/// A migration: its version, its name, its statements.
type NamedMigration = (i64, &'static str, &'static str);

/// The migrations of one domain, for each database. The table `schema_<domain>` records the applied ones.
#[derive(Clone, Copy, Debug)]
pub struct Migrations {
    /// The domain's name.
    pub domain: &'static str,
    /// For SQLite, in order.
    pub sqlite: &'static [NamedMigration],
    /// For the MySQL protocol, in order.
    pub mysql: &'static [NamedMigration],
    /// For PostgreSQL, in order.
    pub postgres: &'static [NamedMigration],
}

impl Migrations {
    pub(super) fn migrator(&self, migrations: &[NamedMigration]) -> Migrator {
        let migration = |&(version, name, sql): &NamedMigration| {
            let sql = sql.into_sql_str();
            Migration::new(version, name.into(), MigrationType::Simple, sql, false)
        };
        let mut migrator = Migrator::with_migrations(migrations.iter().map(migration).collect());
        // sqlx does not quote table names, but this name is a constant.
        migrator.dangerous_set_table_name(format!("schema_{}", self.domain));
        // An origin of the previous minor version runs on the schema of the next one, which only adds.
        migrator.set_ignore_missing(true);
        migrator
    }

    pub(super) fn failed(&self, source: MigrateError) -> OpenError {
        let domain = self.domain;
        OpenError::Migrate { domain, source }
    }
}

/// Migrations of a crate: version, name and file of each, in order. The files are in `migrations/sqlite`,
/// `migrations/mysql` and `migrations/postgres` of the crate. A released file never changes.
#[macro_export]
macro_rules! migrations {
    ($domain:literal, $(($version:literal, $name:literal, $file:literal)),+ $(,)?) => {
        $crate::sql::Migrations {
            domain: $domain,
            sqlite: &[$(($version, $name, $crate::migration!("sqlite", $file))),+],
            mysql: &[$(($version, $name, $crate::migration!("mysql", $file))),+],
            postgres: &[$(($version, $name, $crate::migration!("postgres", $file))),+],
        }
    };
}

/// The text of one migration.
#[doc(hidden)]
#[macro_export]
macro_rules! migration {
    ($database:literal, $file:literal) => {
        include_str!(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/migrations/",
            $database,
            "/",
            $file,
            ".sql"
        ))
    };
}

/// Why a database cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The URL's scheme is not supported. The URL is omitted, because it may contain a password.
    #[error(
        "not a database URL, such as sqlite://weir.db, mysql://weir@host/weir or postgres://weir@host/weir"
    )]
    Unknown,
    /// The URL is malformed or has an unknown parameter. The cause is omitted, because it may quote the password.
    #[error("invalid {0} URL")]
    Url(&'static str),
    /// In-memory databases are not supported: each connection would have its own.
    #[error("in-memory databases are not supported")]
    InMemory,
    /// The URL of this scheme names no database.
    #[error("the URL has no database name: write {0}://<user>@<host>/<database>")]
    NoDatabase(&'static str),
    /// The database of PostgreSQL has another encoding.
    #[error("the database's encoding is {0}: create it with ENCODING 'UTF8'")]
    Encoding(String),
    /// The database could not be opened or read.
    #[error("cannot open the database: {0}")]
    Connect(#[source] Error),
    /// A migration failed.
    #[error("cannot migrate the tables of {domain}: {source}")]
    Migrate {
        /// The domain of the migrations.
        domain: &'static str,
        /// Cause.
        source: MigrateError,
    },
}

impl OpenError {
    /// Whether the database is only unavailable or busy, so that a retry may succeed.
    pub fn is_away(&self) -> bool {
        let error = match self {
            Self::Connect(error) => error,
            Self::Migrate {
                source: MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _),
                ..
            } => error,
            _ => return false,
        };
        match error {
            Error::Io(_) | Error::PoolTimedOut => true,
            Error::Database(error) => error.code().is_some_and(|code| is_away_code(&code)),
            _ => false,
        }
    }
}

/// Whether the code is SQLite's `SQLITE_BUSY` (with any extended code), or the SQLSTATE of a failed connection (class
/// 08), of a PostgreSQL that starts or stops (57P), or of a standby before its promotion (25006, 0A000).
fn is_away_code(code: &str) -> bool {
    const SQLITE_BUSY: u32 = 5;
    // SQLSTATEs have five characters, and could be read as numbers.
    let sqlite = code.parse().map(|code: u32| code & 0xff);
    let is_state = code.len() == 5;
    let is_away = ["08", "57P"].iter().any(|class| code.starts_with(class));
    match is_state {
        true => is_away || ["25006", "0A000"].contains(&code),
        false => sqlite == Ok(SQLITE_BUSY),
    }
}

/// Opens a SQLite file, and creates it if it does not exist.
pub(super) async fn open_sqlite(url: &str, migrations: &[Migrations]) -> Result<Pools, OpenError> {
    let options = SqliteConnectOptions::from_str(url).map_err(|_| OpenError::Url("SQLite"))?;
    if url.contains(":memory:") || url.contains("mode=memory") {
        return Err(OpenError::InMemory);
    }
    let options = options
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        // With NORMAL, a power failure could lose orders that were answered with 201.
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(true)
        .busy_timeout(BUSY_LIMIT);
    // Open the writer first: a reader can create neither the file nor its WAL.
    let writer = connect_sqlite(SQLITE_WRITERS, options.clone()).await?;
    for domain in migrations {
        let migrated = migrate_sqlite(&writer, domain).await;
        migrated.map_err(|error| domain.failed(error))?;
    }
    let file = File::from_path(options.get_filename());
    let file = file.map_err(|error| OpenError::Connect(Error::Io(error)))?;
    let readers = connect_sqlite(SQLITE_READERS, options.read_only(true)).await?;
    Ok(Pools::Sqlite {
        writer,
        readers,
        file,
    })
}

/// Migrates while other origins may do the same on a new file. Only SQLite's lock separates them. A migration that
/// another origin has just applied fails here, and is found applied at the next try.
async fn migrate_sqlite(writer: &SqlitePool, domain: &Migrations) -> Result<(), MigrateError> {
    let migrator = domain.migrator(domain.sqlite);
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
        // File connections do not drop, so idle ones need not be reopened.
        .idle_timeout(None)
        .max_lifetime(None)
        .connect_with(options)
        .await
        .map_err(OpenError::Connect)
}

/// Opens a MySQL database.
pub(super) async fn open_mysql(url: &str, migrations: &[Migrations]) -> Result<Pools, OpenError> {
    let options = MySqlConnectOptions::from_str(url).map_err(|_| OpenError::Url("MySQL"))?;
    if options.get_database().is_none_or(str::is_empty) {
        return Err(OpenError::NoDatabase("mysql"));
    }
    // `MYSQL_SETUP` sets the complete SQL mode.
    let options = options.pipes_as_concat(false).no_engine_substitution(false);
    let pool = MySqlPoolOptions::new()
        .max_connections(SERVER_CONNECTIONS)
        .acquire_timeout(ACQUIRE_LIMIT)
        .after_connect(|connection, _| {
            Box::pin(async move {
                for setup in MYSQL_SETUP {
                    query(setup).execute(&mut *connection).await?;
                }
                Ok(())
            })
        })
        .connect_with(options.clone());
    let pool = match pool.await {
        // The pool does not report why it has no connection.
        Err(Error::PoolTimedOut) => {
            return Err(OpenError::Connect(why_away(options.connect()).await));
        }
        opened => opened.map_err(OpenError::Connect)?,
    };
    for domain in migrations {
        let migrated = domain.migrator(domain.mysql).run(&pool).await;
        migrated.map_err(|error| domain.failed(error))?;
    }
    Ok(Pools::MySql(pool))
}

/// Connects once more to find out why there is no connection.
pub(super) async fn why_away<C>(connect: impl Future<Output = Result<C, Error>>) -> Error {
    match tokio::time::timeout(ACQUIRE_LIMIT, connect).await {
        Ok(Err(error)) => error,
        Ok(Ok(_)) | Err(_) => Error::PoolTimedOut,
    }
}

#[cfg(test)]
mod tests {
    use super::super::Database;
    use super::*;
    use sqlx::query_scalar;

    #[tokio::test]
    async fn each_sql_connection_has_the_designed_settings() {
        let dir = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}/weir.db", dir.path().display());
        let migrations = Migrations {
            domain: "test",
            sqlite: &[(1, "stock", "CREATE TABLE stock (remaining INTEGER)")],
            mysql: &[],
            postgres: &[],
        };
        let pools = open_sqlite(&url, &[migrations]).await.unwrap();
        let Pools::Sqlite {
            writer, readers, ..
        } = pools
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
    fn busy_database_is_unavailable_and_a_refusing_one_is_not() {
        for away in ["5", "261", "517", "08004", "08S01", "57P03", "25006"] {
            assert!(is_away_code(away), "{away}");
        }
        // A file that cannot be opened, a file that is not a database, a wrong password, an unknown database.
        for wrong in ["14", "26", "28000", "28P01", "42000", "HY000", ""] {
            assert!(!is_away_code(wrong), "{wrong}");
        }
        assert!(!OpenError::Unknown.is_away());
        assert!(OpenError::Connect(Error::PoolTimedOut).is_away());
    }

    #[tokio::test]
    async fn connection_refused_is_named_in_the_error() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        for scheme in ["mysql", "postgres"] {
            let url = format!("{scheme}://weir:secret@127.0.0.1:{port}/weir");
            let Err(error) = Database::open(&url, &[]).await else {
                panic!("it was opened");
            };
            assert!(error.is_away());
            let message = error.to_string();
            assert!(
                message.contains("refused") && !message.contains("secret"),
                "{message}"
            );
        }
    }
}
