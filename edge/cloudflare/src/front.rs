//! What an isolate has of a store that answers later.
//!
//! Engines ask and want an answer at once, and Cloudflare's stores answer after a while. So an engine asks this; what it does not
//! find is noted, fetched, and asked for once more.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use weir_edge::Store;
use weir_edge::store::NotWritten;

/// For so long an isolate takes a link that it has read for what is in the store.
const KEPT_MS: u64 = 10_000;

/// The most values that are kept: links that nobody asks for any more must not fill the isolate.
const VALUES_MAX: usize = 20_000;

#[derive(Default)]
struct Inner {
    now_ms: u64,
    /// With the time of reading; `None`: the store has none.
    values: BTreeMap<String, (u64, Option<Vec<u8>>)>,
    missing: BTreeSet<String>,
    written: Vec<(String, Vec<u8>)>,
}

/// The store's front.
#[derive(Default)]
pub(crate) struct Front(RefCell<Inner>);

/// Whether a value is looked for in the store behind at all: the rest is an isolate's own.
fn is_behind(key: &str) -> bool {
    key.starts_with("link/")
}

impl Front {
    /// What time it is.
    pub(crate) fn set_clock(&self, now_ms: u64) {
        self.0.borrow_mut().now_ms = now_ms;
    }

    /// What was asked for and not found since this was asked last.
    pub(crate) fn take_missing(&self) -> Vec<String> {
        std::mem::take(&mut self.0.borrow_mut().missing)
            .into_iter()
            .collect()
    }

    /// What was written since this was asked last, in its order.
    pub(crate) fn take_written(&self) -> Vec<(String, Vec<u8>)> {
        std::mem::take(&mut self.0.borrow_mut().written)
    }

    /// What the store behind has.
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
