//! `link_segment.lua`: raises the counter of numbers of short links.

use crate::code::Length;
use weir_base::resp::Value;

use crate::redis::keys;
use weir_scripts::call::decimal;
use weir_scripts::reply::unsigned;
use weir_scripts::{Call, ReplyError, Script};

/// The script.
pub static SCRIPT: Script = Script {
    name: "link_segment",
    source: include_str!("../../lua/link_segment.lua"),
};

/// The call that raises the counter of `length` by `by`, from `at_least` on.
pub fn call(prefix: &str, length: Length, by: u64, at_least: u64) -> Call {
    Call {
        script: &SCRIPT,
        keys: [keys::link_segments(prefix, length)].into(),
        args: [decimal(by), decimal(at_least)].into(),
    }
}

/// Reads the reply: where the counter stands now.
///
/// # Errors
/// When the reply is not one of the script's.
pub fn parse(value: &Value) -> Result<u64, ReplyError> {
    unsigned(value).ok_or(ReplyError {
        script: SCRIPT.name,
    })
}
