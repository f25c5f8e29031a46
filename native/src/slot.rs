//! What waits to be done with one stream by the stream's own thread.

use std::sync::{Mutex, MutexGuard, PoisonError};

use weir_engine::Effect;
use weir_envoy_abi::StreamScheduler;

/// A stream that waits. Its own thread makes and closes the slot; whatever the engine wants done with the stream meanwhile is
/// put here by other threads, which then call it.
#[derive(Debug)]
pub struct Slot {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// `None` from the stream's end on: whoever holds the lock may use it, and Envoy's worker is then still there.
    scheduler: Option<StreamScheduler>,
    effects: Vec<Effect>,
}

impl Slot {
    /// A slot of the stream that `scheduler` calls. Without one it takes nothing.
    pub fn new(scheduler: Option<StreamScheduler>) -> Self {
        let effects = Vec::new();
        Self {
            inner: Mutex::new(Inner { scheduler, effects }),
        }
    }

    /// Gives the stream's thread something to do. `false` if the stream has gone.
    pub fn put(&self, effect: Effect) -> bool {
        let mut inner = self.lock();
        if inner.scheduler.is_none() {
            return false;
        }
        inner.effects.push(effect);
        // One call for all that waits.
        if let (1, Some(scheduler)) = (inner.effects.len(), &inner.scheduler) {
            scheduler.call();
        }
        true
    }

    /// What is to be done, for the stream's thread.
    pub fn take(&self) -> Vec<Effect> {
        std::mem::take(&mut self.lock().effects)
    }

    /// The stream has gone: nothing is put here from now on. Whether something was that nobody has taken.
    pub fn close(&self) -> bool {
        let mut inner = self.lock();
        inner.scheduler = None;
        !std::mem::take(&mut inner.effects).is_empty()
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
        assert!(!slot.put(Effect::Wake));
        assert!(slot.take().is_empty());
        assert!(!slot.close());
    }
}
