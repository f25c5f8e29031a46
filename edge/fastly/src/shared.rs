//! Memory for the counters of local limits, shared by the instances of a POP.
//!
//! It is the POP's cache, which has no compare-and-swap: simultaneous requests may overwrite each other's counts.
//! Limits are therefore approximate: each POP counts alone, and may count too few requests of a burst, never too many.

use std::time::Duration;

use weir_base::shared_data::SharedData;

use crate::store::{Space, cache, cached};

/// Longer than any practical limit's period at an edge.
const KEPT: Duration = Duration::from_secs(3_600);

/// The shared memory of a POP.
pub(crate) struct PopData {
    space: Space,
}

impl PopData {
    pub(crate) fn new(space: Space) -> Self {
        Self { space }
    }

    fn name(&self, key: &str) -> String {
        // Keys may contain any bytes: limits' tables name their slots.
        self.space.name(&format!("shared/{key}"))
    }
}

impl SharedData for PopData {
    fn get(&self, key: &str) -> Option<(Vec<u8>, u32)> {
        Some((cached(&self.name(key))??, 1))
    }

    fn set(&self, key: &str, value: &[u8], _version: u32) -> bool {
        // A failed write of a limit does not delay the request.
        cache(&self.name(key), Some(value), KEPT);
        true
    }
}
