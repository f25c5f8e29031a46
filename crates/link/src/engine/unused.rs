//! Clicks without a redirect that may still have used one of a link's clicks.
//!
//! If Redis or the origin replies late, or the client leaves, it is uncertain whether a click was used. The engine
//! returns the click, and retries until Redis confirms. Each click has an ID, so retries have no further effect.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::cache::LinkName;
use crate::click::ClickId;
use crate::code::LinkId;

/// Maximum clicks that wait, with about 100 bytes each. During a Redis outage, the pump sends fewer requests than this.
const UNUSED_MAX: usize = 10_000;

/// Interval between sends, in milliseconds.
const PAUSE_MS: u64 = 100;

/// Maximum clicks per send; they are one batch.
const AT_ONCE: usize = 64;

/// A click to return.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnusedClick {
    pub(crate) link: LinkId,
    pub(crate) click: ClickId,
}

/// Clicks that Redis has not confirmed as returned.
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

    /// Adds a click. If too many wait, the oldest is dropped and stays used.
    pub(crate) fn push(&mut self, unused: UnusedClick) {
        if self.waiting.len() >= UNUSED_MAX {
            self.waiting.pop_front();
        }
        self.waiting.push_back(unused);
    }

    /// The number of waiting clicks.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Takes the clicks to send now.
    pub(crate) fn take_due(&mut self, now_ms: u64) -> Vec<UnusedClick> {
        // A clock that was set back must not delay them.
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
    fn unused_clicks_are_sent_in_batches_with_a_pause() {
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
    fn unused_click_queue_is_bounded() {
        let mut clicks = UnusedClicks::default();
        (0..=UNUSED_MAX as u64).for_each(|sequence| clicks.push(unused(sequence)));
        assert_eq!(clicks.waiting.len(), UNUSED_MAX);
        assert_eq!(clicks.take_due(0)[0], unused(1));
    }
}
