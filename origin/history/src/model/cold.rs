//! The interface of a cold store: one list per owner on disk, written by compare-and-set.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use weir_history::cold::ColdError;
use weir_history::{Owner, ViewedProduct};

use weir_origin_core::sql::SqlError;

/// Future of a cold store call.
pub type ColdFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, ColdStoreError>> + Send + 'a>>;

/// A list in a cold store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredList {
    /// Its version; `None`: the list does not exist.
    pub version: Option<u64>,
    /// The views, newest first.
    pub views: Vec<ViewedProduct>,
}

/// A cold store failed, or its value cannot be read. A repeated call is safe.
#[derive(Debug, thiserror::Error)]
pub enum ColdStoreError {
    /// A SQL call failed.
    #[error(transparent)]
    Sql(#[from] SqlError),
    /// The stored value cannot be read by this version.
    #[error("cold store: {0}")]
    Value(#[from] ColdError),
    /// Another store failed.
    #[error("cold store: {0}")]
    Other(String),
}

/// Lists on disk.
pub trait ColdStore: Send + Sync + fmt::Debug {
    /// Reads an owner's list.
    fn read<'a>(&'a self, owner: &'a Owner) -> ColdFuture<'a, StoredList>;

    /// Writes a list if the stored version is `version`, or if no list exists; an empty list deletes it. Returns false,
    /// without a change, if the version differs.
    fn write<'a>(
        &'a self,
        owner: &'a Owner,
        version: Option<u64>,
        views: &'a [ViewedProduct],
    ) -> ColdFuture<'a, bool>;

    /// Deletes a list of any version.
    fn forget<'a>(&'a self, owner: &'a Owner) -> ColdFuture<'a, ()>;

    /// Deletes at most `max` lists whose latest view is before `oldest_ms`, and returns their number. A store with its
    /// own expiry returns 0.
    fn forget_older<'a>(&'a self, oldest_ms: u64, max: usize) -> ColdFuture<'a, u64>;
}
