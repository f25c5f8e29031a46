//! `cancel.lua`: an order ends, and what it took from the stock comes back.

use weir_base::id::UserId;
use weir_resp::Value;

use crate::call::decimal;
use crate::keys::ShardKeys;
use crate::reply::flag;
use crate::{Call, ReplyError, Script};

/// The script.
pub static SCRIPT: Script = Script {
    name: "cancel",
    source: with_records!("cancel"),
};

/// The call that ends the order that came of this claim, or the claim if it is still open.
pub fn call(keys: &ShardKeys, user: &UserId, generation: u64) -> Call {
    Call {
        script: &SCRIPT,
        keys: [keys.stock(), keys.claims(), keys.pending(), keys.epoch()].into(),
        args: [user.as_str().into(), decimal(generation)].into(),
    }
}

/// Reads the reply: whether there was such an order or claim.
///
/// # Errors
/// When the reply is not one of the script's.
pub fn parse(value: &Value) -> Result<bool, ReplyError> {
    flag(value, &SCRIPT)
}
