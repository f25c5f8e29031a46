//! What waits to be done with one stream by the stream's own thread.

use std::sync::{Mutex, MutexGuard, PoisonError};

use weir_engine::Effect;
use weir_envoy_abi::StreamScheduler;

/// A stream that waits. Its own thread makes and closes the slot; whatever the engine wants done with the stream meanwhile is
/// put here by other threads, which then call it. Whoever has an event for the engine rings here: the stream's thread then
/// runs the engine.
#[derive(Debug)]
pub struct Slot {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// `None` from the stream's end on: whoever holds the lock may use it, and Envoy's worker is then still there.
    scheduler: Option<StreamScheduler>,
    effects: Vec<Effect>,
    is_rung: bool,
}

/// What a slot that was closed leaves behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClosedSlot {
    /// Something was to be done with the stream, and nobody has done it.
    pub undelivered: bool,
    /// Somebody has rung, and the engine was not run.
    pub is_rung: bool,
}

impl Slot {
    /// A slot of the stream that `scheduler` calls. Without one it takes nothing.
    pub fn new(scheduler: Option<StreamScheduler>) -> Self {
        Self {
            inner: Mutex::new(Inner {
                scheduler,
                effects: Vec::new(),
                is_rung: false,
            }),
        }
    }

    /// Gives the stream's thread something to do. `false` if the stream has gone.
    pub fn put(&self, effect: Effect) -> bool {
        self.call_with(|inner| inner.effects.push(effect))
    }

    /// Lets the stream's thread run the engine, in the next round of its event loop. `false` if the stream has gone.
    pub fn ring(&self) -> bool {
        self.call_with(|inner| inner.is_rung = true)
    }

    fn call_with(&self, change: impl FnOnce(&mut Inner)) -> bool {
        let mut inner = self.lock();
        if inner.scheduler.is_none() {
            return false;
        }
        // One call for all that waits.
        let is_called = inner.is_rung || !inner.effects.is_empty();
        change(&mut inner);
        if let (false, Some(scheduler)) = (is_called, &inner.scheduler) {
            scheduler.call();
        }
        true
    }

    /// Whether somebody has rung, for the stream's thread: it runs the engine.
    pub fn take_ring(&self) -> bool {
        std::mem::take(&mut self.lock().is_rung)
    }

    /// What is to be done, for the stream's thread.
    pub fn take(&self) -> Vec<Effect> {
        std::mem::take(&mut self.lock().effects)
    }

    /// The stream has gone: nothing is put here from now on, and nobody rings.
    pub fn close(&self) -> ClosedSlot {
        let mut inner = self.lock();
        inner.scheduler = None;
        ClosedSlot {
            undelivered: !std::mem::take(&mut inner.effects).is_empty(),
            is_rung: std::mem::take(&mut inner.is_rung),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_that_has_gone_takes_nothing() {
        let slot = Slot::new(None);
        assert!(!slot.put(Effect::Wake) && !slot.ring());
        assert!(slot.take().is_empty() && !slot.take_ring());
        assert_eq!(slot.close(), ClosedSlot::default());
    }
}
