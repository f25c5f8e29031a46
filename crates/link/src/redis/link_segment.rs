//! `link_segment.lua`: increments the counter of short link numbers.

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

/// The call that increments the counter of `length` by `by`, starting at no less than `at_least`.
pub fn call(prefix: &str, length: Length, by: u64, at_least: u64) -> Call {
    Call {
        script: &SCRIPT,
        keys: [keys::link_segments(prefix, length)].into(),
        args: [decimal(by), decimal(at_least)].into(),
    }
}

/// Parses the reply: the counter's new value.
///
/// # Errors
/// If the reply is not from this script.
pub fn parse(value: &Value) -> Result<u64, ReplyError> {
    unsigned(value).ok_or(ReplyError {
        script: SCRIPT.name,
    })
}
