//! The edge's data: it stores feeds, and answers the engines' reads from them.
//!
//! Engines send Redis commands. Only these get a reply: reads of the catalogue, the domains, and a link. All others
//! need one place that counts.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cell::Cell;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use weir_base::feed::DocumentRejection;
use weir_base::feed::document::{Document, DocumentError, check_time, is_current, open};
use weir_base::feed::routes;
use weir_base::key::KeyRing;
use weir_base::resp::{Value, decode};
use weir_link::code::LinkId;
use weir_link::feed::{DomainList, Entry, Page, Progress, State, newer};
use weir_link::redis::{domains, keys, link_read};
use weir_sale::feed::{SaleList, SaleListCache};
use weir_sale::redis::catalogue;
use weir_sale::redis::keys::catalogue as catalogue_key;

use crate::config::{CheckedConfig, PREFIX};
use crate::store::{NotWritten, Store};

/// The origin's status for a position that its feed no longer has.
const GONE: u16 = 410;

/// A feed of the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feed {
    /// The sold-out feed.
    SoldOut,
    /// The domains of links.
    Domains,
    /// The link feed.
    Links,
}

/// Why the origin's response was not applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TakeError {
    /// The status is not 200.
    #[error("the origin answered {0}")]
    Status(u16),
    /// It is not a document.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// It is not newer than the existing data, or otherwise refused.
    #[error(transparent)]
    Refused(#[from] DocumentRejection),
    /// Its domains are invalid.
    #[error("invalid domains: {0}")]
    Domains(String),
    /// The store is full or unavailable.
    #[error(transparent)]
    Store(#[from] NotWritten),
}

/// The edge's data on a store.
#[derive(Debug)]
pub struct Knowledge<S> {
    store: S,
    keys: KeyRing,
    links_fresh_ms: u64,
    sales_every_ms: u64,
    links_every_ms: u64,
    /// Whether the engines read links and sales at all.
    wants_links: bool,
    wants_sales: bool,
    sales: SaleListCache,
    domains: Option<Document<DomainList>>,
    /// The two documents in the engines' format.
    catalogue: Vec<u8>,
    domains_json: Vec<u8>,
    progress: StoredProgress,
    /// When this instance last requested each feed.
    asked_ms: Cell<[Option<u64>; Feed::ALL.len()]>,
    /// The digest of the script with which an engine reads a link.
    link_read: String,
    /// Increases with each document that may change the engines' caches.
    changes: u64,
    /// Whether an engine has read a link whose clicks an object counts.
    has_met_counted: Cell<bool>,
}

/// How far the link feed was read, and which of the store's links are valid.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct StoredProgress {
    /// Increases when the feed starts again; links of earlier generations are invalid.
    generation: u64,
    progress: Progress,
}

const SALES_KEY: &str = "feed/sold-out";
const DOMAINS_KEY: &str = "feed/domains";

/// The store's key for the progress of the link feed.
pub const PROGRESS_KEY: &str = "feed/links";

impl Feed {
    /// All feeds.
    pub const ALL: [Self; 3] = [Self::SoldOut, Self::Domains, Self::Links];

    const fn label(self) -> &'static str {
        match self {
            Self::SoldOut => "sold-out",
            Self::Domains => "domains",
            Self::Links => "links",
        }
    }
}

impl<S: Store> Knowledge<S> {
    /// Loads the data in `store`. Stored documents are verified like responses from the origin.
    pub fn new(config: &CheckedConfig, store: S) -> Self {
        let mut knowledge = Self {
            keys: config.keys.clone(),
            links_fresh_ms: config.links_fresh_ms,
            sales_every_ms: config.sales_every_ms,
            links_every_ms: config.links_every_ms,
            wants_links: config.links.is_some(),
            wants_sales: config.gate.is_some(),
            sales: SaleListCache::default(),
            domains: None,
            catalogue: Vec::new(),
            domains_json: Vec::new(),
            progress: StoredProgress::default(),
            asked_ms: Cell::default(),
            link_read: link_read::SCRIPT.sha1_hex(),
            changes: 0,
            has_met_counted: Cell::default(),
            store,
        };
        knowledge.load();
        knowledge
    }

    fn load(&mut self) {
        let read = |key| self.store.get(key);
        let (sales, domains) = (read(SALES_KEY), read(DOMAINS_KEY));
        let progress = read(PROGRESS_KEY).and_then(|json| serde_json::from_slice(&json).ok());
        self.progress = progress.unwrap_or_default();
        // Documents of any age are loaded; each request checks whether they are still valid.
        let now_ms = u64::MAX;
        let _ = sales.map(|text| self.learn_sales(&text, now_ms));
        let _ = domains.map(|text| self.learn_domains(&text, now_ms));
    }

    /// Increases with each change.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Whether the data about sales is valid.
    pub fn knows_sales(&self, now_ms: u64) -> bool {
        self.sales.current(now_ms).is_some()
    }

    /// The key prefix of shards, if the origin's stock is in objects; outer `None` if the data is not valid.
    pub fn stock_in_objects(&self, now_ms: u64) -> Option<Option<&str>> {
        let list = self.sales.current(now_ms)?;
        Some(list.stock_in_objects.as_deref())
    }

    /// The key prefix of links if the origin counts click limits in objects; `None` without a current list of domains.
    pub fn click_limits_in_objects(&self, now_ms: u64) -> Option<Option<&str>> {
        self.domains(now_ms)?;
        let list = &self.domains.as_ref()?.body;
        Some(list.click_limits_in_objects.as_deref())
    }

    /// Whether an engine has read a link whose clicks an object counts, since the last call.
    pub(crate) fn take_counted(&self) -> bool {
        self.has_met_counted.take()
    }

    /// The catalogue as a reply of Redis, while it is valid.
    pub(crate) fn catalogue_reply(&self, now_ms: u64) -> Option<Vec<u8>> {
        self.sales.current(now_ms)?;
        let mut reply = Vec::new();
        bulk(&mut reply, &self.catalogue);
        Some(reply)
    }

    /// Whether the data about links and domains is valid.
    pub fn knows_links(&self, now_ms: u64) -> bool {
        let whole_at_ms = self.progress.progress.whole_at_ms;
        self.domains(now_ms).is_some() && is_current(whole_at_ms, self.links_fresh_ms, now_ms)
    }

    // --- feeds

    /// Reads the progress of the link feed from the store: for a host in which another process reads the feed.
    pub fn follow(&mut self) {
        let stored: Option<StoredProgress> = self.read(PROGRESS_KEY);
        let Some(stored) = stored.filter(|stored| *stored != self.progress) else {
            return;
        };
        let place = |stored: &StoredProgress| (stored.generation, stored.progress.cursor.clone());
        if place(&stored) != place(&self.progress) {
            self.changes += 1;
        }
        self.progress = stored;
    }

    /// The path of a feed if it is due. The time is recorded, so that an unresponsive origin does not get a request
    /// each time.
    pub fn due(&self, feed: Feed, now_ms: u64) -> Option<String> {
        let (is_wanted, every_ms) = match feed {
            Feed::SoldOut => (self.wants_sales, self.sales_every_ms),
            Feed::Domains | Feed::Links => (self.wants_links, self.links_every_ms),
        };
        let is_recent = |asked_ms: Option<u64>| {
            asked_ms.is_some_and(|asked_ms| asked_ms <= now_ms && now_ms - asked_ms < every_ms)
        };
        if !is_wanted || is_recent(self.recorded(feed)) {
            return None;
        }
        // Another instance may have requested it.
        let key = asked_key(feed);
        let asked_ms = self.read(&key);
        if is_recent(asked_ms) {
            self.note_asked(feed, asked_ms);
            return None;
        }
        self.note_asked(feed, Some(now_ms));
        // If recording fails, the next request comes earlier.
        let _ = self.store.put(&key, now_ms.to_string().as_bytes());
        Some(self.path(feed))
    }

    fn recorded(&self, feed: Feed) -> Option<u64> {
        let all = self.asked_ms.get();
        all.get(feed as usize).copied().flatten()
    }

    fn note_asked(&self, feed: Feed, asked_ms: Option<u64>) {
        let mut all = self.asked_ms.get();
        if let Some(of_feed) = all.get_mut(feed as usize) {
            *of_feed = asked_ms;
        }
        self.asked_ms.set(all);
    }

    fn path(&self, feed: Feed) -> String {
        match feed {
            Feed::SoldOut => routes::SOLD_OUT.into(),
            Feed::Domains => routes::DOMAINS.into(),
            Feed::Links => {
                let cursor = self.progress.progress.cursor.as_ref();
                routes::links_after(cursor.map(ToString::to_string).as_deref())
            }
        }
    }

    /// Applies the origin's response.
    ///
    /// # Errors
    /// See [`TakeError`]. The existing data stays until it expires.
    pub fn take(
        &mut self,
        feed: Feed,
        status: u16,
        text: &[u8],
        now_ms: u64,
    ) -> Result<(), TakeError> {
        match (feed, status) {
            (Feed::Links, GONE) => Ok(self.restart()?),
            (Feed::SoldOut, 200) => {
                self.learn_sales(text, now_ms)?;
                Ok(self.store.put(SALES_KEY, text)?)
            }
            (Feed::Domains, 200) => {
                self.learn_domains(text, now_ms)?;
                Ok(self.store.put(DOMAINS_KEY, text)?)
            }
            (Feed::Links, 200) => self.take_page(&open(&self.keys, text)?, now_ms),
            (_, status) => Err(TakeError::Status(status)),
        }
    }

    fn learn_sales(&mut self, text: &[u8], now_ms: u64) -> Result<(), TakeError> {
        let list: Document<SaleList> = open(&self.keys, text)?;
        let json = catalogue::write(&list.body.catalogue).unwrap_or_default();
        self.sales.take(list, now_ms)?;
        if self.catalogue != json {
            self.catalogue = json;
            self.changes += 1;
        }
        Ok(())
    }

    fn learn_domains(&mut self, text: &[u8], now_ms: u64) -> Result<(), TakeError> {
        let list: Document<DomainList> = open(&self.keys, text)?;
        check_time(list.at_ms, now_ms)?;
        let order = |list: &Document<DomainList>| (list.body.version, list.at_ms);
        if let Some(existing) = &self.domains
            && order(&list) <= order(existing)
        {
            return Err(DocumentRejection::Older.into());
        }
        let domains = list.body.domains.clone().checked();
        let domains = domains.map_err(|error| TakeError::Domains(error.to_string()))?;
        let json = domains::write(&domains).unwrap_or_default();
        self.domains = Some(list);
        if self.domains_json != json {
            self.domains_json = json;
            self.changes += 1;
        }
        Ok(())
    }

    /// Applies a page. Links are written before the progress: an edge that crashes in between reads the page again.
    fn take_page(&mut self, page: &Document<Page>, now_ms: u64) -> Result<(), TakeError> {
        let progress = self.progress.progress.after(page, now_ms)?;
        for entry in &page.body.links {
            let key = self.link_key(&entry.id);
            let existing: Option<Entry> = self.read(&key);
            if let Some(entry) = newer(existing.map(|existing| existing.seq), entry) {
                self.write(&key, entry)?;
            }
        }
        let stored = StoredProgress {
            generation: self.progress.generation,
            progress,
        };
        self.write(PROGRESS_KEY, &stored)?;
        self.progress = stored;
        if !page.body.is_last {
            // The next page is due immediately.
            self.note_asked(Feed::Links, None);
            let _ = self.store.put(&asked_key(Feed::Links), b"0");
        }
        if !page.body.links.is_empty() {
            self.changes += 1;
        }
        Ok(())
    }

    /// Discards everything read before: gateways answer until it is read again.
    fn restart(&mut self) -> Result<(), NotWritten> {
        let stored = StoredProgress {
            generation: self.progress.generation + 1,
            progress: Progress::default(),
        };
        self.write(PROGRESS_KEY, &stored)?;
        self.progress = stored;
        self.changes += 1;
        Ok(())
    }

    fn link_key(&self, id: &LinkId) -> String {
        let generation = self.progress.generation;
        // A store may treat a slash as a folder, and a code could collide with longer ones.
        format!("link/{generation}/{}", id.to_path())
    }

    fn read<T: DeserializeOwned>(&self, key: &str) -> Option<T> {
        serde_json::from_slice(&self.store.get(key)?).ok()
    }

    fn write<T: Serialize>(&self, key: &str, value: &T) -> Result<(), NotWritten> {
        let json = serde_json::to_vec(value).map_err(|_| NotWritten)?;
        self.store.put(key, &json)
    }

    // --- engine reads

    /// The replies to whole commands; `None` if the data does not answer all of them.
    pub fn run(&self, commands: &[u8], now_ms: u64) -> Option<Vec<u8>> {
        let (mut rest, mut replies) = (commands, Vec::new());
        while !rest.is_empty() {
            let (command, used) = decode(rest).ok()?;
            self.reply(PREFIX, &words(&command)?, now_ms, &mut replies)?;
            rest = rest.get(used..)?;
        }
        Some(replies)
    }

    /// The reply to one command of an engine with this key prefix; `None` if the data does not answer it.
    pub(crate) fn reply_to(&self, prefix: &str, words: &[&[u8]], now_ms: u64) -> Option<Vec<u8>> {
        let mut reply = Vec::new();
        self.reply(prefix, words, now_ms, &mut reply)?;
        Some(reply)
    }

    fn reply(&self, prefix: &str, words: &[&[u8]], now_ms: u64, out: &mut Vec<u8>) -> Option<()> {
        let domains = keys::link_domains(prefix);
        match words {
            [b"GET", key] if *key == catalogue_key(prefix).as_slice() => {
                self.sales.current(now_ms)?;
                bulk(out, &self.catalogue);
            }
            // A sold-out sale, which stays so while the list contains it.
            [b"GET", key] if key.ends_with(b":epoch") => bulk(out, b"0"),
            [b"GET", key] if *key == domains.as_slice() => bulk(out, self.domains(now_ms)?),
            [b"GETRANGE", key, b"0", last] if *key == domains.as_slice() => {
                let end: usize = core::str::from_utf8(last).ok()?.parse().ok()?;
                let json = self.domains(now_ms)?;
                bulk(out, json.get(..=end).unwrap_or(json));
            }
            [b"STRLEN", key] if *key == domains.as_slice() => {
                let length = self.domains(now_ms)?.len();
                out.extend_from_slice(format!(":{length}\r\n").as_bytes());
            }
            // Engines are recreated when links change, so they need no list of changes.
            [b"XREVRANGE" | b"XRANGE", ..] => out.extend_from_slice(b"*0\r\n"),
            [b"EVALSHA" | b"EVAL", script, _, key, ..] => {
                if *script != self.link_read.as_bytes()
                    && *script != link_read::SCRIPT.source.as_bytes()
                {
                    return None;
                }
                self.reply_link(key, now_ms, out)?;
            }
            _ => return None,
        }
        Some(())
    }

    fn domains(&self, now_ms: u64) -> Option<&[u8]> {
        let at_ms = self.domains.as_ref()?.at_ms;
        is_current(at_ms, self.links_fresh_ms, now_ms).then_some(&self.domains_json)
    }

    /// Records at edges belong to permanent links without a click limit: reading changes nothing.
    fn reply_link(&self, key: &[u8], now_ms: u64, out: &mut Vec<u8>) -> Option<()> {
        if !self.knows_links(now_ms) {
            return None;
        }
        let entry: Entry = self.read(&self.link_key(&link_of(key)?))?;
        let record = match entry.state {
            State::Record(record) => record,
            State::Counted(_) => {
                self.has_met_counted.set(true);
                return None;
            }
            State::AtGateway | State::Gone => return None,
        };
        out.extend_from_slice(b"*3\r\n");
        bulk(out, record.as_bytes());
        out.extend_from_slice(b":-1\r\n:-1\r\n");
        Some(())
    }
}

/// The store's key for the time of a feed's last request.
fn asked_key(feed: Feed) -> String {
    format!("asked/{}", feed.label())
}

/// The link of a key: `<prefix>:link:{<domain>/<code>}`.
fn link_of(key: &[u8]) -> Option<LinkId> {
    let key = core::str::from_utf8(key).ok()?;
    let (_, behind) = key.split_once('{')?;
    let id: LinkId = behind.strip_suffix('}')?.parse().ok()?;
    (keys::LinkKeys::new(PREFIX, &id).record() == key.as_bytes()).then_some(id)
}

pub(crate) fn words(command: &Value) -> Option<Vec<&[u8]>> {
    match command {
        Value::Array(words) => words.iter().map(word).collect(),
        _ => None,
    }
}

fn word(value: &Value) -> Option<&[u8]> {
    match value {
        Value::Bulk(bytes) => Some(bytes),
        _ => None,
    }
}

fn bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(format!("${}\r\n", bytes.len()).as_bytes());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}
