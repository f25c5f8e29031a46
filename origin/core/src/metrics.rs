//! Prometheus metrics of the origin. `docs/metrics.md` lists every name.
//!
//! Each domain registers its own metrics with `Metrics::group`. This module contains the registry and the metrics of
//! requests.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Metric, Registry};

use crate::process::Process;

/// Prefix of all metric names, except those of the process.
const PREFIX: &str = "weir_origin";

/// All metrics of the origin. Cloning it is cheap: clones share the values.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Arc<Mutex<Registry>>,
    requests: RequestMetrics,
}

/// Number and duration of requests by route and status.
#[derive(Clone, Debug)]
pub struct RequestMetrics {
    answered: Family<RequestLabels, Counter>,
    seconds: Family<RouteLabel, Histogram, fn() -> Histogram>,
}

/// The route is its pattern, so that clients cannot create labels.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    route: String,
    status: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabel {
    route: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BuildLabels {
    version: &'static str,
    commit: &'static str,
    compiler: &'static str,
}

/// Registers a group of metrics.
pub struct Group<'a>(&'a mut Registry);

impl Group<'_> {
    /// Registers a metric with its default value.
    pub fn add<M: Metric + Clone + Default>(&mut self, name: &str, help: &str) -> M {
        self.add_this(name, help, M::default())
    }

    /// Registers an existing metric.
    pub fn add_this<M: Metric + Clone>(&mut self, name: &str, help: &str, metric: M) -> M {
        self.0.register(name, help, metric.clone());
        metric
    }

    /// Registers a collector, which produces its metrics at each scrape.
    pub fn add_collector(&mut self, collector: impl Collector) {
        self.0.register_collector(Box::new(collector));
    }
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Process));
        let metrics = Self {
            registry: Arc::new(Mutex::new(registry)),
            requests: RequestMetrics::default(),
        };
        metrics.group(|group| {
            metrics.requests.add_to(group);
            let build: Family<BuildLabels, Gauge> =
                group.add("build_info", "1 for the running build");
            let labels = BuildLabels {
                version: weir_version::VERSION,
                commit: weir_version::commit(),
                compiler: weir_version::COMPILER,
            };
            build.get_or_create(&labels).set(1);
        });
        metrics
    }
}

impl Metrics {
    /// Registers a group of metrics.
    pub fn group<T>(&self, register: impl FnOnce(&mut Group<'_>) -> T) -> T {
        // The registry is always consistent, even after a panic elsewhere.
        let mut registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        register(&mut Group(registry.sub_registry_with_prefix(PREFIX)))
    }

    /// Registers the metrics of requests.
    pub fn requests(&self) -> RequestMetrics {
        self.requests.clone()
    }

    /// All metrics in the OpenMetrics text format.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = text::encode(&mut out, &registry) {
            out.clear();
            // A comment instead of metrics, with the cause.
            let _ = writeln!(out, "# {error}");
        }
        out
    }

    /// All metrics in the Prometheus text format 0.0.4.
    pub fn plain_text(&self) -> String {
        plain(&self.text())
    }
}

/// Converts OpenMetrics to the Prometheus text format 0.0.4: counters have the name of their samples, and `# EOF` is
/// omitted.
fn plain(text: &str) -> String {
    let counter = |line: &str| {
        let name = line.strip_prefix("# TYPE ")?.strip_suffix(" counter")?;
        Some(name.to_owned())
    };
    let counters: HashSet<String> = text.lines().filter_map(counter).collect();
    let mut out = String::with_capacity(text.len() + text.len() / 16);
    for line in text.lines().filter(|line| *line != "# EOF") {
        let described = ["# HELP ", "# TYPE "].into_iter().find_map(|start| {
            let (name, rest) = line.strip_prefix(start)?.split_once(' ')?;
            counters.contains(name).then_some((start, name, rest))
        });
        let _ = match described {
            Some((start, name, rest)) => writeln!(out, "{start}{name}_total {rest}"),
            None => writeln!(out, "{line}"),
        };
    }
    out
}

impl Default for RequestMetrics {
    fn default() -> Self {
        Self {
            answered: Family::default(),
            // Buckets from 1 ms to 8 s: a public request may take 4.5 s.
            seconds: Family::new_with_constructor(|| {
                Histogram::new(exponential_buckets(0.001, 2.0, 14))
            }),
        }
    }
}

impl RequestMetrics {
    fn add_to(&self, group: &mut Group<'_>) {
        let (answered, seconds) = (self.answered.clone(), self.seconds.clone());
        group.add_this("requests", "Requests by route and status", answered);
        let help = "Request duration by route, in seconds";
        group.add_this("request_seconds", help, seconds);
    }

    /// Counts a request with its duration.
    pub fn count(&self, route: &str, status: u16, elapsed: Duration) {
        let route = route.to_owned();
        self.seconds
            .get_or_create(&RouteLabel {
                route: route.clone(),
            })
            .observe(elapsed.as_secs_f64());
        let labels = RequestLabels { route, status };
        self.answered.get_or_create(&labels).inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_format_names_counters_like_their_samples() {
        let metrics = Metrics::default();
        metrics.requests().count("/a", 200, Duration::ZERO);
        let (open, plain) = (metrics.text(), metrics.plain_text());
        assert!(
            open.contains("# TYPE weir_origin_requests counter\n"),
            "{open}"
        );
        assert!(open.ends_with("# EOF\n"));
        for line in [
            "# HELP weir_origin_requests_total Requests",
            "# TYPE weir_origin_requests_total counter\n",
            "weir_origin_requests_total{route=\"/a\",status=\"200\"} 1\n",
            "# TYPE weir_origin_request_seconds histogram\n",
            "# TYPE weir_origin_build_info gauge\n",
        ] {
            assert!(plain.contains(line), "{line} is not in\n{plain}");
        }
        assert!(!plain.contains("EOF") && !plain.contains("_total_total"));
    }
}
