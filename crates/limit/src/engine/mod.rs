//! Rate limits as an engine.
//!
//! The engine applies the matching rules ([`crate::rules`]) to each request. Rules with the store `local` decide at
//! once, in memory shared by all workers. Requests for rules in Redis wait in the pump, which batches them. A request
//! is charged to all its rules or to none.
//!
//! | module | |
//! |---|---|
//! | [`config`] | parses and validates the configuration |
//! | `limiter` | the engine: events in, effects out |
//! | `decider` | decides which requests pass |
//! | `evaluation` | the evaluation of one request |
//! | `ruleset` | the current rules with their tables and counters |
//! | `request` | the request as input of rules |
//! | `redis` | a worker's view of Redis: breaker, leases, cached refusals |
//! | `lease` | slices of limits, leased from Redis and spent locally |
//! | `refusal_cache` | cached refusals of Redis |
//! | `job` | the pump's jobs, and their grouping into script calls |
//! | `reload` | reads rules from Redis |
//! | `report` | counts refusals for operators |
//! | `answer` | the answers to refused requests |
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

/// The engine's name in logs and metrics.
pub const NAME: &str = "ratelimit";

/// Builds the engine from its configuration. `sees_responses`: whether the host passes responses to it.
///
/// # Errors
/// When the configuration is invalid.
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

/// The counters of an example rule: rules from Redis arrive when a host can no longer define metrics.
pub fn metrics_of_any_rule() -> weir_engine::Metrics {
    let mut metrics = weir_engine::Metrics::new();
    metrics::RuleMetrics::new(&mut metrics, "any");
    metrics
}
