//! Earlier states of Redis, so that data can be lost.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the simulation, and must stop it"
)]

use std::collections::VecDeque;

/// The length of the kept history, in microseconds of the virtual clock: no loss goes further back.
const HISTORY_US: u64 = 2_000_000;

/// States with their times.
#[derive(Debug)]
pub(crate) struct History<S> {
    retained: VecDeque<(u64, S)>,
    is_kept: bool,
}

impl<S: Clone + Default> History<S> {
    /// `is_kept`: whether anything may be lost.
    pub(crate) fn new(is_kept: bool) -> Self {
        Self {
            retained: VecDeque::from([(0, S::default())]),
            is_kept,
        }
    }

    /// Records the current state.
    pub(crate) fn note(&mut self, now_us: u64, state: &S) {
        if !self.is_kept {
            return;
        }
        self.retained.push_back((now_us, state.clone()));
        // Keeps one state from before the earliest possible loss.
        while self.retained.len() > 1 && self.retained[1].0 + HISTORY_US < now_us {
            self.retained.pop_front();
        }
    }

    /// The state of `back_us` ago; an empty one if `None`.
    pub(crate) fn earlier(&self, back_us: Option<u64>, now_us: u64) -> S {
        let Some(back_us) = back_us else {
            return S::default();
        };
        let at_us = now_us.saturating_sub(back_us);
        let mut retained = self.retained.iter().rev();
        let found = retained.find(|(kept_us, _)| *kept_us <= at_us);
        found.map(|(_, state)| state.clone()).unwrap_or_default()
    }
}
