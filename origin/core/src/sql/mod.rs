//! SQL: SQLite, MySQL or PostgreSQL, depending on the URL.
//!
//! | module | contents |
//! |---|---|
//! | [`columns`] | generates statements and row readers from one list of columns |
//! | [`database`] | pools, transactions, statements and rows of each database; retries |
//! | [`open`] | opens SQLite and MySQL and applies migrations |
//! | `postgres` | opens PostgreSQL and translates statements for it |
//! | [`concurrency_limit`] | limits running and waiting calls |
//! | [`foreign`] | read-only access to external databases |
//!
//! Tables belong to the domains: their statements are in `sales::store`, `links::store`, `history::store` and
//! `fitment::store`.

pub mod columns;
pub mod concurrency_limit;
pub mod database;
pub mod foreign;
pub mod open;
pub mod plan;
mod postgres;

pub use columns::{Codec, Columns, Json, Plain, insert_into, update};
pub use concurrency_limit::ConcurrencyLimit;
pub use database::Database;
pub use database::{Row, Statement, Tx, damaged, retried, sql};
pub use open::{Migrations, OpenError};
pub use sqlx::Error as RowError;

/// Number of values in a statement by [`in_many`].
pub const MANY: usize = 50;

/// A statement that ends with a list of [`MANY`] parameters: `… IN (?, …)`.
#[macro_export]
macro_rules! in_many {
    ($($before:expr),+ $(,)?) => {
        concat!(
            $($before,)+
            " IN (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ",
            "?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        )
    };
}
pub use crate::in_many;

/// Like [`in_many`], with text after the list.
#[macro_export]
macro_rules! in_many_then {
    ($before:expr, $after:expr) => {
        concat!(
            $before,
            " IN (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ",
            "?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            $after
        )
    };
}
pub use crate::in_many_then;

/// Pads up to [`MANY`] values to [`MANY`] by repeating the last one.
pub fn filled<T: Copy>(values: &[T]) -> impl Iterator<Item = T> {
    let last = values.last().into_iter().cycle();
    values.iter().chain(last).take(MANY).copied()
}

/// A call on SQL failed, or its outcome is unknown. A retry is safe: all writing calls of stores are idempotent.
#[derive(Debug, thiserror::Error)]
pub enum SqlError {
    /// SQL did not answer or returned an error.
    #[error("SQL: {0}")]
    Sql(#[from] sqlx::Error),
    /// Too many calls are waiting for SQL. Nothing was done.
    #[error("too many requests wait for SQL")]
    Overloaded,
}
