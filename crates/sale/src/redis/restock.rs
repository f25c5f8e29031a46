//! `restock.lua`: puts right what a loss of data has made wrong.

use alloc::string::ToString;

use crate::ledger::Audit;
use weir_base::resp::Value;

use crate::redis::keys::ShardKeys;
use weir_scripts::call::decimal;
use weir_scripts::reply::flag;
use weir_scripts::{Call, ReplyError, Script};

/// The script.
pub static SCRIPT: Script = Script {
    name: "restock",
    source: with_shard!("restock"),
};

/// The call that adds `units`, or takes them, if the shard is still as `seen`.
pub fn call(keys: &ShardKeys, units: i64, seen: &Audit) -> Call {
    Call {
        script: &SCRIPT,
        keys: [keys.stock(), keys.epoch(), keys.sequence(), keys.sums()].into(),
        args: [
            units.to_string().into_bytes(),
            seen.epoch.to_string().into_bytes(),
            decimal(seen.sequence),
            decimal(seen.version),
        ]
        .into(),
    }
}

/// Reads the reply: whether it did.
///
/// # Errors
/// When the reply is not one of the script's.
pub fn parse(value: &Value) -> Result<bool, ReplyError> {
    flag(value, &SCRIPT)
}
