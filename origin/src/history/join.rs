//! A guest's views become a user's, when the guest signs in.
//!
//! The lists are in different slots of a Redis Cluster, so no script does it at once. Each step may be done again, and the
//! next begins when the one before has ended: the guest's views are read, the user has them, the guest has them no more. A
//! view that comes late for the guest stays there until the next join.

use weir_history::{Owner, Seen};

use super::History;
use super::record::View;
use super::remove::RemoveError;
use crate::redis::CallError;
use crate::unavailable::Unavailable;

/// What a join did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joined {
    /// So many views of the guest were given to the user.
    pub views: usize,
    /// Whether that are all: if not, the client may join again later.
    pub is_complete: bool,
}

impl History {
    /// Gives a guest's views to a user. What the user has removed since stays away.
    ///
    /// # Errors
    /// When SQL or Redis does not answer: then it may be done in part, and again.
    pub async fn join(&self, guest: &Owner, user: &Owner) -> Result<Joined, Unavailable> {
        let found = self.views(guest).await?;
        self.give(&found.views, user).await?;
        self.take(guest, &found.views).await?;
        Ok(Joined {
            views: found.views.len(),
            is_complete: found.is_complete,
        })
    }

    /// The second step.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn give(&self, views: &[Seen], user: &Owner) -> Result<(), CallError> {
        let view = |seen: &Seen| View {
            owner: user.clone(),
            sku: seen.sku.clone(),
            at_ms: seen.at_ms,
        };
        let views: Vec<View> = views.iter().map(view).collect();
        self.record(&views).await.map(drop)
    }

    /// The third step: just these views go, for one that is on its way must not be lost.
    ///
    /// # Errors
    /// When SQL or Redis does not answer.
    pub async fn take(&self, guest: &Owner, views: &[Seen]) -> Result<(), Unavailable> {
        let Some(newest) = views.first() else {
            return Ok(());
        };
        let taken = match self.delete_views(guest, views).await {
            // A guest who has joined so often: all up to then goes.
            Err(RemoveError::TooMany) => self.clear_views(guest, newest.at_ms).await,
            taken => taken,
        };
        match taken {
            Ok(_) | Err(RemoveError::TooMany) => Ok(()),
            Err(RemoveError::Unavailable(error)) => Err(error),
        }
    }
}
