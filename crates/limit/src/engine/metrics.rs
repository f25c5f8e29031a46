//! The counters of one rule. `docs/metrics.md` lists all of the engine's.

use alloc::format;

use weir_engine::Metrics;
use weir_engine::metrics::Counter;

/// The counters of one rule.
#[derive(Clone, Debug)]
pub struct RuleMetrics {
    /// Requests that passed.
    pub allowed: Counter,
    /// Refused requests.
    pub limited: Counter,
    /// Requests that a dry-run rule (`shadow`) would have refused.
    pub shadow_limited: Counter,
    /// Requests with a key in the `deny` list.
    pub denied: Counter,
    /// Requests that Redis did not decide in time.
    pub store_error: Counter,
    /// Requests decided without Redis: those in `store_error`, and all while the breaker is open.
    pub fallback: Counter,
    /// Keys evicted while their state was still in use.
    pub evictions: Counter,
}

impl RuleMetrics {
    pub fn new(metrics: &mut Metrics, rule: &str) -> Self {
        let mut counter =
            |subject: &str| metrics.counter(format!("weir_ratelimit_{subject}_total.rule.{rule}"));
        Self {
            allowed: counter("allowed"),
            limited: counter("limited"),
            shadow_limited: counter("shadow_limited"),
            denied: counter("denied"),
            store_error: counter("store_error"),
            fallback: counter("fallback"),
            evictions: counter("evictions"),
        }
    }
}
