//! Calls to Redis, behind a circuit breaker.

use weir_base::breaker::Pass;
use weir_engine::Metrics;
use weir_engine::breaker::CountedBreaker;
use weir_engine::pump::{Counts, Pump};
use weir_engine::refusals::Refusals;

use crate::engine::config::{CheckedConfig, DEADLINE_MS};
use crate::engine::job::LinkPlan;
use crate::engine::metrics::PREFIX;

/// The pump behind the circuit breaker.
#[derive(Debug)]
pub(crate) struct Redis {
    pub(crate) pump: Pump<LinkPlan>,
    breaker: CountedBreaker,
}

impl Redis {
    pub(crate) fn new(config: &CheckedConfig, metrics: &mut Metrics) -> Self {
        let plan = LinkPlan {
            key_prefix: config.redis.key_prefix.clone(),
            renew_permille: config.limits.renew_permille,
        };
        let settings = config.redis.pump_settings(DEADLINE_MS);
        let name = alloc::format!("{PREFIX}_redis");
        let counts = Counts::new(metrics, PREFIX);
        let refusals = Refusals::new(metrics, PREFIX, &config.redis.cluster);
        Self {
            pump: Pump::new(settings, plan, counts, refusals),
            breaker: CountedBreaker::new(config.breaker, metrics, &name),
        }
    }

    /// A permit for one read; `None` if the breaker is open or too many requests wait.
    pub(crate) fn permit(&mut self, now_ms: u64) -> Option<Pass> {
        if self.pump.is_full() {
            return None;
        }
        self.breaker.permit(now_ms).ok()
    }

    /// Records the outcome of a read.
    pub(crate) fn record(&mut self, pass: Pass, is_success: bool, now_ms: u64) {
        self.breaker.record(now_ms, pass, is_success, 1);
    }
}
