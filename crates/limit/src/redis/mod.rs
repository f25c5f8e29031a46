//! Typed calls of the scripts of rate limits.
//!
//! The Lua is in `lua/`, one file a script, with its KEYS, ARGV and replies documented at its top.

/// A script's source, after the counting of rate limits that it needs.
macro_rules! with_limit_states {
    ($name:literal) => {
        concat!(
            include_str!("../../lua/limit_state.lua"),
            include_str!(concat!("../../lua/", $name, ".lua"))
        )
    };
}

pub mod keys;
pub mod limit;
pub mod limit_back;

use weir_scripts::Script;

/// Every script of this domain.
pub const SCRIPTS: &[&Script] = &[&limit::SCRIPT, &limit_back::SCRIPT];
