//! The decisions of waiting rooms.
//!
//! Facts come in as arguments, decisions go out as values. There is no host call, clock, I/O or randomness here: time is
//! an argument (`now_ms`, milliseconds since the Unix epoch).
//!
//! A place in a queue is a number that Redis gives out, in a pass that the gateway signs. How far the queue has been
//! called is one more number, which all gateways read once a second. So a position is a subtraction, and nobody who asks
//! for it costs Redis anything.
//!
//! | module | |
//! |---|---|
//! | [`name`] | which names rooms may have |
//! | [`visitor`] | who one visitor is |
//! | [`pass`] | the signed pass: a place in the queue, or a session inside |
//! | [`setting`] | what operators set: mode, pace, visitors at once, opening |
//! | [`state`] | what Redis tells of a room, and what others tell Redis after it lost it |
//! | [`draw`] | the order of those who were there before the opening |
//! | [`pace`] | how fast the queue moves, and what wait to expect |
//! | `model` | what the scripts do, in Rust (feature `model`) |
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

/// No number of a room is greater: Lua's numbers are exact up to it.
pub const NUMBER_MAX: u64 = 1 << 53;
