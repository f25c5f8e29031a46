//! Clicks that led nowhere, and may have used one of a link's all the same.
//!
//! If Redis or the origin is late, or the client leaves, nobody knows whether a click was used. Redis is told that it was
//! not, again and again until it has heard. Each click has a name, so that it comes to the same however often it is told.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::cache::LinkName;
use crate::click::ClickId;
use crate::code::LinkId;

/// The most that are kept: some 100 bytes each. While Redis is away, more requests than these are not even sent.
const UNUSED_MAX: usize = 10_000;

/// How far apart they are sent, in milliseconds.
const PAUSE_MS: u64 = 100;

/// So many go at once, and are one batch.
const AT_ONCE: usize = 64;

/// A click that led nowhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnusedClick {
    pub(crate) link: LinkId,
    pub(crate) click: ClickId,
}

/// Those that Redis has not heard of.
#[derive(Debug, Default)]
pub(crate) struct UnusedClicks {
    waiting: VecDeque<UnusedClick>,
    due_ms: u64,
}

impl UnusedClicks {
    pub(crate) fn add(&mut self, name: &LinkName, click: ClickId) {
        if let Some(link) = name.to_link() {
            self.push(UnusedClick { link, click });
        }
    }

    /// If too many wait, the oldest stays used.
    pub(crate) fn push(&mut self, unused: UnusedClick) {
        if self.waiting.len() >= UNUSED_MAX {
            self.waiting.pop_front();
        }
        self.waiting.push_back(unused);
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Those to send now.
    pub(crate) fn take_due(&mut self, now_ms: u64) -> Vec<UnusedClick> {
        // A clock that was set back must not put it off.
        let is_due = now_ms >= self.due_ms || self.due_ms - now_ms > PAUSE_MS;
        if self.waiting.is_empty() || !is_due {
            return Vec::new();
        }
        self.due_ms = now_ms.saturating_add(PAUSE_MS);
        let count = self.waiting.len().min(AT_ONCE);
        self.waiting.drain(..count).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unused(sequence: u64) -> UnusedClick {
        let counter = 1;
        UnusedClick {
            link: "s/abc".parse().unwrap(),
            click: ClickId { counter, sequence },
        }
    }

    #[test]
    fn they_go_in_batches_with_a_pause() {
        let mut clicks = UnusedClicks::default();
        assert!(clicks.take_due(0).is_empty());
        (0..100).for_each(|sequence| clicks.push(unused(sequence)));
        assert_eq!(clicks.take_due(1_000).len(), AT_ONCE);
        assert!(clicks.take_due(1_000).is_empty());
        assert!(clicks.take_due(1_099).is_empty());
        assert_eq!(
            clicks.take_due(1_100),
            (64..100).map(unused).collect::<Vec<_>>()
        );
        clicks.push(unused(1));
        // The clock was set back.
        assert_eq!(clicks.take_due(0).len(), 1);
    }

    #[test]
    fn there_are_never_more_than_the_most() {
        let mut clicks = UnusedClicks::default();
        (0..=UNUSED_MAX as u64).for_each(|sequence| clicks.push(unused(sequence)));
        assert_eq!(clicks.waiting.len(), UNUSED_MAX);
        assert_eq!(clicks.take_due(0)[0], unused(1));
    }
}
