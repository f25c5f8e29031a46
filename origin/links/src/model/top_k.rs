//! The top-k values of a stream in bounded memory: the Space-Saving sketch (Metwally, Agrawal and El Abbadi, 2005).
//!
//! With `m` counters, a new value replaces the value with the smallest count. It inherits that count, which is also the
//! maximum error of its count. All counts add up to the number of clicks, so no error exceeds an `m`th of it. A value
//! with more clicks than that always has a counter.

use std::collections::{BTreeMap, BTreeSet};

/// The counter of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Upper bound of its occurrences.
    pub clicks: u64,
    /// Maximum error of that bound.
    pub over_max: u64,
}

/// Changes of the counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Existing values, with the number of clicks to add.
    pub added: BTreeMap<String, u64>,
    /// Values that are replaced.
    pub removed: BTreeSet<String>,
    /// New values.
    pub inserted: BTreeMap<String, Count>,
}

/// Adds `observed` to the counters, of which at most `counters_max` exist.
pub fn add(
    counters: &BTreeMap<String, Count>,
    observed: &BTreeMap<&str, u64>,
    counters_max: usize,
) -> Changes {
    let mut now = counters.clone();
    // Existing values first, then the most frequent ones: values of one batch have no order of their own.
    let mut order: Vec<(&str, u64)> = observed
        .iter()
        .map(|(value, clicks)| (*value, *clicks))
        .collect();
    order.sort_by_key(|(value, clicks)| (!counters.contains_key(*value), u64::MAX - clicks));
    for (value, clicks) in order {
        if let Some(count) = now.get_mut(value) {
            count.clicks += clicks;
            continue;
        }
        let mut count = Count::default();
        if now.len() >= counters_max.max(1) {
            let least = now.iter().min_by_key(|(_, count)| count.clicks);
            let least = least.map(|(value, count)| (value.clone(), count.clicks));
            if let Some((least, inherited)) = least {
                now.remove(&least);
                count.clicks = inherited;
                count.over_max = inherited;
            }
        }
        count.clicks += clicks;
        now.insert(value.to_owned(), count);
    }
    changes(counters, now)
}

fn changes(before: &BTreeMap<String, Count>, now: BTreeMap<String, Count>) -> Changes {
    let mut changes = Changes::default();
    let removed = before.keys().filter(|value| !now.contains_key(*value));
    changes.removed.extend(removed.cloned());
    for (value, count) in now {
        match before.get(&value) {
            Some(existing) if existing.over_max == count.over_max => {
                if count.clicks > existing.clicks {
                    changes.added.insert(value, count.clicks - existing.clicks);
                }
            }
            // The value was replaced and added again.
            Some(_) => {
                changes.removed.insert(value.clone());
                changes.inserted.insert(value, count);
            }
            None => {
                changes.inserted.insert(value, count);
            }
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sketch with the true counts.
    #[derive(Default)]
    struct SketchAndTruth {
        counters: BTreeMap<String, Count>,
        truth: BTreeMap<String, u64>,
    }

    impl SketchAndTruth {
        fn add(&mut self, observed: &[(&str, u64)], counters_max: usize) {
            for (value, clicks) in observed {
                *self.truth.entry((*value).to_owned()).or_default() += clicks;
            }
            let observed: BTreeMap<&str, u64> = observed.iter().copied().collect();
            let changes = add(&self.counters, &observed, counters_max);
            for value in &changes.removed {
                self.counters.remove(value);
            }
            for (value, clicks) in &changes.added {
                self.counters.get_mut(value).unwrap().clicks += clicks;
            }
            self.counters.extend(changes.inserted);
        }

        fn check(&self, counters_max: usize) {
            let all: u64 = self.truth.values().sum();
            let bound = all / counters_max as u64;
            assert!(self.counters.len() <= counters_max);
            let counted: u64 = self.counters.values().map(|count| count.clicks).sum();
            assert_eq!(counted, all);
            for (value, count) in &self.counters {
                let truth = self.truth[value];
                assert!(count.over_max <= bound, "{value} {count:?} of {all}");
                let least = count.clicks - count.over_max;
                assert!(
                    (least..=count.clicks).contains(&truth),
                    "{value} {count:?}: {truth}"
                );
            }
            let heavy = self.truth.iter().filter(|(_, clicks)| **clicks > bound);
            for (value, clicks) in heavy {
                assert!(
                    self.counters.contains_key(value),
                    "{value}: {clicks} of {all}"
                );
            }
        }
    }

    #[test]
    fn small_numbers_of_values_are_exact() {
        let mut both = SketchAndTruth::default();
        both.add(&[("a", 3), ("b", 1)], 4);
        both.add(&[("a", 2), ("c", 9), ("d", 1)], 4);
        both.check(4);
        assert!(both.counters.values().all(|count| count.over_max == 0));
    }

    #[test]
    fn late_frequent_value_is_found_among_many_rare_ones() {
        let mut both = SketchAndTruth::default();
        for n in 0..2_000 {
            let (a, b) = (format!("flood-{n}"), format!("more-{n}"));
            let mut observed = vec![(a.as_str(), 1), (b.as_str(), 1)];
            if n >= 1_000 && n % 10 == 0 {
                observed.push(("late.example", 10));
            }
            both.add(&observed, 100);
        }
        both.check(100);
        let late = both.counters["late.example"];
        assert!(late.clicks - late.over_max > 900, "{late:?}");
    }

    #[test]
    fn sketch_error_bounds_hold_for_random_input() {
        let mut state = 7_u64;
        let mut next = |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % below
        };
        for _ in 0..50 {
            let mut both = SketchAndTruth::default();
            for _ in 0..40 {
                let observed: BTreeMap<String, u64> = (0..next(8))
                    .map(|_| (next(30).to_string(), 1 + next(20)))
                    .collect();
                let observed: Vec<_> = observed
                    .iter()
                    .map(|(value, n)| (value.as_str(), *n))
                    .collect();
                both.add(&observed, 6);
                both.check(6);
            }
        }
    }
}
