//! Waiting rooms as an engine: when more come than may enter, newcomers get a signed place in a queue and a page that tells
//! where they stand.
//!
//! A request with a session passes. A request with a place that was not called yet is answered from memory: what the
//! engine knows of a room comes with one script call a second. Only newcomers, and those who were called, ask Redis, in
//! batches. While Redis is away, each gateway lets people in at a pace of its own.
//!
//! | module | |
//! |---|---|
//! | [`config`] | JSON → checked configuration |
//! | `waiting_room` | the engine: its events, and what requests are answered |
//! | `room` | what the engine knows of one room, and who may enter |
//! | `visit` | one request, as far as the room looks at it |
//! | `job` | what waits in the pump, and how it is grouped into script calls |
//! | `local` | the pace while Redis is away |
//! | `answer` | pages, JSON and cookies |
//! | `page` | the template of pages |
//! | `text` | what people are told |
//! | `metrics` | what it counts |

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

/// Makes the engine from its configuration, as it is written.
///
/// # Errors
/// When the configuration is refused.
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
