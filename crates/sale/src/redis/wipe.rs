//! `wipe.lua`: begins the rebuild of a cold shard.

use crate::ledger::WipeReply;
use crate::shard::BUCKETS;
use weir_base::resp::Value;

use crate::redis::keys::ShardKeys;
use weir_scripts::call::decimal;
use weir_scripts::{Call, ReplyError, Script};

/// The script.
pub static SCRIPT: Script = Script {
    name: "wipe",
    source: with_shard!("wipe"),
};

/// The call that clears a cold shard, which from then on is rebuilt by whoever has this token: a text without spaces.
/// Nobody else may begin for `lease_ms`, nor for as long after each [`restore`](crate::redis::restore).
pub fn call(keys: &ShardKeys, token: &str, lease_ms: u64) -> Call {
    Call {
        script: &SCRIPT,
        keys: [
            keys.stock(),
            keys.epoch(),
            keys.sums(),
            keys.rebuild(),
            keys.claims(),
            keys.pending(),
            keys.transfers(),
            keys.deposits(),
            keys.bought(),
        ]
        .into(),
        args: [token.into(), decimal(lease_ms), decimal(BUCKETS)].into(),
    }
}

/// Reads the reply.
///
/// # Errors
/// When the reply is not one of the script's.
pub fn parse(value: &Value) -> Result<WipeReply, ReplyError> {
    match value {
        Value::Integer(0) => Ok(WipeReply::Warm),
        Value::Integer(1) => Ok(WipeReply::Begun),
        Value::Integer(2) => Ok(WipeReply::Other),
        _ => Err(ReplyError {
            script: SCRIPT.name,
        }),
    }
}
