//! Pending effects of one stream, applied by the stream's own thread.

use std::sync::{Mutex, MutexGuard, PoisonError};

use weir_engine::Effect;
use weir_envoy_abi::StreamScheduler;

/// The slot of a waiting stream. The stream's thread creates and closes it. Other threads put effects for the stream
/// here, and then call its thread. They also ring here to make the stream's thread run the engine.
#[derive(Debug)]
pub struct Slot {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// `None` after the stream's end. While a thread holds the lock and finds `Some`, Envoy's worker still exists.
    scheduler: Option<StreamScheduler>,
    effects: Vec<Effect>,
    is_rung: bool,
}

/// The state that a closed slot leaves behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClosedSlot {
    /// Whether effects for the stream were not applied.
    pub undelivered: bool,
    /// Whether a ring was not handled, so the engine did not run.
    pub is_rung: bool,
}

impl Slot {
    /// Creates the slot of the stream that `scheduler` calls. Without a scheduler it accepts nothing.
    pub fn new(scheduler: Option<StreamScheduler>) -> Self {
        Self {
            inner: Mutex::new(Inner {
                scheduler,
                effects: Vec::new(),
                is_rung: false,
            }),
        }
    }

    /// Queues an effect and calls the stream's thread. Returns `false` if the stream has ended.
    pub fn put(&self, effect: Effect) -> bool {
        self.call_with(|inner| inner.effects.push(effect))
    }

    /// Makes the stream's thread run the engine in the next round of its event loop. Returns `false` if the stream has
    /// ended.
    pub fn ring(&self) -> bool {
        self.call_with(|inner| inner.is_rung = true)
    }

    fn call_with(&self, change: impl FnOnce(&mut Inner)) -> bool {
        let mut inner = self.lock();
        if inner.scheduler.is_none() {
            return false;
        }
        // One call covers all pending effects.
        let is_called = inner.is_rung || !inner.effects.is_empty();
        change(&mut inner);
        if let (false, Some(scheduler)) = (is_called, &inner.scheduler) {
            scheduler.call();
        }
        true
    }

    /// Takes a pending ring. The stream's thread then runs the engine.
    pub fn take_ring(&self) -> bool {
        std::mem::take(&mut self.lock().is_rung)
    }

    /// Takes the pending effects, for the stream's thread.
    pub fn take(&self) -> Vec<Effect> {
        std::mem::take(&mut self.lock().effects)
    }

    /// Closes the slot at the stream's end. It then accepts no effects and no rings.
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
    fn ended_stream_accepts_no_effects() {
        let slot = Slot::new(None);
        assert!(!slot.put(Effect::Wake) && !slot.ring());
        assert!(slot.take().is_empty() && !slot.take_ring());
        assert_eq!(slot.close(), ClosedSlot::default());
    }
}
