//! `room_set.lua`: the origin puts an operator's setting of a waiting room into Redis.

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

/// The call that puts `setting` there, unless one as new is there.
pub fn call(keys: &RoomKeys, setting: &Setting) -> Call {
    Call {
        script: &SCRIPT,
        keys: [keys.setting()].into(),
        args: [listed(&setting.numbers()).as_bytes()].into(),
    }
}

/// Reads the reply: whether the setting is newer than the one that was there.
///
/// # Errors
/// When the reply is not the script's.
pub fn parse(value: &Value) -> Result<bool, ReplyError> {
    flag(value, &SCRIPT)
}
