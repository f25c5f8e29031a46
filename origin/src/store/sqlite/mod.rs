//! SQLite, built in: one file, one writer.

mod claims;
mod orders;
mod sales;

use std::future::Future;
use std::pin::Pin;
use std::str::FromStr;
use std::time::Duration;

use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};
use sqlx::{SqlSafeStr, query};
use weir_core::claim::Ticket;
use weir_core::id::{SaleId, UserId};
use weir_core::ledger::OrderEntry;
use weir_core::sale::Sale;

use super::{Placed, SaleTotals, Store, StoreError, StoreFuture, StoredSale};
use crate::new_sale::NewSale;

/// SQLite has one writer at a time: a second connection would only wait inside SQLite, where no
/// queue is fair.
const WRITERS: u32 = 1;

/// Readers do not wait for the writer (WAL). Only admin routes read.
const READERS: u32 = 2;

/// How long a call waits for a connection before it gives up. Below the time limit of a request,
/// so that the answer says why.
const ACQUIRE_LIMIT: Duration = Duration::from_secs(3);

/// How long SQLite waits for another process that holds the file's lock: an operator's shell, a
/// backup, the origin before this one.
const BUSY_LIMIT: Duration = Duration::from_secs(2);

/// The migrations, in order. A file, once released, never changes.
const MIGRATIONS: [(i64, &str, &str); 1] = [(
    1,
    "sales and orders",
    include_str!("../../../migrations/sqlite/0001_sales_and_orders.sql"),
)];

/// A SQLite file.
#[derive(Clone, Debug)]
pub struct SqliteStore {
    writer: SqlitePool,
    readers: SqlitePool,
}

/// Why a database could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The URL is not one of SQLite's. It is not shown: others' may hold a password.
    #[error("not a URL of SQLite, such as sqlite://weir.db")]
    NotSqlite,
    /// The URL has a parameter that SQLite does not know, or is otherwise broken.
    #[error("not a sound URL of SQLite: {0}")]
    Url(#[source] sqlx::Error),
    /// Each connection to an in-memory database would have a database of its own.
    #[error("orders must survive the process: a database in memory will not do")]
    InMemory,
    /// It could not be opened, or not be read.
    #[error("cannot open the database: {0}")]
    Connect(#[source] sqlx::Error),
    /// Its tables could not be brought up to date.
    #[error("cannot migrate the database: {0}")]
    Migrate(#[from] MigrateError),
}

impl SqliteStore {
    /// Opens the file that `url` names, `sqlite://<path>`, makes it if it is not there, and brings
    /// its tables up to date.
    ///
    /// # Errors
    /// Says which of these failed.
    pub async fn open(url: &str) -> Result<Self, OpenError> {
        // The parser would take any other URL for the name of a file.
        if !url.starts_with("sqlite:") {
            return Err(OpenError::NotSqlite);
        }
        let options = SqliteConnectOptions::from_str(url).map_err(OpenError::Url)?;
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
        let writer = connect(WRITERS, options.clone()).await?;
        migrator().run(&writer).await?;
        let readers = connect(READERS, options.read_only(true)).await?;
        Ok(Self { writer, readers })
    }
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

fn migrator() -> Migrator {
    let migration = |(version, name, sql): (i64, &'static str, &'static str)| {
        let sql = sql.into_sql_str();
        Migration::new(version, name.into(), MigrationType::Simple, sql, false)
    };
    Migrator::with_migrations(MIGRATIONS.map(migration).to_vec())
}

/// Boxes a query's future and gives its errors the trait's type.
fn boxed<'a, T, F>(answer: F) -> StoreFuture<'a, T>
where
    F: Future<Output = Result<T, sqlx::Error>> + Send + 'a,
{
    Box::pin(async move { answer.await.map_err(StoreError) })
}

/// A number as SQL takes it. What does not fit is beyond every limit that was checked before, and
/// fails the statement's own CHECK or comparison.
fn to_sql(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

impl Store for SqliteStore {
    fn create_sale<'a>(&'a self, sale: &'a NewSale, now_ms: u64) -> StoreFuture<'a, bool> {
        boxed(sales::create(&self.writer, sale, now_ms))
    }

    fn sale<'a>(&'a self, id: &'a SaleId) -> StoreFuture<'a, Option<SaleTotals>> {
        boxed(sales::one(&self.readers, id))
    }

    fn sales(&self, limit: usize) -> StoreFuture<'_, Vec<StoredSale>> {
        boxed(sales::list(&self.readers, limit))
    }

    fn catalogue(&self, ended_after_ms: u64, limit: usize) -> StoreFuture<'_, Vec<Sale>> {
        boxed(sales::catalogue(&self.readers, ended_after_ms, limit))
    }

    fn mark_warmed<'a>(&'a self, id: &'a SaleId, now_ms: u64) -> StoreFuture<'a, ()> {
        boxed(sales::mark_warmed(&self.writer, id, now_ms))
    }

    fn place<'a>(&'a self, ticket: &'a Ticket, now_ms: u64) -> StoreFuture<'a, Placed> {
        boxed(claims::place(&self.writer, ticket, now_ms))
    }

    fn void<'a>(&'a self, ticket: &'a Ticket, now_ms: u64) -> StoreFuture<'a, bool> {
        boxed(claims::void(&self.writer, ticket, now_ms))
    }

    fn release<'a>(&'a self, ticket: &'a Ticket, now_ms: u64) -> StoreFuture<'a, Option<Placed>> {
        boxed(claims::release(&self.writer, ticket, now_ms))
    }

    fn orders_page<'a>(
        &'a self,
        sale: &'a SaleId,
        shard: u32,
        after: u64,
        limit: usize,
    ) -> StoreFuture<'a, Vec<(UserId, OrderEntry)>> {
        boxed(orders::page(&self.readers, sale, shard, after, limit))
    }

    fn ping(&self) -> StoreFuture<'_, ()> {
        boxed(async { query("SELECT 1").execute(&self.readers).await.map(drop) })
    }

    fn close(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async {
            self.readers.close().await;
            // Last: the last connection to close moves the WAL into the file.
            self.writer.close().await;
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sqlx::query_scalar;

    #[tokio::test]
    async fn each_connection_is_set_up_as_the_design_asks() {
        let dir = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}/weir.db", dir.path().display());
        let store = SqliteStore::open(&url).await.unwrap();
        let number = async |pragma: &'static str| -> i64 {
            query_scalar(pragma).fetch_one(&store.writer).await.unwrap()
        };
        assert_eq!(number("PRAGMA synchronous").await, 2); // FULL
        assert_eq!(number("PRAGMA foreign_keys").await, 1);
        assert_eq!(number("PRAGMA busy_timeout").await, 2_000);
        let mode: String = query_scalar("PRAGMA journal_mode")
            .fetch_one(&store.writer)
            .await
            .unwrap();
        assert_eq!(mode, "wal");
        let written = query("DELETE FROM stock").execute(&store.readers).await;
        assert!(written.is_err(), "a reader wrote");
    }
}
