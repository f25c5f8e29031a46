//! Finds links, in the cold store or in a log.

use std::time::Duration;

use weir_link::code::LinkId;

use super::log::LinkLog;
use super::records::{Life, LinkRecords};
use super::store::{LinkStore, StoredLink};
use weir_origin_core::redis::CallError;
use weir_origin_core::sql::SqlError;

/// Time to wait for a link that is in Redis but not in the cold store: it is in another origin's log.
const FOLLOW_LIMIT: Duration = Duration::from_secs(2);

/// The pause between two attempts.
const FOLLOW_PAUSE: Duration = Duration::from_millis(50);

/// Why a link was not found.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    /// The link does not exist.
    #[error("link not found")]
    Unknown,
    /// Redis has the link, but the cold store does not have it yet.
    #[error("the link is new and not in the cold store yet")]
    NotYet,
    /// The cold store failed.
    #[error(transparent)]
    Store(#[from] SqlError),
    /// Redis failed.
    #[error(transparent)]
    Redis(#[from] CallError),
}

/// Finds links. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct Finder {
    store: LinkStore,
    records: LinkRecords,
    log: LinkLog,
}

impl Finder {
    pub(super) fn new(store: LinkStore, records: LinkRecords, log: LinkLog) -> Self {
        Self {
            store,
            records,
            log,
        }
    }

    /// Finds a link in the cold store or in any origin's log.
    ///
    /// # Errors
    /// See [`FindError`].
    pub async fn find(&self, id: &LinkId) -> Result<StoredLink, FindError> {
        if let Some(link) = self.find_here(id).await? {
            return Ok(link);
        }
        if self.records.remaining_lives(&[id]).await? == [Life::Gone] {
            return Err(FindError::Unknown);
        }
        let look = async {
            loop {
                if let Some(link) = self.store.link(id).await? {
                    return Ok(link);
                }
                tokio::time::sleep(FOLLOW_PAUSE).await;
            }
        };
        let found = tokio::time::timeout(FOLLOW_LIMIT, look).await;
        found.unwrap_or(Err(FindError::NotYet))
    }

    /// Finds a link in the cold store. If this origin's log is not drained yet, waits and looks again.
    ///
    /// # Errors
    /// If the cold store fails.
    pub async fn find_here(&self, id: &LinkId) -> Result<Option<StoredLink>, SqlError> {
        // Read this before the store. Otherwise a link that leaves the log in between would be missed in both.
        let was_drained = self.log.is_drained();
        let found = self.store.link(id).await?;
        if found.is_some() || was_drained {
            return Ok(found);
        }
        // If this takes long, the store is not working, and the next read fails.
        let _ = tokio::time::timeout(FOLLOW_LIMIT, self.log.drained()).await;
        self.store.link(id).await
    }
}
