//! The virtual clock: future events, ordered by time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Where the virtual clock starts, in milliseconds since the Unix epoch.
pub(crate) const START_MS: u64 = 1_700_000_000_000;

/// Future events and the current time. The clock jumps from one event to the next.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    now_us: u64,
    /// Events of the same time run in insertion order.
    next_number: u64,
    entries: BinaryHeap<Reverse<Entry<T>>>,
}

#[derive(Debug)]
struct Entry<T> {
    at_us: u64,
    number: u64,
    what: T,
}

impl<T> Queue<T> {
    pub(crate) fn new() -> Self {
        Self {
            now_us: 0,
            next_number: 0,
            entries: BinaryHeap::new(),
        }
    }

    /// The time since the start, in microseconds.
    pub(crate) fn now_us(&self) -> u64 {
        self.now_us
    }

    /// Schedules `event` in `delay_us`.
    pub(crate) fn after(&mut self, delay_us: u64, event: T) {
        self.at(self.now_us + delay_us, event);
    }

    /// Schedules `event` at `at_us`, or now if that has passed.
    pub(crate) fn at(&mut self, at_us: u64, event: T) {
        self.entries.push(Reverse(Entry {
            at_us: at_us.max(self.now_us),
            number: self.next_number,
            what: event,
        }));
        self.next_number += 1;
    }

    /// Takes the next event until `end_us` and advances the clock to its time. Without one, advances to `end_us`.
    pub(crate) fn pop(&mut self, end_us: u64) -> Option<T> {
        let is_next = |entry: &Reverse<Entry<T>>| entry.0.at_us <= end_us;
        if !self.entries.peek().is_some_and(is_next) {
            self.now_us = self.now_us.max(end_us);
            return None;
        }
        let Reverse(entry) = self.entries.pop()?;
        self.now_us = entry.at_us;
        Some(entry.what)
    }
}

impl<T> Entry<T> {
    fn key(&self) -> (u64, u64) {
        (self.at_us, self.number)
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<T> Eq for Entry<T> {}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_ordered_by_time_and_then_by_insertion() {
        let mut queue = Queue::new();
        queue.after(20, "c");
        queue.after(10, "a");
        queue.after(10, "b");
        queue.after(99, "later");
        let mut observed = Vec::new();
        while let Some(subject) = queue.pop(50) {
            observed.push((queue.now_us(), subject));
        }
        assert_eq!(observed, [(10, "a"), (10, "b"), (20, "c")]);
        assert_eq!(queue.now_us(), 50);
    }
}
