//! Typed calls of the scripts for short links, and the domains and changes that gateways read.
//!
//! The Lua files are in `lua/`, one per script. Each documents its KEYS, ARGV and replies at the top.

pub mod document;
pub mod domains;
pub mod keys;
pub mod link_changes;
pub mod link_clicks;
pub mod link_read;
pub mod link_segment;
pub mod link_uniques;

use weir_scripts::Script;
use weir_scripts::call::decimal;

use self::keys::LinkKeys;
use self::link_read::MARK_MS;
use crate::click::ClickId;

weir_scripts::scripts! {
    /// `link_back.lua`: returns a click that was not redirected.
    mod link_back = include_str!("../../lua/link_back.lua");
    /// The call that returns a click in any state: used, still in flight, or never sent. The reply: whether
    /// the click had been used.
    fn call(keys: &LinkKeys, click: ClickId) = [keys.clicks(), keys.mark(click)], [decimal(MARK_MS)];
    -> bool;
}

/// All scripts of short links.
pub const SCRIPTS: &[&Script] = &[
    &link_back::SCRIPT,
    &link_clicks::SCRIPT,
    &link_read::SCRIPT,
    &link_segment::SCRIPT,
    &link_uniques::SCRIPT,
];
