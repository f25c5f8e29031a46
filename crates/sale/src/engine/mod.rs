//! Flash-sale admission as an engine.
//!
//! A request that buys is matched by its path, decided by [`crate::admission`], and, if there is anything to be had,
//! waits for its claim in the pump. A granted one goes on to the origin with a signed claim ticket; every other is answered
//! here.
//!
//! Each concern has a struct with its own state: it takes what an event brings and returns a plain value. [`Gate`] holds them
//! all, and alone carries out what they decide.
//!
//! | module | |
//! |---|---|
//! | [`config`] | JSON → checked configuration |
//! | [`route`] | which requests buy, and from which sale |
//! | [`gate`] | the state of one worker, and what it carries out for requests |
//! | `replies` | what the gate carries out when Redis or a provider has replied |
//! | `sales` | what a worker knows of sales: catalogue, polls, empty shards |
//! | `pending` | requests that come before the first poll, held for a moment |
//! | `buy` | a request to buy, up to its claim |
//! | `claims` | claims signed, and what a shard's reply means |
//! | `checkout` | order tokens: minted, and checked |
//! | `challenge` | the proof of work that a checkout may want first |
//! | `captcha` | asking a captcha's provider |
//! | `decision` | plain results of the checkout and its challenges |
//! | `identify` | who a request comes from that buys nothing, for the origin |
//! | [`job`] | what waits in the pump, and how it is grouped into script calls |
//! | `rebalance` | requests that wait while units move to their shard |
//! | `limits` | how often one user and one address may ask |
//! | `overload` | when Redis or the origin is to be spared |
//! | `poll` | the catalogue and the epochs of empty shards, from Redis |
//! | `answers` | the gate's own answers |
//! | `metrics` | what it counts |
//! | `report` | decision counts for operators |

use alloc::vec;

use weir_base::FieldError;
use weir_engine::config::parse;
use weir_engine::setup::{Configured, Host};

mod answers;
mod buy;
mod captcha;
mod challenge;
mod checkout;
mod claims;
pub mod config;
mod decision;
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
pub mod route;
mod sales;

pub use config::Config;
pub use gate::{Gate, NAME};

/// Makes the engine from its configuration, as it is written.
///
/// # Errors
/// When the configuration is refused.
pub fn configure<H: Host>(json: &[u8], host: &H) -> Result<Configured<Gate<H::Data>>, FieldError> {
    let config = parse::<Config>(json)?.checked(&|name| host.variable(name))?;
    config.fits(host.tells_routes())?;
    Ok(Configured {
        redis_clusters: vec![config.redis.cluster.clone()],
        rules: vec![],
        engine: Gate::new(config, &host.data()),
    })
}
