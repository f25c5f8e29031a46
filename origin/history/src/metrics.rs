//! Metrics of browse history. `docs/metrics.md` lists all names.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use super::record::Outcome;
use weir_origin_core::metrics::{Group, Metrics};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

/// Label values for the source of a count.
const COUNTS: [&str; 2] = ["cached", "counted"];

/// Metrics of browse history. Clones share the same counters.
#[derive(Clone, Debug)]
pub struct HistoryMetrics {
    /// Lists loaded into Redis from SQL and the cold store.
    pub loaded: Counter,
    /// Answers that may be incomplete: the cold store, SQL, Redis or the product source was unavailable.
    pub incomplete: Counter,
    /// Deletions that Redis had missed, applied later.
    pub reapplied: Counter,
    /// Number of lists copied to the cold store.
    pub compacted: Counter,
    /// Number of lists that were not copied because the stored list cannot be read.
    pub fold_failures: Counter,
    /// Age of the oldest day that waits for its fold, in seconds and whole days; 0: none.
    pub fold_lag_seconds: Gauge,
    views: Family<OutcomeLabel, Counter>,
    counts: Family<OutcomeLabel, Counter>,
}

impl HistoryMetrics {
    /// Registers all metrics.
    pub fn register(metrics: &Metrics) -> Self {
        let metrics = metrics.group(Self::add_to);
        for outcome in Outcome::ALL.map(Outcome::label) {
            let _ = metrics.views.get_or_create(&OutcomeLabel { outcome });
        }
        for outcome in COUNTS {
            let _ = metrics.counts.get_or_create(&OutcomeLabel { outcome });
        }
        metrics
    }

    fn add_to(group: &mut Group<'_>) -> Self {
        Self {
            loaded: group.add(
                "history_lists_loaded",
                "Lists loaded into Redis from SQL and the cold store",
            ),
            incomplete: group.add(
                "history_incomplete_answers",
                "Answers that may be incomplete because a store did not answer",
            ),
            reapplied: group.add(
                "history_removals_reapplied",
                "Deletions that Redis had missed, applied later",
            ),
            compacted: group.add(
                "history_lists_compacted",
                "Lists copied from Redis to the cold store",
            ),
            fold_failures: group.add(
                "history_fold_failures",
                "Lists not copied because the cold store's data cannot be read",
            ),
            fold_lag_seconds: group.add(
                "history_fold_lag_seconds",
                "Age of the oldest day not copied to the cold store, in seconds; from two days on, lists may be lost",
            ),
            views: group.add("history_views", "Views, by outcome"),
            counts: group.add("history_counts", "Count queries, by source of the answer"),
        }
    }

    /// Counts a view.
    pub fn view(&self, outcome: Outcome) {
        let outcome = outcome.label();
        self.views.get_or_create(&OutcomeLabel { outcome }).inc();
    }

    /// Counts an answered count.
    pub fn counted(&self, is_cached: bool) {
        let [cached, counted] = COUNTS;
        let outcome = if is_cached { cached } else { counted };
        self.counts.get_or_create(&OutcomeLabel { outcome }).inc();
    }
}
