//! `room_waits.lua`: how long those who entered a waiting room had waited.

use weir_resp::{Arguments, Value};
use weir_room::state::WAITS;

use crate::keys::RoomKeys;
use crate::reply::{array, unsigned};
use crate::{Call, ReplyError, Script};

/// The script.
pub static SCRIPT: Script = Script {
    name: "room_waits",
    source: include_str!("../lua/room_waits.lua"),
};

/// The call that reads how many entered, by how long they waited.
pub fn call(keys: &RoomKeys) -> Call {
    let mut args = Arguments::default();
    args.push_decimal(WAITS as u64);
    Call {
        script: &SCRIPT,
        keys: [keys.waits()].into(),
        args,
    }
}

/// Reads the reply: how many, for each class of waits.
///
/// # Errors
/// When the reply is not the script's.
pub fn parse(value: &Value) -> Result<[u64; WAITS], ReplyError> {
    let read = || {
        let values: &[Value; WAITS] = array(value)?.try_into().ok()?;
        let mut counts = [0; WAITS];
        for (count, value) in counts.iter_mut().zip(values) {
            *count = unsigned(value)?;
        }
        Some(counts)
    };
    read().ok_or(ReplyError {
        script: SCRIPT.name,
    })
}
