//! `lend.lua`: units of one shard leave for another.

use crate::ledger::{LendReply, Transfer};
use weir_base::resp::Value;

use crate::redis::keys::ShardKeys;
use weir_scripts::call::decimal;
use weir_scripts::reply::{array, unsigned};
use weir_scripts::{Call, ReplyError, Script};

/// The script.
pub static SCRIPT: Script = Script {
    name: "lend",
    source: with_shard!("lend"),
};

/// The call that takes units from the shard of `keys` for `to_shard`.
pub fn call(keys: &ShardKeys, to_shard: u32, wanted: u64) -> Call {
    Call {
        script: &SCRIPT,
        keys: [
            keys.stock(),
            keys.transfers(),
            keys.sequence(),
            keys.epoch(),
            keys.sums(),
        ]
        .into(),
        args: [decimal(to_shard), decimal(wanted)].into(),
    }
}

/// Reads the reply.
///
/// # Errors
/// When the reply is not one of the script's.
pub fn parse(value: &Value) -> Result<LendReply, ReplyError> {
    array(value).and_then(parse_reply).ok_or(ReplyError {
        script: SCRIPT.name,
    })
}

fn parse_reply(fields: &[Value]) -> Option<LendReply> {
    match fields {
        [Value::Integer(1), id, units] => Some(LendReply::Lent(Transfer {
            id: unsigned(id)?,
            units: unsigned(units)?,
        })),
        [Value::Integer(2)] => Some(LendReply::Nothing),
        [Value::Integer(3)] => Some(LendReply::Cold),
        _ => None,
    }
}
