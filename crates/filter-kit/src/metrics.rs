//! Counters and histograms in Envoy's own stats.
//!
//! A tag's value is part of the name that a filter defines, `<name>.<tag>.<value>`; `stats_tags` in
//! Envoy's configuration takes it out again (`envoy/weir.yaml` shows how).

use proxy_wasm::hostcalls;
use proxy_wasm::types::MetricType;

/// A counter.
#[derive(Clone, Copy, Debug)]
pub struct Counter {
    id: Option<u32>,
}

impl Counter {
    /// Defines the counter `name`. If the host refuses it, counting does nothing: a metric is no
    /// reason to refuse a request.
    pub fn define(name: &str) -> Self {
        let id = hostcalls::define_metric(MetricType::Counter, name)
            .inspect_err(|status| log::warn!("metric {name} is not counted: {status:?}"))
            .ok();
        Self { id }
    }

    /// Adds one.
    pub fn increment(self) {
        self.add(1);
    }

    /// Adds `count`. Adding 0 is an error to Envoy, so it is left out.
    pub fn add(self, count: usize) {
        if let Some(id) = self.id
            && count > 0
        {
            let offset = i64::try_from(count).unwrap_or(i64::MAX);
            // The metric was defined, so this cannot fail; if it does, the request matters more.
            let _ = hostcalls::increment_metric(id, offset);
        }
    }
}

/// A histogram.
#[derive(Clone, Copy, Debug)]
pub struct Histogram {
    id: Option<u32>,
}

impl Histogram {
    /// Defines the histogram `name`; as [`Counter::define`].
    pub fn define(name: &str) -> Self {
        let id = hostcalls::define_metric(MetricType::Histogram, name)
            .inspect_err(|status| log::warn!("metric {name} is not recorded: {status:?}"))
            .ok();
        Self { id }
    }

    /// Records a value.
    pub fn record(self, value: u64) {
        if let Some(id) = self.id {
            // As in [`Counter::add`].
            let _ = hostcalls::record_metric(id, value);
        }
    }
}
