//! Waiting rooms as an engine. When demand exceeds capacity, new visitors get a signed queue token and a page with
//! their position.
//!
//! A request with a session passes. A request whose position is not called yet is answered from memory; one script call
//! per second refreshes the room's state. Only new and called visitors need Redis, in batches. During a Redis outage,
//! each gateway admits visitors at its own rate.
//!
//! | module | |
//! |---|---|
//! | [`config`] | JSON → checked configuration |
//! | `waiting_room` | the engine: its events and responses |
//! | `room` | the state of one room, and who may enter |
//! | `visit` | the parts of a request that rooms need |
//! | `job` | jobs for Redis, and how they are grouped into script calls |
//! | `local` | admission during a Redis outage |
//! | `answer` | pages, JSON and cookies |
//! | `page` | the page template |
//! | `text` | texts for visitors |
//! | `metrics` | counters |

use alloc::vec::Vec;

use weir_base::FieldError;
use weir_engine::config::parse;
use weir_engine::setup::{ConfiguredEngine, Host};

mod answer;
pub mod config;
mod job;
mod local;
mod metrics;
mod page;
mod room;
mod text;
mod visit;
mod waiting_room;

pub use waiting_room::WaitingRoom;

/// The engine's name, in logs.
pub const NAME: &str = "waiting-room";

/// Creates the engine from its JSON configuration.
///
/// # Errors
/// If the configuration is invalid.
pub fn configure<H: Host>(
    json: &[u8],
    host: &H,
) -> Result<ConfiguredEngine<WaitingRoom<H::Data>>, FieldError> {
    let config = parse::<config::Config>(json)?.checked(&|name| host.variable(name))?;
    Ok(ConfiguredEngine {
        redis_clusters: Vec::from([config.redis.cluster.clone()]),
        rules: config
            .rooms
            .iter()
            .map(|room| room.name.as_str().into())
            .collect(),
        engine: WaitingRoom::new(config, host.data(), host.unique_name()),
    })
}
