//! Changes and deletes links.
//!
//! An edit is stored in the cold store first, marked as pending for Redis. Then it is written to Redis, and to the
//! stream that gateways poll. Pending edits are retried after a failure. Each edit is also checked again later, because
//! Redis may lose a write that it has just acknowledged.

use tracing::warn;
use weir_link::code::LinkId;

use super::domains::SharedDomains;
use super::find::{FindError, Finder};
use super::numbers::Clock;
use super::password::{Busy as HashBusy, Passwords};
use super::store::{Action, Change, LinkStore, StoredLink};
use crate::jobs::publish::Publisher;
use crate::model::request::{AppliedEdit, EditRequest, LinkFieldError, check_guarded};
use crate::model::view::LinkView;
use crate::state::States;
use weir_origin_core::sql::SqlError;

/// Maximum number of attempts when others edit the same link.
const ATTEMPTS: usize = 8;

/// Why a change of a link failed.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    /// The link was not found.
    #[error(transparent)]
    Find(#[from] FindError),
    /// The request is invalid.
    #[error(transparent)]
    Refused(#[from] LinkFieldError),
    /// The version differs from the expected one.
    #[error("the link has version {0}")]
    Version(u32),
    /// Others kept changing the link.
    #[error("the link is being changed concurrently")]
    Busy,
    /// The password cannot be hashed now.
    #[error(transparent)]
    Hash(#[from] HashBusy),
    /// The cold store failed.
    #[error(transparent)]
    Store(#[from] SqlError),
}

/// A link after an edit.
#[derive(Debug)]
pub struct EditedLink {
    /// The link.
    pub link: LinkView,
    /// Whether Redis has the edit, so that gateways see it within a second.
    pub is_published: bool,
}

/// Changes links. Cloning is cheap.
#[derive(Clone)]
pub struct Editor {
    pub(super) store: LinkStore,
    pub(super) finder: Finder,
    pub(super) passwords: Passwords,
    pub(super) publisher: Publisher,
    pub(super) states: States,
    pub(super) domains: SharedDomains,
    pub(super) clock: Clock,
}

impl Editor {
    /// Changes a link; with `version`, only that version.
    ///
    /// # Errors
    /// See [`EditError`].
    pub async fn edit(
        &self,
        id: &LinkId,
        version: Option<u32>,
        request: &EditRequest,
    ) -> Result<EditedLink, EditError> {
        let existing = self.domains.get();
        let domain = existing.domains.by_id(id.domain.as_str());
        let domain = domain.ok_or(FindError::Unknown)?;
        // Hash once, regardless of the number of attempts.
        let guard = match request.password.clone() {
            Some(Some(password)) => Some(Some(self.passwords.guard(password).await?)),
            Some(None) => Some(None),
            None => None,
        };
        for _ in 0..ATTEMPTS {
            let before = self.found_with(id, version).await?;
            let now_ms = (self.clock)();
            let applied = request.apply(&before, &existing.domains, domain, now_ms)?;
            let AppliedEdit { mut link, labels } = applied;
            link.guard = guard.clone().unwrap_or(link.guard);
            check_guarded(&link)?;
            link.version = before.link.version.saturating_add(1);
            let action = action(&before, link.is_disabled, request);
            let change = Change {
                before: &before,
                link: &link,
                labels: &labels,
                action,
                now_ms,
            };
            if self.store.edits().change(change).await? {
                let is_published = self.follow(id).await;
                let stored = self.store.link(id).await?.ok_or(FindError::Unknown)?;
                let current = self.states.of_one(&stored).await?;
                let link = LinkView::new(stored, Some(domain), current);
                return Ok(EditedLink { link, is_published });
            }
        }
        Err(EditError::Busy)
    }

    /// Deletes a link. Returns whether Redis has the deletion.
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
                labels: &before.labels,
                action: Action::Delete,
                now_ms: (self.clock)(),
            };
            if self.store.edits().change(change).await? {
                return Ok(self.follow(id).await);
            }
        }
        Err(EditError::Busy)
    }

    async fn found_with(&self, id: &LinkId, version: Option<u32>) -> Result<StoredLink, EditError> {
        let found = self.finder.find(id).await?;
        let has = found.link.version;
        match version {
            Some(version) if version != has => Err(EditError::Version(has)),
            _ => Ok(found),
        }
    }

    /// Writes the change to Redis now; if this fails, a background job does it later.
    async fn follow(&self, id: &LinkId) -> bool {
        match self.publisher.publish(id).await {
            Ok(()) => true,
            Err(error) => {
                warn!(%error, link = %id, "cannot write an edit to Redis; retrying");
                false
            }
        }
    }
}

/// The name of an edit in the history. An edit that only enables or disables the link has its own name.
fn action(before: &StoredLink, is_disabled: bool, request: &EditRequest) -> Action {
    match (before.link.is_disabled, is_disabled) {
        _ if !request.is_switch_only() => Action::Edit,
        (false, true) => Action::Disable,
        (true, false) => Action::Enable,
        _ => Action::Edit,
    }
}
