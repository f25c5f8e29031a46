//! `history_view.lua`: adds views of one owner.

use alloc::vec::Vec;

use crate::{ViewOutcome, ViewedProduct};
use weir_base::resp::{Arguments, Value};

use crate::redis::history::{Active, Change, push_pairs};
use crate::redis::keys::HistoryKeys;
use weir_scripts::reply::{array, integer};
use weir_scripts::{Call, ReplyError, Script};

/// The script.
pub static SCRIPT: Script = Script {
    name: "history_view",
    source: include_str!("../../lua/history_view.lua"),
};

/// The call that adds these views of one owner.
pub fn call(
    keys: &HistoryKeys,
    active: &Active<'_>,
    change: &Change<'_>,
    views: &[ViewedProduct],
) -> Call {
    let mut args = Arguments::with_capacity(64 + 48 * views.len());
    args.push_decimal(change.life_ms);
    args.push_decimal(change.max as u64);
    args.push(change.owner.as_str().as_bytes());
    args.push_decimal(active.life_ms);
    push_pairs(&mut args, views);
    Call {
        script: &SCRIPT,
        keys: keys.of_change(active.key),
        args,
    }
}

/// Parses the reply: one outcome per view.
///
/// # Errors
/// If the reply is not from this script.
pub fn parse(value: &Value, views: usize) -> Result<Vec<ViewOutcome>, ReplyError> {
    let outcome = |value: &Value| match integer(value)? {
        0 => Some(ViewOutcome::Removed),
        1 => Some(ViewOutcome::Latest),
        2 => Some(ViewOutcome::Known),
        _ => None,
    };
    let all = array(value).filter(|values| values.len() == views);
    let outcomes = all.and_then(|values| values.iter().map(outcome).collect());
    outcomes.ok_or(ReplyError {
        script: SCRIPT.name,
    })
}
