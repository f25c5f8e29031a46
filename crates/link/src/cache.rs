//! What a gateway remembers of links: bounded in number and in bytes, whatever is asked for.
//!
//! A link that is remembered is answered without asking anybody. In the background it is read again when
//! its life is to be renewed, and from time to time in any case. Edits are heard of by the stream of
//! changes, and drop it. When changes were missed, everything *must be revalidated*: it is read again before it is
//! answered, and answered all the same if nobody can be asked.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::code::{Code, DomainId, LinkId};
use super::record::{Link, Preview};
use super::rule::Rule;
use weir_base::bytes::is_same;
use weir_base::hash::seeded_hash;

/// A link's name as a gateway looks it up, without memory of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkName {
    bytes: [u8; LinkId::LEN_MAX],
    length: u8,
}

/// How much is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most links.
    pub entries_max: usize,
    /// The most bytes that they take together, roughly.
    pub bytes_max: usize,
    /// The most codes that are known to name nothing.
    pub unknown_max: usize,
    /// After so many milliseconds a link is read again.
    pub fresh_ms: u64,
    /// After so many if the origin has told of it: it tells when Redis cannot, and then nobody hears of edits.
    pub origin_fresh_ms: u64,
    /// For so many milliseconds a code is known to name nothing, or a link that has ended.
    pub unknown_ms: u64,
    /// How much of its life must be gone before a link is renewed, in thousandths.
    pub renew_permille: u32,
}

/// What is known of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedLink {
    /// The link.
    pub link: Link,
    /// Whether all its clicks are used.
    pub is_used_up: bool,
    /// Whether its life is over.
    pub has_ended: bool,
    /// When its life ends without a renewal, in milliseconds since the Unix epoch; `u64::MAX` is never. An ended link is
    /// forgotten at this time.
    pub dies_at_ms: u64,
    /// When it is to be read again.
    read_at_ms: u64,
    /// Which time of remembering it is from.
    generation: u32,
}

/// Who has told of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Redis.
    Redis,
    /// The origin.
    Origin,
}

/// A link as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkReading {
    /// The link.
    pub link: Link,
    /// Whether all its clicks are used.
    pub is_used_up: bool,
    /// How much of its life is left, in milliseconds; `None`: it has no end. 0: it has ended.
    pub left_ms: Option<u64>,
    /// Where.
    pub source: Source,
}

/// What a gateway finds.
#[derive(Debug, PartialEq, Eq)]
pub enum CacheLookup<'a> {
    /// The link. If `is_due`, it should be read again in the background: this is said once in a while only.
    Link {
        /// What is known.
        known: &'a CachedLink,
        /// Whether to read it again.
        is_due: bool,
    },
    /// The link, but it must be read again first. If that fails, [`Memory::stale`] has it.
    MustRevalidate,
    /// There is no such link.
    Unknown,
    /// Nothing is known of it.
    Nothing,
}

/// After how many milliseconds a link is asked for once more if no answer came to the first reading. So long it is also
/// known that all clicks of a link are used: one may be given back.
const ASK_AGAIN_MS: u64 = 1_000;

/// What an entry takes beside its link: the slot, its place in the index, its name.
const ENTRY_BYTES: usize = 256;

/// What a gateway remembers.
#[derive(Debug)]
pub struct Memory {
    limits: Limits,
    links: Cache<CachedLink>,
    unknown: Cache<u64>,
    generation: u32,
}

/// Whether a code consists of letters, digits, `-` and `_`, in segments with one slash between them.
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
    /// The name of `code` under `domain`; `None` if no code is spelt like that.
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

    /// The link that it names.
    pub fn to_link(&self) -> Option<LinkId> {
        core::str::from_utf8(self.as_bytes()).ok()?.parse().ok()
    }
}

impl From<&LinkId> for LinkName {
    fn from(link: &LinkId) -> Self {
        let name = Self::new(&link.domain, link.code.as_str().as_bytes());
        // A code is spelt like a code.
        name.unwrap_or(Self {
            bytes: [0; LinkId::LEN_MAX],
            length: 0,
        })
    }
}

impl Memory {
    /// Remembers nothing yet. `seed` should be hard to guess, so that nobody can choose names of one hash.
    pub fn new(limits: Limits, seed: u64) -> Self {
        Self {
            links: Cache::new(limits.entries_max, limits.bytes_max, seed),
            unknown: Cache::new(limits.unknown_max, usize::MAX, seed),
            limits,
            generation: 0,
        }
    }

    /// Whether memory alone answers a request for the link: it is current, or known not to exist, and it has no password, which
    /// only the origin checks. Nothing is read again because of it.
    pub fn answers(&mut self, name: &LinkName, now_ms: u64) -> bool {
        if let Some(known) = self.links.get(name.as_bytes()) {
            return known.dies_at_ms > now_ms
                && known.generation == self.generation
                && now_ms < known.read_at_ms
                && known.link.guard.is_none();
        }
        let until_ms = self.unknown.get(name.as_bytes());
        until_ms.is_some_and(|until_ms| is_ahead(*until_ms, now_ms, self.limits.unknown_ms))
    }

    /// Looks `name` up.
    pub fn find(&mut self, name: &LinkName, now_ms: u64) -> CacheLookup<'_> {
        let generation = self.generation;
        if let Some(known) = self.links.get(name.as_bytes()) {
            if known.dies_at_ms <= now_ms {
                return CacheLookup::Nothing;
            }
            if known.generation != generation {
                return CacheLookup::MustRevalidate;
            }
            let is_due = now_ms >= known.read_at_ms;
            if is_due {
                known.read_at_ms = now_ms.saturating_add(ASK_AGAIN_MS);
            }
            return CacheLookup::Link { known, is_due };
        }
        match self.unknown.get(name.as_bytes()) {
            Some(until_ms) if is_ahead(*until_ms, now_ms, self.limits.unknown_ms) => {
                CacheLookup::Unknown
            }
            _ => CacheLookup::Nothing,
        }
    }

    /// What was known of `name`, however old it is; but nothing of a link whose life has ended.
    pub fn stale(&mut self, name: &LinkName, now_ms: u64) -> Option<&CachedLink> {
        let known = self.links.get(name.as_bytes())?;
        (known.dies_at_ms > now_ms).then_some(&*known)
    }

    /// `name` was read.
    pub fn learn(&mut self, name: &LinkName, learnt: LinkReading, now_ms: u64) {
        self.unknown.remove(name.as_bytes());
        let bytes = ENTRY_BYTES + size_of_link(&learnt.link);
        let has_ended = learnt.left_ms == Some(0);
        // If ended links were not cached, each request for one would go to the origin.
        let kept_ms = match has_ended {
            true => Some(self.limits.unknown_ms),
            false => learnt.left_ms,
        };
        let known = CachedLink {
            read_at_ms: match has_ended {
                true => u64::MAX,
                false => self.read_at_ms(&learnt, now_ms),
            },
            dies_at_ms: kept_ms.map_or(u64::MAX, |kept_ms| now_ms.saturating_add(kept_ms)),
            link: learnt.link,
            is_used_up: learnt.is_used_up,
            has_ended,
            generation: self.generation,
        };
        self.links.insert(name.as_bytes(), known, bytes);
    }

    fn read_at_ms(&self, learnt: &LinkReading, now_ms: u64) -> u64 {
        let fresh_ms = match learnt.source {
            _ if learnt.is_used_up => ASK_AGAIN_MS,
            Source::Redis => self.limits.fresh_ms,
            Source::Origin => self.limits.origin_fresh_ms.min(self.limits.fresh_ms),
        };
        let link = &learnt.link;
        let left_ms = learnt
            .left_ms
            .filter(|_| link.life_ms > 0 && !link.is_disabled);
        let Some(left_ms) = left_ms else {
            return now_ms.saturating_add(fresh_ms);
        };
        // Renewed when life - left > life * permille / 1,000, as `link_read.lua` has it.
        let spent = u128::from(link.life_ms) * u128::from(self.limits.renew_permille) / 1_000;
        let spent_ms = u64::try_from(spent).unwrap_or(u64::MAX);
        let until_due_ms = left_ms.saturating_sub(link.life_ms.saturating_sub(spent_ms));
        // One that is overdue was read by somebody who only looks. Others may click, but not each of them must read it.
        let in_ms = match until_due_ms {
            0 => ASK_AGAIN_MS.min(spent_ms),
            until_due_ms => until_due_ms.saturating_add(1),
        };
        now_ms.saturating_add(in_ms.min(fresh_ms))
    }

    /// What is suspect counts for a while: nobody could be asked just now.
    pub fn trust(&mut self, name: &LinkName, now_ms: u64) {
        let generation = self.generation;
        if let Some(known) = self.links.get(name.as_bytes()) {
            known.generation = generation;
            known.read_at_ms = now_ms.saturating_add(ASK_AGAIN_MS);
        }
    }

    /// There is no link `name`.
    pub fn learn_unknown(&mut self, name: &LinkName, now_ms: u64) {
        self.links.remove(name.as_bytes());
        let until_ms = now_ms.saturating_add(self.limits.unknown_ms);
        self.unknown.insert(name.as_bytes(), until_ms, 0);
    }

    /// What is known of the link `name` is no answer for the next request, as if it has clicks left.
    pub fn drop_link(&mut self, name: &LinkName) {
        self.links.remove(name.as_bytes());
    }

    /// `name` was edited: whatever is known of it no longer counts.
    pub fn forget(&mut self, name: &LinkName) {
        self.links.remove(name.as_bytes());
        self.unknown.remove(name.as_bytes());
    }

    /// Changes may have been missed: all that is known must be revalidated.
    pub fn revalidate_all(&mut self) {
        self.generation = self.generation.wrapping_add(1);
        self.unknown.clear();
    }

    /// How many links it knows, and how many bytes they take, roughly.
    pub fn size(&self) -> (usize, usize) {
        (self.links.len(), self.links.bytes)
    }

    /// How many links had to make room since this was last asked.
    pub fn take_evictions(&mut self) -> usize {
        core::mem::take(&mut self.links.evictions)
    }
}

/// Whether `until_ms` is ahead, and not by more than anything that was set.
fn is_ahead(until_ms: u64, now_ms: u64, set_ms: u64) -> bool {
    until_ms > now_ms && until_ms - now_ms <= set_ms
}

fn size_of_link(link: &Link) -> usize {
    let addresses = link.addresses().map(|address| address.len() + 64);
    let rules = link.rules.iter().map(Rule::size);
    let preview = link.preview.as_ref().map_or(0, Preview::size);
    addresses.sum::<usize>() + rules.sum::<usize>() + preview
}

/// A bounded map. What makes room is chosen by CLOCK (F. J. Corbató, 1968): a hand goes round the slots, and
/// what was asked for since it last came by is passed over once.
#[derive(Debug)]
struct Cache<V> {
    entries_max: usize,
    bytes_max: usize,
    seed: u64,
    /// Slots by the hash of their names. Two names of one hash, of 64 bits, take turns.
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

    /// What is larger than all that fits is not remembered.
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

    /// Makes room. There is something to make it of, or nothing would be in the way.
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
