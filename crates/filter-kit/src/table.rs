//! A table of limits in the shared data of Envoy, which all VMs of one process with one `vm_id` have
//! in common: so a limit holds for the process and not for each worker.
//!
//! The table has a fixed number of slots, each one value under the key `weir.<table>.<n>`, of
//! [`SLOT_LEN`](weir_core::limit::SLOT_LEN) bytes. Values are never deleted (the host cannot), so the number of slots is what
//! bounds the memory: some 250 bytes each with the host's own, so 1 MB for 4,096 slots, which hold
//! 32,768 keys. What a crowded slot does is told in [`weir_core::limit`].
//!
//! A decision reads one slot and writes it; a refusal only reads. Two workers may decide on one slot at
//! the same moment: the later write fails (compare and swap), and its worker reads and decides again,
//! [`TRIES_MAX`] times in all. If the slot is still contended then, the last decision stands
//! without having been noted: one request too many may pass, and none is refused for it.

use proxy_wasm::hostcalls;
use proxy_wasm::types::Status;
use weir_core::limit::{Decision, Fingerprint, Gcra, Slot};

/// How often one decision is tried. A worker loses a try only to another one that decided in the
/// microsecond between; to lose this many in turn takes far more workers than a machine has cores.
pub const TRIES_MAX: usize = 8;

/// The most slots: some 16 MB. A config with more is likelier a slip of the pen.
pub const SLOTS_MAX: u32 = 65_536;

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

/// A table of limits.
#[derive(Clone, Debug)]
pub struct Table<D> {
    data: D,
    name: String,
    slots: u32,
    seed: u64,
    gcra: Gcra,
}

impl<D: SharedData> Table<D> {
    /// The table `name` of `slots` slots (1 to [`SLOTS_MAX`]; others count as the nearest of these), in
    /// which each key may ask as often as `gcra` says. `seed` is that of the keys' hashes: the same
    /// in all VMs, such as [`weir_core::claim::KeyRing::seed`].
    pub fn new(data: D, name: &str, slots: u32, seed: u64, gcra: Gcra) -> Self {
        Self {
            data,
            name: name.into(),
            slots: slots.clamp(1, SLOTS_MAX),
            seed,
            gcra,
        }
    }

    /// Decides on one request of `key` at `now_ms`, and takes note of it.
    pub fn decide(&self, key: &[u8], now_ms: u64) -> Decision {
        let fingerprint = Fingerprint::new(self.seed, key);
        let name = format!("weir.{}.{}", self.name, fingerprint.slot(self.slots));
        for _ in 1..TRIES_MAX {
            if let Some(decision) = self.try_decide(&name, fingerprint, now_ms) {
                return decision;
            }
        }
        let (mut slot, _) = self.read(&name);
        slot.decide(self.gcra, fingerprint, now_ms)
    }

    /// One try: nothing, if another worker was quicker.
    fn try_decide(&self, name: &str, fingerprint: Fingerprint, now_ms: u64) -> Option<Decision> {
        let (mut slot, version) = self.read(name);
        let decision = slot.decide(self.gcra, fingerprint, now_ms);
        let is_noted = match decision {
            Decision::Allow => self.data.set(name, &slot.encode(), version),
            Decision::Refuse { .. } => true,
        };
        is_noted.then_some(decision)
    }

    fn read(&self, name: &str) -> (Slot, u32) {
        match self.data.get(name) {
            Some((bytes, version)) => (Slot::decode(&bytes), version),
            None => (Slot::default(), MISSING),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    use weir_core::limit::SLOT_LEN;

    use super::*;

    const NOW_MS: u64 = 1_700_000_000_000;

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
                self.table
                    .decide(format!("rival-{left}").as_bytes(), NOW_MS);
            }
            read
        }

        fn set(&self, key: &str, value: &[u8], version: u32) -> bool {
            self.memory.set(key, value, version)
        }
    }

    /// A table of one slot, so that all keys meet in it.
    fn table<D: SharedData>(data: D) -> Table<D> {
        Table::new(data, "t", 1, 7, Gcra::new(1, 2))
    }

    fn allowed<D: SharedData>(table: &Table<D>, key: &str, count: usize) -> usize {
        let asked = (0..count).map(|_| table.decide(key.as_bytes(), NOW_MS));
        asked
            .filter(|decision| *decision == Decision::Allow)
            .count()
    }

    #[test]
    fn two_workers_share_one_limit() {
        let memory = Memory::default();
        let (one, other) = (table(&memory), table(&memory));
        assert_eq!(allowed(&one, "u", 1), 1);
        assert_eq!(allowed(&other, "u", 5), 1);
        assert_eq!(allowed(&one, "u", 5), 0);
        assert_eq!(allowed(&one, "v", 5), 2);
        let refused = one.decide(b"u", NOW_MS + 400);
        assert_eq!(
            refused,
            Decision::Refuse {
                retry_after_ms: 600
            }
        );
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
        let table = Table::new(&memory, "users", 16, 7, Gcra::new(1, 1));
        for n in 0..2_000 {
            assert_eq!(
                allowed(&table, &format!("u{n}"), 1),
                1,
                "a newcomer always may"
            );
        }
        let values = &memory.contents.lock().unwrap().values;
        assert_eq!(values.len(), 16);
        assert!(values.contains_key("weir.users.0") && values.contains_key("weir.users.15"));
        assert!(values.values().all(|(value, _)| value.len() == SLOT_LEN));
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
            assert_eq!(table(&rival).decide(b"u", NOW_MS), Decision::Allow);
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
            let table = Table::new(&memory, "t", 1, 7, Gcra::new(1, BURST));
            allowed(&table, "u", BURST as usize)
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

    #[test]
    fn what_is_no_slot_is_written_anew() {
        let memory = Memory::default();
        (&memory).set("weir.t.0", b"from another version", 0);
        let table = table(&memory);
        assert_eq!(allowed(&table, "u", 9), 2);
        assert_eq!((&memory).get("weir.t.0").unwrap().0.len(), SLOT_LEN);
    }
}
