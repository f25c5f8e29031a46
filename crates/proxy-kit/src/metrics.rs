//! The engine's counters in Envoy's own stats.

use proxy_wasm::hostcalls;
use proxy_wasm::types::MetricType;
use weir_engine::Metrics;

/// The host's numbers of the metrics of one engine, by their places there. `None` where the host refuses one: a metric is
/// no reason to refuse a request.
#[derive(Debug, Default)]
pub struct HostMetrics {
    counters: Vec<Option<u32>>,
}

impl HostMetrics {
    /// Defines what is new.
    pub fn define(&mut self, metrics: &Metrics) {
        let known = self.counters.len();
        let new = metrics.counters().skip(known);
        self.counters.extend(new.map(define));
    }

    /// Tells the host what was counted since the last time. What a VM has counted and not told is lost if it traps.
    pub fn flush(&mut self, metrics: &mut Metrics) {
        self.define(metrics);
        metrics.collect(|index, count| {
            if let Some(Some(id)) = self.counters.get(index) {
                // It was defined, so this cannot fail; if it does, the request matters more.
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
