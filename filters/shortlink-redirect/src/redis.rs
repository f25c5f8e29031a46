//! The way to Redis, and what is known of it.

use weir_base::breaker::{self, Breaker, Pass, Permit};
use weir_filter_kit::link::HostLink;
use weir_filter_kit::pump::Pump;

use crate::config::{Checked, DEADLINE_MS};
use crate::job::LinkPlan;
use crate::metrics::Metrics;

/// The way to Redis, and what is known of it.
pub(crate) struct Redis {
    pub(crate) pump: Pump<LinkPlan, HostLink>,
    breaker: Breaker,
    seen: breaker::State,
}

impl Redis {
    pub(crate) fn new(config: &Checked, link: HostLink) -> Self {
        let plan = LinkPlan {
            key_prefix: config.redis.key_prefix.clone(),
            renew_permille: config.limits.renew_permille,
        };
        let breaker = Breaker::new(config.breaker);
        Self {
            pump: Pump::new(config.redis.pump_settings(DEADLINE_MS), plan, link),
            seen: breaker.state(),
            breaker,
        }
    }

    /// Leave to ask, if Redis is not to be left in peace and there is room to wait.
    pub(crate) fn permit(&mut self, metrics: &Metrics, now_ms: u64) -> Option<Pass> {
        if self.pump.waiting() >= self.pump.settings().waiting_max {
            return None;
        }
        let permit = self.breaker.permit(now_ms);
        self.note(metrics);
        match permit {
            Permit::Pass(pass) => Some(pass),
            Permit::Refuse { .. } => None,
        }
    }

    /// What came of it.
    pub(crate) fn record(&mut self, pass: Pass, is_success: bool, metrics: &Metrics, now_ms: u64) {
        let outcome = match is_success {
            true => breaker::Outcome::Success,
            false => breaker::Outcome::Failure,
        };
        self.breaker.record(now_ms, pass, outcome);
        self.note(metrics);
    }

    fn note(&mut self, metrics: &Metrics) {
        let state = self.breaker.state();
        if std::mem::replace(&mut self.seen, state) != state {
            metrics.breaker_entered(state);
        }
    }
}
