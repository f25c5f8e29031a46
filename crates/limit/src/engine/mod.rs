//! Rate limits as an engine.
//!
//! The engine holds each request against the rules that match it ([`crate::rules`]). Rules with the store `local` are
//! decided at once, in memory that all workers share. Rules in Redis wait in the pump, many requests a call. A request
//! is charged to all its rules or to none.
//!
//! | module | |
//! |---|---|
//! | [`config`] | JSON → checked configuration |
//! | `limiter` | events in, effects out; what each stream has left to do |
//! | `decider` | which requests pass |
//! | `evaluation` | one request on its way through the rules |
//! | `ruleset` | the rules in force, with their tables and counters |
//! | `request` | the request as rules see it |
//! | `redis` | what a worker knows of Redis: its breaker, `lease`, `known` |
//! | `lease` | slices of limits, taken from Redis and spent here |
//! | `known` | what Redis has refused, for as long as it would refuse it again |
//! | `job` | what waits in the pump, and how it is grouped into script calls |
//! | `reload` | rules that are read from Redis |
//! | `report` | what operators are told of refusals |
//! | `answer` | what a refused client gets |
//! | `metrics` | the counters of one rule |

use weir_base::FieldError;
use weir_engine::config::parse;
use weir_engine::setup::{ConfiguredEngine, Host, shared_seed};

mod answer;
pub mod config;
mod decider;
mod evaluation;
mod job;
mod lease;
mod limiter;
mod metrics;
mod redis;
mod refusal_cache;
mod reload;
mod report;
mod request;
mod ruleset;

pub use limiter::Limiter;

/// The engine's name, in logs and metrics.
pub const NAME: &str = "ratelimit";

/// Makes the engine from its configuration, as it is written. `sees_responses`: whether the host tells it of responses.
///
/// # Errors
/// When the configuration is refused.
pub fn configure<H: Host>(
    json: &[u8],
    host: &H,
    sees_responses: bool,
) -> Result<ConfiguredEngine<Limiter<H::Data>>, FieldError> {
    let config =
        parse::<config::Config>(json)?.checked(sees_responses, &|name| host.variable(name))?;
    let redis = config.redis.as_ref();
    Ok(ConfiguredEngine {
        redis_clusters: redis
            .map(|redis| redis.cluster.clone())
            .into_iter()
            .collect(),
        rules: config.rules.iter().map(|rule| rule.name.clone()).collect(),
        engine: Limiter::new(config, host.data(), shared_seed(host, NAME)),
    })
}

/// What each rule counts, as an example: rules that are read from Redis come when a host may no longer define metrics.
pub fn metrics_of_any_rule() -> weir_engine::Metrics {
    let mut metrics = weir_engine::Metrics::new();
    metrics::RuleMetrics::new(&mut metrics, "any");
    metrics
}
