//! Flash-sale admission as an engine.
//!
//! The gate matches order requests by path and decides with [`crate::admission`]. If units may be available, the
//! request waits for its claim in the pump. Granted requests continue to the origin with a signed claim ticket; the
//! gate answers all others.
//!
//! Each concern is a struct with its own state: it returns a plain value, which [`Gate`] applies.
//!
//! | module | |
//! |---|---|
//! | [`config`] | parses and validates the configuration |
//! | [`route`] | matches order requests and their sales |
//! | [`gate`] | the state of one worker, and the handling of requests |
//! | `replies` | the handling of replies from Redis and CAPTCHA providers |
//! | `sales` | the worker's view of sales: catalogue, polls, empty shards |
//! | `pending` | requests that wait for the first poll |
//! | `buy` | decides on an order request, up to its claim |
//! | `early` | decisions from the catalogue alone, before a host's HTTP stack |
//! | `checkout` | issues and verifies order tokens, after a challenge if required |
//! | `captcha` | verifies CAPTCHA responses with the provider |
//! | `identify` | signs the user of requests that are not orders |
//! | [`job`] | the pump's jobs, and their grouping into script calls |
//! | `rebalance` | requests that wait for a transfer to their shard |
//! | `limits` | rate limits per user and per address |
//! | `overload` | overload protection for Redis and the origin |
//! | `poll` | reads the catalogue and the epochs of empty shards from Redis |
//! | `responder` | counts and answers decisions |
//! | `answers` | the gate's own answers |
//! | `report` | decision counts for operators |
//! | `metrics` | the gate's counters |

use alloc::vec;

use weir_base::FieldError;
use weir_engine::config::parse;
use weir_engine::setup::{ConfiguredEngine, Host};

mod answers;
mod buy;
mod captcha;
mod checkout;
pub mod config;
mod early;
pub mod gate;
mod identify;
pub mod job;
mod limits;
mod metrics;
mod overload;
mod pending;
mod poll;
mod rebalance;
mod replies;
mod report;
mod responder;
pub mod route;
mod sales;
mod sku;

pub use config::Config;
pub use gate::Gate;

/// The engine's name in logs.
pub const NAME: &str = "seckill-gate";

/// Builds the engine from its configuration.
///
/// # Errors
/// When the configuration is invalid.
pub fn configure<H: Host>(
    json: &[u8],
    host: &H,
) -> Result<ConfiguredEngine<Gate<H::Data>>, FieldError> {
    let config = parse::<Config>(json)?.checked(&|name| host.variable(name))?;
    config.fits(host.tells_routes())?;
    Ok(ConfiguredEngine {
        redis_clusters: vec![config.redis.cluster.clone()],
        rules: vec![],
        engine: Gate::new(config, &host.data()),
    })
}
