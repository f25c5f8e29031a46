//! Remembers recent events in bounded memory. It detects a repeated event, and another event with the same id. The
//! store detects both for forgotten events.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Mutex, MutexGuard, PoisonError};

use weir_event::fingerprint::Fingerprint;

/// Minimum number of remembered events. Up to twice as many are remembered, at about 40 bytes each.
pub const REMEMBERED: usize = 100_000;

/// Lookup result for an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdStatus {
    /// The id is not remembered.
    New,
    /// The same event was seen.
    Same,
    /// Another event with this id was seen.
    Other,
}

/// Recently seen events.
#[derive(Debug)]
pub struct RecentEvents {
    /// Two hashers with random keys of this process, so that clients cannot construct collisions.
    hashers: [RandomState; 2],
    /// The current generation and the previous one.
    generations: Mutex<[HashMap<u128, Fingerprint>; 2]>,
    count: usize,
}

impl Default for RecentEvents {
    fn default() -> Self {
        Self::new(REMEMBERED)
    }
}

impl RecentEvents {
    /// Creates a set that remembers at least `count` events.
    pub fn new(count: usize) -> Self {
        Self {
            hashers: [RandomState::new(), RandomState::new()],
            generations: Mutex::default(),
            count: count.max(1),
        }
    }

    /// Looks up an event.
    pub fn look(&self, id: &str, fingerprint: Fingerprint) -> IdStatus {
        let hash = self.hash(id);
        let generations = self.generations();
        let existing = generations.iter().find_map(|one| one.get(&hash).copied());
        match existing {
            None => IdStatus::New,
            Some(existing) if existing == fingerprint => IdStatus::Same,
            Some(_) => IdStatus::Other,
        }
    }

    /// Remembers an event that is in the log.
    pub fn note(&self, id: &str, fingerprint: Fingerprint) {
        let hash = self.hash(id);
        let mut generations = self.generations();
        let [latest, before] = &mut *generations;
        if latest.len() >= self.count {
            // Both maps keep their capacity: regrowing would delay senders.
            std::mem::swap(latest, before);
            latest.clear();
        }
        // The store keeps the first event of an id.
        latest.entry(hash).or_insert(fingerprint);
    }

    fn hash(&self, id: &str) -> u128 {
        let [high, low] = &self.hashers;
        (u128::from(high.hash_one(id)) << 64) | u128::from(low.hash_one(id))
    }

    fn generations(&self) -> MutexGuard<'_, [HashMap<u128, Fingerprint>; 2]> {
        // An interrupted change only affects how much is remembered.
        self.generations
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn print(byte: u8) -> Fingerprint {
        Fingerprint([byte; Fingerprint::LEN])
    }

    #[test]
    fn duplicate_event_is_detected_and_an_id_conflict_is_reported() {
        let events = RecentEvents::new(10);
        assert_eq!(events.look("a", print(1)), IdStatus::New);
        events.note("a", print(1));
        assert_eq!(events.look("a", print(1)), IdStatus::Same);
        assert_eq!(events.look("a", print(2)), IdStatus::Other);
        events.note("a", print(2));
        assert_eq!(
            events.look("a", print(1)),
            IdStatus::Same,
            "the first stays"
        );
        assert_eq!(events.look("b", print(1)), IdStatus::New);
    }

    #[test]
    fn recent_events_are_bounded_and_keep_the_latest() {
        let events = RecentEvents::new(10);
        for n in 0..1_000 {
            events.note(&format!("e{n}"), print(0));
            for latest in n.max(9) - 9..=n {
                assert_eq!(events.look(&format!("e{latest}"), print(0)), IdStatus::Same);
            }
        }
        assert!(events.generations().iter().map(HashMap::len).sum::<usize>() <= 20);
        assert_eq!(events.look("e0", print(0)), IdStatus::New);
    }
}
