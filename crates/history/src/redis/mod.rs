//! Typed calls of the scripts of browse history.
//!
//! The Lua files are in `lua/`, one per script. Each documents its KEYS, ARGV and replies at the top.

pub mod history;
pub mod history_fill;
pub mod history_mark;
pub mod history_read;
pub mod history_view;
pub mod keys;

use weir_base::resp::Arguments;
use weir_scripts::Script;
use weir_scripts::call::decimal;

use self::history::{Active, Change, push_pairs};
use self::keys::HistoryKeys;
use crate::ViewedProduct;

weir_scripts::scripts! {
    /// `history_clear.lua`: clears an owner's list.
    mod history_clear = include_str!("../../lua/history_clear.lua");
    /// The call that clears the list of views up to `at_ms`. The reply: the number of removed views.
    fn call(keys: &HistoryKeys, active: &Active<'_>, change: &Change<'_>, at_ms: u64) = keys.of_change(active.key),
        [decimal(change.life_ms), change.owner.as_str().into(), decimal(active.life_ms), decimal(at_ms)];
    -> usize;

    /// `history_count.lua`: stores a promised count.
    mod history_count = include_str!("../../lua/history_count.lua");
    /// The call that stores the count of `promise` for `life_ms`. The reply: whether it was stored. It is refused if
    /// the list has changed since the promise.
    fn call(keys: &HistoryKeys, promise: &str, count: u64, life_ms: u64) = [keys.count()],
        [promise.into(), decimal(count), decimal(life_ms)];
    -> bool;

    /// `history_delete.lua`: deletes products from an owner's list.
    mod history_delete = include_str!("../../lua/history_delete.lua");
    /// The call that deletes, of each product, views up to the given time. Deletions up to `forget_ms` are dropped. The
    /// reply: the number of removed views.
    fn call(keys: &HistoryKeys, active: &Active<'_>, change: &Change<'_>, forget_ms: u64, deleted: &[ViewedProduct]) =
        keys.of_change(active.key), {
            let (life_ms, max) = (decimal(change.life_ms), decimal(change.max as u64));
            let owner = change.owner.as_str().into();
            let mut args = Arguments::from([life_ms, max, owner, decimal(active.life_ms), decimal(forget_ms)]);
            push_pairs(&mut args, deleted);
            args
        };
    -> usize;
}

/// All scripts of browse history.
pub const SCRIPTS: &[&Script] = &[
    &history_clear::SCRIPT,
    &history_count::SCRIPT,
    &history_delete::SCRIPT,
    &history_fill::SCRIPT,
    &history_mark::SCRIPT,
    &history_read::SCRIPT,
    &history_view::SCRIPT,
];
