//! SQL: SQLite or the MySQL protocol, whichever the URL names.
//!
//! | module | does |
//! |---|---|
//! | [`database`] | pools, transactions, statements and rows of either database; retries; migrations |
//! | [`shed`] | limits how many calls work at once and how many wait |
//!
//! The tables belong to the domains: their statements are in `sales::store`, `links::store` and `history::store`.

pub mod database;
pub mod shed;

pub use database::{Database, Migrations, OpenError};
pub(crate) use database::{Row, Statement, Tx, damaged, retried, sql};
pub use shed::Shed;

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
