//! The failure of work that needs both SQL and Redis.

use crate::redis::CallError;
use crate::sql::SqlError;

/// SQL or Redis did not answer, or the outcome is unknown.
#[derive(Debug, thiserror::Error)]
pub enum Unavailable {
    /// SQL failed.
    #[error(transparent)]
    Sql(#[from] SqlError),
    /// Redis failed.
    #[error(transparent)]
    Redis(#[from] CallError),
}
