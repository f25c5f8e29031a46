//! Copies the engine's counters into Envoy's stats.

use proxy_wasm::hostcalls;
use proxy_wasm::types::MetricType;
use weir_engine::Metrics;

/// The host's metric ids of one engine, by index. `None` for a metric that the host rejects: requests do not fail
/// because of metrics.
#[derive(Debug, Default)]
pub struct HostMetrics {
    counters: Vec<Option<u32>>,
}

impl HostMetrics {
    /// Defines new metrics.
    pub fn define(&mut self, metrics: &Metrics) {
        let existing = self.counters.len();
        let new = metrics.counters().skip(existing);
        self.counters.extend(new.map(define));
    }

    /// Reports the counts since the last call to the host. Unreported counts are lost if the VM traps.
    pub fn flush(&mut self, metrics: &mut Metrics) {
        self.define(metrics);
        metrics.collect(|index, count| {
            if let Some(Some(id)) = self.counters.get(index) {
                // The metric was defined, so this cannot fail; a failure would not affect requests.
                let count = i64::try_from(count).unwrap_or(i64::MAX);
                let _ = hostcalls::increment_metric(*id, count);
            }
        });
    }
}

fn define(name: &str) -> Option<u32> {
    hostcalls::define_metric(MetricType::Counter, name)
        .inspect_err(|status| log::warn!("cannot record metric {name}: {status:?}"))
        .ok()
}
