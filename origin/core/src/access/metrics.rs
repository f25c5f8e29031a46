//! Metrics of access. `docs/metrics.md` lists every name.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

use crate::metrics::Metrics;

/// Outcomes of sign-ins.
const SIGN_INS: [&str; 3] = ["done", "refused", "too_many"];

/// The metrics of access. Cloning it is cheap: clones share them.
#[derive(Clone, Debug)]
pub struct AccessMetrics {
    /// Audit entries that SQL did not store; should be 0.
    pub audit_lost: Counter,
    sign_ins: Family<OutcomeLabel, Counter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

impl AccessMetrics {
    /// Registers the metrics.
    pub fn register(metrics: &Metrics) -> Self {
        let metrics = metrics.group(|group| Self {
            audit_lost: group.add(
                "audit_lost",
                "Audit entries that SQL did not store; should be 0",
            ),
            sign_ins: group.add("sign_ins", "Console sign-ins, by outcome"),
        });
        for outcome in SIGN_INS {
            let _ = metrics.sign_ins.get_or_create(&OutcomeLabel { outcome });
        }
        metrics
    }

    /// Counts a sign-in.
    pub(super) fn sign_in(&self, outcome: &'static str) {
        self.sign_ins.get_or_create(&OutcomeLabel { outcome }).inc();
    }
}
