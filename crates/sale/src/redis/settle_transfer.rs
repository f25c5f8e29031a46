//! `settle_transfer.lua`: a transfer has arrived, and its lender need not remember it.

use weir_base::resp::Value;

use crate::redis::keys::ShardKeys;
use weir_scripts::call::decimal;
use weir_scripts::reply::flag;
use weir_scripts::{Call, ReplyError, Script};

/// The script.
pub static SCRIPT: Script = Script {
    name: "settle_transfer",
    source: include_str!("../../lua/settle_transfer.lua"),
};

/// The call that has the shard of `keys`, the lender, forget the transfer. Only after a deposit has
/// answered that the units have come.
pub fn call(keys: &ShardKeys, to_shard: u32, id: u64) -> Call {
    Call {
        script: &SCRIPT,
        keys: [keys.transfers()].into(),
        args: [decimal(to_shard), decimal(id)].into(),
    }
}

/// Reads the reply: whether it was remembered.
///
/// # Errors
/// When the reply is not one of the script's.
pub fn parse(value: &Value) -> Result<bool, ReplyError> {
    flag(value, &SCRIPT)
}
