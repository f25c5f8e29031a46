//! Decisions of waiting rooms, as pure functions.
//!
//! Facts are arguments, decisions are return values. There are no host calls, clocks, I/O or randomness: time is an
//! argument (`now_ms`, milliseconds since the Unix epoch).
//!
//! Redis assigns queue positions, and gateways sign them into queue tokens. How far the queue has been called is one
//! more number, which all gateways read once a second. A visitor's position is therefore a subtraction, without a call
//! to Redis.
//!
//! | module | |
//! |---|---|
//! | [`name`] | room names |
//! | [`visitor`] | visitor IDs |
//! | [`pass`] | the queue token: a signed queue position or session |
//! | [`setting`] | operators' settings: mode, admission rate, active sessions, opening |
//! | [`state`] | a room's state in Redis, and its recovery after data loss |
//! | [`draw`] | the random order of visitors who arrive before the opening |
//! | [`pace`] | how fast the queue moves, and the expected wait |
//! | `model` | a Rust model of the scripts (feature `model`) |
//! | [`engine`] | the engine of its filter: events in, effects out |
//! | [`redis`] | Redis keys, and typed calls of the scripts in `lua/` |

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod draw;
pub mod engine;
#[cfg(feature = "model")]
pub mod model;
pub mod name;
pub mod pace;
pub mod pass;
pub mod redis;
pub mod setting;
pub mod state;
pub mod visitor;

pub use name::RoomName;
pub use pass::{Pass, PassError};
pub use setting::{Mode, Setting};
pub use state::{Renewal, RoomState, Snapshot, Terms};
pub use visitor::Visitor;

/// Maximum number in a room's state: Lua represents integers exactly up to it.
pub const NUMBER_MAX: u64 = 1 << 53;
