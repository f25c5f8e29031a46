//! `cancel.lua`: an order ends, and what it took from the stock comes back.

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
    name: "cancel",
    source: with_records!("cancel"),
};

/// The call that ends the order that came of this claim, or the claim if it is still open.
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
