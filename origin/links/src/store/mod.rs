//! The cold store of links in SQL: all acknowledged links that have not ended, their history, their clicks, and the
//! owners of number segments.
//!
//! | module | does |
//! |---|---|
//! | `columns` | the columns of a link |
//! | `drain` | new links in bulk |
//! | `reads` | reads and lists links |
//! | `edits` | changes of links, and changes that Redis does not have yet |
//! | `ends` | the end times of links, and their removal |
//! | `segments` | the owners of number segments |
//! | `clicks` | clicks |
//! | `domains` | the domains, as one document |
//! | `outbox` | changes for receivers |
//! | `team` | shared reports and UTM templates |
//! | `feed` | the feed of edges |

mod clicks;
mod columns;
mod domains;
mod drain;
mod edits;
mod ends;
mod feed;
mod outbox;
mod reads;
mod segments;
mod team;

use serde::{Deserialize, Serialize};
use weir_link::code::LinkId;
use weir_link::record::Link;

use crate::model::labels::Labels;
use weir_origin_core::sql::Database;

use outbox::LinkNotifications;

pub use clicks::{ClickGroup, ClickStore, GROUP_LINKS_MAX};
pub use domains::{DomainStore, StoredDomains};
pub use drain::LogStore;
pub use edits::EditStore;
pub use ends::EndStore;
pub use feed::FeedStore;
pub use outbox::Urls;
pub use reads::Folder;
pub use segments::SegmentStore;
pub use team::{TeamItem, TeamKind, TeamStore};

/// Links in SQL. Cloning is cheap.
///
/// Times are milliseconds since the Unix epoch. A call fails only if SQL is unreachable or returns an error.
#[derive(Clone, Debug)]
pub struct LinkStore {
    db: Database,
    notifications: LinkNotifications,
}

impl LinkStore {
    /// Creates the store on a database.
    pub fn new(db: Database) -> Self {
        Self {
            db,
            notifications: LinkNotifications::default(),
        }
    }

    /// Clicks on short links.
    pub fn clicks(&self) -> ClickStore<'_> {
        ClickStore(self)
    }

    /// The domains, stored as one document.
    pub fn shared_domains(&self) -> DomainStore<'_> {
        DomainStore(self)
    }

    /// New links, stored in bulk.
    pub fn log(&self) -> LogStore<'_> {
        LogStore(self)
    }

    /// Changes of links.
    pub fn edits(&self) -> EditStore<'_> {
        EditStore(self)
    }

    /// The end times of links.
    pub fn ends(&self) -> EndStore<'_> {
        EndStore(self)
    }

    /// Shared reports and UTM templates.
    pub fn team(&self) -> TeamStore<'_> {
        TeamStore(self)
    }

    /// The link feed of edges.
    pub fn edge_feed(&self) -> FeedStore<'_> {
        FeedStore(self)
    }

    /// The owners of number segments.
    pub fn segments(&self) -> SegmentStore<'_> {
        SegmentStore(self)
    }
}

/// A new link, as written to the log and then to the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewLink {
    /// Its id.
    #[serde(rename = "i")]
    pub id: LinkId,
    /// As in Redis, see [`Link::encode`].
    #[serde(rename = "r")]
    pub record: String,
    /// The team's labels.
    #[serde(flatten)]
    pub labels: Labels,
    /// Life after the last click, in milliseconds; 0: permanent.
    #[serde(rename = "l")]
    pub life_ms: u64,
    /// Fixed end, regardless of clicks, in milliseconds since the Unix epoch; 0: none.
    #[serde(rename = "e", default, skip_serializing_if = "is_zero")]
    pub ends_at_ms: u64,
    /// Creation time, in milliseconds since the Unix epoch.
    #[serde(rename = "m")]
    pub created_at_ms: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// An entry of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Entry {
    /// A link was created.
    #[serde(rename = "+")]
    Made(NewLink),
    /// Cancels an earlier entry of exactly this link: its code belongs to another link.
    #[serde(rename = "-")]
    Void(NewLink),
}

/// A stored link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredLink {
    /// Its id.
    pub id: LinkId,
    /// The link's fields.
    pub link: Link,
    /// The team's labels.
    pub labels: Labels,
    /// Number of counted clicks.
    pub clicks: u64,
    /// Creation time, in milliseconds since the Unix epoch.
    pub created_at_ms: u64,
    /// Time of the last change.
    pub changed_at_ms: u64,
    /// End time without further clicks, as known to the store; `None`: never.
    pub expires_at_ms: Option<u64>,
}

/// History of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = LinkAction)]
pub enum Action {
    /// Created.
    Create,
    /// Edited.
    Edit,
    /// Disabled.
    Disable,
    /// Enabled.
    Enable,
    /// Deleted.
    Delete,
}

impl Action {
    /// Every action.
    pub const ALL: [Self; 5] = [
        Self::Create,
        Self::Edit,
        Self::Disable,
        Self::Enable,
        Self::Delete,
    ];

    /// Its label in SQL and JSON.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Edit => "edit",
            Self::Disable => "disable",
            Self::Enable => "enable",
            Self::Delete => "delete",
        }
    }
}

/// A past version of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredLinkVersion {
    /// The action.
    pub action: Action,
    /// The link's fields after the action.
    pub link: Link,
    /// Its labels after the action.
    pub labels: Labels,
    /// Time, in milliseconds since the Unix epoch.
    pub at_ms: u64,
}

/// The initial version of a link that was never edited.
impl From<StoredLink> for StoredLinkVersion {
    fn from(link: StoredLink) -> Self {
        Self {
            action: Action::Create,
            link: link.link,
            labels: link.labels,
            at_ms: link.created_at_ms,
        }
    }
}

/// A change of a link.
#[derive(Clone, Debug)]
pub struct Change<'a> {
    /// The link as it was read.
    pub before: &'a StoredLink,
    /// The new link. Its version is one higher.
    pub link: &'a Link,
    /// The new labels.
    pub labels: &'a Labels,
    /// What is done.
    pub action: Action,
    /// The current time, in milliseconds since the Unix epoch.
    pub now_ms: u64,
}

/// The end of a page of links.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkCursor {
    /// Creation time of the page's last link.
    pub created_at_ms: u64,
    /// The page's last link.
    pub id: LinkId,
}

/// The end of a page of links ordered by clicks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClicksPlace {
    /// Number of clicks of the page's last link.
    pub clicks: u64,
    /// The page's last link.
    pub id: LinkId,
}

/// A link that has ended, as far as the store knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedLink {
    /// The link.
    pub id: LinkId,
    /// Time, in milliseconds since the Unix epoch.
    pub expires_at_ms: u64,
    /// Whether it was deleted by hand.
    pub is_deleted: bool,
}

/// The end of a link whose last click or creation was at `last_ms`; `None`: never.
pub fn ends_at(life_ms: u64, ends_at_ms: u64, last_ms: u64) -> Option<u64> {
    let by_life = (life_ms > 0).then(|| last_ms.saturating_add(life_ms));
    let by_date = (ends_at_ms > 0).then_some(ends_at_ms);
    by_life.into_iter().chain(by_date).min()
}
