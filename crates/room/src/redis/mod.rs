//! Typed calls of the scripts of waiting rooms.
//!
//! The Lua is in `lua/`, one file a script, with its KEYS, ARGV and replies documented at its top.

/// A script's source, after the state of a waiting room that it needs.
macro_rules! with_room {
    ($name:literal) => {
        concat!(
            include_str!("../../lua/room_state.lua"),
            include_str!(concat!("../../lua/", $name, ".lua"))
        )
    };
}

pub mod keys;
pub mod room;
pub mod room_ask;
pub mod room_look;
#[cfg(feature = "model")]
pub mod room_model;
pub mod room_set;
pub mod room_tick;

use weir_scripts::Script;

/// Every script of this domain.
pub const SCRIPTS: &[&Script] = &[
    &room_ask::SCRIPT,
    &room_look::SCRIPT,
    &room_set::SCRIPT,
    &room_tick::SCRIPT,
];
