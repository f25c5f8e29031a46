//! Typed calls of the scripts of short links; the domains and changes that gateways read.
//!
//! The Lua is in `lua/`, one file a script, with its KEYS, ARGV and replies documented at its top.

pub mod document;
pub mod domains;
pub mod keys;
pub mod link_back;
pub mod link_changes;
pub mod link_clicks;
pub mod link_read;
pub mod link_segment;
pub mod link_uniques;

use weir_scripts::Script;

/// Every script of this domain.
pub const SCRIPTS: &[&Script] = &[
    &link_back::SCRIPT,
    &link_clicks::SCRIPT,
    &link_read::SCRIPT,
    &link_segment::SCRIPT,
    &link_uniques::SCRIPT,
];
