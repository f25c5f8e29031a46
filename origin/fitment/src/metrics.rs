//! Metrics of vehicle fitment. `docs/metrics.md` lists all names.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use weir_origin_core::metrics::{Group, Metrics};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

/// Label values for the result of an import.
const IMPORTS: [&str; 2] = ["done", "failed"];

/// Metrics of vehicle fitment. Clones share the same counters.
#[derive(Clone, Debug)]
pub struct FitmentMetrics {
    /// Number of SKUs written to Redis.
    pub published: Counter,
    /// SKUs with changes not yet in Redis.
    pub waiting: Gauge,
    /// Age of the oldest pending change, in seconds.
    pub waiting_seconds: Gauge<f64, AtomicU64>,
    /// Number of rebuilds started, because Redis lost its data or an operator requested one.
    pub rebuilds: Counter,
    /// SKUs compared with Redis.
    pub verified: Counter,
    /// Number of compared SKUs that differed in Redis.
    pub repaired: Counter,
    /// Number of SKUs in queries answered from SQL.
    pub fallbacks: Counter,
    /// Queries refused because too many waited for SQL.
    pub refused: Counter,
    /// Import records read.
    pub records: Counter,
    imports: Family<OutcomeLabel, Counter>,
}

impl FitmentMetrics {
    /// Registers all metrics.
    pub fn register(metrics: &Metrics) -> Self {
        let metrics = metrics.group(Self::add_to);
        for outcome in IMPORTS {
            let _ = metrics.imports.get_or_create(&OutcomeLabel { outcome });
        }
        metrics
    }

    fn add_to(group: &mut Group<'_>) -> Self {
        Self {
            published: group.add("fitment_skus_published", "SKUs written to Redis"),
            waiting: group.add("fitment_skus_waiting", "SKUs with changes not yet in Redis"),
            waiting_seconds: group.add(
                "fitment_waiting_seconds",
                "Age of the oldest of them, in seconds",
            ),
            rebuilds: group.add(
                "fitment_rebuilds",
                "Rebuilds of Redis started, after data loss or on request",
            ),
            verified: group.add("fitment_skus_verified", "SKUs compared with Redis"),
            repaired: group.add(
                "fitment_skus_repaired",
                "SKUs that differed in Redis, and were rewritten",
            ),
            fallbacks: group.add(
                "fitment_skus_from_sql",
                "SKUs answered from SQL because Redis did not have them",
            ),
            refused: group.add(
                "fitment_questions_refused",
                "Queries refused because too many waited for SQL",
            ),
            records: group.add("fitment_import_records", "Import records read"),
            imports: group.add("fitment_imports", "Finished imports, by outcome"),
        }
    }

    /// Counts a finished import.
    pub fn import(&self, is_done: bool) {
        let [done, failed] = IMPORTS;
        let outcome = if is_done { done } else { failed };
        self.imports.get_or_create(&OutcomeLabel { outcome }).inc();
    }
}
