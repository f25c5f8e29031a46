//! A table of limits in memory that all workers of one gateway share, so that a limit holds for the gateway and not for each
//! worker. In Envoy that is its shared data.
//!
//! The table has a fixed number of slots, each one value of [`Slot::len`] bytes. A slot's key is a hash of the table's name
//! and the slot's number, in 15 bytes: so short a string lives inside Envoy's map, where a longer one would cost each
//! decision another look at memory that no cache holds. Values are never deleted (Envoy cannot), so the number of slots is
//! what bounds the memory: some 400 bytes each with Envoy's own for GCRA, so 1.6 MB for 4,096 slots, which hold 32,768 keys.
//! What a crowded slot does is told in the [crate's documentation](crate).
//!
//! A decision reads one slot and writes it; a refusal only reads. Two workers may decide on one slot at the same moment: the
//! later write fails (compare and swap), and its worker reads and decides again, [`TRIES_MAX`] times in all. If the slot is
//! still contended then, the last decision stands without having been noted: one request too many may pass, and none is
//! refused for it.

use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use weir_base::shared_data::{MISSING, SharedData};

use crate::{Check, Fingerprint, Quota, Slot, State};

/// How often one decision is tried. A worker loses a try only to another one that decided in the
/// microsecond between; to lose this many in turn takes far more workers than a machine has cores.
pub const TRIES_MAX: usize = 8;

/// The most slots: some 25 MB of GCRA's. A config with more is more likely a typing error.
pub const SLOTS_MAX: u32 = 65_536;

/// How much of a hash stands for a table: 40 bits, in hexadecimal digits. That any two of 64 tables have the
/// same is less likely than one in 500 million.
const TAG_LEN: usize = 10;

/// As many as [`SLOTS_MAX`] has.
const SLOT_DIGITS: usize = 5;

/// The bytes of a slot's key.
const SLOT_KEY_LEN: usize = TAG_LEN + SLOT_DIGITS;

/// Whether `key` of the shared data is that of some table's slot.
pub fn is_slot_key(key: &[u8]) -> bool {
    key.len() == SLOT_KEY_LEN && key.iter().all(u8::is_ascii_hexdigit)
}

/// A table of limits.
#[derive(Clone, Debug)]
pub struct Table<D> {
    data: D,
    /// What the keys of its slots begin with.
    tag: [u8; TAG_LEN],
    slots: u32,
    seed: u64,
}

/// One request of one table.
#[derive(Debug)]
pub struct TableRequest<'a, D> {
    /// The table.
    pub table: &'a Table<D>,
    /// How often its key may ask. All quotas of one table must be of one algorithm.
    pub quota: Quota,
    /// Who asks.
    pub key: &'a [u8],
    /// As how many requests it counts.
    pub cost: u32,
}

// Derived, it would ask for data that can be copied.
impl<D> Clone for TableRequest<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D> Copy for TableRequest<'_, D> {}

/// What tables say to one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// What each quota said, in the order of the asks.
    pub checks: Vec<Check>,
    /// For each state of another key that was lost though it still was of use: by which ask, by its place.
    pub evicted_by: Vec<usize>,
}

impl Decision {
    /// Whether the request may pass. If not, nothing was charged.
    pub fn is_allowed(&self) -> bool {
        self.checks.iter().all(Check::is_allowed)
    }

    /// After how many milliseconds every quota will let it pass: 0 if it may.
    pub fn wait_ms(&self) -> u64 {
        let waits = self.checks.iter().map(|check| check.wait_ms);
        waits.max().unwrap_or(0)
    }
}

/// The key of a slot: ASCII.
struct SlotKey([u8; SLOT_KEY_LEN]);

impl SlotKey {
    /// Checks all bytes, so it is called once for a decision.
    fn as_str(&self) -> &str {
        core::str::from_utf8(&self.0).unwrap_or_default()
    }
}

/// Where a key stands.
struct KeySlot {
    fingerprint: Fingerprint,
    slot_key: SlotKey,
}

/// A key in its slot, as it was read.
struct SlotReading<'a, D> {
    ask: TableRequest<'a, D>,
    fingerprint: Fingerprint,
    slot_key: &'a str,
    version: u32,
    slot: Slot,
    state: State,
    now_ms: u64,
}

/// Decides on one request of one table. Says also how many states of other keys were lost that still were
/// of use.
pub fn decide_one<D: SharedData>(ask: TableRequest<'_, D>, now_ms: u64) -> (Check, usize) {
    let place = ask.place();
    SlotReading::read(ask, place.fingerprint, place.slot_key.as_str(), now_ms).charge(None)
}

/// Decides on one request of several tables: it is charged to all of them, or to none.
pub fn decide_all<D: SharedData>(asks: &[TableRequest<'_, D>], now_ms: u64) -> Decision {
    let places: Vec<KeySlot> = asks.iter().map(TableRequest::place).collect();
    decide_at(asks, &places, now_ms)
}

/// The same of two, for which less memory is taken.
pub fn decide_both<D: SharedData>(asks: &[TableRequest<'_, D>; 2], now_ms: u64) -> Decision {
    let places = asks.each_ref().map(TableRequest::place);
    decide_at(asks, &places, now_ms)
}

fn decide_at<D: SharedData>(
    asks: &[TableRequest<'_, D>],
    places: &[KeySlot],
    now_ms: u64,
) -> Decision {
    let mut found = Vec::with_capacity(asks.len());
    for (ask, place) in asks.iter().zip(places) {
        let slot_key = place.slot_key.as_str();
        found.push(SlotReading::read(*ask, place.fingerprint, slot_key, now_ms));
    }
    let mut decision = Decision {
        checks: found.iter().map(SlotReading::check).collect(),
        evicted_by: vec![],
    };
    if !decision.is_allowed() {
        return decision;
    }
    let mut is_refused_by = None;
    for ((index, found), check) in found.into_iter().enumerate().zip(&mut decision.checks) {
        let evictions;
        (*check, evictions) = found.charge(Some(*check));
        let evicted = core::iter::repeat_n(index, evictions);
        decision.evicted_by.extend(evicted);
        if !check.is_allowed() {
            is_refused_by = Some(index);
            break;
        }
    }
    if let Some(index) = is_refused_by {
        let charged = asks.iter().zip(&decision.checks).take(index);
        charged.for_each(|(ask, check)| ask.take_back(check.mark, now_ms));
    }
    decision
}

impl<D: SharedData> TableRequest<'_, D> {
    fn place(&self) -> KeySlot {
        let fingerprint = Fingerprint::new(self.table.seed, self.key);
        let slot = fingerprint.slot(self.table.slots);
        KeySlot {
            fingerprint,
            slot_key: self.table.slot_key(slot),
        }
    }

    /// Takes back a charge that was made when a check gave `mark`.
    pub fn take_back(&self, mark: u64, now_ms: u64) {
        let place = self.place();
        let slot_key = place.slot_key.as_str();
        for _ in 0..TRIES_MAX {
            let mut found = SlotReading::read(*self, place.fingerprint, slot_key, now_ms);
            found.state.take_back(&self.quota, self.cost, mark);
            if found.write().is_some() {
                return;
            }
        }
    }
}

impl<'a, D: SharedData> SlotReading<'a, D> {
    fn read(
        ask: TableRequest<'a, D>,
        fingerprint: Fingerprint,
        slot_key: &'a str,
        now_ms: u64,
    ) -> Self {
        let stored = ask.table.data.get(slot_key);
        let (bytes, version) = stored.unwrap_or((vec![], MISSING));
        let slot = Slot::read(bytes, &ask.quota);
        Self {
            state: slot.state(&ask.quota, fingerprint, now_ms),
            ask,
            fingerprint,
            slot_key,
            version,
            slot,
            now_ms,
        }
    }

    fn check(&self) -> Check {
        self.state.check(&self.ask.quota, self.ask.cost)
    }

    /// Charges the request if it may pass. If another worker was quicker, decides again on what that one left. Returns the
    /// last check, and how many states were lost. `known`: what this state says, if it was asked before.
    fn charge(mut self, mut known: Option<Check>) -> (Check, usize) {
        for _ in 1..TRIES_MAX {
            let check = known.take().unwrap_or_else(|| self.check());
            if !check.is_allowed() {
                return (check, 0);
            }
            let charged = self.state.charged(&self.ask.quota, self.ask.cost);
            if let Some(evictions) = self.write() {
                return (charged, evictions);
            }
            self = Self::read(self.ask, self.fingerprint, self.slot_key, self.now_ms);
        }
        (self.check(), 0)
    }

    /// Writes the state, unless another worker was quicker; says how many others were lost.
    fn write(&mut self) -> Option<usize> {
        let quota = &self.ask.quota;
        let has_lost = self
            .slot
            .put(quota, self.fingerprint, &self.state, self.now_ms);
        let data = &self.ask.table.data;
        let is_written = data.set(self.slot_key, self.slot.as_bytes(), self.version);
        is_written.then_some(usize::from(has_lost))
    }
}

impl<D: SharedData> Table<D> {
    /// The table `name` of `slots` slots (1 to [`SLOTS_MAX`]; others count as the nearest of these). `seed`
    /// is that of the keys' hashes: the same in all VMs, such as `KeyRing::seed`.
    pub fn new(data: D, name: &str, slots: u32, seed: u64) -> Self {
        let hash = format!("{:016x}", Fingerprint::new(0, name.as_bytes()));
        let tag = hash.as_bytes().first_chunk().copied().unwrap_or_default();
        Self {
            data,
            tag,
            slots: slots.clamp(1, SLOTS_MAX),
            seed,
        }
    }

    /// The key of a slot.
    fn slot_key(&self, slot: u32) -> SlotKey {
        let mut key = [b'0'; SLOT_KEY_LEN];
        let (tag, digits) = key.split_at_mut(TAG_LEN);
        tag.copy_from_slice(&self.tag);
        let mut rest = slot;
        for digit in digits.iter_mut().rev() {
            // A digit: below 10.
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        SlotKey(key)
    }
}

#[cfg(test)]
mod tests;
