//! `warm.lua`: units are put on a cold shard.

use weir_base::resp::Value;

use crate::redis::keys::ShardKeys;
use weir_scripts::call::decimal;
use weir_scripts::reply::flag;
use weir_scripts::{Call, ReplyError, Script};

/// The script.
pub static SCRIPT: Script = Script {
    name: "warm",
    source: with_shard!("warm"),
};

/// The call that puts `units` on a shard that was never in use, or ends the rebuild of this token with them.
pub fn call(keys: &ShardKeys, units: u64, token: Option<&str>) -> Call {
    Call {
        script: &SCRIPT,
        keys: [keys.stock(), keys.epoch(), keys.sums(), keys.rebuild()].into(),
        args: [decimal(units), token.unwrap_or("-").into()].into(),
    }
}

/// Reads the reply: whether the shard was cold and holds the units now.
///
/// # Errors
/// When the reply is not one of the script's.
pub fn parse(value: &Value) -> Result<bool, ReplyError> {
    flag(value, &SCRIPT)
}
