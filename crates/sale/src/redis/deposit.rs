//! `deposit.lua`: units that have left another shard arrive.

use crate::ledger::{DepositReply, Transfer};
use weir_base::resp::Value;

use crate::redis::keys::ShardKeys;
use weir_scripts::call::decimal;
use weir_scripts::{Call, ReplyError, Script};

/// The script.
pub static SCRIPT: Script = Script {
    name: "deposit",
    source: with_shard!("deposit"),
};

/// The call that puts what `from_shard` has lent on the shard of `keys`.
pub fn call(keys: &ShardKeys, from_shard: u32, transfer: Transfer) -> Call {
    Call {
        script: &SCRIPT,
        keys: [keys.stock(), keys.deposits(), keys.epoch(), keys.sums()].into(),
        args: [
            decimal(from_shard),
            decimal(transfer.id),
            decimal(transfer.units),
        ]
        .into(),
    }
}

/// Reads the reply.
///
/// # Errors
/// When the reply is not one of the script's.
pub fn parse(value: &Value) -> Result<DepositReply, ReplyError> {
    match value {
        Value::Integer(1) => Ok(DepositReply::Deposited),
        Value::Integer(2) => Ok(DepositReply::Already),
        Value::Integer(3) => Ok(DepositReply::Cold),
        _ => Err(ReplyError {
            script: SCRIPT.name,
        }),
    }
}
