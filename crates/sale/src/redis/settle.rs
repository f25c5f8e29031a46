//! `settle.lua`: a claim became an order.

use crate::ledger::{Deduction, SettleReply};
use crate::shard::bucket;
use weir_base::id::UserId;
use weir_base::resp::Value;

use crate::redis::keys::ShardKeys;
use weir_scripts::call::decimal;
use weir_scripts::{Call, ReplyError, Script};

/// The script.
pub static SCRIPT: Script = Script {
    name: "settle",
    source: with_records!("settle"),
};

/// The call that settles one claim.
pub fn call(keys: &ShardKeys, user: &UserId, generation: u64, deduction: Deduction) -> Call {
    Call {
        script: &SCRIPT,
        keys: keys.of_user().into(),
        args: [
            user.as_str().into(),
            decimal(bucket(user)),
            decimal(generation),
            mark(deduction).into(),
        ]
        .into(),
    }
}

/// How a record marks an order.
pub(crate) fn mark(deduction: Deduction) -> &'static str {
    match deduction {
        Deduction::AtOrder => ":",
        Deduction::AtPayment => "~",
    }
}

/// Reads the reply.
///
/// # Errors
/// When the reply is not one of the script's.
pub fn parse(value: &Value) -> Result<SettleReply, ReplyError> {
    match value {
        Value::Integer(0) => Ok(SettleReply::Nothing),
        Value::Integer(1) => Ok(SettleReply::Settled),
        _ => Err(ReplyError {
            script: SCRIPT.name,
        }),
    }
}
