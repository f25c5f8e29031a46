//! A circuit breaker that counts its state changes.

use alloc::format;

use weir_base::breaker::{Breaker, Outcome, Pass, Permit, Settings, State};

use crate::metrics::{Counters, Metrics};

/// A circuit breaker that counts its state changes.
#[derive(Debug)]
pub struct CountedBreaker {
    breaker: Breaker,
    observed: State,
    entered: Counters<State>,
}

impl CountedBreaker {
    /// A closed breaker. Its counters are `<name>_breaker_total.state.<state>`.
    pub fn new(settings: Settings, metrics: &mut Metrics, name: &str) -> Self {
        let breaker = Breaker::new(settings);
        let entered = Counters::new(metrics, State::ALL, |state| {
            format!("{name}_breaker_total.state.{}", state.label())
        });
        Self {
            observed: breaker.state(),
            breaker,
            entered,
        }
    }

    /// A pass for one request.
    ///
    /// # Errors
    /// While the breaker is open: milliseconds until a retry.
    pub fn permit(&mut self, now_ms: u64) -> Result<Pass, u64> {
        let permit = self.breaker.permit(now_ms);
        self.note();
        match permit {
            Permit::Pass(pass) => Ok(pass),
            Permit::Refuse { retry_after_ms } => Err(retry_after_ms),
        }
    }

    /// Milliseconds until a retry, if no request may pass now. It changes no state.
    pub fn refusal(&mut self, now_ms: u64) -> Option<u64> {
        self.breaker.refusal(now_ms)
    }

    /// How many outcomes this one represents: 0 if the breaker does not need it.
    pub fn wants(&mut self, pass: Pass) -> u32 {
        self.breaker.wants(pass)
    }

    /// Records the outcome of a request, which represents `count` outcomes.
    pub fn record(&mut self, now_ms: u64, pass: Pass, is_success: bool, count: u32) {
        let outcome = match is_success {
            true => Outcome::Success,
            false => Outcome::Failure,
        };
        self.breaker.record_sample(now_ms, pass, outcome, count);
        self.note();
    }

    /// The current state.
    pub fn state(&self) -> State {
        self.breaker.state()
    }

    fn note(&mut self) {
        let state = self.breaker.state();
        if core::mem::replace(&mut self.observed, state) != state {
            self.entered.increment(state);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn each_change_of_state_is_counted() {
        let mut metrics = Metrics::new();
        let settings = Settings::default();
        let mut breaker = CountedBreaker::new(settings, &mut metrics, "weir_redis");
        assert_eq!(breaker.refusal(1_000), None);
        let mut fails = 0;
        while let Ok(pass) = breaker.permit(1_000) {
            assert!(fails < 1_000_000, "it never opens");
            breaker.record(1_000, pass, false, 1);
            fails += 1;
        }
        assert_eq!(breaker.state(), State::Open);
        let wait_ms = breaker.permit(1_000).unwrap_err();
        assert!(wait_ms > 1, "{wait_ms}");
        assert_eq!(breaker.refusal(1_000), Some(wait_ms));
        let names: vec::Vec<alloc::string::String> = metrics.counters().map(Into::into).collect();
        let mut counted = vec![];
        metrics.collect(|index, count| counted.push((names[index].clone(), count)));
        assert_eq!(counted, [("weir_redis_breaker_total.state.open".into(), 1)]);
    }

    #[test]
    fn outcomes_of_permitted_requests_are_sampled() {
        let mut breaker = CountedBreaker::new(Settings::default(), &mut Metrics::new(), "b");
        let pass = breaker.permit(1_000).unwrap();
        assert_eq!(breaker.wants(pass), 1);
        // For a healthy dependency, a sample of outcomes is enough.
        let expected: vec::Vec<u32> = (0..1_000)
            .map(|_| {
                let pass = breaker.permit(1_000).unwrap();
                let count = breaker.wants(pass);
                if count > 0 {
                    breaker.record(1_000, pass, true, count);
                }
                count
            })
            .collect();
        assert!(expected.contains(&0) && expected.iter().any(|count| *count > 1));
    }
}
