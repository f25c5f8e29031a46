//! `wipe.lua`: forgets all claims and transfers of a cold shard.

use weir_resp::{Arguments, Value};

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
        keys: [
            keys.stock(),
            keys.claims(),
            keys.pending(),
            keys.transfers(),
            keys.deposits(),
        ]
        .into(),
        args: Arguments::default(),
    }
}

/// Reads the reply: whether the shard is cold.
///
/// # Errors
/// When the reply is not one of the script's.
pub fn parse(value: &Value) -> Result<bool, ReplyError> {
    flag(value, &SCRIPT)
}
