//! The cold store of links behind a trait, [`LinkStore`]: every link that was ever acknowledged and has not
//! ended, what was done to it, and who may hand out which numbers.

mod drain;
mod edits;
mod ends;
mod reads;
mod segments;
mod sql;

use std::fmt;

use serde::{Deserialize, Serialize};
use weir_link::code::{Code, DomainId, Length, LinkId};
use weir_link::record::Link;
use weir_link::segment::Segment;

use crate::store::StoreFuture;

pub use sql::SqlLinks;

/// A link as it is written first: into the log, then into the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewLink {
    /// Its name.
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
    /// When it was made, in milliseconds since the Unix epoch.
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
    /// Its name.
    pub id: LinkId,
    /// What it says.
    pub link: Link,
    /// For people, to find it again.
    pub tags: Vec<String>,
    /// When it was made, in milliseconds since the Unix epoch.
    pub created_at_ms: u64,
    /// When it was last edited, or made.
    pub changed_at_ms: u64,
    /// When it ends if nobody clicks, as far as the store knows; `None`: never.
    pub expires_at_ms: Option<u64>,
}

/// What was done to a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// It was made.
    Create,
    /// Something of it was changed.
    Edit,
    /// It was put out of use for now.
    Disable,
    /// It is in use again.
    Enable,
    /// It is gone for good.
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
    pub const fn word(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Edit => "edit",
            Self::Disable => "disable",
            Self::Enable => "enable",
            Self::Delete => "delete",
        }
    }
}

/// A link as it was from some instant on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Past {
    /// What was done.
    pub action: Action,
    /// What it said from then on.
    pub link: Link,
    /// Its tags from then on.
    pub tags: Vec<String>,
    /// When, in milliseconds since the Unix epoch.
    pub at_ms: u64,
}

/// What it was in the beginning, of a link that was never edited.
impl From<StoredLink> for Past {
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
pub struct Place {
    /// When the page's last link was made.
    pub created_at_ms: u64,
    /// The page's last link.
    pub id: LinkId,
}

/// How far a log is in the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogPosition {
    /// The log's file.
    pub file: u64,
    /// The first byte of it that is not in the store.
    pub byte: u64,
}

/// A link whose end has come, as far as the store knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Which.
    pub id: LinkId,
    /// When, in milliseconds since the Unix epoch.
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

/// The cold store of links.
///
/// Instants are milliseconds since the Unix epoch. Every call fails only when the store does not answer, or
/// answers with an error of its own.
pub trait LinkStore: fmt::Debug + Send + Sync {
    /// How far the log named `log` is in the store.
    fn log_position<'a>(&'a self, log: &'a str) -> StoreFuture<'a, LogPosition>;

    /// Takes entries of the log named `log`, all of them or none, and notes that it has the log up to
    /// `position`. A link whose name is taken already is left out; how many these were is told.
    fn drain<'a>(
        &'a self,
        log: &'a str,
        position: LogPosition,
        entries: &'a [Entry],
    ) -> StoreFuture<'a, u64>;

    /// One link that is not deleted, be it one that has ended.
    fn link<'a>(&'a self, id: &'a LinkId) -> StoreFuture<'a, Option<StoredLink>>;

    /// At most `limit` links that are not deleted, those that were made last first: those with this tag, and
    /// those that come after `after`.
    fn list<'a>(
        &'a self,
        tag: Option<&'a str>,
        after: Option<&'a Place>,
        limit: usize,
    ) -> StoreFuture<'a, Vec<StoredLink>>;

    /// What was done to a link, the first first. Empty if it was never edited.
    fn history<'a>(&'a self, id: &'a LinkId) -> StoreFuture<'a, Vec<Past>>;

    /// Makes a link at once. False if its name is taken.
    fn insert<'a>(&'a self, link: &'a NewLink) -> StoreFuture<'a, bool>;

    /// Changes a link, and notes that Redis is to follow. False if it is not as it was read, of which nothing
    /// comes.
    fn change<'a>(&'a self, change: Change<'a>) -> StoreFuture<'a, bool>;

    /// Notes when links were last clicked, so that they live on: those that have a life.
    fn touch<'a>(&'a self, clicks: &'a [(LinkId, u64)]) -> StoreFuture<'a, ()>;

    /// At most `limit` changes from before `before_ms` that Redis may not have followed: links and their
    /// versions.
    fn unpublished(&self, before_ms: u64, limit: usize) -> StoreFuture<'_, Vec<(LinkId, u32)>>;

    /// Notes that Redis has followed a change.
    fn mark_published<'a>(&'a self, id: &'a LinkId, version: u32) -> StoreFuture<'a, ()>;

    /// Reserves segments for whoever asks: says of each whether it was nobody's in its round.
    fn reserve<'a>(&'a self, segments: &'a [Segment], now_ms: u64) -> StoreFuture<'a, Vec<bool>>;

    /// Gives a segment back of which no number was handed out.
    fn release<'a>(&'a self, segment: &'a Segment) -> StoreFuture<'a, ()>;

    /// The last segment that was reserved of a length.
    fn last_segment(&self, length: Length) -> StoreFuture<'_, Option<Segment>>;

    /// When numbers of this segment were last reserved in an earlier round.
    fn reserved_before<'a>(&'a self, segment: &'a Segment) -> StoreFuture<'a, Option<u64>>;

    /// Whether a number's segment is reserved in the last round, or was reserved after `since_ms`: somebody
    /// may be handing it out.
    fn is_reserved(&self, length: Length, index: u64, since_ms: u64) -> StoreFuture<'_, bool>;

    /// Opens a round through the numbers of a length; nothing if it is open.
    fn open_round(&self, length: Length, round: u64, now_ms: u64) -> StoreFuture<'_, ()>;

    /// Whether that round is open.
    fn is_round_open(&self, length: Length, round: u64) -> StoreFuture<'_, bool>;

    /// Notes that people have chosen the code of this number under this domain. False if that is noted.
    fn add_custom<'a>(
        &'a self,
        length: Length,
        index: u64,
        domain: &'a DomainId,
    ) -> StoreFuture<'a, bool>;

    /// Takes that back.
    fn remove_custom<'a>(
        &'a self,
        length: Length,
        index: u64,
        domain: &'a DomainId,
    ) -> StoreFuture<'a, ()>;

    /// The numbers of a segment whose codes people have chosen.
    fn customs<'a>(&'a self, segment: &'a Segment) -> StoreFuture<'a, Vec<u64>>;

    /// Whether the store has a link of any of these codes under this domain, be it one that has ended.
    fn has_any<'a>(&'a self, domain: &'a DomainId, codes: &'a [Code]) -> StoreFuture<'a, bool>;

    /// Notes domains that may have links; tells all that ever were.
    fn domains<'a>(&'a self, known: &'a [DomainId]) -> StoreFuture<'a, Vec<DomainId>>;

    /// Notes how numbers become codes, unless that is noted; tells what is noted.
    fn numbering<'a>(&'a self, fingerprint: &'a str) -> StoreFuture<'a, String>;

    /// At most `limit` links that ended at `from_ms` or later but before `before_ms`, those that ended first
    /// first.
    fn ended(&self, from_ms: u64, before_ms: u64, limit: usize) -> StoreFuture<'_, Vec<Ended>>;

    /// Gives links a later end, unless somebody else has done so.
    fn prolong<'a>(&'a self, ended: &'a [(Ended, u64)]) -> StoreFuture<'a, ()>;

    /// Takes links and all that is known of them away, unless they have got a later end. Tells how many.
    fn remove<'a>(&'a self, ended: &'a [Ended]) -> StoreFuture<'a, u64>;
}
