//! A table of limits in memory shared by all workers of one gateway, so that a limit applies to the gateway and not to
//! each worker. In Envoy this is its shared data.
//!
//! The table has a fixed number of slots, each one value of [`Slot::len`] bytes. A slot's key is a hash of the table's
//! name and the slot's number, in 15 bytes. Envoy stores such a short string inside its map entry; a longer one would
//! cost each decision another cache miss. Envoy cannot delete values, so the number of slots bounds the memory. For
//! GCRA, a slot takes some 400 bytes with Envoy's overhead: 1.6 MB for 4,096 slots, which hold 32,768 keys. The
//! [crate's documentation](crate) describes full slots.
//!
//! A decision reads one slot and writes it; a refusal only reads. Two workers may decide on one slot at the same
//! moment. Then the later write fails (compare and swap), and its worker tries again, [`TRIES_MAX`] times in total. If
//! the slot is still contended then, the last decision holds without being stored: one request too many may pass, but
//! none is refused wrongly.

use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use weir_base::shared_data::{MISSING, SharedData};

use crate::{Check, Fingerprint, Quota, Slot, State};

/// The maximum number of attempts for one decision. An attempt fails only if another worker decided in the microsecond
/// between; this many consecutive failures need far more workers than a machine has cores.
pub const TRIES_MAX: usize = 8;

/// The maximum number of slots: some 25 MB for GCRA. A larger number is probably a typing error.
pub const SLOTS_MAX: u32 = 65_536;

/// The number of hex digits of a hash that identifies a table: 40 bits. The probability that two of 64 tables collide
/// is below one in 500 million.
const TAG_LEN: usize = 10;

/// The digits of [`SLOTS_MAX`].
const SLOT_DIGITS: usize = 5;

/// The length of a slot's key in bytes.
const SLOT_KEY_LEN: usize = TAG_LEN + SLOT_DIGITS;

/// Whether `key` of the shared data belongs to a slot of a table.
pub fn is_slot_key(key: &[u8]) -> bool {
    key.len() == SLOT_KEY_LEN && key.iter().all(u8::is_ascii_hexdigit)
}

/// A table of limits.
#[derive(Clone, Debug)]
pub struct Table<D> {
    data: D,
    /// The prefix of its slots' keys.
    tag: [u8; TAG_LEN],
    slots: u32,
    seed: u64,
}

/// One request for one table.
#[derive(Debug)]
pub struct TableRequest<'a, D> {
    /// The table.
    pub table: &'a Table<D>,
    /// The quota of its key. All quotas of one table must have the same algorithm.
    pub quota: Quota,
    /// The key.
    pub key: &'a [u8],
    /// The cost.
    pub cost: u32,
}

// A derived implementation would require `D: Clone`.
impl<D> Clone for TableRequest<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D> Copy for TableRequest<'_, D> {}

/// The decision of tables on one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The quotas' checks, in the order of the requests.
    pub checks: Vec<Check>,
    /// For each evicted state that was still in use: the index of the request that evicted it.
    pub evicted_by: Vec<usize>,
}

impl Decision {
    /// Whether the request may pass. If not, nothing was charged.
    pub fn is_allowed(&self) -> bool {
        self.checks.iter().all(Check::is_allowed)
    }

    /// Milliseconds until every quota allows it: 0 if it may pass now.
    pub fn wait_ms(&self) -> u64 {
        let waits = self.checks.iter().map(|check| check.wait_ms);
        waits.max().unwrap_or(0)
    }
}

/// The key of a slot: ASCII.
struct SlotKey([u8; SLOT_KEY_LEN]);

impl SlotKey {
    /// Validates all bytes, so call it once per decision.
    fn as_str(&self) -> &str {
        core::str::from_utf8(&self.0).unwrap_or_default()
    }
}

/// The slot of a key.
struct KeySlot {
    fingerprint: Fingerprint,
    slot_key: SlotKey,
}

/// A key in its slot, as read.
struct SlotReading<'a, D> {
    ask: TableRequest<'a, D>,
    fingerprint: Fingerprint,
    slot_key: &'a str,
    version: u32,
    slot: Slot,
    state: State,
    now_ms: u64,
}

/// Decides on one request of one table. Also returns the number of evicted states that were still in use.
pub fn decide_one<D: SharedData>(ask: TableRequest<'_, D>, now_ms: u64) -> (Check, usize) {
    let place = ask.place();
    SlotReading::read(ask, place.fingerprint, place.slot_key.as_str(), now_ms).charge(None)
}

/// Decides on one request of several tables: charges all of them or none.
pub fn decide_all<D: SharedData>(asks: &[TableRequest<'_, D>], now_ms: u64) -> Decision {
    let places: Vec<KeySlot> = asks.iter().map(TableRequest::place).collect();
    decide_at(asks, &places, now_ms)
}

/// Like [`decide_all`] for two tables, with less memory.
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

    /// The quota's check, without a charge.
    pub fn check(&self, now_ms: u64) -> Check {
        let place = self.place();
        SlotReading::read(*self, place.fingerprint, place.slot_key.as_str(), now_ms).check()
    }

    /// Undoes a charge whose check had `mark`.
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

    /// Charges the request if it may pass. If another worker wrote first, decides again on the new state. Returns the
    /// last check and the number of evictions. `existing`: the check of this state, if already computed.
    fn charge(mut self, mut existing: Option<Check>) -> (Check, usize) {
        for _ in 1..TRIES_MAX {
            let check = existing.take().unwrap_or_else(|| self.check());
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

    /// Writes the state and returns the number of evictions; `None` if another worker wrote first.
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
    /// The table `name` with `slots` slots (clamped to 1 to [`SLOTS_MAX`]). `seed` seeds the hashes of keys: the same
    /// in all VMs, such as `KeyRing::seed`.
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
            // A digit, below 10.
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        SlotKey(key)
    }
}

#[cfg(test)]
mod tests;
