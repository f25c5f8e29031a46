//! The failure of work that needs both SQL and Redis.

use crate::redis::CallError;
use crate::sql::SqlError;

/// SQL or Redis did not answer, or it is unknown whether it did what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum Unavailable {
    /// SQL.
    #[error(transparent)]
    Sql(#[from] SqlError),
    /// Redis.
    #[error(transparent)]
    Redis(#[from] CallError),
}
