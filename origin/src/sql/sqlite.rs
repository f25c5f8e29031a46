//! SQLite's file: who writes it, who reads it, and who moves what was written from the WAL into it.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use sqlx::migrate::MigrateError;
use sqlx::query;
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::warn;

use super::database::{ACQUIRE_LIMIT, NamedMigration, OpenError, migrator};

/// SQLite has one writer at a time: a second connection would only wait inside SQLite, where no
/// queue is fair.
const WRITERS: u32 = 1;

/// Readers do not wait for the writer (WAL).
const READERS: u32 = 2;

/// How long SQLite waits for another process that holds the file's lock: an operator's shell, a
/// backup, the origin before this one.
const BUSY_LIMIT: Duration = Duration::from_secs(2);

/// How often tables are brought up to date while another origin does the same, and the pause between. One round may fail
/// for each migration.
const MIGRATION_ATTEMPTS_MAX: usize = 50;
const MIGRATION_PAUSE: Duration = Duration::from_millis(100);

/// Between two checkpoints.
const CHECKPOINT_PERIOD: Duration = Duration::from_millis(200);

/// With so many pages of 4 KiB in the WAL, a commit moves what is left of them itself, and the WAL begins anew: where commits
/// never pause, no other can begin it. SQLite's own 1,000 would have one order in a hundred wait until the pages of all of
/// them are written, each where it belongs.
const WAL_PAGES_MAX: u32 = 16_000;

/// An open file.
pub(super) struct Opened {
    pub writer: SqlitePool,
    pub readers: SqlitePool,
    pub checkpoints: Arc<Checkpoints>,
}

/// Moves pages from the WAL into the file while others write, until it is dropped.
#[derive(Debug)]
pub(super) struct Checkpoints {
    pool: SqlitePool,
    _end: DropGuard,
}

impl Checkpoints {
    /// On a connection of its own, so that no commit waits for it.
    async fn start(options: SqliteConnectOptions) -> Result<Self, OpenError> {
        let pool = connect(1, options).await?;
        let end = CancellationToken::new();
        tokio::spawn(run(pool.clone(), end.clone()));
        Ok(Self {
            pool,
            _end: end.drop_guard(),
        })
    }

    /// Ends it, and closes its connection.
    pub(super) async fn close(&self) {
        self.pool.close().await;
    }
}

async fn run(pool: SqlitePool, end: CancellationToken) {
    let mut is_failing = false;
    while end
        .run_until_cancelled(tokio::time::sleep(CHECKPOINT_PERIOD))
        .await
        .is_some()
        && !pool.is_closed()
    {
        // It waits for nobody: what others still read stays for the next one.
        let done = query("PRAGMA wal_checkpoint(PASSIVE)").execute(&pool).await;
        match done {
            Err(error) if !is_failing && !pool.is_closed() => {
                warn!(%error, "the WAL stays as it is until commits move it");
                is_failing = true;
            }
            done => is_failing = done.is_err(),
        }
    }
}

/// Opens the file that `url` names, and brings its tables up to date.
pub(super) async fn open(url: &str, migrations: &[NamedMigration]) -> Result<Opened, OpenError> {
    let options = SqliteConnectOptions::from_str(url).map_err(|_| OpenError::Url("SQLite"))?;
    if url.contains(":memory:") || url.contains("mode=memory") {
        return Err(OpenError::InMemory);
    }
    let options = options
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        // With NORMAL a power cut could take back orders that were answered with 201.
        .synchronous(SqliteSynchronous::Full)
        .pragma("wal_autocheckpoint", WAL_PAGES_MAX.to_string())
        .foreign_keys(true)
        .busy_timeout(BUSY_LIMIT);
    // The writer first: a reader can neither make the file nor its WAL.
    let writer = connect(WRITERS, options.clone()).await?;
    migrate(&writer, migrations).await?;
    let checkpoints = Arc::new(Checkpoints::start(options.clone()).await?);
    let readers = connect(READERS, options.read_only(true)).await?;
    Ok(Opened {
        writer,
        readers,
        checkpoints,
    })
}

/// Two origins may begin with one new file at the same moment. Nothing but SQLite's own lock keeps them apart, so what one has
/// made meanwhile, the other fails to make; it then finds it made.
async fn migrate(writer: &SqlitePool, migrations: &[NamedMigration]) -> Result<(), MigrateError> {
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

async fn connect(count: u32, options: SqliteConnectOptions) -> Result<SqlitePool, OpenError> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    const LIMIT: Duration = Duration::from_secs(20);

    /// What commits write comes into the file though none of them takes it there.
    #[tokio::test]
    async fn the_wal_is_moved_into_the_file_beside_commits() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("weir.db");
        let url = format!("sqlite://{}", path.display());
        let migrations = [(1, "notes", "CREATE TABLE notes (text TEXT)")];
        let opened = open(&url, &migrations).await.unwrap();
        let text = "n".repeat(100_000);
        for _ in 0..50 {
            let insert = query("INSERT INTO notes VALUES (?)").bind(&text);
            insert.execute(&opened.writer).await.unwrap();
        }
        let start = Instant::now();
        while std::fs::metadata(&path).unwrap().len() < 50 * 100_000 {
            assert!(start.elapsed() < LIMIT, "the WAL stays as it is");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        opened.checkpoints.close().await;
    }
}
