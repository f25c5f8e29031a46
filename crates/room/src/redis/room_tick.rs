//! `room_tick.lua`: time passes in a waiting room; visitors inside were there.

use crate::{Renewal, Snapshot};
use weir_base::resp::Value;

use crate::redis::keys::RoomKeys;
use crate::redis::room::{CallContext, begin, snapshot};
use weir_scripts::{Call, ReplyError, Script};

/// The most visitors in one call.
pub const RENEWED_MAX: usize = 1_024;

/// The script.
pub static SCRIPT: Script = Script {
    name: "room_tick",
    source: with_room!("room_tick"),
};

/// The call that lets time pass, and the sessions of `renewed` live on: at most [`RENEWED_MAX`].
pub fn call(keys: &RoomKeys, brought: &CallContext, renewed: &[Renewal]) -> Call {
    let mut call = begin(&SCRIPT, keys, brought);
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

/// Reads the reply.
///
/// # Errors
/// When the reply is not the script's.
pub fn parse(value: &Value) -> Result<Snapshot, ReplyError> {
    snapshot(value).ok_or(ReplyError {
        script: SCRIPT.name,
    })
}
