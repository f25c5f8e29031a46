//! Links as the API shows them.

use serde::Serialize;
use utoipa::ToSchema;
use weir_link::code::{Code, DomainId};
use weir_link::domain::{Domain, Domains};
use weir_link::record::Link;
use weir_link::target::{Flag, flag_of};

use super::fields::LinkFields;
use super::labels::Labels;
use crate::state::{LinkStatus, State};
use crate::store::{Action, StoredLink, StoredLinkVersion};

/// A link.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Link)]
pub struct LinkView {
    /// Its domain.
    #[schema(value_type = String)]
    pub domain: DomainId,
    /// Its code.
    #[schema(value_type = String)]
    pub code: Code,
    /// The short URL.
    pub url: String,
    /// The latest version.
    #[serde(flatten)]
    pub latest: LinkVersion,
    /// Number of counted clicks.
    pub clicks: u64,
    /// Creation time, in milliseconds since the Unix epoch.
    pub created_at_ms: u64,
    /// Time of the last change.
    pub changed_at_ms: u64,
    /// Expiry time without further clicks, as known to the cold store; null: never.
    #[schema(required)]
    pub expires_at_ms: Option<u64>,
    /// Current state.
    pub state: State,
    /// Remaining clicks; null: unlimited.
    #[schema(required)]
    pub clicks_left: Option<u64>,
    /// Warning about the target.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub flag: Option<Flag>,
}

/// A version of a link.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct LinkVersion {
    /// 1, plus 1 per edit.
    #[schema(minimum = 1)]
    pub version: u32,
    /// Whether the link is disabled.
    pub disabled: bool,
    /// Whether a password is required.
    pub protected: bool,
    /// The editable fields.
    #[serde(flatten)]
    pub fields: LinkFields,
}

/// A past version of a link.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = LinkHistoryHistoryItem)]
pub struct PastView {
    /// The action.
    what: Action,
    /// Time, in milliseconds since the Unix epoch.
    at_ms: u64,
    #[serde(flatten)]
    version: LinkVersion,
}

impl LinkVersion {
    /// Creates a version from a link and its labels.
    pub fn new(link: Link, labels: Labels) -> Self {
        Self {
            version: link.version,
            disabled: link.is_disabled,
            protected: link.guard.is_some(),
            fields: LinkFields::new(link, labels),
        }
    }
}

impl LinkView {
    /// Creates the view of a stored link.
    pub fn from_stored(stored: StoredLink, domains: &Domains, status: LinkStatus) -> Self {
        let domain = domains.by_id(stored.id.domain.as_str());
        Self::new(stored, domain, status)
    }

    /// Creates the view of a link in `domain`; `None`: the domain is no longer configured, so the URL is unknown.
    pub fn new(stored: StoredLink, domain: Option<&Domain>, status: LinkStatus) -> Self {
        let flag = flag_of(&stored.link);
        let url = domain.map(|domain| domain.url(&stored.id.code));
        Self {
            url: url.unwrap_or_default(),
            domain: stored.id.domain,
            code: stored.id.code,
            latest: LinkVersion::new(stored.link, stored.labels),
            clicks: stored.clicks,
            created_at_ms: stored.created_at_ms,
            changed_at_ms: stored.changed_at_ms,
            expires_at_ms: stored.expires_at_ms,
            state: status.state,
            clicks_left: status.clicks_left,
            flag,
        }
    }
}

impl From<StoredLinkVersion> for PastView {
    fn from(past: StoredLinkVersion) -> Self {
        Self {
            what: past.action,
            at_ms: past.at_ms,
            version: LinkVersion::new(past.link, past.labels),
        }
    }
}
