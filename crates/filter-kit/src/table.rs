//! A table of limits in the shared data of Envoy, which all VMs of one process with one `vm_id` have
//! in common: so a limit holds for the process and not for each worker.
//!
//! The table has a fixed number of slots, each one value of [`Slot::len`] bytes. Its key is a hash of the
//! table's name and the slot's number, in 15 bytes: so short a string lives inside the host's map, where
//! a longer one would cost each decision another look at memory that no cache holds. Values are never deleted (the host cannot), so the number of slots is what
//! bounds the memory: some 400 bytes each with the host's own for GCRA, so 1.6 MB for 4,096 slots,
//! which hold 32,768 keys. What a crowded slot does is told in [`weir_core::limit`].
//!
//! A decision reads one slot and writes it; a refusal only reads. Two workers may decide on one slot at
//! the same moment: the later write fails (compare and swap), and its worker reads and decides again,
//! [`TRIES_MAX`] times in all. If the slot is still contended then, the last decision stands
//! without having been noted: one request too many may pass, and none is refused for it.

use crate::host::now_ns;
use proxy_wasm::hostcalls;
use proxy_wasm::types::Status;
use weir_core::limit::{Check, Fingerprint, Quota, Slot, State};

/// How often one decision is tried. A worker loses a try only to another one that decided in the
/// microsecond between; to lose this many in turn takes far more workers than a machine has cores.
pub const TRIES_MAX: usize = 8;

/// The most slots: some 25 MB of GCRA's. A config with more is likelier a slip of the pen.
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

/// A number that no value's version has: with it a write to a key that is missing succeeds only as long
/// as the key is missing. (A write with the version 0 would be unconditional.) The host counts versions
/// up from 1.
const MISSING: u32 = u32::MAX;

/// Values with versions, that several VMs have in common. The real ones are [`HostData`].
pub trait SharedData {
    /// The value of `key` and its version, if there is one.
    fn get(&self, key: &str) -> Option<(Vec<u8>, u32)>;

    /// Writes the value of `key` if its version is still `version`, or if there is no such key.
    /// Returns whether it did. A `version` of 0 writes without a condition.
    fn set(&self, key: &str, value: &[u8], version: u32) -> bool;
}

/// The shared data of Envoy.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostData;

impl SharedData for HostData {
    fn get(&self, key: &str) -> Option<(Vec<u8>, u32)> {
        let (value, version) = hostcalls::get_shared_data(key).ok()?;
        Some((value?, version?))
    }

    fn set(&self, key: &str, value: &[u8], version: u32) -> bool {
        let written = hostcalls::set_shared_data(key, Some(value), Some(version));
        // Any other failure would be one at the next try too: it counts as written.
        written != Err(Status::CasMismatch)
    }
}

/// A seed for tables' hashes, for a filter that has no secret: the same in all VMs of this process, and
/// another one in the next. The first VM makes it of the clock, in nanoseconds, which those who ask do
/// not know.
pub fn shared_seed(filter: &str) -> u64 {
    let key = format!("weir.{filter}.seed");
    for _ in 0..TRIES_MAX {
        if let Some((bytes, _)) = HostData.get(&key)
            && let Ok(bytes) = bytes.try_into()
        {
            return u64::from_le_bytes(bytes);
        }
        HostData.set(&key, &now_ns().to_le_bytes(), MISSING);
    }
    0
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
pub struct Ask<'a, D> {
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
impl<D> Clone for Ask<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D> Copy for Ask<'_, D> {}

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
    fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

/// A key in its slot, as it was read.
struct Found<'a, D> {
    ask: Ask<'a, D>,
    key: SlotKey,
    version: u32,
    slot: Slot,
    fingerprint: Fingerprint,
    state: State,
    now_ms: u64,
}

/// Decides on one request of one table. Says also how many states of other keys were lost that still were
/// of use.
pub fn decide_one<D: SharedData>(ask: Ask<'_, D>, now_ms: u64) -> (Check, usize) {
    Found::read(ask, now_ms).charge()
}

/// Decides on one request of several tables: it is charged to all of them, or to none.
pub fn decide_all<D: SharedData>(asks: &[Ask<'_, D>], now_ms: u64) -> Decision {
    let found: Vec<Found<'_, D>> = asks.iter().map(|ask| Found::read(*ask, now_ms)).collect();
    let mut decision = Decision {
        checks: found.iter().map(Found::check).collect(),
        evicted_by: vec![],
    };
    if !decision.is_allowed() {
        return decision;
    }
    for (index, found) in found.into_iter().enumerate() {
        let (check, evictions) = found.charge();
        decision
            .evicted_by
            .extend(std::iter::repeat_n(index, evictions));
        let is_refused = !check.is_allowed();
        if let Some(place) = decision.checks.get_mut(index) {
            *place = check;
        }
        if is_refused {
            let charged = asks.iter().zip(&decision.checks).take(index);
            charged.for_each(|(ask, check)| ask.take_back(check.mark, now_ms));
            break;
        }
    }
    decision
}

impl<D: SharedData> Ask<'_, D> {
    /// Takes back a charge that was made when a check gave `mark`.
    pub fn take_back(&self, mark: u64, now_ms: u64) {
        for _ in 0..TRIES_MAX {
            let mut found = Found::read(*self, now_ms);
            found.state.take_back(&self.quota, self.cost, mark);
            if found.write().is_some() {
                return;
            }
        }
    }
}

impl<'a, D: SharedData> Found<'a, D> {
    fn read(ask: Ask<'a, D>, now_ms: u64) -> Self {
        let table = ask.table;
        let fingerprint = Fingerprint::new(table.seed, ask.key);
        let key = table.slot_key(fingerprint.slot(table.slots));
        let (bytes, version) = table.data.get(key.as_str()).unwrap_or((vec![], MISSING));
        let slot = Slot::read(bytes, &ask.quota);
        Self {
            state: slot.state(&ask.quota, fingerprint, now_ms),
            ask,
            key,
            version,
            slot,
            fingerprint,
            now_ms,
        }
    }

    fn check(&self) -> Check {
        self.state.check(&self.ask.quota, self.ask.cost)
    }

    /// Charges the request if it may pass. If another worker was quicker, decides again on what that one
    /// left. Returns the last check, and how many states were lost.
    fn charge(mut self) -> (Check, usize) {
        for _ in 1..TRIES_MAX {
            let check = self.check();
            if !check.is_allowed() {
                return (check, 0);
            }
            let charged = self.state.charged(&self.ask.quota, self.ask.cost, &check);
            if let Some(evictions) = self.write() {
                return (charged, evictions);
            }
            self = Self::read(self.ask, self.now_ms);
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
        let is_written = data.set(self.key.as_str(), self.slot.as_bytes(), self.version);
        is_written.then_some(usize::from(has_lost))
    }
}

impl<D: SharedData> Table<D> {
    /// The table `name` of `slots` slots (1 to [`SLOTS_MAX`]; others count as the nearest of these). `seed`
    /// is that of the keys' hashes: the same in all VMs, such as [`weir_core::claim::KeyRing::seed`].
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
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    use super::*;

    const NOW_MS: u64 = 1_700_000_000_000;

    /// One a second, and two at once.
    const QUOTA: (u32, u32) = (1, 2);

    /// Shared data as Envoy keeps them: one map, one counter of versions.
    #[derive(Default)]
    struct Memory {
        contents: Mutex<Contents>,
    }

    #[derive(Default)]
    struct Contents {
        values: BTreeMap<String, (Vec<u8>, u32)>,
        writes: u32,
    }

    impl SharedData for &Memory {
        fn get(&self, key: &str) -> Option<(Vec<u8>, u32)> {
            self.contents.lock().unwrap().values.get(key).cloned()
        }

        fn set(&self, key: &str, value: &[u8], version: u32) -> bool {
            let Contents { values, writes } = &mut *self.contents.lock().unwrap();
            let present = values.get(key).map(|(_, present)| *present);
            if version != 0 && present.is_some_and(|present| present != version) {
                return false;
            }
            *writes += 1;
            values.insert(key.into(), (value.into(), *writes));
            true
        }
    }

    /// Another worker, which decides on `key` whenever this one is between its read and its write, for
    /// as often as is left.
    struct Rival<'a> {
        memory: &'a Memory,
        table: Table<&'a Memory>,
        left: Mutex<usize>,
        reads: Mutex<usize>,
    }

    impl SharedData for &Rival<'_> {
        fn get(&self, key: &str) -> Option<(Vec<u8>, u32)> {
            let read = self.memory.get(key);
            *self.reads.lock().unwrap() += 1;
            let mut left = self.left.lock().unwrap();
            if *left > 0 {
                *left -= 1;
                decide(&self.table, QUOTA, &format!("rival-{left}"), NOW_MS);
            }
            read
        }

        fn set(&self, key: &str, value: &[u8], version: u32) -> bool {
            self.memory.set(key, value, version)
        }
    }

    /// A table of one slot, so that all keys meet in it.
    fn table<D: SharedData>(data: D) -> Table<D> {
        Table::new(data, "t", 1, 7)
    }

    fn decide<D: SharedData>(
        table: &Table<D>,
        (rate, burst): (u32, u32),
        key: &str,
        now_ms: u64,
    ) -> Decision {
        let quota = Quota::per_second(rate, burst);
        let (key, cost) = (key.as_bytes(), 1);
        decide_all(
            &[Ask {
                table,
                quota,
                key,
                cost,
            }],
            now_ms,
        )
    }

    fn allowed<D: SharedData>(table: &Table<D>, key: &str, count: usize) -> usize {
        let asked = (0..count).filter(|_| decide(table, QUOTA, key, NOW_MS).is_allowed());
        asked.count()
    }

    #[test]
    fn two_workers_share_one_limit() {
        let memory = Memory::default();
        let (one, other) = (table(&memory), table(&memory));
        assert_eq!(allowed(&one, "u", 1), 1);
        assert_eq!(allowed(&other, "u", 5), 1);
        assert_eq!(allowed(&one, "u", 5), 0);
        assert_eq!(allowed(&one, "v", 5), 2);
        assert_eq!(decide(&one, QUOTA, "u", NOW_MS + 400).wait_ms(), 600);
    }

    #[test]
    fn a_decision_writes_once_and_a_refusal_never() {
        let memory = Memory::default();
        let table = table(&memory);
        assert_eq!(allowed(&table, "u", 9), 2);
        assert_eq!(memory.contents.lock().unwrap().writes, 2);
    }

    #[test]
    fn memory_is_bounded_by_the_slots() {
        let memory = Memory::default();
        let table = Table::new(&memory, "users", 16, 7);
        for n in 0..2_000 {
            assert_eq!(
                allowed(&table, &format!("u{n}"), 1),
                1,
                "a newcomer always may"
            );
        }
        let values = &memory.contents.lock().unwrap().values;
        assert_eq!(values.len(), 16);
        assert!(values.keys().all(|key| is_slot_key(key.as_bytes())));
        let slot_len = Slot::len(&Quota::per_second(1, 2));
        assert!(values.values().all(|(value, _)| value.len() == slot_len));
    }

    /// Runs one decision while a rival gets in between `times` times; says how often this one read.
    fn against_a_rival(times: usize) -> (Memory, usize) {
        let memory = Memory::default();
        let reads = {
            let rival = Rival {
                memory: &memory,
                table: table(&memory),
                left: Mutex::new(times),
                reads: Mutex::new(0),
            };
            assert!(decide(&table(&rival), QUOTA, "u", NOW_MS).is_allowed());
            rival.reads.into_inner().unwrap()
        };
        (memory, reads)
    }

    #[test]
    fn who_loses_a_race_decides_again_on_what_the_winner_wrote() {
        for times in 1..TRIES_MAX - 1 {
            let (memory, reads) = against_a_rival(times);
            assert_eq!(reads, times + 1);
            let table = table(&memory);
            assert_eq!(allowed(&table, "u", 9), 1, "its first request was noted");
            for n in 0..times {
                assert_eq!(allowed(&table, &format!("rival-{n}"), 9), 1);
            }
        }
    }

    #[test]
    fn who_loses_every_race_stops_and_passes_without_being_noted() {
        let (memory, reads) = against_a_rival(usize::MAX);
        assert_eq!(reads, TRIES_MAX);
        assert_eq!(allowed(&table(&memory), "u", 9), 2);
    }

    #[test]
    fn many_workers_let_no_more_pass_than_one_would() {
        const BURST: u32 = 500;
        let memory = Memory::default();
        let worker = || {
            let table = table(&memory);
            let asked = (0..BURST).filter(|_| decide(&table, (1, BURST), "u", NOW_MS).is_allowed());
            asked.count()
        };
        let passed: usize = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..4).map(|_| scope.spawn(worker)).collect();
            workers
                .into_iter()
                .map(|worker| worker.join().unwrap())
                .sum()
        });
        // A decision that lost every race is not noted: on a real machine next to none.
        let burst = BURST as usize;
        assert!((burst..burst + burst / 10).contains(&passed), "{passed}");
    }

    /// Lets a million keys come evenly, so that at any time as many of them are of use as `load` of all
    /// places. Each asks once, and again just before it may. Says what share of those would have passed.
    fn wrongly_admitted(load: f64) -> f64 {
        const KEYS: u64 = 1_000_000;
        const SLOTS: u32 = 1_024;
        const PER_MS: u64 = 1_000;
        let memory = Memory::default();
        let table = Table::new(&memory, "users", SLOTS, 7);
        let quota = Quota::per_second(1, 1);
        let in_use = (f64::from(SLOTS) * weir_core::limit::WAYS as f64 * load) as u64;
        let comes_at_ms = |n: u64| NOW_MS + n * PER_MS / in_use;
        let bytes = || {
            let values = &memory.contents.lock().unwrap().values;
            values.values().map(|(value, _)| value.len()).sum::<usize>()
        };
        let (mut admitted, mut asked_again) = (0_u64, 0_u64);
        for n in 0..KEYS {
            let (first, second) = (n.to_le_bytes(), n.checked_sub(in_use - in_use / PER_MS - 1));
            let ask = |key| Ask {
                table: &table,
                quota,
                key,
                cost: 1,
            };
            let decision = decide_all(&[ask(&first)], comes_at_ms(n));
            assert!(decision.is_allowed(), "{n}: refused for what others did");
            if let Some(second) = second {
                // Only looked at: were it charged, its state would crowd its slot.
                let key = second.to_le_bytes();
                let found = Found::read(ask(&key), comes_at_ms(second) + PER_MS - 1);
                admitted += u64::from(found.check().is_allowed());
                asked_again += 1;
            }
            if n == KEYS / 2 || n == KEYS - 1 {
                assert_eq!(bytes(), SLOTS as usize * Slot::len(&quota), "{n}");
            }
        }
        admitted as f64 / asked_again as f64
    }

    /// The shares are those that [`weir_core::limit`] states; each is a sum over a Poisson distribution.
    #[test]
    fn a_million_keys_take_the_memory_of_the_slots_and_forget_no_more_than_is_stated() {
        for (load, stated) in [(0.5, 0.0511), (0.25, 0.0011)] {
            let share = wrongly_admitted(load);
            println!("at {load} of all places in use: {share}, stated {stated}");
            assert!(share < stated * 1.1, "{share} at {load}");
            assert!(
                share > stated * 0.5,
                "{share} at {load}: nothing was measured"
            );
        }
    }

    #[test]
    fn what_is_no_slot_is_written_anew() {
        let memory = Memory::default();
        let table = table(&memory);
        let key = table.slot_key(0);
        (&memory).set(key.as_str(), b"from another version", 0);
        assert_eq!(allowed(&table, "u", 9), 2);
        let slot_len = Slot::len(&Quota::per_second(1, 2));
        assert_eq!((&memory).get(key.as_str()).unwrap().0.len(), slot_len);
    }

    /// Two tables of one slot each; of the key `u` two requests pass in the first, `burst` in the second.
    fn asks<'a, D>(tables: &'a [Table<D>; 2], burst: u32) -> [Ask<'a, D>; 2] {
        let [first, second] = tables;
        let ask = |table, burst| Ask {
            table,
            quota: Quota::per_second(1, burst),
            key: b"u",
            cost: 1,
        };
        [ask(first, 2), ask(second, burst)]
    }

    fn tables<D: SharedData + Copy>(data: D) -> [Table<D>; 2] {
        ["first", "second"].map(|name| Table::new(data, name, 1, 7))
    }

    #[test]
    fn what_one_table_refuses_no_table_is_charged_for() {
        let memory = Memory::default();
        let tables = tables(&memory);
        let asks = asks(&tables, 1);
        assert!(decide_all(&asks, NOW_MS).is_allowed());
        let refused = decide_all(&asks, NOW_MS);
        assert_eq!(
            refused
                .checks
                .iter()
                .map(Check::is_allowed)
                .collect::<Vec<_>>(),
            [true, false]
        );
        assert_eq!(
            (refused.wait_ms(), memory.contents.lock().unwrap().writes),
            (1_000, 2)
        );
        assert!(
            decide_all(&asks[..1], NOW_MS).is_allowed(),
            "the second of two"
        );
    }

    /// Shared data in which another worker spends the key `u` of the second table as soon as the first
    /// has been written.
    struct Spender<'a> {
        memory: &'a Memory,
        spent: Mutex<bool>,
    }

    impl SharedData for &Spender<'_> {
        fn get(&self, key: &str) -> Option<(Vec<u8>, u32)> {
            self.memory.get(key)
        }

        fn set(&self, key: &str, value: &[u8], version: u32) -> bool {
            let is_written = self.memory.set(key, value, version);
            if !std::mem::replace(&mut *self.spent.lock().unwrap(), true) {
                decide(
                    &Table::new(self.memory, "second", 1, 7),
                    (1, 1),
                    "u",
                    NOW_MS,
                );
            }
            is_written
        }
    }

    #[test]
    fn what_another_worker_spends_meanwhile_takes_the_charge_of_the_first_back() {
        let memory = Memory::default();
        let spent = Mutex::new(false);
        let spender = Spender {
            memory: &memory,
            spent,
        };
        let spender_tables = tables(&spender);
        let refused = decide_all(&asks(&spender_tables, 1), NOW_MS);
        assert_eq!((refused.is_allowed(), refused.wait_ms()), (false, 1_000));
        let first = &tables(&memory)[0];
        assert_eq!(allowed(first, "u", 9), 2, "both are there still");
    }
}
