//! A gateway's link cache, bounded in entries and in bytes.
//!
//! A cached link is answered without a lookup. A background read refreshes it when its lifetime needs a renewal, and at
//! regular intervals. The stream of changes reports edits, which evict it. After missed changes, every entry *must be
//! revalidated*: it is read again before use. The stale entry is still used if Redis and the origin are unavailable.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::code::{Code, DomainId, LinkId};
use super::record::{Link, Preview};
use super::rule::Rule;
use weir_base::bytes::is_same;
use weir_base::hash::seeded_hash;

/// A link's cache key, without allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkName {
    bytes: [u8; LinkId::LEN_MAX],
    length: u8,
}

/// Size and age limits of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum links.
    pub entries_max: usize,
    /// Approximate maximum size of all links, in bytes.
    pub bytes_max: usize,
    /// Maximum codes cached as unknown.
    pub unknown_max: usize,
    /// Age at which a link from Redis is read again, in milliseconds.
    pub fresh_ms: u64,
    /// The same for a link from the origin. It is shorter: the origin answers during a Redis outage, when no edits are
    /// reported.
    pub origin_fresh_ms: u64,
    /// Lifetime of unknown codes and of ended links in the cache, in milliseconds.
    pub unknown_ms: u64,
    /// Share of its lifetime after which a link is renewed, in thousandths.
    pub renew_permille: u32,
}

/// A cached link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedLink {
    /// The link.
    pub link: Link,
    /// Whether it has reached its click limit.
    pub is_used_up: bool,
    /// Whether its lifetime is over.
    pub has_ended: bool,
    /// When it expires without a renewal, in milliseconds since the Unix epoch; `u64::MAX`: never. An ended link is
    /// evicted at this time.
    pub dies_at_ms: u64,
    /// When to read it again, in milliseconds since the Unix epoch.
    read_at_ms: u64,
    /// The cache generation in which it was stored; an older one must be revalidated.
    generation: u32,
}

/// Where a link was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Redis.
    Redis,
    /// The origin.
    Origin,
}

/// A link as read from Redis or the origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkReading {
    /// The link.
    pub link: Link,
    /// Whether it has reached its click limit.
    pub is_used_up: bool,
    /// Its remaining lifetime, in milliseconds. `None`: permanent. 0: expired.
    pub left_ms: Option<u64>,
    /// Where it was read.
    pub source: Source,
}

/// The result of a cache lookup.
#[derive(Debug, PartialEq, Eq)]
pub enum CacheLookup<'a> {
    /// The link. `is_due` requests a background read; it is set at most once per interval.
    Link {
        /// The entry.
        cached: &'a CachedLink,
        /// Whether to read the link again.
        is_due: bool,
    },
    /// The link must be read again before use. If that fails, [`Memory::stale`] returns the stale entry.
    MustRevalidate,
    /// The link does not exist.
    Unknown,
    /// The cache has no entry.
    Nothing,
}

/// Time until a link's read is retried if no reply has arrived, in milliseconds. Also how long an exhausted click limit
/// is cached: a click may be returned.
const ASK_AGAIN_MS: u64 = 1_000;

/// Approximate overhead of an entry besides its link, in bytes: slot, index entry and name.
const ENTRY_BYTES: usize = 256;

/// The link cache.
#[derive(Debug)]
pub struct Memory {
    limits: Limits,
    links: Cache<CachedLink>,
    unknown: Cache<u64>,
    generation: u32,
}

/// Whether a code consists of letters, digits, `-` and `_`, in segments separated by single slashes.
fn has_whole_segments(code: &[u8]) -> bool {
    let mut is_in_segment = false;
    let is_allowed = |byte: &u8| {
        let was_in_segment = is_in_segment;
        is_in_segment = *byte != b'/';
        match byte {
            b'/' => was_in_segment,
            byte => byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'),
        }
    };
    code.iter().all(is_allowed) && is_in_segment
}

impl LinkName {
    /// The name of `code` under `domain`; `None` if `code` is not a well-formed code.
    pub fn new(domain: &DomainId, code: &[u8]) -> Option<Self> {
        if !(Code::LEN_MIN..=Code::LEN_MAX).contains(&code.len()) || !has_whole_segments(code) {
            return None;
        }
        let domain = domain.as_str().as_bytes();
        let mut bytes = [0; LinkId::LEN_MAX];
        bytes.get_mut(..domain.len())?.copy_from_slice(domain);
        let rest = bytes.get_mut(domain.len()..)?;
        let (slash, rest) = rest.split_first_mut()?;
        *slash = b'/';
        rest.get_mut(..code.len())?.copy_from_slice(code);
        let length = domain.len() + 1 + code.len();
        Some(Self {
            bytes,
            length: u8::try_from(length).ok()?,
        })
    }

    /// `<domain>/<code>`.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes
            .get(..usize::from(self.length))
            .unwrap_or_default()
    }

    /// The link ID.
    pub fn to_link(&self) -> Option<LinkId> {
        core::str::from_utf8(self.as_bytes()).ok()?.parse().ok()
    }
}

impl From<&LinkId> for LinkName {
    fn from(link: &LinkId) -> Self {
        let name = Self::new(&link.domain, link.code.as_str().as_bytes());
        // The constructor has checked the code.
        name.unwrap_or(Self {
            bytes: [0; LinkId::LEN_MAX],
            length: 0,
        })
    }
}

impl Memory {
    /// Creates an empty cache. `seed` should be hard to guess, so that clients cannot choose names with equal hashes.
    pub fn new(limits: Limits, seed: u64) -> Self {
        Self {
            links: Cache::new(limits.entries_max, limits.bytes_max, seed),
            unknown: Cache::new(limits.unknown_max, usize::MAX, seed),
            limits,
            generation: 0,
        }
    }

    /// Whether the cache alone can answer a request for the link: it is current, or known not to exist, and has no
    /// password, which only the origin checks. This schedules no read.
    pub fn answers(&mut self, name: &LinkName, now_ms: u64) -> bool {
        if let Some(existing) = self.links.get(name.as_bytes()) {
            return existing.dies_at_ms > now_ms
                && existing.generation == self.generation
                && now_ms < existing.read_at_ms
                && existing.link.guard.is_none();
        }
        let until_ms = self.unknown.get(name.as_bytes());
        until_ms.is_some_and(|until_ms| is_ahead(*until_ms, now_ms, self.limits.unknown_ms))
    }

    /// Looks `name` up.
    pub fn find(&mut self, name: &LinkName, now_ms: u64) -> CacheLookup<'_> {
        let generation = self.generation;
        if let Some(existing) = self.links.get(name.as_bytes()) {
            if existing.dies_at_ms <= now_ms {
                return CacheLookup::Nothing;
            }
            if existing.generation != generation {
                return CacheLookup::MustRevalidate;
            }
            let is_due = now_ms >= existing.read_at_ms;
            if is_due {
                existing.read_at_ms = now_ms.saturating_add(ASK_AGAIN_MS);
            }
            return CacheLookup::Link {
                cached: existing,
                is_due,
            };
        }
        match self.unknown.get(name.as_bytes()) {
            Some(until_ms) if is_ahead(*until_ms, now_ms, self.limits.unknown_ms) => {
                CacheLookup::Unknown
            }
            _ => CacheLookup::Nothing,
        }
    }

    /// The entry for `name`, however old, except after the end of its lifetime.
    pub fn stale(&mut self, name: &LinkName, now_ms: u64) -> Option<&CachedLink> {
        let existing = self.links.get(name.as_bytes())?;
        (existing.dies_at_ms > now_ms).then_some(&*existing)
    }

    /// Caches the result of a read of `name`.
    pub fn learn(&mut self, name: &LinkName, reading: LinkReading, now_ms: u64) {
        self.unknown.remove(name.as_bytes());
        let bytes = ENTRY_BYTES + size_of_link(&reading.link);
        let has_ended = reading.left_ms == Some(0);
        // Without caching, each request for an ended link would reach the origin.
        let kept_ms = match has_ended {
            true => Some(self.limits.unknown_ms),
            false => reading.left_ms,
        };
        let existing = CachedLink {
            read_at_ms: match has_ended {
                true => u64::MAX,
                false => self.read_at_ms(&reading, now_ms),
            },
            dies_at_ms: kept_ms.map_or(u64::MAX, |kept_ms| now_ms.saturating_add(kept_ms)),
            link: reading.link,
            is_used_up: reading.is_used_up,
            has_ended,
            generation: self.generation,
        };
        self.links.insert(name.as_bytes(), existing, bytes);
    }

    fn read_at_ms(&self, reading: &LinkReading, now_ms: u64) -> u64 {
        let fresh_ms = match reading.source {
            _ if reading.is_used_up => ASK_AGAIN_MS,
            Source::Redis => self.limits.fresh_ms,
            Source::Origin => self.limits.origin_fresh_ms.min(self.limits.fresh_ms),
        };
        let link = &reading.link;
        let left_ms = reading
            .left_ms
            .filter(|_| link.life_ms > 0 && !link.is_disabled);
        let Some(left_ms) = left_ms else {
            return now_ms.saturating_add(fresh_ms);
        };
        // Renewed when life - left > life * permille / 1,000, as in `link_read.lua`.
        let spent = u128::from(link.life_ms) * u128::from(self.limits.renew_permille) / 1_000;
        let spent_ms = u64::try_from(spent).unwrap_or(u64::MAX);
        let until_due_ms = left_ms.saturating_sub(link.life_ms.saturating_sub(spent_ms));
        // A read without a click found it overdue. Later clicks renew it, but not every one of them should read it.
        let in_ms = match until_due_ms {
            0 => ASK_AGAIN_MS.min(spent_ms),
            until_due_ms => until_due_ms.saturating_add(1),
        };
        now_ms.saturating_add(in_ms.min(fresh_ms))
    }

    /// Trusts a stale entry for a while, because neither Redis nor the origin is available.
    pub fn trust(&mut self, name: &LinkName, now_ms: u64) {
        let generation = self.generation;
        if let Some(existing) = self.links.get(name.as_bytes()) {
            existing.generation = generation;
            existing.read_at_ms = now_ms.saturating_add(ASK_AGAIN_MS);
        }
    }

    /// Caches that the link `name` does not exist.
    pub fn learn_unknown(&mut self, name: &LinkName, now_ms: u64) {
        self.links.remove(name.as_bytes());
        let until_ms = now_ms.saturating_add(self.limits.unknown_ms);
        self.unknown.insert(name.as_bytes(), until_ms, 0);
    }

    /// Evicts the link `name`: its entry cannot answer the next request, for example because it has clicks left.
    pub fn drop_link(&mut self, name: &LinkName) {
        self.links.remove(name.as_bytes());
    }

    /// Evicts `name` after an edit, also if it is cached as unknown.
    pub fn forget(&mut self, name: &LinkName) {
        self.links.remove(name.as_bytes());
        self.unknown.remove(name.as_bytes());
    }

    /// Marks all entries for revalidation after missed changes.
    pub fn revalidate_all(&mut self) {
        self.generation = self.generation.wrapping_add(1);
        self.unknown.clear();
    }

    /// The number of links and their approximate size in bytes.
    pub fn size(&self) -> (usize, usize) {
        (self.links.len(), self.links.bytes)
    }

    /// The number of links evicted for space since the last call.
    pub fn take_evictions(&mut self) -> usize {
        core::mem::take(&mut self.links.evictions)
    }
}

/// Whether `until_ms` is in the future, by no more than `set_ms`. A clock that was set back fails this check.
fn is_ahead(until_ms: u64, now_ms: u64, set_ms: u64) -> bool {
    until_ms > now_ms && until_ms - now_ms <= set_ms
}

fn size_of_link(link: &Link) -> usize {
    let addresses = link.addresses().map(|address| address.len() + 64);
    let rules = link.rules.iter().map(Rule::size);
    let preview = link.preview.as_ref().map_or(0, Preview::size);
    addresses.sum::<usize>() + rules.sum::<usize>() + preview
}

/// A bounded map with CLOCK eviction (F. J. Corbató, 1968): a hand cycles through the slots and skips entries that were
/// used since its last pass.
#[derive(Debug)]
struct Cache<V> {
    entries_max: usize,
    bytes_max: usize,
    seed: u64,
    /// Slots by 64-bit name hash. Two names with equal hashes replace each other.
    index: BTreeMap<u64, usize>,
    slots: Vec<Option<Slot<V>>>,
    free: Vec<usize>,
    hand: usize,
    bytes: usize,
    evictions: usize,
}

#[derive(Debug)]
struct Slot<V> {
    hash: u64,
    name: Box<[u8]>,
    value: V,
    bytes: usize,
    is_asked_for: bool,
}

impl<V> Cache<V> {
    fn new(entries_max: usize, bytes_max: usize, seed: u64) -> Self {
        Self {
            entries_max,
            bytes_max,
            seed,
            index: BTreeMap::new(),
            slots: Vec::new(),
            free: Vec::new(),
            hand: 0,
            bytes: 0,
            evictions: 0,
        }
    }

    fn len(&self) -> usize {
        self.index.len()
    }

    fn get(&mut self, name: &[u8]) -> Option<&mut V> {
        let place = *self.index.get(&seeded_hash(self.seed, name))?;
        let slot = self.slots.get_mut(place)?.as_mut()?;
        if !is_same(&slot.name, name) {
            return None;
        }
        slot.is_asked_for = true;
        Some(&mut slot.value)
    }

    /// Inserts a value, unless it is larger than the whole cache.
    fn insert(&mut self, name: &[u8], value: V, bytes: usize) {
        let hash = seeded_hash(self.seed, name);
        self.remove_hash(hash);
        if bytes > self.bytes_max || self.entries_max == 0 {
            return;
        }
        while self.len() >= self.entries_max || self.bytes > self.bytes_max - bytes {
            self.evict();
        }
        let slot = Slot {
            hash,
            name: name.into(),
            value,
            bytes,
            is_asked_for: false,
        };
        let place = self.free.pop().unwrap_or(self.slots.len());
        match self.slots.get_mut(place) {
            Some(empty) => *empty = Some(slot),
            None => self.slots.push(Some(slot)),
        }
        self.bytes += bytes;
        self.index.insert(hash, place);
    }

    fn remove(&mut self, name: &[u8]) {
        if self.get(name).is_some() {
            self.remove_hash(seeded_hash(self.seed, name));
        }
    }

    fn remove_hash(&mut self, hash: u64) {
        let Some(place) = self.index.remove(&hash) else {
            return;
        };
        if let Some(slot) = self.slots.get_mut(place).and_then(Option::take) {
            self.bytes -= slot.bytes;
            self.free.push(place);
        }
    }

    /// Evicts an entry. The caller ensures that one exists.
    fn evict(&mut self) {
        loop {
            self.hand = if self.hand < self.slots.len() {
                self.hand
            } else {
                0
            };
            let slot = self.slots.get_mut(self.hand);
            self.hand += 1;
            match slot {
                Some(Some(slot)) if slot.is_asked_for => slot.is_asked_for = false,
                Some(Some(slot)) => {
                    let hash = slot.hash;
                    self.evictions += 1;
                    return self.remove_hash(hash);
                }
                Some(None) => {}
                None => return,
            }
        }
    }

    fn clear(&mut self) {
        self.index.clear();
        self.slots.clear();
        self.free.clear();
        self.hand = 0;
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests;
