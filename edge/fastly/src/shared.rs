//! Memory that the instances of a POP share: what local limits count in.
//!
//! It is the POP's cache, which has no comparing write: of requests that come at the same instant, one may write over what the
//! other has counted. So limits are coarse here: each POP counts by itself, and of a burst it may count too few, never too many.

use std::time::Duration;

use weir_base::shared_data::SharedData;

use crate::store::{Space, cache, cached};

/// Longer than any limit's period that is of use at an edge.
const KEPT: Duration = Duration::from_secs(3_600);

/// The POP's.
pub(crate) struct PopData {
    space: Space,
}

impl PopData {
    pub(crate) fn new(space: Space) -> Self {
        Self { space }
    }

    fn name(&self, key: &str) -> String {
        // Keys are bytes that may be anything that a key may be: limits' tables name their slots.
        self.space.name(&format!("shared/{key}"))
    }
}

impl SharedData for PopData {
    fn get(&self, key: &str) -> Option<(Vec<u8>, u32)> {
        Some((cached(&self.name(key))??, 1))
    }

    fn set(&self, key: &str, value: &[u8], _version: u32) -> bool {
        // A limit that cannot be written does not hold anybody up.
        cache(&self.name(key), Some(value), KEPT);
        true
    }
}
