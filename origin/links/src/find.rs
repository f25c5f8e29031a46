//! Finds links: in the cold store, or still in a log.

use std::time::Duration;

use weir_link::code::LinkId;

use super::log::LinkLog;
use super::records::{Life, LinkRecords};
use super::store::{LinkStore, StoredLink};
use weir_origin_core::redis::CallError;
use weir_origin_core::sql::SqlError;

/// How long to wait for a link that Redis has and the cold store does not: it is in another origin's log.
const FOLLOW_LIMIT: Duration = Duration::from_secs(2);

/// The pause between two looks.
const FOLLOW_PAUSE: Duration = Duration::from_millis(50);

/// Why a link was not found.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    /// There is no such link.
    #[error("there is no such link")]
    Unknown,
    /// Redis has it, but the cold store does not yet.
    #[error("the link is new and not in the cold store yet")]
    NotYet,
    /// The cold store does not answer.
    #[error(transparent)]
    Store(#[from] SqlError),
    /// Redis does not answer.
    #[error(transparent)]
    Redis(#[from] CallError),
}

/// Finds links. Cloning it is cheap.
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

    /// A link, wherever it is: in the cold store, or still in a log.
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

    /// A link in the cold store, or in this origin's log: then it waits until the cold store has it.
    ///
    /// # Errors
    /// When the cold store does not answer.
    pub async fn find_here(&self, id: &LinkId) -> Result<Option<StoredLink>, SqlError> {
        // Asked before the store: what leaves the log between the two is in neither look.
        let was_drained = self.log.is_drained();
        let found = self.store.link(id).await?;
        if found.is_some() || was_drained {
            return Ok(found);
        }
        // If that takes long the store is not working, and will say so.
        let _ = tokio::time::timeout(FOLLOW_LIMIT, self.log.drained()).await;
        self.store.link(id).await
    }
}
