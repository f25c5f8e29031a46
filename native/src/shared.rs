//! Memory shared by all engines of this process, and the process's clocks and randomness for engines.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use weir_base::shared_data::{MISSING, SharedData};
use weir_engine::setup::Host;

/// The number of parts, each with its own lock, to reduce contention between workers.
const PARTS: usize = 32;

/// Values and their versions, by key.
type VersionedEntries = HashMap<String, (Vec<u8>, u32)>;

/// The shared memory of this process. It is never dropped: limits survive configuration changes, as in Envoy's own
/// shared data.
#[derive(Debug)]
struct Memory {
    hasher: RandomState,
    parts: [Mutex<VersionedEntries>; PARTS],
}

impl Memory {
    fn get() -> &'static Self {
        static MEMORY: OnceLock<Memory> = OnceLock::new();
        MEMORY.get_or_init(|| Self {
            hasher: RandomState::new(),
            parts: std::array::from_fn(|_| Mutex::default()),
        })
    }

    fn part(&self, key: &str) -> Option<MutexGuard<'_, VersionedEntries>> {
        // The remainder is less than the number of parts.
        let index = (self.hasher.hash_one(key) % PARTS as u64) as usize;
        let part = self.parts.get(index)?;
        Some(part.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The shared memory for engines, independent of their configuration.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessData;

impl SharedData for ProcessData {
    fn get(&self, key: &str) -> Option<(Vec<u8>, u32)> {
        Memory::get().part(key)?.get(key).cloned()
    }

    fn set(&self, key: &str, value: &[u8], version: u32) -> bool {
        let Some(mut part) = Memory::get().part(key) else {
            return true;
        };
        match part.get_mut(key) {
            Some((existing, at)) => {
                let is_current = version == 0 || version == *at;
                if is_current {
                    existing.clear();
                    existing.extend_from_slice(value);
                    *at = next(*at);
                }
                is_current
            }
            // As in Envoy: a missing key has no version to compare.
            None => {
                part.insert(key.to_owned(), (value.to_vec(), 1));
                true
            }
        }
    }
}

/// The version after `version`, skipping 0 and [`MISSING`].
fn next(version: u32) -> u32 {
    match version.wrapping_add(1) {
        0 | MISSING => 1,
        next => next,
    }
}

/// The process's services for creating an engine.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessHost;

impl Host for ProcessHost {
    type Data = ProcessData;

    fn data(&self) -> ProcessData {
        ProcessData
    }

    fn variable(&self, name: &str) -> Option<Vec<u8>> {
        std::env::var_os(name).map(std::ffi::OsString::into_encoded_bytes)
    }

    fn unique_name(&self) -> String {
        static COUNTER: AtomicU64 = AtomicU64::new(0);
        let count = COUNTER.fetch_add(1, Ordering::Relaxed);
        format!("{}.{count}.{}", std::process::id(), now_ns())
    }

    /// The host name: a module cannot read the id of the Envoy node.
    fn gateway_name(&self) -> String {
        let name = self.variable("HOSTNAME");
        let name = name.or_else(|| std::fs::read("/proc/sys/kernel/hostname").ok());
        let name = name.map(|name| String::from_utf8_lossy(&name).trim().to_owned());
        name.unwrap_or_default()
    }

    /// Random: the standard library seeds its hashers from the system.
    fn unguessable(&self) -> u64 {
        RandomState::new().hash_one(now_ns())
    }
}

/// The wall clock in milliseconds since the Unix epoch.
pub fn now_ms() -> u64 {
    now_ns() / 1_000_000
}

fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        // 64 bits last until the year 2554.
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_succeeds_only_on_the_version_read() {
        let (data, key) = (ProcessData, "test.versions");
        assert_eq!(data.get(key), None);
        assert!(data.set(key, b"1", MISSING));
        assert!(!data.set(key, b"2", MISSING), "it is there now");
        let (value, version) = data.get(key).unwrap();
        assert_eq!(value, b"1");
        assert!(data.set(key, b"2", version));
        assert!(!data.set(key, b"3", version), "another was quicker");
        assert!(data.set(key, b"4", 0));
        assert_eq!(data.get(key).unwrap().0, b"4");
    }

    #[test]
    fn concurrent_versioned_additions_lose_no_update() {
        let (data, key) = (ProcessData, "test.threads");
        data.set(key, &0_u32.to_le_bytes(), MISSING);
        let add = || {
            for _ in 0..1_000 {
                while let Some((value, version)) = data.get(key) {
                    let sum = u32::from_le_bytes(value.try_into().unwrap()) + 1;
                    if data.set(key, &sum.to_le_bytes(), version) {
                        break;
                    }
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(add);
            }
        });
        assert_eq!(data.get(key).unwrap().0, 4_000_u32.to_le_bytes());
    }

    #[test]
    fn next_version_skips_the_reserved_values() {
        assert_eq!((next(1), next(MISSING - 1), next(MISSING)), (2, 1, 1));
    }

    #[test]
    fn generated_host_names_are_unique() {
        assert_ne!(ProcessHost.unique_name(), ProcessHost.unique_name());
        assert_ne!(ProcessHost.unguessable(), ProcessHost.unguessable());
    }
}
