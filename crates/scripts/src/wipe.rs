//! `wipe.lua`: forgets all claims and transfers of a cold shard.

use alloc::vec::Vec;

use weir_resp::Value;

use crate::keys::ShardKeys;
use crate::reply::flag;
use crate::{Call, ReplyError, Script};

/// The script.
pub static SCRIPT: Script = Script {
    name: "wipe",
    source: include_str!("../lua/wipe.lua"),
};

/// The call that clears a cold shard before it is rebuilt.
pub fn call(keys: &ShardKeys) -> Call {
    Call {
        script: &SCRIPT,
        keys: Vec::from([
            keys.stock(),
            keys.claims(),
            keys.pending(),
            keys.transfers(),
            keys.deposits(),
        ]),
        args: Vec::new(),
    }
}

/// Reads the reply: whether the shard is cold.
///
/// # Errors
/// When the reply is not one of the script's.
pub fn parse(value: &Value) -> Result<bool, ReplyError> {
    flag(value, &SCRIPT)
}
