//! A guest's views become a user's, when the guest signs in.
//!
//! The lists are in different slots of a Redis Cluster, so no script does it at once. Each step may be done again, and the
//! next begins when the one before has ended: the guest's views are read; the user has them, in the cold store and in Redis;
//! the guest has them no more; until none are left. The cold store comes before the last step, for no log has these views as the user's: a Redis
//! that lost them could not be told again. A view that comes late for the guest stays there until the next join.

use weir_history::{Owner, ViewedProduct};

use super::History;
use super::record::View;
use super::remove::RemoveError;
use crate::jobs::fold::FoldError;
use weir_origin_core::redis::CallError;
use weir_origin_core::sql::SqlError;
use weir_origin_core::unavailable::Unavailable;

/// The most rounds of a join. When a full list has gone, what it had no room for comes up from the cold store; then none is
/// left but what comes meanwhile.
const ROUNDS: usize = 4;

/// What a join did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JoinSummary {
    /// Views of the guest that this join gave to the user. Of several joins at once, each view counts in one.
    pub views: usize,
    /// Whether that are all: if not, the client may join again later.
    pub is_complete: bool,
}

/// Why a join is not done, or only in part. It may be done again.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// SQL or Redis did not answer.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// The cold store has not taken the views.
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
    /// Gives a guest's views to a user. What the user has removed since stays away.
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

    /// The second step.
    ///
    /// # Errors
    /// When Redis, SQL or the cold store does not answer.
    pub async fn give(&self, views: &[ViewedProduct], user: &Owner) -> Result<(), JoinError> {
        if views.is_empty() {
            return Ok(());
        }
        let view = |seen: &ViewedProduct| View {
            owner: user.clone(),
            sku: seen.sku.clone(),
            at_ms: seen.at_ms,
        };
        let of_user: Vec<View> = views.iter().map(view).collect();
        // The cold store first: a list that Redis loads meanwhile may lack them, and has them then.
        self.fold_with(user, views).await?;
        Ok(self.record(&of_user).await.map(drop)?)
    }

    /// The third step: just these views go, because one that is on its way must not be lost. Returns how many of them no other
    /// join has taken.
    ///
    /// # Errors
    /// When SQL or Redis does not answer.
    pub async fn take(&self, guest: &Owner, views: &[ViewedProduct]) -> Result<usize, JoinError> {
        let Some(newest) = views.first() else {
            return Ok(0);
        };
        let taken = match self.take_views(guest, views).await {
            // A guest who has joined so often: all up to then goes.
            Err(RemoveError::TooMany) => {
                let cleared = self.clear_views(guest, newest.at_ms).await;
                cleared.map(|removed| (removed, None))
            }
            taken => taken,
        };
        match taken {
            Ok((_, count)) => Ok(count.unwrap_or(views.len())),
            Err(RemoveError::TooMany) => Ok(views.len()),
            Err(RemoveError::Unavailable(error)) => Err(error.into()),
        }
    }
}
