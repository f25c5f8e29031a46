//! Typed calls of the scripts of short links; the domains and changes that gateways read.
//!
//! The Lua is in `lua/`, one file a script, with its KEYS, ARGV and replies documented at its top.

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
    /// `link_back.lua`: a click that led nowhere is given back.
    mod link_back = include_str!("../../lua/link_back.lua");
    /// The call that gives a click back, whether it was used, will be, or never arrived. The reply: whether the click had been used.
    fn call(keys: &LinkKeys, click: ClickId) = [keys.clicks(), keys.mark(click)], [decimal(MARK_MS)];
    -> bool;
}

/// Every script of this domain.
pub const SCRIPTS: &[&Script] = &[
    &link_back::SCRIPT,
    &link_clicks::SCRIPT,
    &link_read::SCRIPT,
    &link_segment::SCRIPT,
    &link_uniques::SCRIPT,
];
