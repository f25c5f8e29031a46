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

use crate::engine_host::CallCounts;
use crate::fast_path::counts::{BOUNDS, Collected};

/// The counter of panics.
const PANICS: &str = "weir_native_panics_total";

/// The counters of fast path requests.
const FAST_PATH_ANSWERED: &str = "weir_native_fast_path_requests_total.outcome.answered";
const FAST_PATH_PASSED: &str = "weir_native_fast_path_requests_total.outcome.passed";

/// The counter of fast path answers, and its labels.
const FAST_PATH_ANSWERS: &str = "weir_native_fast_path_answers_total";
const FAST_PATH_ANSWER_LABELS: [&str; 2] = ["filter", "details"];

/// The latency histogram of fast path answers, without the bound.
const FAST_PATH_SECONDS: &str = "weir_native_fast_path_seconds_bucket.le.";

/// The counters of Redis calls.
const CALLS_WORKER: &str = "weir_native_redis_calls_total.thread.worker";
const CALLS_MODULE: &str = "weir_native_redis_calls_total.thread.module";

/// The counter of access log lines that were dropped.
const LOG_LINES_DROPPED: &str = "weir_native_fast_path_log_lines_dropped_total";

/// The metrics of one filter's configuration.
#[derive(Debug, Default)]
pub struct HostMetrics {
    counters: HashMap<(String, Option<String>), MetricId>,
    /// The filter's name, a label of fast path answers.
    filter: &'static str,
    fast_path_answers: Option<MetricId>,
}

/// Counts since the last report, by counter name.
pub type Counts = Vec<(String, u64)>;

impl HostMetrics {
    /// Defines all counters in `metrics`, and those that the filter's engine may add later.
    pub fn define(host: &ConfigHost<'_>, filter: &Filter, metrics: &Metrics) -> Self {
        let later = later_metrics(filter);
        let mut counters = HashMap::new();
        let native = [
            PANICS,
            CALLS_WORKER,
            FAST_PATH_ANSWERED,
            FAST_PATH_SECONDS,
            LOG_LINES_DROPPED,
        ];
        let now = metrics.counters().chain(native);
        for name in now.chain(later.counters()) {
            let (base, tag) = split(name);
            let label = tag.map(|(label, _)| label);
            let key = (base.to_owned(), label.map(str::to_owned));
            if !counters.contains_key(&key)
                && let Some(id) = host.define_counter(base, label.as_slice())
            {
                counters.insert(key, id);
            }
        }
        let fast_path_answers = host.define_counter(FAST_PATH_ANSWERS, &FAST_PATH_ANSWER_LABELS);
        let created = Self {
            counters,
            filter: filter.name,
            fast_path_answers,
        };
        // Envoy shows a labelled counter only after its first increment, but operators look for it earlier.
        let shown = metrics.counters().chain([LOG_LINES_DROPPED]);
        let none = shown.map(|name| (name.to_owned(), 0));
        created.publish(host, &none.collect());
        created
    }

    /// Reports counts to Envoy.
    pub fn publish(&self, host: &ConfigHost<'_>, counts: &Counts) {
        for (name, count) in counts {
            let (base, tag) = split(name);
            let key = (base.to_owned(), tag.map(|(label, _)| label.to_owned()));
            if let Some(id) = self.counters.get(&key) {
                let value = tag.map(|(_, value)| value);
                host.increment(*id, value.as_slice(), *count);
            }
        }
    }

    /// Reports the requests at the fast path.
    pub fn publish_fast_path(&self, host: &ConfigHost<'_>, collected: &Collected) {
        let answered = collected.answers.iter().map(|(_, count)| count).sum();
        let mut counts = vec![
            (FAST_PATH_ANSWERED.to_owned(), answered),
            (FAST_PATH_PASSED.to_owned(), collected.passed),
            (LOG_LINES_DROPPED.to_owned(), collected.log_lines_dropped),
        ];
        let within = collected.within.iter().zip(BOUNDS);
        counts.extend(within.map(|(count, (_, le))| (format!("{FAST_PATH_SECONDS}{le}"), *count)));
        counts.retain(|(_, count)| *count > 0);
        self.publish(host, &counts);
        for (details, count) in &collected.answers {
            if let Some(id) = self.fast_path_answers {
                host.increment(id, &[self.filter, details], *count);
            }
        }
    }

    /// Reports the calls to Redis.
    pub fn publish_calls(&self, host: &ConfigHost<'_>, calls: &CallCounts) {
        let counts = [(CALLS_WORKER, &calls.worker), (CALLS_MODULE, &calls.module)];
        let counts =
            counts.map(|(name, count)| (name.to_owned(), count.swap(0, Ordering::Relaxed)));
        let counts = counts.into_iter().filter(|(_, count)| *count > 0);
        self.publish(host, &counts.collect());
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
