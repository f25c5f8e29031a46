//! The store of an edge on Fastly.
//!
//! Each POP has a cache, which its instances share, and the service has a KV store, which all POPs share with a delay.
//! Links and their progress are in both. Documents that change every few seconds are only in the cache: each POP reads
//! them itself, because a key of the KV store allows one write per second. Evicted data is read again.

use std::io::{Read, Write};
use std::rc::Rc;
use std::time::Duration;

use fastly::KVStore;
use fastly::cache::core::{self, CacheKey};
use fastly::kv_store::{InsertMode, KVStoreError};
use weir_edge::Store;
use weir_edge::store::NotWritten;

use crate::settings::STORE;

/// How long a POP caches what it read from the KV store, including missing keys.
const KV_CACHED: Duration = Duration::from_secs(1);

/// How long documents stay in the cache; each contains its own time.
const DOCUMENT_CACHED: Duration = Duration::from_secs(3_600);

/// A prefix of values, which distinguishes them from missing ones.
const SOME: u8 = b'+';
const NONE: u8 = b'-';

/// A prefix of all keys; empty except in tests.
#[derive(Clone, Default)]
pub(crate) struct Space(Rc<str>);

impl Space {
    #[cfg(feature = "conformance")]
    pub(crate) fn new(name: &str) -> Self {
        Self(format!("{name}/").into())
    }

    pub(crate) fn name(&self, key: &str) -> String {
        format!("{}{key}", self.0)
    }
}

/// The KV store behind the POP's cache.
pub(crate) struct Cached {
    kv: KVStore,
    space: Space,
}

impl Cached {
    pub(crate) fn open(space: Space) -> Option<Self> {
        let kv = KVStore::open(STORE).ok()??;
        Some(Self { kv, space })
    }
}

/// Whether a key is only in the POP's cache.
fn is_of_pop(key: &str) -> bool {
    key.starts_with("asked/") || key == "feed/sold-out" || key == "feed/domains"
}

/// Whether a write of this key may succeed in the cache alone.
fn is_progress(key: &str) -> bool {
    key == "feed/links"
}

impl Store for Cached {
    fn get(&self, key: &str) -> Option<Vec<u8>> {
        let name = self.space.name(key);
        if let Some(existing) = cached(&name) {
            return existing;
        }
        if is_of_pop(key) {
            return None;
        }
        let value = match self.kv.lookup(&name) {
            Ok(mut found) => Some(found.take_body_bytes()),
            Err(KVStoreError::ItemNotFound) => None,
            // Not a missing key: the result is unknown.
            Err(_) => return None,
        };
        cache(&name, value.as_deref(), KV_CACHED);
        value
    }

    fn put(&self, key: &str, value: &[u8]) -> Result<(), NotWritten> {
        let name = self.space.name(key);
        if is_of_pop(key) || is_progress(key) {
            let is_written = cache(&name, Some(value), DOCUMENT_CACHED);
            if is_progress(key) {
                // If the KV store refuses it, another POP continues from an earlier position.
                let _ = self.kv.insert(&name, value);
            }
            return is_written.then_some(()).ok_or(NotWritten);
        }
        let retained = self.put_newer(&name, value).ok_or(NotWritten)?;
        cache(&name, Some(&retained), KV_CACHED);
        Ok(())
    }
}

impl Cached {
    /// Writes a link unless the store has a newer one, and returns the stored one. POPs read the feed concurrently: a
    /// slow one must not overwrite a newer link, which would not be read again. `None`: another writer was faster.
    fn put_newer(&self, name: &str, value: &[u8]) -> Option<Vec<u8>> {
        let insert = self.kv.build_insert();
        let insert = match self.kv.lookup(name) {
            Ok(mut found) => {
                let generation = found.current_generation();
                let existing = found.take_body_bytes();
                if seq(&existing) > seq(value) {
                    return Some(existing);
                }
                insert.if_generation_match(generation)
            }
            Err(KVStoreError::ItemNotFound) => insert.mode(InsertMode::Add),
            Err(_) => return None,
        };
        insert.execute(name, value).ok()?;
        Some(value.to_vec())
    }
}

/// The link's number in the feed.
fn seq(entry: &[u8]) -> Option<u64> {
    let entry: serde_json::Value = serde_json::from_slice(entry).ok()?;
    entry.get("seq")?.as_u64()
}

/// The POP's cache entry: `None` without one, else the value or its absence.
pub(crate) fn cached(name: &str) -> Option<Option<Vec<u8>>> {
    let found = core::lookup(CacheKey::copy_from_slice(name.as_bytes()))
        .execute()
        .ok()??;
    if found.is_stale() {
        return None;
    }
    let mut bytes = Vec::new();
    found.to_stream().ok()?.read_to_end(&mut bytes).ok()?;
    match bytes.split_first()? {
        (&SOME, value) => Some(Some(value.to_vec())),
        _ => Some(None),
    }
}

/// Caches a value or its absence in the POP. Returns whether it succeeded.
pub(crate) fn cache(name: &str, value: Option<&[u8]>, for_so_long: Duration) -> bool {
    let write = || {
        let key = CacheKey::copy_from_slice(name.as_bytes());
        let length = 1 + value.map_or(0, <[u8]>::len) as u64;
        let insert = core::insert(key, for_so_long).known_length(length);
        let mut body = insert.execute().ok()?;
        body.write_all(&[value.map_or(NONE, |_| SOME)]).ok()?;
        body.write_all(value.unwrap_or_default()).ok()?;
        body.finish().ok()
    };
    write().is_some()
}
