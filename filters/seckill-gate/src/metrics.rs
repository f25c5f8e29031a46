//! The filter's counters, each named here once.

use std::collections::BTreeMap;

use weir_base::breaker::State;
use weir_filter_kit::metrics::Counter;
use weir_filter_kit::pump::Counts;
use weir_sale::rebalance::End;
use weir_sale::token::TokenError;
use weir_sale::verdict::Verdict;

fn counter_of_rebalances(outcome: &str) -> Counter {
    let name = format!("weir_seckill_gate_rebalances_total.outcome.{outcome}");
    Counter::define(&name)
}

/// How often a breaker has entered each state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BreakerCounters([(State, Counter); State::ALL.len()]);

impl BreakerCounters {
    fn define(of: &str) -> Self {
        Self(State::ALL.map(|state| {
            let word = state.word();
            let name = format!("weir_seckill_gate_{of}_breaker_total.state.{word}");
            (state, Counter::define(&name))
        }))
    }

    pub(crate) fn entered(&self, state: State) {
        let mut counters = self.0.iter();
        if let Some((_, counter)) = counters.find(|(of, _)| *of == state) {
            counter.increment();
        }
    }
}

/// All counters of one VM.
#[derive(Debug)]
pub(crate) struct Metrics {
    requests: BTreeMap<Verdict, Counter>,
    shadow: BTreeMap<Verdict, Counter>,
    statuses: Counter,
    redis_breaker: BreakerCounters,
    origin_breaker: BreakerCounters,
    tokens_refused: BTreeMap<TokenError, Counter>,
    batches: Counter,
    commands: Counter,
    batch_requests: Counter,
    failed_definite: Counter,
    failed_unknown: Counter,
    handed_back: Counter,
    rebalances: [(End, Counter); 4],
    polls_failed: Counter,
}

impl Metrics {
    pub(crate) fn define() -> Self {
        let counter = |what: &str| Counter::define(&format!("weir_seckill_gate_{what}_total"));
        let by_verdict = |what: &str| {
            let of = |verdict: Verdict| {
                let word = verdict.word();
                let name = format!("weir_seckill_gate_{what}_total.verdict.{word}");
                (verdict, Counter::define(&name))
            };
            Verdict::ALL.into_iter().map(of).collect()
        };
        let of_reason = |reason: TokenError| {
            let word = reason.word();
            let name = format!("weir_seckill_gate_tokens_refused_total.reason.{word}");
            (reason, Counter::define(&name))
        };
        Self {
            requests: by_verdict("requests"),
            shadow: by_verdict("shadow"),
            statuses: counter("statuses"),
            redis_breaker: BreakerCounters::define("redis"),
            origin_breaker: BreakerCounters::define("origin"),
            tokens_refused: TokenError::ALL.into_iter().map(of_reason).collect(),
            batches: counter("redis_batches"),
            commands: counter("redis_commands"),
            batch_requests: counter("redis_requests"),
            failed_definite: Counter::define(
                "weir_seckill_gate_redis_failed_total.outcome.definite",
            ),
            failed_unknown: Counter::define("weir_seckill_gate_redis_failed_total.outcome.unknown"),
            handed_back: counter("claims_handed_back"),
            rebalances: [
                (End::Filled, "filled"),
                (End::SoldOut, "sold_out"),
                (End::Moving, "moving"),
                (End::Unknown, "unknown"),
            ]
            .map(|(end, word)| (end, counter_of_rebalances(word))),
            polls_failed: counter("polls_failed"),
        }
    }

    /// A request was answered, or went on.
    pub(crate) fn request(&self, verdict: Verdict) {
        if let Some(counter) = self.requests.get(&verdict) {
            counter.increment();
        }
    }

    /// A request went on to the origin whatever was decided.
    pub(crate) fn shadow(&self, verdict: Verdict) {
        if let Some(counter) = self.shadow.get(&verdict) {
            counter.increment();
        }
    }

    /// An order token did not count.
    pub(crate) fn token_refused(&self, reason: TokenError) {
        if let Some(counter) = self.tokens_refused.get(&reason) {
            counter.increment();
        }
    }

    pub(crate) fn redis_breaker(&self) -> BreakerCounters {
        self.redis_breaker
    }

    pub(crate) fn origin_breaker(&self) -> BreakerCounters {
        self.origin_breaker
    }

    /// Somebody was told how a sale stands.
    pub(crate) fn status(&self) {
        self.statuses.increment();
    }

    /// What the pump has sent.
    pub(crate) fn sent(&self, counts: Counts) {
        self.batches.add(counts.batches);
        self.commands.add(counts.commands);
        self.batch_requests.add(counts.requests);
    }

    /// Requests got no reply from Redis.
    pub(crate) fn failed(&self, is_definite: bool, requests: usize) {
        let counter = if is_definite {
            self.failed_definite
        } else {
            self.failed_unknown
        };
        counter.add(requests);
    }

    /// A claim's delivery goes back: its client has gone, or the origin is to be left in peace.
    pub(crate) fn handed_back(&self) {
        self.handed_back.increment();
    }

    /// A rebalance has ended.
    pub(crate) fn rebalanced(&self, end: End) {
        if let Some((_, counter)) = self.rebalances.iter().find(|(ended, _)| *ended == end) {
            counter.increment();
        }
    }

    /// The catalogue could not be read.
    pub(crate) fn poll_failed(&self) {
        self.polls_failed.increment();
    }
}
