//! An isolate's cache of an asynchronous store.
//!
//! Engines read synchronously, and Cloudflare's stores are asynchronous. Engines therefore read this cache; missing
//! keys are recorded and fetched, and the engine runs again.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use weir_edge::Store;
use weir_edge::store::NotWritten;

/// Lifetime of a cached value, in milliseconds.
const KEPT_MS: u64 = 10_000;

/// Maximum cached values: links without requests must not fill the isolate.
const VALUES_MAX: usize = 20_000;

#[derive(Default)]
struct Inner {
    now_ms: u64,
    /// Values with their read time; `None`: the store has none.
    values: BTreeMap<String, (u64, Option<Vec<u8>>)>,
    missing: BTreeSet<String>,
    written: Vec<(String, Vec<u8>)>,
}

/// The cache.
#[derive(Default)]
pub(crate) struct Front(RefCell<Inner>);

/// Whether a key is in the store; other keys belong to the isolate.
fn is_behind(key: &str) -> bool {
    key.starts_with("link/")
}

impl Front {
    /// Sets the current time.
    pub(crate) fn set_clock(&self, now_ms: u64) {
        self.0.borrow_mut().now_ms = now_ms;
    }

    /// The missing keys since the last call.
    pub(crate) fn take_missing(&self) -> Vec<String> {
        std::mem::take(&mut self.0.borrow_mut().missing)
            .into_iter()
            .collect()
    }

    /// The writes since the last call, in order.
    pub(crate) fn take_written(&self) -> Vec<(String, Vec<u8>)> {
        std::mem::take(&mut self.0.borrow_mut().written)
    }

    /// Caches the store's value.
    pub(crate) fn learn(&self, key: &str, value: Option<Vec<u8>>) {
        let mut inner = self.0.borrow_mut();
        if inner.values.len() >= VALUES_MAX {
            inner.values.retain(|key, _| !is_behind(key));
        }
        let now_ms = inner.now_ms;
        inner.values.insert(key.into(), (now_ms, value));
    }
}

impl Store for Front {
    fn get(&self, key: &str) -> Option<Vec<u8>> {
        let mut inner = self.0.borrow_mut();
        let now_ms = inner.now_ms;
        let is_kept = |read_ms: u64| now_ms.abs_diff(read_ms) <= KEPT_MS;
        match inner.values.get(key) {
            Some((read_ms, value)) if !is_behind(key) || is_kept(*read_ms) => value.clone(),
            _ => {
                if is_behind(key) {
                    inner.missing.insert(key.into());
                }
                None
            }
        }
    }

    fn put(&self, key: &str, value: &[u8]) -> Result<(), NotWritten> {
        let mut inner = self.0.borrow_mut();
        let now_ms = inner.now_ms;
        if is_behind(key) {
            inner.written.push((key.into(), value.into()));
        } else {
            inner
                .values
                .insert(key.into(), (now_ms, Some(value.into())));
        }
        Ok(())
    }
}
