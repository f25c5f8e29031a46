//! Links as the API shows them.

use serde::Serialize;
use utoipa::ToSchema;
use weir_link::code::{Code, DomainId};
use weir_link::domain::{Domain, Domains};
use weir_link::record::Link;
use weir_link::target::{Flag, flag_of};

use super::fields::LinkFields;
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
    /// What people click.
    pub url: String,
    /// Its last version.
    #[serde(flatten)]
    pub latest: LinkVersion,
    /// How often it was clicked, as far as that was counted.
    pub clicks: u64,
    /// When it was made, in milliseconds since the Unix epoch.
    pub created_at_ms: u64,
    /// When it was last edited, or made.
    pub changed_at_ms: u64,
    /// When it ends if nobody clicks, as far as the cold store knows; null: never.
    #[schema(required)]
    pub expires_at_ms: Option<u64>,
    /// The answer to a click at this moment.
    pub state: State,
    /// How many clicks it has left; null: as many as come.
    #[schema(required)]
    pub clicks_left: Option<u64>,
    /// What people should know of where it leads.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub flag: Option<Flag>,
}

/// A version of a link.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct LinkVersion {
    /// 1, and one more with every edit.
    #[schema(minimum = 1)]
    pub version: u32,
    /// Whether it is out of use for now.
    pub disabled: bool,
    /// Whether a password is asked for.
    pub protected: bool,
    /// What people have set.
    #[serde(flatten)]
    pub fields: LinkFields,
}

/// A link as it was from some instant on.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = LinkHistoryHistoryItem)]
pub struct PastView {
    /// What was done.
    what: Action,
    /// When, in milliseconds since the Unix epoch.
    at_ms: u64,
    #[serde(flatten)]
    version: LinkVersion,
}

impl LinkVersion {
    /// This version of a link, with its tags.
    pub fn new(link: Link, tags: Vec<String>) -> Self {
        Self {
            version: link.version,
            disabled: link.is_disabled,
            protected: link.guard.is_some(),
            fields: LinkFields::new(link, tags),
        }
    }
}

impl LinkView {
    /// A link as the store has it.
    pub fn from_stored(stored: StoredLink, domains: &Domains, standing: LinkStatus) -> Self {
        let domain = domains.by_id(stored.id.domain.as_str());
        Self::new(stored, domain, standing)
    }

    /// A link of `domain`; `None`: of one that is no longer configured, whose URL is not known.
    pub fn new(stored: StoredLink, domain: Option<&Domain>, standing: LinkStatus) -> Self {
        let flag = flag_of(&stored.link);
        let url = domain.map(|domain| domain.url(&stored.id.code));
        Self {
            url: url.unwrap_or_default(),
            domain: stored.id.domain,
            code: stored.id.code,
            latest: LinkVersion::new(stored.link, stored.tags),
            clicks: stored.clicks,
            created_at_ms: stored.created_at_ms,
            changed_at_ms: stored.changed_at_ms,
            expires_at_ms: stored.expires_at_ms,
            state: standing.state,
            clicks_left: standing.clicks_left,
            flag,
        }
    }
}

impl From<StoredLinkVersion> for PastView {
    fn from(past: StoredLinkVersion) -> Self {
        Self {
            what: past.action,
            at_ms: past.at_ms,
            version: LinkVersion::new(past.link, past.tags),
        }
    }
}
