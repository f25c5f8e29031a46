//! The engine of short links. It looks a link up in its cache, then in Redis, then at the origin.
//!
//! Requests for Redis go in batches. The origin has all links and is called once per link, however many clients wait
//! for it. Results are cached within bounds, including the absence of a link.
//!
//! | module | |
//! |---|---|
//! | [`config`] | JSON → checked configuration |
//! | `links` | the engine: its events and responses |
//! | `completed` | ticks, and replies of Redis and of the origin |
//! | [`request`] | the parts of a request that links need |
//! | `visitor` | the stored parts of a waiting request |
//! | `domains` | the domains that this gateway serves |
//! | `held` | requests before the first poll, held briefly |
//! | `redis`, `job` | calls to Redis, batched, behind a circuit breaker |
//! | `lookups` | origin lookups: one per link, within a rate limit |
//! | `origin` | the response to a lookup |
//! | `poll` | reads of edits and domains from Redis on ticks |
//! | `clicks` | clicks, counted and sent in batches |
//! | `tagger` | signed click IDs |
//! | `unused` | clicks without a redirect, which are returned |
//! | `answer` | responses of the engine |
//! | `metrics` | counters |

use alloc::vec;

use weir_base::FieldError;
use weir_engine::config::parse;
use weir_engine::setup::{ConfiguredEngine, Host, shared_seed};

mod answer;
mod clicks;
mod completed;
pub mod config;
mod crawlers;
mod domains;
mod early;
mod held;
mod job;
mod links;
mod lookups;
mod metrics;
mod origin;
mod poll;
mod redis;
pub mod request;
mod tagger;
mod unused;
mod visitor;

pub use links::Links;

/// The engine's name, in logs.
pub const NAME: &str = "shortlink-redirect";

/// Creates the engine from its JSON configuration.
///
/// # Errors
/// If the configuration is invalid.
pub fn configure<H: Host>(json: &[u8], host: &H) -> Result<ConfiguredEngine<Links>, FieldError> {
    let config = parse::<config::Config>(json)?.checked()?;
    let keys = config.click_keys(&|name| host.variable(name))?;
    Ok(ConfiguredEngine {
        redis_clusters: vec![config.redis.cluster.clone()],
        rules: vec![],
        engine: Links::new(config, &host.unique_name(), shared_seed(host, NAME))
            .naming_clicks(keys),
    })
}
