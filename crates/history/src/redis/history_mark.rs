//! `history_mark.lua`: the position up to which a log's views are in Redis.

use alloc::format;

use weir_base::resp::{Arguments, Value};

use weir_scripts::reply::{flag, text};
use weir_scripts::{Call, ReplyError, Script};

/// The script.
pub static SCRIPT: Script = Script {
    name: "history_mark",
    source: include_str!("../../lua/history_mark.lua"),
};

/// A position in the mark's format: texts of equal length compare like their numbers.
pub fn position(number: u64) -> alloc::string::String {
    format!("{number:020}")
}

/// The call that moves the mark of `source` to `to`, if it is at `from` or later.
pub fn call(key: &[u8], source: &str, from: u64, to: u64) -> Call {
    let mut args = Arguments::default();
    args.push(source.as_bytes());
    args.push(position(from).as_bytes());
    args.push(position(to).as_bytes());
    Call {
        script: &SCRIPT,
        keys: [key].into(),
        args,
    }
}

/// Parses the reply: whether the mark was moved. It was not if Redis has lost data.
///
/// # Errors
/// If the reply is not from this script.
pub fn parse(value: &Value) -> Result<bool, ReplyError> {
    flag(value, &SCRIPT)
}

/// Parses a mark; `None` if there is none.
pub fn read(value: &Value) -> Option<u64> {
    core::str::from_utf8(text(value)?).ok()?.parse().ok()
}
