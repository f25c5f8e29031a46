//! `room_set.lua`: stores an operator's settings of a waiting room in Redis.

use crate::Setting;
use weir_base::resp::Value;

use crate::redis::keys::RoomKeys;
use crate::redis::room::listed;
use weir_scripts::reply::flag;
use weir_scripts::{Call, ReplyError, Script};

/// The script.
pub static SCRIPT: Script = Script {
    name: "room_set",
    source: include_str!("../../lua/room_set.lua"),
};

/// The call that stores `setting`, unless the stored one is at least as new.
pub fn call(keys: &RoomKeys, setting: &Setting) -> Call {
    Call {
        script: &SCRIPT,
        keys: [keys.setting()].into(),
        args: [listed(&setting.numbers()).as_bytes()].into(),
    }
}

/// Parses the reply: whether the settings are newer than the stored ones.
///
/// # Errors
/// If the reply is not from this script.
pub fn parse(value: &Value) -> Result<bool, ReplyError> {
    flag(value, &SCRIPT)
}
