//! What is counted of browse history. `docs/metrics.md` lists every name.

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

/// What answers a count.
const COUNTS: [&str; 2] = ["cached", "counted"];

/// The numbers of browse history. Cloning it is cheap: clones share them.
#[derive(Clone, Debug)]
pub struct HistoryMetrics {
    /// Lists that were loaded from SQL and the cold store.
    pub loaded: Counter,
    /// Answers that may lack something: the cold store, SQL, Redis or the products did not answer.
    pub incomplete: Counter,
    /// Removals that Redis had not followed at once, and that were applied later.
    pub reapplied: Counter,
    /// Lists that were copied to the cold store.
    pub folded: Counter,
    /// Lists that could not be copied, since what the cold store has cannot be read.
    pub fold_failures: Counter,
    /// How many whole days ago the day was that waits longest to be copied, in seconds; 0 if none does.
    pub fold_lag_seconds: Gauge,
    views: Family<OutcomeLabel, Counter>,
    counts: Family<OutcomeLabel, Counter>,
}

impl HistoryMetrics {
    /// Registers all of them.
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
                "Lists that were loaded from SQL and the cold store",
            ),
            incomplete: group.add(
                "history_incomplete_answers",
                "Answers that may lack something, since a part did not answer",
            ),
            reapplied: group.add(
                "history_removals_reapplied",
                "Removals that Redis had not followed at once, and that were applied later",
            ),
            folded: group.add(
                "history_lists_folded",
                "Lists that were copied from Redis to the cold store",
            ),
            fold_failures: group.add(
                "history_fold_failures",
                "Lists that were not copied, since what the cold store has cannot be read",
            ),
            fold_lag_seconds: group.add(
                "history_fold_lag_seconds",
                "How many days ago the day was that waits longest to be copied, in seconds; from two days on lists may be lost",
            ),
            views: group.add("history_views", "Views, by outcome"),
            counts: group.add("history_counts", "Counts that were asked for, by what answered"),
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
