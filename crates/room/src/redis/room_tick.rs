//! `room_tick.lua`: advances the time of a waiting room, and renews sessions.

use crate::{Renewal, Snapshot};
use weir_base::resp::Value;

use crate::redis::keys::RoomKeys;
use crate::redis::room::{CallContext, begin, snapshot};
use weir_scripts::{Call, ReplyError, Script};

/// Maximum sessions in one call.
pub const RENEWED_MAX: usize = 1_024;

/// The script.
pub static SCRIPT: Script = Script {
    name: "room_tick",
    source: with_room!("room_tick"),
};

/// The call that advances the time and renews the sessions in `renewed`, at most [`RENEWED_MAX`].
pub fn call(keys: &RoomKeys, context: &CallContext, renewed: &[Renewal]) -> Call {
    let mut call = begin(&SCRIPT, keys, context);
    for renewal in renewed {
        call.args.push(renewal.visitor.as_bytes());
        match renewal.entered_at {
            None => call.args.push(b"-"),
            Some(order) => call.args.push_decimal(order),
        }
        if renewal.entered_at.is_some_and(|order| order > 0) {
            keys.push_places(renewal.visitor, &mut call.keys);
        }
    }
    call
}

/// Parses the reply.
///
/// # Errors
/// If the reply is not from this script.
pub fn parse(value: &Value) -> Result<Snapshot, ReplyError> {
    snapshot(value).ok_or(ReplyError {
        script: SCRIPT.name,
    })
}
