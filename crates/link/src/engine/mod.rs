//! Short links as an engine: a link is looked up in memory, then in Redis, then at the origin.
//!
//! Requests for Redis go in batches. The origin has all links and is asked once for each, however many clients wait
//! for it. What was found is remembered, within bounds, and so is what does not exist.
//!
//! | module | |
//! |---|---|
//! | [`config`] | JSON → checked configuration |
//! | `links` | the engine: its events, and what a request is answered |
//! | `completed` | what follows from the replies of Redis and of the origin |
//! | [`request`] | the request, read at once |
//! | `visitor` | what is kept of a request that waits |
//! | `domains` | the domains that this gateway answers for |
//! | `held` | requests that come before the first poll, held for a moment |
//! | `redis`, `job` | calls to Redis, batched, behind a circuit breaker |
//! | `lookups` | look-ups at the origin: one for each link, and not too many |
//! | `origin` | one look-up: its request, its response |
//! | `poll` | edits and domains, read from Redis on ticks |
//! | `clicks` | clicks, counted and sent in batches |
//! | `tagger` | names of clicks that travel on to orders |
//! | `unused` | clicks that led nowhere, given back |
//! | `answer` | the engine's own answers |
//! | `metrics` | what it counts |

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

/// Makes the engine from its configuration, as it is written.
///
/// # Errors
/// When the configuration is refused.
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
