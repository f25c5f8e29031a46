//! Behaviour events at the gateway as an engine.
//!
//! *Collect*: requests with events are checked by all that needs no body (key, method, type, length, consent, sample, limits),
//! stamped, and go on to the origin with their bodies untouched. *Observe*: requests of routes, such as a product's page,
//! become `view` events, which are sent to the origin in batches (ADR 28).
//!
//! | module | |
//! |---|---|
//! | [`config`] | JSON → checked configuration |
//! | `events` | events in, effects out |
//! | `request` | the request's headers, read at once |
//! | `collect` | the outcome of a request with events |
//! | `cors` | which pages of other sites may send events |
//! | `admission` | the limits, and what goes on: stamps in place of what clients sent |
//! | `observe` | which requests are views |
//! | `outbox` | views on their way to the origin |
//! | `answer` | the gateway's own answers |
//! | `metrics` | what is counted |

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

/// Makes the engine from its configuration, as it is written.
///
/// # Errors
/// When the configuration is refused.
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
