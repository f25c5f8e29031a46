//! The link feed: what has become of links, in the order in which it was published.
//!
//! Every link has one place in the feed, that of its last change; a change moves it to the end. So who reads all pages from the
//! beginning knows all links, and who goes on from a [cursor](Cursor) hears of all that changed since, deletions among it. The
//! feed has no holes: a number is given when the change is in SQL, by one transaction at a time.

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

/// The most links of one page.
pub const PAGE_LINKS_MAX: usize = 500;

/// About the most bytes of one page's records: beyond it the page ends, unless it had none.
pub const PAGE_BYTES_MAX: usize = 1 << 20;

/// A page of the feed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    /// Which feed this is: another one if the numbers began anew.
    pub source: Source,
    /// It begins behind this number,
    pub after: u64,
    /// and ends with this one, from which the next page goes on.
    pub next: u64,
    /// Whether nothing more was published when it was written.
    pub is_last: bool,
    /// What changed in between.
    pub links: Vec<Entry>,
}

impl Content for Page {
    const KIND: &'static str = "links";
}

/// What has become of a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its number.
    pub seq: u64,
    /// Which link.
    pub id: LinkId,
    /// What is known of it.
    pub state: State,
}

/// What an edge knows of a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Its [record](Link::encode): an edge may answer it.
    Record(String),
    /// Its [record](Link::encode); an object counts its clicks: see [`DomainList::click_limits_in_objects`]. An edge with such
    /// objects may answer it once the object has counted.
    Counted(String),
    /// Only a gateway may answer it: see [`is_for_edges`].
    AtGateway,
    /// It is deleted, or its end is long past.
    Gone,
}

/// The name of a feed of links: 1 to 32 of `a-z` and `0-9`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Source(String);

/// Where a reader stands: `<source>.<number>`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Cursor {
    /// The feed.
    pub source: Source,
    /// The last number that was read.
    pub seq: u64,
}

/// A text that is no cursor, or no name of a feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is not a cursor of the link feed")]
pub struct NoCursor;

/// The domains of links, as one document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DomainList {
    /// Grows with each change.
    pub version: u64,
    /// They.
    pub domains: DomainsConfig,
    /// The key prefix of links whose click limits are counted in objects of edges; `None`: they are counted in Redis.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub click_limits_in_objects: Option<String>,
}

impl Content for DomainList {
    const KIND: &'static str = "domains";
}

/// Whether an edge may answer this link by itself. Not one that counts its clicks, which needs one place that counts; nor one
/// that lives on by clicks, which only a gateway can renew; nor one with a password, which only the origin knows; nor one whose clicks have names, for which an edge
/// has no key.
pub fn is_for_edges(link: &Link) -> bool {
    link.max_clicks == 0 && link.life_ms == 0 && link.guard.is_none() && !link.is_tracked
}

impl State {
    /// What edges are told of a link with this record.
    pub fn for_link(link: &Link, record: String) -> Self {
        match is_for_edges(link) {
            true => Self::Record(record),
            false => Self::AtGateway,
        }
    }

    /// The same with click limits in objects. What lives on by clicks stays with gateways: who renews it there tells Redis so.
    pub fn with_objects(link: &Link, record: String) -> Self {
        match link.max_clicks > 0 && link.life_ms == 0 && link.guard.is_none() && !link.is_tracked {
            true => Self::Counted(record),
            false => Self::for_link(link, record),
        }
    }
}

impl Source {
    /// The feed of this name.
    ///
    /// # Errors
    /// When it is none.
    pub fn new(name: impl Into<String>) -> Result<Self, NoCursor> {
        let name = name.into();
        let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        match (1..=32).contains(&name.len()) && name.bytes().all(is_letter) {
            true => Ok(Self(name)),
            false => Err(NoCursor),
        }
    }

    /// Its name.
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
        // One spelling for each.
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

/// How far an edge has read the link feed. It is kept beside the links, and written after them: an edge that dies in between
/// reads a page again, and finds nothing in it that it does not know.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Where it stands; `None`: at the beginning.
    pub cursor: Option<Cursor>,
    /// When all that it has read was all that there was, by the origin's clock; 0: never.
    pub whole_at_ms: u64,
}

impl Progress {
    /// What has been read when `page` has, if it follows.
    ///
    /// # Errors
    /// When it does not, or is from the future: then nothing of it counts.
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
    /// Whether its numbers rise from its beginning to its end.
    fn is_in_order(&self) -> bool {
        let mut last = self.after;
        self.links.iter().all(|entry| {
            let is_next = entry.seq > last;
            last = entry.seq;
            is_next
        }) && last <= self.next
    }
}

/// What is known of one link when `entry` has come. `None`: what is known stays, as it is not older.
pub fn newer(known_seq: Option<u64>, entry: &Entry) -> Option<&Entry> {
    match known_seq {
        Some(known_seq) if known_seq >= entry.seq => None,
        _ => Some(entry),
    }
}

/// Links in memory, for edges that keep them there, and as the model of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Links {
    /// How far they were read.
    pub progress: Progress,
    entries: BTreeMap<LinkId, Entry>,
}

impl Links {
    /// Takes a page.
    ///
    /// # Errors
    /// As [`Progress::after`].
    pub fn take(&mut self, page: &Document<Page>, now_ms: u64) -> Result<(), DocumentRejection> {
        let progress = self.progress.after(page, now_ms)?;
        for entry in &page.body.links {
            let known = self.entries.get(&entry.id).map(|known| known.seq);
            if let Some(entry) = newer(known, entry) {
                self.entries.insert(entry.id.clone(), entry.clone());
            }
        }
        self.progress = progress;
        Ok(())
    }

    /// What is known of a link.
    pub fn find(&self, id: &LinkId) -> Option<&State> {
        self.entries.get(id).map(|entry| &entry.state)
    }

    /// Forgets all, to begin anew.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}
