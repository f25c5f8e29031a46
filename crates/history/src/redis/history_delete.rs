//! `history_delete.lua`: one owner deletes products from the list.

use crate::Seen;
use weir_base::resp::{Arguments, Value};

use crate::redis::history::{Active, Change, push_pairs};
use crate::redis::keys::HistoryKeys;
use weir_scripts::reply::unsigned;
use weir_scripts::{Call, ReplyError, Script};

/// The script.
pub static SCRIPT: Script = Script {
    name: "history_delete",
    source: include_str!("../../lua/history_delete.lua"),
};

/// The call that deletes these: of each product, views up to that time. Deletions up to `forget_ms` are forgotten.
pub fn call(
    keys: &HistoryKeys,
    active: &Active<'_>,
    change: &Change<'_>,
    forget_ms: u64,
    deleted: &[Seen],
) -> Call {
    let mut args = Arguments::with_capacity(80 + 48 * deleted.len());
    args.push_decimal(change.life_ms);
    args.push_decimal(change.max as u64);
    args.push(change.owner.as_str().as_bytes());
    args.push_decimal(active.life_ms);
    args.push_decimal(forget_ms);
    push_pairs(&mut args, deleted);
    Call {
        script: &SCRIPT,
        keys: keys.of_change(active.key),
        args,
    }
}

/// Reads the reply: how many views went.
///
/// # Errors
/// When the reply is not one of the script.
pub fn parse(value: &Value) -> Result<usize, ReplyError> {
    unsigned::<u32>(value)
        .map(|gone| gone as usize)
        .ok_or(ReplyError {
            script: SCRIPT.name,
        })
}
