//! The cold store of links, in SQL: every acknowledged link that has not ended, what was done to it, what was
//! counted of its clicks, and who may hand out which numbers.
//!
//! | module | does |
//! |---|---|
//! | `columns` | the columns of a link |
//! | `drain` | new links, many in a transaction |
//! | `reads` | links found and listed |
//! | `edits` | links changed, and changes that Redis has yet to follow |
//! | `ends` | lives prolonged, ended links removed |
//! | `segments` | numbers: who may hand out which |
//! | `clicks` | clicks counted and read |
//! | `domains` | the domains, as one document |
//! | `outbox` | changes, written to be told to others |
//! | `feed` | what edges read, in the order of changes |

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

use serde::{Deserialize, Serialize};
use weir_link::code::LinkId;
use weir_link::record::Link;

use weir_origin_core::sql::Database;

use outbox::LinkNotifications;

pub use clicks::ClickStore;
pub use domains::{DomainStore, StoredDomains};
pub use drain::LogStore;
pub use edits::EditStore;
pub use ends::EndStore;
pub use feed::FeedStore;
pub use outbox::Urls;
pub use segments::SegmentStore;

/// Links in SQL. Cloning it is cheap.
///
/// Instants are milliseconds since the Unix epoch. A call fails only when SQL does not answer or answers with an
/// error.
#[derive(Clone, Debug)]
pub struct LinkStore {
    db: Database,
    telling: LinkNotifications,
}

impl LinkStore {
    /// The store in this database.
    pub fn new(db: Database) -> Self {
        Self {
            db,
            telling: LinkNotifications::default(),
        }
    }

    /// Clicks on short links.
    pub fn clicks(&self) -> ClickStore<'_> {
        ClickStore(self)
    }

    /// The domains, as one document.
    pub fn shared_domains(&self) -> DomainStore<'_> {
        DomainStore(self)
    }

    /// New links, many in a transaction.
    pub fn log(&self) -> LogStore<'_> {
        LogStore(self)
    }

    /// Links, changed.
    pub fn edits(&self) -> EditStore<'_> {
        EditStore(self)
    }

    /// The ends of links: put off by clicks, and what is left cleaned away.
    pub fn ends(&self) -> EndStore<'_> {
        EndStore(self)
    }

    /// The link feed: each link's last change has a number, and edges read in the order of the numbers.
    pub fn edge_feed(&self) -> FeedStore<'_> {
        FeedStore(self)
    }

    /// Who may hand out which numbers.
    pub fn segments(&self) -> SegmentStore<'_> {
        SegmentStore(self)
    }
}

/// A link as it is written first: into the log, then into the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewLink {
    /// Its id.
    #[serde(rename = "i")]
    pub id: LinkId,
    /// As in Redis, see [`Link::encode`].
    #[serde(rename = "r")]
    pub record: String,
    /// For people, to find it again.
    #[serde(rename = "g", default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// How long it lives after its last click, in milliseconds; 0: for ever.
    #[serde(rename = "l")]
    pub life_ms: u64,
    /// When it ends whatever is clicked, in milliseconds since the Unix epoch; 0: never.
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
    /// A link was made.
    #[serde(rename = "+")]
    Made(NewLink),
    /// An earlier entry of this very link does not count: its code was another link's.
    #[serde(rename = "-")]
    Void(NewLink),
}

/// A link as the store has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredLink {
    /// Its id.
    pub id: LinkId,
    /// What it says.
    pub link: Link,
    /// For people, to find it again.
    pub tags: Vec<String>,
    /// Number of counted clicks.
    pub clicks: u64,
    /// Creation time, in milliseconds since the Unix epoch.
    pub created_at_ms: u64,
    /// Time of the last change.
    pub changed_at_ms: u64,
    /// When it ends if nobody clicks, as far as the store knows; `None`: never.
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

    /// The word in SQL and JSON.
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
    /// What it said from then on.
    pub link: Link,
    /// Its tags from then on.
    pub tags: Vec<String>,
    /// Time, in milliseconds since the Unix epoch.
    pub at_ms: u64,
}

/// What it was in the beginning, of a link that was never edited.
impl From<StoredLink> for StoredLinkVersion {
    fn from(link: StoredLink) -> Self {
        Self {
            action: Action::Create,
            link: link.link,
            tags: link.tags,
            at_ms: link.created_at_ms,
        }
    }
}

/// What an edit makes of a link.
#[derive(Clone, Debug)]
pub struct Change<'a> {
    /// As it was read.
    pub before: &'a StoredLink,
    /// As it is to be. Its version is one more.
    pub link: &'a Link,
    /// The tags that it is to have.
    pub tags: &'a [String],
    /// What is done.
    pub action: Action,
    /// When.
    pub now_ms: u64,
}

/// Where in the list of links a page ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkCursor {
    /// When the page's last link was made.
    pub created_at_ms: u64,
    /// The page's last link.
    pub id: LinkId,
}

/// Where in the list of links by clicks a page ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClicksPlace {
    /// How often the page's last link was clicked.
    pub clicks: u64,
    /// The page's last link.
    pub id: LinkId,
}

/// A link whose end has come, as far as the store knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedLink {
    /// The link.
    pub id: LinkId,
    /// Time, in milliseconds since the Unix epoch.
    pub expires_at_ms: u64,
    /// Whether it was deleted by hand.
    pub is_deleted: bool,
}

/// When a link ends whose last click, or making, was at `last_ms`; `None`: never.
pub fn ends_at(life_ms: u64, ends_at_ms: u64, last_ms: u64) -> Option<u64> {
    let by_life = (life_ms > 0).then(|| last_ms.saturating_add(life_ms));
    let by_date = (ends_at_ms > 0).then_some(ends_at_ms);
    by_life.into_iter().chain(by_date).min()
}
