//! `charge.lua`: an order that was to be deducted at payment is paid.

use crate::ledger::Followed;
use crate::shard::bucket;
use weir_base::id::UserId;
use weir_base::resp::Value;

use crate::redis::followed;
use crate::redis::keys::ShardKeys;
use weir_scripts::call::decimal;
use weir_scripts::{Call, ReplyError, Script};

/// The script.
pub static SCRIPT: Script = Script {
    name: "charge",
    source: with_records!("charge"),
};

/// The call that takes the units of the order that came of this claim from the stock.
pub fn call(keys: &ShardKeys, user: &UserId, generation: u64) -> Call {
    Call {
        script: &SCRIPT,
        keys: keys.of_user().into(),
        args: [
            user.as_str().into(),
            decimal(bucket(user)),
            decimal(generation),
        ]
        .into(),
    }
}

/// Reads the reply.
///
/// # Errors
/// When the reply is not one of the script's.
pub fn parse(value: &Value) -> Result<Followed, ReplyError> {
    followed(value, &SCRIPT)
}
