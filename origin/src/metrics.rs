//! What the origin counts, as Prometheus reads it. `docs/metrics.md` lists every name.
//!
//! Each domain registers its own metrics with `Metrics::group`; here are the registry and what every request
//! counts.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::{Metric, Registry};

/// All of the origin's metrics. Cloning it is cheap: clones share the numbers.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Arc<Mutex<Registry>>,
    requests: RequestMetrics,
}

/// Requests by route and status.
#[derive(Clone, Debug, Default)]
pub struct RequestMetrics(Family<RequestLabels, Counter>);

/// The route is its pattern, so that clients cannot add labels.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    route: String,
    status: u16,
}

/// Registers metrics under their names.
pub(crate) struct Group<'a>(&'a mut Registry);

impl Group<'_> {
    /// A metric that starts at nothing.
    pub(crate) fn add<M: Metric + Clone + Default>(&mut self, name: &str, help: &str) -> M {
        self.add_this(name, help, M::default())
    }

    /// This metric.
    pub(crate) fn add_this<M: Metric + Clone>(&mut self, name: &str, help: &str, metric: M) -> M {
        self.0.register(name, help, metric.clone());
        metric
    }
}

impl Default for Metrics {
    fn default() -> Self {
        let metrics = Self {
            registry: Arc::new(Mutex::new(Registry::with_prefix("weir_origin"))),
            requests: RequestMetrics::default(),
        };
        let requests = metrics.requests.0.clone();
        metrics.group(|group| group.add_this("requests", "Requests by route and status", requests));
        metrics
    }
}

impl Metrics {
    /// Registers metrics that belong together.
    pub(crate) fn group<T>(&self, register: impl FnOnce(&mut Group<'_>) -> T) -> T {
        // Nothing in it can be half done, so a panic elsewhere has broken nothing.
        let mut registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        register(&mut Group(&mut registry))
    }

    /// What every request counts.
    pub fn requests(&self) -> RequestMetrics {
        self.requests.clone()
    }

    /// All numbers, in the text format of OpenMetrics.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = text::encode(&mut out, &registry) {
            out.clear();
            // A comment: the scrape has no numbers and says why.
            let _ = writeln!(out, "# {error}");
        }
        out
    }
}

impl RequestMetrics {
    /// Counts a request.
    pub fn count(&self, route: &str, status: u16) {
        let route = route.to_owned();
        self.0.get_or_create(&RequestLabels { route, status }).inc();
    }
}
