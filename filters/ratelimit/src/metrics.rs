//! The filter's counters, each named here once.

use weir_base::breaker::State;
use weir_filter_kit::metrics::{Counter, Histogram};
use weir_filter_kit::pump::Counts;

/// What one rule counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RuleMetrics {
    /// Requests that it let pass.
    pub(crate) allowed: Counter,
    /// Requests that it refused.
    pub(crate) limited: Counter,
    /// Requests that it would have refused.
    pub(crate) shadow_limited: Counter,
    /// Requests whose key it always refuses.
    pub(crate) denied: Counter,
    /// Requests that Redis did not decide in time.
    pub(crate) store_error: Counter,
    /// Requests that were decided without Redis because of that, or because it is left in peace.
    pub(crate) fallback: Counter,
    /// Keys that were forgotten before their time.
    pub(crate) evictions: Counter,
}

impl RuleMetrics {
    pub(crate) fn define(rule: &str) -> Self {
        let counter =
            |what: &str| Counter::define(&format!("weir_ratelimit_{what}_total.rule.{rule}"));
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

/// What one VM counts, whatever the rule.
#[derive(Debug)]
pub(crate) struct Metrics {
    batches: Counter,
    commands: Counter,
    batch_requests: Counter,
    /// From when a request began to wait until Redis had answered, in milliseconds.
    pub(crate) store_ms: Histogram,
    /// Rules were read from Redis and count.
    pub(crate) rules_loaded: Counter,
    /// Rules were read from Redis, and refused: those from before count.
    pub(crate) rules_refused: Counter,
    /// Rules could not be read.
    pub(crate) polls_failed: Counter,
    breaker: [(State, Counter); State::ALL.len()],
}

impl Metrics {
    pub(crate) fn define() -> Self {
        let counter = |what: &str| Counter::define(&format!("weir_ratelimit_{what}_total"));
        Self {
            batches: counter("redis_batches"),
            commands: counter("redis_commands"),
            batch_requests: counter("redis_requests"),
            store_ms: Histogram::define("weir_ratelimit_store_ms"),
            rules_loaded: counter("rules_loaded"),
            rules_refused: counter("rules_refused"),
            polls_failed: counter("polls_failed"),
            breaker: State::ALL.map(|state| {
                let name = format!("redis_breaker_total.state.{}", state.word());
                (state, Counter::define(&format!("weir_ratelimit_{name}")))
            }),
        }
    }

    /// What the pump has sent.
    pub(crate) fn sent(&self, counts: Counts) {
        self.batches.add(counts.batches);
        self.commands.add(counts.commands);
        self.batch_requests.add(counts.requests);
    }

    /// The breaker has entered a state.
    pub(crate) fn breaker_entered(&self, state: State) {
        let mut counters = self.breaker.iter();
        if let Some((_, counter)) = counters.find(|(of, _)| *of == state) {
            counter.increment();
        }
    }
}
