//! `history_clear.lua`: one owner clears the list.

use weir_base::resp::{Arguments, Value};

use crate::redis::history::{Active, Change};
use crate::redis::keys::HistoryKeys;
use weir_scripts::reply::unsigned;
use weir_scripts::{Call, ReplyError, Script};

/// The script.
pub static SCRIPT: Script = Script {
    name: "history_clear",
    source: include_str!("../../lua/history_clear.lua"),
};

/// The call that clears the list of views up to `at_ms`.
pub fn call(keys: &HistoryKeys, active: &Active<'_>, change: &Change<'_>, at_ms: u64) -> Call {
    let mut args = Arguments::with_capacity(96);
    args.push_decimal(change.life_ms);
    args.push(change.owner.as_str().as_bytes());
    args.push_decimal(active.life_ms);
    args.push_decimal(at_ms);
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
