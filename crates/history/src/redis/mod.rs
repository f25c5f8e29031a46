//! Typed calls of the scripts of browse history.
//!
//! The Lua is in `lua/`, one file a script, with its KEYS, ARGV and replies documented at its top.

pub mod history;
pub mod history_clear;
pub mod history_count;
pub mod history_delete;
pub mod history_fill;
pub mod history_mark;
pub mod history_read;
pub mod history_view;
pub mod keys;

use weir_scripts::Script;

/// Every script of this domain.
pub const SCRIPTS: &[&Script] = &[
    &history_clear::SCRIPT,
    &history_count::SCRIPT,
    &history_delete::SCRIPT,
    &history_fill::SCRIPT,
    &history_mark::SCRIPT,
    &history_read::SCRIPT,
    &history_view::SCRIPT,
];
