//! Typed calls of the scripts of rate limits.
//!
//! The Lua scripts are in `lua/`, one file per script. A comment at the top of each describes its KEYS, ARGV and
//! replies.

/// The source of a script, preceded by the shared functions for limit states.
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
