//! `history_count.lua`: keeps a count that was promised.

use weir_base::resp::{Arguments, Value};

use crate::redis::keys::HistoryKeys;
use weir_scripts::reply::flag;
use weir_scripts::{Call, ReplyError, Script};

/// The script.
pub static SCRIPT: Script = Script {
    name: "history_count",
    source: include_str!("../../lua/history_count.lua"),
};

/// The call that keeps the count that `promise` is of, for so long.
pub fn call(keys: &HistoryKeys, promise: &str, count: u64, life_ms: u64) -> Call {
    let mut args = Arguments::default();
    args.push(promise.as_bytes());
    args.push_decimal(count);
    args.push_decimal(life_ms);
    Call {
        script: &SCRIPT,
        keys: [keys.count()].into(),
        args,
    }
}

/// Reads the reply: whether it was kept. It is not if the list has changed since the promise.
///
/// # Errors
/// When the reply is not one of the script.
pub fn parse(value: &Value) -> Result<bool, ReplyError> {
    flag(value, &SCRIPT)
}
