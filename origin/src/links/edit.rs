//! Links, found and changed.
//!
//! An edit is written to the cold store first, with a note that Redis is to follow; then to Redis, and into
//! the stream that gateways poll. Whatever fails in between is done again from the note.

use std::time::Duration;

use tracing::warn;
use weir_link::code::LinkId;

use super::Links;
use super::redis::Life;
use super::request::{Applied, EditRequest, Refused};
use super::store::{Action, Change, StoredLink};
use super::view::LinkView;
use crate::ledger::LedgerError;
use crate::store::StoreError;

/// How long a link is looked for that Redis has and the cold store has not: it is in another origin's log.
const FOLLOW_LIMIT: Duration = Duration::from_secs(2);

/// The pause between two looks.
const FOLLOW_PAUSE: Duration = Duration::from_millis(50);

/// How often an edit is tried again that met another one.
const ATTEMPTS: usize = 8;

/// Why a link was not found or not changed.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    /// There is no such link.
    #[error("there is no such link")]
    Unknown,
    /// Redis has it, the cold store does not yet.
    #[error("the link was just made and is not in the cold store yet")]
    NotYet,
    /// The request is not sound.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// It has another version than the one that was to be changed.
    #[error("the link has version {0}")]
    Version(u32),
    /// Others change it all the time.
    #[error("the link is being changed by others")]
    Busy,
    /// The cold store does not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Redis does not answer.
    #[error(transparent)]
    Redis(#[from] LedgerError),
}

/// A link after an edit.
#[derive(Debug)]
pub struct Edited {
    /// The link.
    pub link: LinkView,
    /// Whether Redis has followed, so that gateways see it within a second.
    pub is_published: bool,
}

impl Links {
    /// A link, wherever it is: in the cold store, or still in a log.
    ///
    /// # Errors
    /// See [`EditError`].
    pub async fn find(&self, id: &LinkId) -> Result<StoredLink, EditError> {
        if let Some(link) = self.find_here(id).await? {
            return Ok(link);
        }
        if self.redis().lives(&[id]).await? == [Life::Gone] {
            return Err(EditError::Unknown);
        }
        let look = async {
            loop {
                if let Some(link) = self.store().link(id).await? {
                    return Ok(link);
                }
                tokio::time::sleep(FOLLOW_PAUSE).await;
            }
        };
        let found = tokio::time::timeout(FOLLOW_LIMIT, look).await;
        found.unwrap_or(Err(EditError::NotYet))
    }

    /// A link of the cold store, or of this origin's log, which is taken over for it.
    ///
    /// # Errors
    /// When the cold store does not answer.
    pub async fn find_here(&self, id: &LinkId) -> Result<Option<StoredLink>, StoreError> {
        let found = self.store().link(id).await?;
        if found.is_some() || self.log().is_drained() {
            return Ok(found);
        }
        // If that takes long the store does not take anything, and will say so.
        let _ = tokio::time::timeout(FOLLOW_LIMIT, self.log().drained()).await;
        self.store().link(id).await
    }

    /// As the API shows it.
    pub fn view(&self, stored: StoredLink) -> LinkView {
        let domain = self.domain(&stored.id.domain);
        LinkView::new(stored, domain, None)
    }

    /// Changes a link; `version`: only if it has this one.
    ///
    /// # Errors
    /// See [`EditError`].
    pub async fn edit(
        &self,
        id: &LinkId,
        version: Option<u32>,
        request: &EditRequest,
    ) -> Result<Edited, EditError> {
        let domain = self.domain(&id.domain).ok_or(EditError::Unknown)?;
        for _ in 0..ATTEMPTS {
            let before = self.found_with(id, version).await?;
            let now_ms = self.now_ms();
            let applied = request
                .clone()
                .apply(&before.link, self.domains(), domain, now_ms)?;
            let Applied {
                mut link,
                tags,
                flag,
            } = applied;
            link.version = before.link.version.saturating_add(1);
            let action = action(&before, link.is_disabled, request);
            let change = Change {
                before: &before,
                link: &link,
                tags: tags.as_ref().unwrap_or(&before.tags),
                action,
                now_ms,
            };
            if self.store().change(change).await? {
                let is_published = self.follow(id).await;
                let stored = self.store().link(id).await?.ok_or(EditError::Unknown)?;
                let link = LinkView::new(stored, Some(domain), flag);
                return Ok(Edited { link, is_published });
            }
        }
        Err(EditError::Busy)
    }

    /// Deletes a link. Whether Redis has followed.
    ///
    /// # Errors
    /// See [`EditError`].
    pub async fn delete(&self, id: &LinkId, version: Option<u32>) -> Result<bool, EditError> {
        for _ in 0..ATTEMPTS {
            let before = self.found_with(id, version).await?;
            let mut link = before.link.clone();
            link.version = link.version.saturating_add(1);
            let change = Change {
                before: &before,
                link: &link,
                tags: &before.tags,
                action: Action::Delete,
                now_ms: self.now_ms(),
            };
            if self.store().change(change).await? {
                return Ok(self.follow(id).await);
            }
        }
        Err(EditError::Busy)
    }

    async fn found_with(&self, id: &LinkId, version: Option<u32>) -> Result<StoredLink, EditError> {
        let found = self.find(id).await?;
        let has = found.link.version;
        match version {
            Some(version) if version != has => Err(EditError::Version(has)),
            _ => Ok(found),
        }
    }

    /// Redis follows now if it can; if not, it will.
    async fn follow(&self, id: &LinkId) -> bool {
        match self.publish(id).await {
            Ok(()) => true,
            Err(error) => {
                warn!(%error, link = %id, "Redis has not followed an edit; it will");
                false
            }
        }
    }
}

/// What an edit is called in the history: by its switch, if that is all it does.
fn action(before: &StoredLink, is_disabled: bool, request: &EditRequest) -> Action {
    match (before.link.is_disabled, is_disabled) {
        _ if !request.is_switch_only() => Action::Edit,
        (false, true) => Action::Disable,
        (true, false) => Action::Enable,
        _ => Action::Edit,
    }
}
