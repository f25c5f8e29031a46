//! `warm.lua`: units are put on a cold shard.

use weir_resp::Value;

use crate::call::decimal;
use crate::keys::ShardKeys;
use crate::reply::flag;
use crate::{Call, ReplyError, Script};

/// The script.
pub static SCRIPT: Script = Script {
    name: "warm",
    source: include_str!("../lua/warm.lua"),
};

/// The call that puts `units` on a shard.
pub fn call(keys: &ShardKeys, units: u64, now_ms: u64) -> Call {
    Call {
        script: &SCRIPT,
        keys: [keys.stock(), keys.epoch()].into(),
        args: [decimal(units), decimal(now_ms)].into(),
    }
}

/// Reads the reply: whether the shard was cold and holds the units now.
///
/// # Errors
/// When the reply is not one of the script's.
pub fn parse(value: &Value) -> Result<bool, ReplyError> {
    flag(value, &SCRIPT)
}
