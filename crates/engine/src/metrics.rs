//! An engine's counters.
//!
//! Counters are plain memory. The host collects all of them on ticks, because a host call per increment would cost a
//! request a microsecond. A tag is part of the name, `<name>.<tag>.<value>`; `stats_tags` in Envoy's configuration
//! extracts it (`envoy/weir.yaml` shows how).

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

/// A counter. Only its engine writes it, one event at a time. So a load and a store suffice, which in WebAssembly cost
/// the same as a plain number.
#[derive(Clone, Debug, Default)]
pub struct Counter {
    count: Arc<AtomicU64>,
}

impl Counter {
    /// Adds one.
    pub fn increment(&self) {
        self.add(1);
    }

    /// Adds `count`.
    pub fn add(&self, count: usize) {
        let sum = self.count.load(Relaxed).saturating_add(count as u64);
        self.count.store(sum, Relaxed);
    }

    /// Subtracts an addition of the same event whose action did not happen.
    pub(crate) fn take_back(&self, count: usize) {
        let rest = self.count.load(Relaxed).saturating_sub(count as u64);
        self.count.store(rest, Relaxed);
    }
}

/// The upper bounds of a histogram's buckets, in milliseconds and as Prometheus writes them in seconds.
const BOUNDS_MS: [(u64, &str); 13] = [
    (1, "0.001"),
    (2, "0.002"),
    (5, "0.005"),
    (10, "0.01"),
    (20, "0.02"),
    (50, "0.05"),
    (100, "0.1"),
    (200, "0.2"),
    (500, "0.5"),
    (1_000, "1"),
    (2_000, "2"),
    (5_000, "5"),
    (u64::MAX, "+Inf"),
];

/// A histogram of durations: counters `<name>_seconds_bucket` with the label `le`, for Prometheus'
/// `histogram_quantile`. Envoy's own histograms contain whole numbers and cannot show fractions of a second.
#[derive(Clone, Debug)]
pub struct DurationHistogram {
    buckets: [(u64, Counter); BOUNDS_MS.len()],
}

impl DurationHistogram {
    /// The histogram `<name>_seconds`.
    pub fn new(metrics: &mut Metrics, name: &str) -> Self {
        let buckets = BOUNDS_MS.map(|(max_ms, le)| {
            let counter = metrics.counter(format!("{name}_seconds_bucket.le.{le}"));
            (max_ms, counter)
        });
        Self { buckets }
    }

    /// Counts a duration of `took_ms` milliseconds.
    pub fn record_ms(&self, took_ms: u64) {
        let is_within = |(max_ms, _): &&(u64, Counter)| took_ms <= *max_ms;
        for (_, counter) in self.buckets.iter().filter(is_within) {
            counter.increment();
        }
    }
}

/// The counters of one engine by name.
#[derive(Debug, Default)]
pub struct Metrics {
    counters: Vec<(Box<str>, Counter)>,
}

impl Metrics {
    /// An empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// The counter `name`. Calls with the same name share one counter.
    pub fn counter(&mut self, name: impl Into<String>) -> Counter {
        let name = name.into().into_boxed_str();
        let mut counters = self.counters.iter();
        if let Some((_, existing)) = counters.find(|(existing, _)| *existing == name) {
            return existing.clone();
        }
        let counter = Counter::default();
        self.counters.push((name, counter.clone()));
        counter
    }

    /// The names of all counters, in the order of their creation.
    pub fn counters(&self) -> impl ExactSizeIterator<Item = &str> {
        self.counters.iter().map(|(name, _)| &**name)
    }

    /// Takes the counts since the last call: the index of each changed counter, and the difference.
    pub fn collect(&mut self, mut take: impl FnMut(usize, u64)) {
        for (index, (_, counter)) in self.counters.iter().enumerate() {
            match counter.count.swap(0, Relaxed) {
                0 => {}
                count => take(index, count),
            }
        }
    }
}

/// One counter for each of a few values, such as verdicts.
#[derive(Clone, Debug)]
pub struct Counters<K> {
    by: Vec<(K, Counter)>,
}

impl<K: Copy + PartialEq> Counters<K> {
    /// Creates a counter for each of `keys`; `name` returns its name.
    pub fn new(
        metrics: &mut Metrics,
        keys: impl IntoIterator<Item = K>,
        name: impl Fn(K) -> String,
    ) -> Self {
        let of = |key| (key, metrics.counter(name(key)));
        Self {
            by: keys.into_iter().map(of).collect(),
        }
    }

    /// Adds one to the counter of `key`.
    pub fn increment(&self, key: K) {
        self.add(key, 1);
    }

    /// Adds `count` to the counter of `key`.
    pub fn add(&self, key: K, count: usize) {
        if let Some((_, counter)) = self.by.iter().find(|(existing, _)| *existing == key) {
            counter.add(count);
        }
    }
}

/// Defines an enumeration whose variants are values of a tag, with the list `ALL` and a label for each variant.
#[macro_export]
macro_rules! tag {
    ($(#[$meta:meta])* $name:ident { $($(#[$variant_meta:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum $name {
            $($(#[$variant_meta])* $variant,)+
        }

        impl $name {
            const ALL: [Self; [$($word),+].len()] = [$(Self::$variant),+];

            const fn label(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn decremented_counts_are_never_collected() {
        let mut metrics = Metrics::new();
        let counter = metrics.counter("n_total");
        counter.add(5);
        counter.take_back(2);
        let mut collected = vec![];
        metrics.collect(|index, count| collected.push((index, count)));
        counter.take_back(1);
        metrics.collect(|index, count| panic!("{index} {count}"));
        assert_eq!(collected, [(0, 3)]);
    }

    #[test]
    fn duration_counts_in_every_bucket_at_or_above_it() {
        let mut metrics = Metrics::new();
        let waits = DurationHistogram::new(&mut metrics, "weir_waits");
        for took_ms in [0, 1, 3, 5_000, 5_001] {
            waits.record_ms(took_ms);
        }
        let mut counts = vec![0; BOUNDS_MS.len()];
        metrics.collect(|index, count| counts[index] = count);
        assert_eq!(counts, [2, 2, 3, 3, 3, 3, 3, 3, 3, 3, 3, 4, 5]);
        let names: Vec<&str> = metrics.counters().collect();
        assert_eq!(names[2], "weir_waits_seconds_bucket.le.0.005");
        assert_eq!(names.last(), Some(&"weir_waits_seconds_bucket.le.+Inf"));
    }

    mod colours {
        crate::tag! {
            /// As in an engine.
            Colour { Red = "red", Blue = "blue", }
        }

        #[test]
        fn each_tag_value_has_a_label() {
            assert_eq!(Colour::ALL.map(Colour::label), ["red", "blue"]);
        }
    }

    #[test]
    fn counts_are_collected_only_once() {
        let mut metrics = Metrics::new();
        let one = metrics.counter("one_total");
        let by = Counters::new(&mut metrics, [1, 2], |n| format!("by_total.n.{n}"));
        let same = metrics.counter("one_total");
        one.increment();
        same.add(2);
        by.increment(2);
        let mut collected = vec![];
        metrics.collect(|index, count| collected.push((index, count)));
        assert_eq!(collected, [(0, 3), (2, 1)]);
        metrics.collect(|index, count| panic!("{index} {count}"));
        let names: Vec<&str> = metrics.counters().collect();
        assert_eq!(names, ["one_total", "by_total.n.1", "by_total.n.2"]);
    }
}
