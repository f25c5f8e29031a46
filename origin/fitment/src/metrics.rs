//! What is counted of vehicle fitment. `docs/metrics.md` lists every name.

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

/// How an import ends.
const IMPORTS: [&str; 2] = ["done", "failed"];

/// The numbers of vehicle fitment. Cloning it is cheap: clones share them.
#[derive(Clone, Debug)]
pub struct FitmentMetrics {
    /// SKUs that were written to Redis.
    pub published: Counter,
    /// SKUs that wait to be written to Redis.
    pub waiting: Gauge,
    /// How long the first of them has waited.
    pub waiting_seconds: Gauge<f64, AtomicU64>,
    /// Rebuilds that began, since Redis had lost its data or since somebody asked.
    pub rebuilds: Counter,
    /// SKUs that were compared with Redis.
    pub verified: Counter,
    /// Those of them that Redis had otherwise.
    pub mended: Counter,
    /// SKUs of questions that SQL answered.
    pub fallbacks: Counter,
    /// Questions that were refused, as too many waited for SQL.
    pub refused: Counter,
    /// Records of imports that were read.
    pub records: Counter,
    imports: Family<OutcomeLabel, Counter>,
}

impl FitmentMetrics {
    /// Registers all of them.
    pub fn register(metrics: &Metrics) -> Self {
        let metrics = metrics.group(Self::add_to);
        for outcome in IMPORTS {
            let _ = metrics.imports.get_or_create(&OutcomeLabel { outcome });
        }
        metrics
    }

    fn add_to(group: &mut Group<'_>) -> Self {
        Self {
            published: group.add("fitment_skus_published", "SKUs that were written to Redis"),
            waiting: group.add(
                "fitment_skus_waiting",
                "SKUs that wait to be written to Redis",
            ),
            waiting_seconds: group.add(
                "fitment_waiting_seconds",
                "How long the first of them has waited, in seconds",
            ),
            rebuilds: group.add(
                "fitment_rebuilds",
                "Rebuilds of Redis that began, since it had lost its data or since somebody asked",
            ),
            verified: group.add(
                "fitment_skus_verified",
                "SKUs that were compared with Redis",
            ),
            mended: group.add(
                "fitment_skus_mended",
                "SKUs that Redis had otherwise than SQL, and that were written again",
            ),
            fallbacks: group.add(
                "fitment_skus_from_sql",
                "SKUs of questions that were answered from SQL, as Redis did not know them",
            ),
            refused: group.add(
                "fitment_questions_refused",
                "Questions that were refused, as too many waited for SQL",
            ),
            records: group.add(
                "fitment_import_records",
                "Records of imports that were read",
            ),
            imports: group.add("fitment_imports", "Imports, by how they ended"),
        }
    }

    /// Counts an import that ended.
    pub fn import(&self, is_done: bool) {
        let [done, failed] = IMPORTS;
        let outcome = if is_done { done } else { failed };
        self.imports.get_or_create(&OutcomeLabel { outcome }).inc();
    }
}
