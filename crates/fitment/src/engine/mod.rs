//! Vehicle fitment as an engine: which SKUs fit which vehicles, answered at the gateway from Redis.
//!
//! A query has three steps: vehicles to offsets, from memory; SKUs to their locations, from memory or from Redis; and
//! one script call per product. Each step covers only the remaining SKUs. Queries with SKUs that are not in Redis pass
//! to the origin, which fills Redis. Beyond a rate limit, these SKUs are answered as unknown. During a Redis outage,
//! every response is a 503.
//!
//! | module | |
//! |---|---|
//! | [`config`] | JSON → checked configuration |
//! | `fitment` | the engine: its events and responses |
//! | `query` | the state of one query |
//! | `placement_cache` | a cache of the locations of SKUs |
//! | `vehicles` | the vehicle map, read from Redis on ticks |
//! | `stores` | calls to several Redis servers, batched, each behind a circuit breaker |
//! | `answer` | the engine's own responses |
//! | `metrics` | counters |

use weir_base::FieldError;
use weir_engine::config::parse;
use weir_engine::setup::ConfiguredEngine;

mod answer;
pub mod config;
mod fitment;
mod metrics;
mod placement_cache;
mod query;
mod stores;
mod vehicles;

pub use fitment::Fitment;

/// The engine's name, in logs.
pub const NAME: &str = "fitment";

/// Creates the engine from its JSON configuration.
///
/// # Errors
/// If the configuration is invalid.
pub fn configure(json: &[u8]) -> Result<ConfiguredEngine<Fitment>, FieldError> {
    let config = parse::<config::Config>(json)?.checked()?;
    Ok(ConfiguredEngine {
        redis_clusters: config.bridges(),
        rules: alloc::vec![],
        engine: Fitment::new(config),
    })
}
