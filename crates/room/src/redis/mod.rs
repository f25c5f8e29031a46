//! Typed calls of the scripts of waiting rooms.
//!
//! The Lua files are in `lua/`, one per script. Each documents its KEYS, ARGV and replies at the top.

/// A script's source, after the shared source for a room's state.
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

/// All scripts of waiting rooms.
pub const SCRIPTS: &[&Script] = &[
    &room_ask::SCRIPT,
    &room_look::SCRIPT,
    &room_set::SCRIPT,
    &room_tick::SCRIPT,
];
