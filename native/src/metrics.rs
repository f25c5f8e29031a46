//! Counters in Envoy's own stats.
//!
//! Envoy takes definitions only while a configuration is made, and values only on its own threads. So all is defined at first,
//! and told on the main thread from time to time. A tag, which stands in a counter's name as `<name>.<tag>.<value>`, is a label
//! here: a counter that an engine adds later is one more value of a label that is known.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use weir_engine::Metrics;
use weir_envoy_abi::{ConfigHost, MetricId};
use weir_registry::Filter;
use weir_registry::engines::later_metrics;

use crate::engine_host::FastPathCounts;

/// The counter of panics.
const PANICS: &str = "weir_native_panics_total";

/// The counters of requests at the fast path.
const FAST_PATH_ANSWERED: &str = "weir_native_fast_path_requests_total.outcome.answered";
const FAST_PATH_PASSED: &str = "weir_native_fast_path_requests_total.outcome.passed";

/// The metrics of one filter's configuration.
#[derive(Debug, Default)]
pub struct HostMetrics {
    counters: HashMap<(String, Option<String>), MetricId>,
}

/// What was counted since the last time: by its counter's name.
pub type Counts = Vec<(String, u64)>;

impl HostMetrics {
    /// Defines all that `metrics` has, and what the filter's engine may add later.
    pub fn define(host: &ConfigHost<'_>, filter: &Filter, metrics: &Metrics) -> Self {
        let later = later_metrics(filter);
        let mut counters = HashMap::new();
        let now = metrics.counters().chain([PANICS, FAST_PATH_ANSWERED]);
        for name in now.chain(later.counters()) {
            let (base, tag) = split(name);
            let label = tag.map(|(label, _)| label);
            let key = (base.to_owned(), label.map(str::to_owned));
            if !counters.contains_key(&key)
                && let Some(id) = host.define_counter(base, label)
            {
                counters.insert(key, id);
            }
        }
        let made = Self { counters };
        // Envoy shows a counter with a label from its first increment on; operators look for it before.
        let none = metrics.counters().map(|name| (name.to_owned(), 0));
        made.publish(host, &none.collect());
        made
    }

    /// Tells Envoy what was counted.
    pub fn publish(&self, host: &ConfigHost<'_>, counts: &Counts) {
        for (name, count) in counts {
            let (base, tag) = split(name);
            let key = (base.to_owned(), tag.map(|(label, _)| label.to_owned()));
            if let Some(id) = self.counters.get(&key) {
                host.increment(*id, tag.map(|(_, value)| value), *count);
            }
        }
    }

    /// Reports the requests at the fast path.
    pub fn publish_fast_path(&self, host: &ConfigHost<'_>, counts: &FastPathCounts) {
        for (name, count) in [
            (FAST_PATH_ANSWERED, &counts.answered),
            (FAST_PATH_PASSED, &counts.passed),
        ] {
            match count.swap(0, Ordering::Relaxed) {
                0 => {}
                count => self.publish(host, &vec![(name.to_owned(), count)]),
            }
        }
    }

    /// Tells Envoy of panics.
    pub fn publish_panics(&self, host: &ConfigHost<'_>, count: u64) {
        if count > 0 {
            self.publish(host, &vec![(PANICS.to_owned(), count)]);
        }
    }
}

/// A counter's name and its tag: of `<name>.<tag>.<value>`, the value being all that follows.
fn split(name: &str) -> (&str, Option<(&str, &str)>) {
    let parts = name.split_once('.');
    match parts.and_then(|(base, tag)| Some((base, tag.split_once('.')?))) {
        Some((base, tag)) => (base, Some(tag)),
        None => (name, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_a_label() {
        let tagged = split("weir_requests_total.verdict.sold_out");
        assert_eq!(
            tagged,
            ("weir_requests_total", Some(("verdict", "sold_out")))
        );
        let dotted = split("weir_requests_total.rule.a.b");
        assert_eq!(dotted, ("weir_requests_total", Some(("rule", "a.b"))));
        assert_eq!(split("weir_polls_total"), ("weir_polls_total", None));
    }
}
