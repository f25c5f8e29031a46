//! `history_fill.lua`: loads removals and the cold list into Redis.

use crate::{Removals, ViewedProduct};
use weir_base::resp::{Arguments, Value};

use crate::redis::history::{Change, List, list, push_pair, push_pairs};
use crate::redis::keys::HistoryKeys;
use weir_scripts::{Call, ReplyError, Script};

/// The script.
pub static SCRIPT: Script = Script {
    name: "history_fill",
    source: include_str!("../../lua/history_fill.lua"),
};

/// The placeholder for a generation when only removals are applied.
pub const NO_GENERATION: &str = "-";

/// The call that loads all removals, and the cold list if given. `generation`: that of the list that was read before,
/// or [`NO_GENERATION`].
pub fn call(
    keys: &HistoryKeys,
    change: &Change<'_>,
    generation: &str,
    removals: &Removals,
    cold: Option<&[ViewedProduct]>,
) -> Call {
    let views = cold.unwrap_or_default();
    let mut args = Arguments::with_capacity(96 + 48 * (removals.deleted.len() + views.len()));
    args.push_decimal(change.life_ms);
    args.push_decimal(change.max as u64);
    args.push_decimal(removals.cleared_ms);
    args.push(if cold.is_some() { b"a" } else { b"r" });
    args.push(generation.as_bytes());
    args.push_decimal(removals.deleted.len() as u64);
    for (sku, at_ms) in &removals.deleted {
        push_pair(&mut args, sku, *at_ms);
    }
    push_pairs(&mut args, views);
    Call {
        script: &SCRIPT,
        keys: keys.of_list(),
        args,
    }
}

/// Parses the reply: the list afterwards.
///
/// # Errors
/// If the reply is not from this script.
pub fn parse(value: &Value) -> Result<List, ReplyError> {
    list(value).ok_or(ReplyError {
        script: SCRIPT.name,
    })
}
