//! Direct access of a test to the origin's database.

use sqlx::mysql::{MySqlConnection, MySqlRow};
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{Connection, FromRow};

use super::*;

/// A test's connection to the origin's database.
pub enum Sql {
    Sqlite(SqliteConnection),
    MySql(MySqlConnection),
}

/// A row that both databases can return.
pub trait SqlRow:
    for<'r> FromRow<'r, SqliteRow> + for<'r> FromRow<'r, MySqlRow> + Send + Unpin
{
}

impl<R> SqlRow for R where
    R: for<'r> FromRow<'r, SqliteRow> + for<'r> FromRow<'r, MySqlRow> + Send + Unpin
{
}

impl Sql {
    /// Runs one statement with these values.
    pub async fn execute(&mut self, statement: &'static str, values: &[&str]) {
        match self {
            Self::Sqlite(sql) => {
                let query = values
                    .iter()
                    .fold(sqlx::query(statement), |q, v| q.bind(*v));
                query.execute(sql).await.unwrap();
            }
            Self::MySql(sql) => {
                let query = values
                    .iter()
                    .fold(sqlx::query(statement), |q, v| q.bind(*v));
                query.execute(sql).await.unwrap();
            }
        }
    }

    /// Runs one statement with these bytes.
    pub async fn execute_bytes(&mut self, statement: &'static str, bytes: &[u8]) {
        match self {
            Self::Sqlite(sql) => drop(
                sqlx::query(statement)
                    .bind(bytes)
                    .execute(sql)
                    .await
                    .unwrap(),
            ),
            Self::MySql(sql) => drop(
                sqlx::query(statement)
                    .bind(bytes)
                    .execute(sql)
                    .await
                    .unwrap(),
            ),
        }
    }

    /// Releases the lock of [`World::lock_database`].
    pub async fn unlock(mut self) {
        self.execute("ROLLBACK", &[]).await;
    }
}

impl World {
    /// Opens a test's connection to the database.
    pub async fn sql(&self) -> Sql {
        match self.database_url.starts_with("sqlite:") {
            true => {
                let sql = SqliteConnection::connect(&self.database_url).await;
                Sql::Sqlite(sql.unwrap())
            }
            false => {
                let sql = MySqlConnection::connect(&self.database_url).await;
                Sql::MySql(sql.unwrap())
            }
        }
    }

    /// Locks data that every order writes, like a slow transaction of another process, until `ROLLBACK`: the whole
    /// SQLite database, or the stock in MySQL.
    pub async fn lock_database(&self) -> Sql {
        let mut other = self.sql().await;
        if backing() == Backing::SqliteAndSingle {
            other.execute("BEGIN IMMEDIATE", &[]).await;
        } else {
            other.execute("START TRANSACTION", &[]).await;
            other.execute("SELECT * FROM stock FOR UPDATE", &[]).await;
        }
        other
    }

    /// The only row of a query result.
    pub async fn row<R: SqlRow>(&self, query: &'static str) -> R {
        match self.sql().await {
            Sql::Sqlite(mut sql) => sqlx::query_as(query).fetch_one(&mut sql).await.unwrap(),
            Sql::MySql(mut sql) => sqlx::query_as(query).fetch_one(&mut sql).await.unwrap(),
        }
    }

    /// The only number of a query result.
    pub async fn number(&self, query: &'static str) -> i64 {
        self.row::<(i64,)>(query).await.0
    }

    /// The number of rows in `orders`, `change_log` and `claim_outcomes`.
    pub async fn rows(&self) -> [i64; 3] {
        [
            self.number("SELECT COUNT(*) FROM orders").await,
            self.number("SELECT COUNT(*) FROM change_log").await,
            self.number("SELECT COUNT(*) FROM claim_outcomes").await,
        ]
    }

    pub async fn remaining(&self) -> i64 {
        self.number("SELECT remaining FROM stock").await
    }

    /// Makes SQL and Redis disagree.
    pub async fn set_remaining(&self, units: i64) {
        let update = "UPDATE stock SET remaining = ?";
        let units = units.to_string();
        self.sql().await.execute(update, &[&units]).await;
    }
}
