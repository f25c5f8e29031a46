//! Merges a guest's views into the user's list after sign-in.
//!
//! The lists are in different slots of a Redis Cluster, so one script cannot move them atomically. Each step is
//! idempotent and begins after the previous one. The steps are: read the guest's views, write them to the user's list
//! in the cold store and in Redis, and remove them from the guest. They repeat until no views are left. The cold store
//! must have the views before they are removed, because no event log attributes them to the user: a Redis that loses
//! them could not be rebuilt. A late view of the guest stays there until the next merge.

use weir_history::{Owner, ViewedProduct};

use super::History;
use super::record::View;
use super::remove::RemoveError;
use crate::jobs::fold::FoldError;
use weir_origin_core::redis::CallError;
use weir_origin_core::sql::SqlError;
use weir_origin_core::unavailable::Unavailable;

/// Maximum number of rounds. After a full list is moved, the cold store supplies the views that did not fit; then only
/// newly arriving views are left.
const ROUNDS: usize = 4;

/// Result of a merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JoinSummary {
    /// Number of views that this merge moved. Each view counts in only one of several concurrent merges.
    pub views: usize,
    /// Whether all views were moved. If not, the client may merge again later.
    pub is_complete: bool,
}

/// Why a merge failed, possibly after some views were moved. It may be repeated.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// SQL or Redis is unavailable.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// The cold store did not accept the views.
    #[error(transparent)]
    Fold(#[from] FoldError),
}

impl From<CallError> for JoinError {
    fn from(error: CallError) -> Self {
        Self::Unavailable(error.into())
    }
}

impl From<SqlError> for JoinError {
    fn from(error: SqlError) -> Self {
        Self::Unavailable(error.into())
    }
}

impl History {
    /// Moves a guest's views to a user. Views that the user has removed since are left out.
    ///
    /// # Errors
    /// See [`JoinError`].
    pub async fn join(&self, guest: &Owner, user: &Owner) -> Result<JoinSummary, JoinError> {
        let mut joined = JoinSummary {
            views: 0,
            is_complete: false,
        };
        for _ in 0..ROUNDS {
            let found = self.views(guest).await?;
            joined.is_complete = found.is_complete;
            if found.views.is_empty() {
                break;
            }
            self.give(&found.views, user).await?;
            joined.views += self.take(guest, &found.views).await?;
        }
        Ok(joined)
    }

    /// Second step: gives the views to the user.
    ///
    /// # Errors
    /// If Redis, SQL or the cold store is unavailable.
    pub async fn give(&self, views: &[ViewedProduct], user: &Owner) -> Result<(), JoinError> {
        if views.is_empty() {
            return Ok(());
        }
        let view = |product: &ViewedProduct| View {
            owner: user.clone(),
            sku: product.sku.clone(),
            at_ms: product.at_ms,
        };
        let of_user: Vec<View> = views.iter().map(view).collect();
        // Write the cold store first: a list that Redis loads meanwhile may lack the views, and gets them from the next
        // call.
        self.fold_with(user, views).await?;
        Ok(self.record(&of_user).await.map(drop)?)
    }

    /// Third step: removes exactly these views from the guest, so that views arriving now are not lost. Returns the
    /// number that no other merge has taken.
    ///
    /// # Errors
    /// If SQL or Redis is unavailable.
    pub async fn take(&self, guest: &Owner, views: &[ViewedProduct]) -> Result<usize, JoinError> {
        let Some(newest) = views.first() else {
            return Ok(0);
        };
        let accepted = match self.take_views(guest, views).await {
            // The guest has too many removals: clear all views up to that time.
            Err(RemoveError::TooMany) => {
                let cleared = self.clear_views(guest, newest.at_ms).await;
                cleared.map(|removed| (removed, None))
            }
            accepted => accepted,
        };
        match accepted {
            Ok((_, count)) => Ok(count.unwrap_or(views.len())),
            Err(RemoveError::TooMany) => Ok(views.len()),
            Err(RemoveError::Unavailable(error)) => Err(error.into()),
        }
    }
}
