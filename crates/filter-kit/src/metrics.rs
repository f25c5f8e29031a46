//! Counters and histograms in Envoy's own stats.
//!
//! A tag's value is part of the name that a filter defines, `<name>.<tag>.<value>`; `stats_tags` in
//! Envoy's configuration takes it out again (`envoy/weir.yaml` shows how).

use std::cell::RefCell;

use proxy_wasm::hostcalls;
use proxy_wasm::types::MetricType;

thread_local! {
    /// What each counter has counted since the last [`flush`], by its place. A VM has one thread.
    static PENDING: RefCell<Vec<Pending>> = const { RefCell::new(Vec::new()) };
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    metric: u32,
    count: i64,
}

/// A counter. It counts in the VM, and [`flush`] tells the host: to tell it each time would cost a request
/// a microsecond.
#[derive(Clone, Copy, Debug)]
pub struct Counter {
    place: Option<usize>,
}

impl Counter {
    /// Defines the counter `name`. If the host refuses it, counting does nothing: a metric is no
    /// reason to refuse a request.
    pub fn define(name: &str) -> Self {
        let metric = hostcalls::define_metric(MetricType::Counter, name)
            .inspect_err(|status| log::warn!("metric {name} is not counted: {status:?}"));
        Self {
            place: metric.ok().map(place_of),
        }
    }

    /// Adds one.
    pub fn increment(self) {
        self.add(1);
    }

    /// Adds `count`.
    pub fn add(self, count: usize) {
        let Some(place) = self.place else { return };
        PENDING.with_borrow_mut(|pending| {
            if let Some(pending) = pending.get_mut(place) {
                let count = i64::try_from(count).unwrap_or(i64::MAX);
                pending.count = pending.count.saturating_add(count);
            }
        });
    }
}

/// The host gives one number to all who define one name; so does this.
fn place_of(metric: u32) -> usize {
    PENDING.with_borrow_mut(|pending| {
        let known = pending.iter().position(|known| known.metric == metric);
        known.unwrap_or_else(|| {
            pending.push(Pending { metric, count: 0 });
            pending.len() - 1
        })
    })
}

/// Tells the host what was counted since the last time. What a VM has counted and not told is lost if it
/// traps.
pub fn flush() {
    PENDING.with_borrow_mut(|pending| {
        // Adding 0 is an error to Envoy.
        for pending in pending.iter_mut().filter(|pending| pending.count != 0) {
            let count = std::mem::take(&mut pending.count);
            // The metric was defined, so this cannot fail; if it does, the request matters more.
            let _ = hostcalls::increment_metric(pending.metric, count);
        }
    });
}

/// A histogram.
#[derive(Clone, Copy, Debug)]
pub struct Histogram {
    id: Option<u32>,
}

impl Histogram {
    /// Defines the histogram `name`, as [`Counter::define`].
    pub fn define(name: &str) -> Self {
        let id = hostcalls::define_metric(MetricType::Histogram, name)
            .inspect_err(|status| log::warn!("metric {name} is not recorded: {status:?}"))
            .ok();
        Self { id }
    }

    /// Records a value.
    pub fn record(self, value: u64) {
        if let Some(id) = self.id {
            // As in [`flush`].
            let _ = hostcalls::record_metric(id, value);
        }
    }
}
