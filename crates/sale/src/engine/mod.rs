//! Flash-sale admission as an engine.
//!
//! A request that buys is matched by its path, decided by [`crate::admission`], and, if there is anything to be had,
//! waits for its claim in the pump. A granted one goes on to the origin with a signed claim ticket; every other is answered
//! here.
//!
//! Each concern is a struct with its own state: it returns a plain value, which [`Gate`] carries out.
//!
//! | module | |
//! |---|---|
//! | [`config`] | JSON → checked configuration |
//! | [`route`] | which requests buy, and from which sale |
//! | [`gate`] | the concerns of one worker, and what it carries out for requests |
//! | `replies` | what the gate carries out when Redis or a captcha's provider has replied |
//! | `sales` | what a worker knows of sales: catalogue, polls, empty shards |
//! | `pending` | requests that come before the first poll, held for a moment |
//! | `buy` | a request to buy, up to its claim |
//! | `early` | what needs nothing but the catalogue, for hosts that answer before their HTTP stack |
//! | `checkout` | order tokens: minted, and checked; a proof of work may come first |
//! | `captcha` | asking a captcha's provider |
//! | `identify` | who a request comes from that buys nothing, for the origin |
//! | [`job`] | what waits in the pump, and how it is grouped into script calls |
//! | `rebalance` | requests that wait while units move to their shard |
//! | `limits` | how often one user and one address may ask |
//! | `overload` | when Redis or the origin is to be spared |
//! | `poll` | the catalogue and the epochs of empty shards, from Redis |
//! | `responder` | decisions, counted and answered |
//! | `answers` | the gate's own answers |
//! | `report` | decision counts for operators |
//! | `metrics` | what it counts |

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

/// The engine's name, in logs.
pub const NAME: &str = "seckill-gate";

/// Makes the engine from its configuration, as it is written.
///
/// # Errors
/// When the configuration is refused.
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
