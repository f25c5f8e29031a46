//! Counts of an engine's decisions by name, sent to Redis every few seconds.
//!
//! Metrics contain totals, but not names, because Envoy never removes a label value. These counts are stored per minute
//! and expire after an hour.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::mem;

use weir_scripts::keys;
use weir_scripts::tally::{self, CALL_NAMES_MAX, Subject};

use crate::effect::{BatchId, Effects};

/// The interval between calls, in milliseconds.
const INTERVAL_MS: u64 = 2_000;

/// The timeout of a call, in milliseconds. Requests do not wait for it.
const TIMEOUT_MS: u64 = 1_000;

/// Counts by name, of one worker. Beyond [`CALL_NAMES_MAX`] names per call, new names are not counted, so that clients
/// cannot exhaust memory.
#[derive(Debug)]
pub struct Tally<K> {
    key_prefix: String,
    subject: Subject,
    counts: BTreeMap<K, u64>,
    due_ms: u64,
    under_way: Option<BatchId>,
}

impl<K: Ord> Tally<K> {
    /// An empty tally.
    pub fn new(key_prefix: &str, subject: Subject) -> Self {
        Self {
            key_prefix: key_prefix.into(),
            subject,
            counts: BTreeMap::new(),
            due_ms: 0,
            under_way: None,
        }
    }

    /// Adds one to the count of `name`.
    pub fn count(&mut self, name: K) {
        self.count_sparing(name, 0);
    }

    /// Like [`Self::count`], but a new name must leave room for `spare` others.
    pub fn count_sparing(&mut self, name: K, spare: usize) {
        let is_full = self.counts.len().saturating_add(spare) >= CALL_NAMES_MAX;
        match self.counts.get_mut(&name) {
            Some(count) => *count += 1,
            None if is_full => {}
            None => {
                self.counts.insert(name, 1);
            }
        }
    }

    /// Whether there are counts, and the interval has passed.
    pub fn is_due(&self, now_ms: u64) -> bool {
        // A clock that was set back must not delay it.
        let is_time = now_ms >= self.due_ms || self.due_ms - now_ms > INTERVAL_MS;
        is_time && self.under_way.is_none() && !self.counts.is_empty()
    }

    /// Sends the counts if they are due. For ticks. `text` returns the name in Redis, or `None` to drop the count.
    pub fn flush(
        &mut self,
        now_ms: u64,
        effects: &mut Effects,
        text: impl Fn(&K) -> Option<String>,
    ) {
        if !self.is_due(now_ms) {
            return;
        }
        self.due_ms = now_ms + INTERVAL_MS;
        let counts = mem::take(&mut self.counts).into_iter();
        let counts: Vec<_> = counts
            .filter_map(|(name, count)| Some((text(&name)?, count)))
            .collect();
        if counts.is_empty() {
            return;
        }
        let key = keys::tally(&self.key_prefix, self.subject, now_ms);
        let call = tally::call(&key, counts);
        let batch = effects.call(TIMEOUT_MS, now_ms, |body| call.encode_eval(body));
        self.under_way = Some(batch);
    }

    /// Whether `batch`, which has ended, was its call. A failed call is not repeated.
    pub fn completed(&mut self, batch: BatchId) -> bool {
        self.under_way.take_if(|sent| *sent == batch).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effect::Effect;
    use alloc::string::ToString;

    /// The call of a turn, and its content.
    fn turn(tally: &mut Tally<u32>, now_ms: u64) -> Option<(BatchId, String)> {
        let mut effects = Effects::new();
        let text = |name: &u32| (*name != 13).then(|| name.to_string());
        tally.flush(now_ms, &mut effects, text);
        match effects.as_slice() {
            [] => None,
            [Effect::Call { batch, body, .. }] => {
                let body = effects.bytes(body).to_vec();
                Some((*batch, String::from_utf8(body).unwrap()))
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn counts_are_sent_by_name_every_2_s_with_one_call_at_a_time() {
        let mut tally = Tally::new("weir", Subject::Limits);
        assert_eq!(turn(&mut tally, 60_000), None, "there is nothing to tell");
        for name in [7, 13, 7] {
            tally.count(name);
        }
        let (batch, body) = turn(&mut tally, 60_000).unwrap();
        let message =
            "$19\r\nweir:tally:limits:1\r\n$4\r\n3600\r\n$4\r\n4096\r\n$1\r\n7\r\n$1\r\n2\r\n";
        assert!(body.ends_with(message), "{body}");
        tally.count(8);
        assert_eq!(turn(&mut tally, 63_000), None, "one is under way");
        assert!(!tally.completed(BatchId(batch.0 + 1)));
        assert!(tally.completed(batch));
        assert!(!tally.completed(batch));
        assert_eq!(turn(&mut tally, 61_999), None, "it is too early");
        let (batch, body) = turn(&mut tally, 62_000).unwrap();
        assert!(body.ends_with("$1\r\n8\r\n$1\r\n1\r\n"), "{body}");
        tally.completed(batch);
        tally.count(9);
        assert!(turn(&mut tally, 1_000).is_some(), "the clock was set back");
    }

    #[test]
    fn full_tally_still_counts_existing_names() {
        let mut tally = Tally::new("weir", Subject::Limits);
        for name in 0..CALL_NAMES_MAX as u32 + 100 {
            tally.count(name + 1_000);
        }
        tally.count(1_000);
        assert_eq!(tally.counts.len(), CALL_NAMES_MAX);
        assert_eq!(tally.counts.get(&1_000), Some(&2));
        let mut tally = Tally::new("weir", Subject::Limits);
        for name in 0..CALL_NAMES_MAX as u32 {
            tally.count_sparing(name, 10);
        }
        assert_eq!(tally.counts.len(), CALL_NAMES_MAX - 10);
        tally.count(7_000);
        assert_eq!(tally.counts.get(&7_000), Some(&1));
    }
}
