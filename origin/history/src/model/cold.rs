//! What a cold store is: lists on disk, one for each owner, written by whoever has read the latest.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use weir_history::cold::ColdError;
use weir_history::{Owner, ViewedProduct};

use weir_origin_core::sql::SqlError;

/// What a cold store does not answer at once.
pub type ColdFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, ColdStoreError>> + Send + 'a>>;

/// A list as a cold store has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredList {
    /// Which one it is; `None`: there is none.
    pub version: Option<u64>,
    /// The views, the newest first.
    pub views: Vec<ViewedProduct>,
}

/// A cold store did not answer, or has what cannot be read. Calling again is safe.
#[derive(Debug, thiserror::Error)]
pub enum ColdStoreError {
    /// SQL.
    #[error(transparent)]
    Sql(#[from] SqlError),
    /// Its value is not one that this Weir reads.
    #[error("cold store: {0}")]
    Value(#[from] ColdError),
    /// Another store.
    #[error("cold store: {0}")]
    Other(String),
}

/// Lists on disk.
pub trait ColdStore: Send + Sync + fmt::Debug {
    /// One owner's list.
    fn read<'a>(&'a self, owner: &'a Owner) -> ColdFuture<'a, StoredList>;

    /// Writes a list in the place of that of this version, or where there is none; an empty list takes it away. False, and
    /// nothing is done, if there is another one by now.
    fn write<'a>(
        &'a self,
        owner: &'a Owner,
        version: Option<u64>,
        views: &'a [ViewedProduct],
    ) -> ColdFuture<'a, bool>;

    /// Takes a list away, whichever is there.
    fn forget<'a>(&'a self, owner: &'a Owner) -> ColdFuture<'a, ()>;

    /// Takes away at most `max` lists whose latest view was before; tells how many. A store that forgets by itself tells 0.
    fn forget_older<'a>(&'a self, oldest_ms: u64, max: usize) -> ColdFuture<'a, u64>;
}
