//! The link feed: links in the order of their last published change.
//!
//! Every link has one position in the feed, that of its last change. A change moves it to the end. A reader of all
//! pages has all links. A reader that continues from a [cursor](Cursor) gets every later change, deletions included.
//! The feed has no gaps: one transaction at a time assigns the number when the change is in SQL.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use crate::code::LinkId;
use crate::domain::DomainsConfig;
use crate::record::Link;
use serde::{Deserialize, Serialize};

use weir_base::feed::DocumentRejection;
use weir_base::feed::document::{Content, Document, check_time};

/// Maximum links of one page.
pub const PAGE_LINKS_MAX: usize = 500;

/// Approximate maximum bytes of one page's records. A page has at least one record.
pub const PAGE_BYTES_MAX: usize = 1 << 20;

/// A page of the feed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    /// The ID of this feed. A different ID means that the numbers began again.
    pub source: Source,
    /// The page starts after this number.
    pub after: u64,
    /// The last number of the page; the next page starts after it.
    pub next: u64,
    /// Whether no later changes were published when the page was written.
    pub is_last: bool,
    /// The changes in between.
    pub links: Vec<Entry>,
}

impl Content for Page {
    const KIND: &'static str = "links";
}

/// The state of a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its number.
    pub seq: u64,
    /// The link.
    pub id: LinkId,
    /// Its state.
    pub state: State,
}

/// The state of a link on an edge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Its [record](Link::encode): an edge may answer it.
    Record(String),
    /// Its [record](Link::encode); an object counts its clicks: see [`DomainList::click_limits_in_objects`]. An edge with
    /// such objects redirects once the object has counted the click.
    Counted(String),
    /// Only a gateway may answer it: see [`is_for_edges`].
    AtGateway,
    /// It is deleted, or ended long ago.
    Gone,
}

/// The ID of a link feed: 1 to 32 of `a-z` and `0-9`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Source(String);

/// A reader's position: `<source>.<number>`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Cursor {
    /// The feed.
    pub source: Source,
    /// The last number that was read.
    pub seq: u64,
}

/// The text is not a cursor or feed ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is not a cursor of the link feed")]
pub struct NoCursor;

/// The link domains as one document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DomainList {
    /// Increases with each change.
    pub version: u64,
    /// The domains.
    pub domains: DomainsConfig,
    /// The key prefix of links whose click limits are counted in objects of edges; `None`: they are counted in Redis.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub click_limits_in_objects: Option<String>,
}

impl Content for DomainList {
    const KIND: &'static str = "domains";
}

/// Whether an edge may answer this link alone. Not with a click limit, because one place must count. Not with a
/// lifetime that clicks renew, because only gateways renew it. Not with a password, which only the origin checks. Not
/// if it is tracked, because edges have no signing key.
pub fn is_for_edges(link: &Link) -> bool {
    link.max_clicks == 0 && link.life_ms == 0 && link.guard.is_none() && !link.is_tracked
}

impl State {
    /// The state that edges get for a link with this record.
    pub fn for_link(link: &Link, record: String) -> Self {
        match is_for_edges(link) {
            true => Self::Record(record),
            false => Self::AtGateway,
        }
    }

    /// The same with click limits in objects. Links whose lifetime is renewed by clicks stay with gateways, which renew
    /// them in Redis.
    pub fn with_objects(link: &Link, record: String) -> Self {
        match link.max_clicks > 0 && link.life_ms == 0 && link.guard.is_none() && !link.is_tracked {
            true => Self::Counted(record),
            false => Self::for_link(link, record),
        }
    }
}

impl Source {
    /// Checks the ID of a feed.
    ///
    /// # Errors
    /// If the ID is invalid.
    pub fn new(name: impl Into<String>) -> Result<Self, NoCursor> {
        let name = name.into();
        let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        match (1..=32).contains(&name.len()) && name.bytes().all(is_letter) {
            true => Ok(Self(name)),
            false => Err(NoCursor),
        }
    }

    /// The ID.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Source {
    type Error = NoCursor;

    fn try_from(name: String) -> Result<Self, NoCursor> {
        Self::new(name)
    }
}

impl From<Source> for String {
    fn from(source: Source) -> Self {
        source.0
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.source.0, self.seq)
    }
}

impl FromStr for Cursor {
    type Err = NoCursor;

    fn from_str(text: &str) -> Result<Self, NoCursor> {
        let (source, seq) = text.split_once('.').ok_or(NoCursor)?;
        let cursor = Self {
            source: Source::new(source)?,
            seq: seq.parse().map_err(|_| NoCursor)?,
        };
        // Each cursor has one spelling.
        match format!("{cursor}") == text {
            true => Ok(cursor),
            false => Err(NoCursor),
        }
    }
}

impl TryFrom<String> for Cursor {
    type Error = NoCursor;

    fn try_from(text: String) -> Result<Self, NoCursor> {
        text.parse()
    }
}

impl From<Cursor> for String {
    fn from(cursor: Cursor) -> Self {
        format!("{cursor}")
    }
}

/// How far an edge has read the link feed. It is stored with the links and written after them. An edge that crashes in
/// between reads a page again, which changes nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// The position; `None`: the beginning.
    pub cursor: Option<Cursor>,
    /// When the edge had last read the whole feed, by the origin's clock, in milliseconds since the Unix epoch; 0:
    /// never.
    pub whole_at_ms: u64,
}

impl Progress {
    /// The progress after reading `page`.
    ///
    /// # Errors
    /// If the page does not follow this progress, or is from the future. The whole page is then ignored.
    pub fn after(&self, page: &Document<Page>, now_ms: u64) -> Result<Self, DocumentRejection> {
        check_time(page.at_ms, now_ms)?;
        let body = &page.body;
        let follows = match &self.cursor {
            None => body.after == 0,
            Some(cursor) => cursor.source == body.source && cursor.seq == body.after,
        };
        if !follows || !body.is_in_order() {
            return Err(DocumentRejection::Elsewhere);
        }
        let is_old = page.at_ms < self.whole_at_ms;
        if is_old {
            return Err(DocumentRejection::Older);
        }
        let whole_at_ms = match body.is_last {
            true => page.at_ms,
            false => self.whole_at_ms,
        };
        let cursor = Some(Cursor {
            source: body.source.clone(),
            seq: body.next,
        });
        Ok(Self {
            cursor,
            whole_at_ms,
        })
    }
}

impl Page {
    /// Whether the numbers increase from the page's start to its end.
    fn is_in_order(&self) -> bool {
        let mut last = self.after;
        self.links.iter().all(|entry| {
            let is_next = entry.seq > last;
            last = entry.seq;
            is_next
        }) && last <= self.next
    }
}

/// Returns `entry` if it is newer than the stored one, which has `known_seq`; `None` otherwise.
pub fn newer(known_seq: Option<u64>, entry: &Entry) -> Option<&Entry> {
    match known_seq {
        Some(known_seq) if known_seq >= entry.seq => None,
        _ => Some(entry),
    }
}

/// Links in memory, for edges that store them there, and as the model of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Links {
    /// How far the feed was read.
    pub progress: Progress,
    entries: BTreeMap<LinkId, Entry>,
}

impl Links {
    /// Applies a page.
    ///
    /// # Errors
    /// See [`Progress::after`].
    pub fn take(&mut self, page: &Document<Page>, now_ms: u64) -> Result<(), DocumentRejection> {
        let progress = self.progress.after(page, now_ms)?;
        for entry in &page.body.links {
            let existing = self.entries.get(&entry.id).map(|existing| existing.seq);
            if let Some(entry) = newer(existing, entry) {
                self.entries.insert(entry.id.clone(), entry.clone());
            }
        }
        self.progress = progress;
        Ok(())
    }

    /// The state of a link.
    pub fn find(&self, id: &LinkId) -> Option<&State> {
        self.entries.get(id).map(|entry| &entry.state)
    }

    /// Removes everything, to read the feed from the start.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}
