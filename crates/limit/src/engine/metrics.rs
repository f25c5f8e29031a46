//! The counters of one rule. `docs/metrics.md` lists all of the engine's.

use alloc::format;

use weir_engine::Metrics;
use weir_engine::metrics::Counter;

/// What one rule counts.
#[derive(Clone, Debug)]
pub struct RuleMetrics {
    /// Requests that it let pass.
    pub allowed: Counter,
    /// Requests that it refused.
    pub limited: Counter,
    /// Requests that it would have refused: its mode is `shadow`.
    pub shadow_limited: Counter,
    /// Requests whose key is on its `deny` list.
    pub denied: Counter,
    /// Requests that Redis did not decide in time.
    pub store_error: Counter,
    /// Requests that were decided without Redis: those, and all while the breaker is open.
    pub fallback: Counter,
    /// Keys that were forgotten before their time.
    pub evictions: Counter,
}

impl RuleMetrics {
    pub fn new(metrics: &mut Metrics, rule: &str) -> Self {
        let mut counter =
            |what: &str| metrics.counter(format!("weir_ratelimit_{what}_total.rule.{rule}"));
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
