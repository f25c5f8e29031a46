//! Counters in Envoy's own stats.
//!
//! Envoy accepts definitions only while it creates a configuration, and values only on its own threads. The module
//! therefore defines all counters first, and reports values on the main thread periodically. A tag, which appears in a
//! counter's name as `<name>.<tag>.<value>`, becomes a label. A counter that an engine adds later is a new value of an
//! existing label.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use weir_engine::Metrics;
use weir_envoy_abi::{ConfigHost, MetricId};
use weir_registry::Filter;
use weir_registry::engines::later_metrics;

use crate::engine_host::FastPathCounts;

/// The counter of panics.
const PANICS: &str = "weir_native_panics_total";

/// The counters of fast path requests.
const FAST_PATH_ANSWERED: &str = "weir_native_fast_path_requests_total.outcome.answered";
const FAST_PATH_PASSED: &str = "weir_native_fast_path_requests_total.outcome.passed";

/// The metrics of one filter's configuration.
#[derive(Debug, Default)]
pub struct HostMetrics {
    counters: HashMap<(String, Option<String>), MetricId>,
}

/// Counts since the last report, by counter name.
pub type Counts = Vec<(String, u64)>;

impl HostMetrics {
    /// Defines all counters in `metrics`, and those that the filter's engine may add later.
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
        let created = Self { counters };
        // Envoy shows a labelled counter only after its first increment, but operators look for it earlier.
        let none = metrics.counters().map(|name| (name.to_owned(), 0));
        created.publish(host, &none.collect());
        created
    }

    /// Reports counts to Envoy.
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

    /// Reports panics to Envoy.
    pub fn publish_panics(&self, host: &ConfigHost<'_>, count: u64) {
        if count > 0 {
            self.publish(host, &vec![(PANICS.to_owned(), count)]);
        }
    }
}

/// Splits `<name>.<tag>.<value>` into the name and the tag. The value is the whole rest after the tag.
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
    fn metric_name_tag_becomes_a_label() {
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
