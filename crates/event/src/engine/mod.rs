//! Behaviour events at the gateway as an engine.
//!
//! *Collect*: the engine checks requests with events without reading the body (key, method, type, length, consent,
//! sample, limits). It adds metadata headers and passes them to the origin with unchanged bodies. *Observe*: requests
//! on routes, such as a product page, become `view` events, which the engine sends to the origin in batches (ADR 28).
//!
//! | module | |
//! |---|---|
//! | [`config`] | JSON → checked configuration |
//! | `events` | the engine: its events and effects |
//! | `request` | the request's headers |
//! | `collect` | the decision on a request with events |
//! | `cors` | which pages of other sites may send events |
//! | `admission` | rate limits, and gateway metadata in place of client headers |
//! | `observe` | which requests are views |
//! | `outbox` | delivery of views to the origin |
//! | `answer` | the gateway's own responses |
//! | `metrics` | counters |

use weir_base::FieldError;
use weir_engine::config::parse;
use weir_engine::setup::{ConfiguredEngine, Host, shared_seed};

mod admission;
mod answer;
mod collect;
pub mod config;
mod cors;
mod events;
mod metrics;
mod observe;
mod outbox;
mod request;

pub use events::Events;

/// The engine's name, in logs.
pub const NAME: &str = "events";

/// Creates the engine from its JSON configuration.
///
/// # Errors
/// If the configuration is invalid.
pub fn configure<H: Host>(
    json: &[u8],
    host: &H,
) -> Result<ConfiguredEngine<Events<H::Data>>, FieldError> {
    let config = parse::<config::Config>(json)?.checked(&|name| host.variable(name))?;
    let redis = config.limits.redis.as_ref();
    Ok(ConfiguredEngine {
        redis_clusters: redis
            .map(|redis| redis.cluster.clone())
            .into_iter()
            .collect(),
        rules: alloc::vec![],
        engine: Events::new(
            config,
            host.data(),
            &host.unique_name(),
            shared_seed(host, NAME),
        ),
    })
}
