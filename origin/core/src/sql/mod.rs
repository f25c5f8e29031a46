//! SQL: SQLite or the MySQL protocol, whichever the URL names.
//!
//! | module | does |
//! |---|---|
//! | [`columns`] | makes statements and readers of rows from one list of columns |
//! | [`database`] | pools, transactions, statements and rows of either database; retries |
//! | [`open`] | opens either, and brings its tables up to date |
//! | [`concurrency_limit`] | limits how many calls work at once and how many wait |
//! | [`foreign`] | somebody else's database, to be read |
//!
//! The tables belong to the domains: their statements are in `sales::store`, `links::store`, `history::store` and
//! `fitment::store`.

pub mod columns;
pub mod concurrency_limit;
pub mod database;
pub mod foreign;
pub mod open;
pub mod plan;

pub use columns::{Codec, Columns, Json, Plain, insert_into, update};
pub use concurrency_limit::ConcurrencyLimit;
pub use database::Database;
pub use database::{Row, Statement, Tx, damaged, retried, sql};
pub use open::{Migrations, OpenError};
pub use sqlx::Error as RowError;

/// Values of one statement by [`in_many`].
pub const MANY: usize = 50;

/// A statement that ends with a list of [`MANY`] values: `… IN (?, …)`.
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

/// The same, with something behind the list.
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

/// Some values for it, at most [`MANY`]: the last one fills the places that are left.
pub fn filled<T: Copy>(values: &[T]) -> impl Iterator<Item = T> {
    let last = values.last().into_iter().cycle();
    values.iter().chain(last).take(MANY).copied()
}

/// A call on SQL failed, or its outcome is unknown. Calling again is safe: every call of a store that changes
/// something changes it once.
#[derive(Debug, thiserror::Error)]
pub enum SqlError {
    /// SQL did not answer, or answered with an error.
    #[error("SQL: {0}")]
    Sql(#[from] sqlx::Error),
    /// Too many calls are waiting for SQL. Nothing was done.
    #[error("too many requests wait for SQL")]
    Overloaded,
}
