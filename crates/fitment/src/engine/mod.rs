//! Vehicle fitment as an engine: which SKUs fit which vehicles, answered at the gateway from Redis.
//!
//! A question goes in three steps, each with what earlier ones have left over: vehicles to offsets, from memory; SKUs to the
//! places where Redis has them, from memory or from Redis' routes; and one script call for each product. What Redis does not
//! know goes on to the origin, which knows, and fills Redis; but only so often, and beyond that it is answered as unknown.
//! While Redis is down nothing is answered but 503.
//!
//! | module | |
//! |---|---|
//! | [`config`] | JSON → checked configuration |
//! | `fitment` | the engine: its events, and what requests are answered |
//! | `query` | one question on its way through the steps |
//! | `places` | where SKUs are, as far as it is remembered |
//! | `vehicles` | the map of vehicles, read from Redis on ticks |
//! | `stores` | calls to the Redis that there are, batched, each behind a circuit breaker |
//! | `answer` | the engine's own answers |
//! | `metrics` | what it counts |

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

/// Makes the engine from its configuration, as it is written.
///
/// # Errors
/// When the configuration is refused.
pub fn configure(json: &[u8]) -> Result<ConfiguredEngine<Fitment>, FieldError> {
    let config = parse::<config::Config>(json)?.checked()?;
    Ok(ConfiguredEngine {
        redis_clusters: config.bridges(),
        rules: alloc::vec![],
        engine: Fitment::new(config),
    })
}
