//! `room_ask.lua`: visitors of a waiting room request positions or admission.

use alloc::vec::Vec;

use crate::state::Status;
use crate::{Snapshot, Visitor};
use weir_base::resp::Value;

use crate::redis::keys::RoomKeys;
use crate::redis::room::{CallContext, begin, number, snapshot};
use weir_scripts::reply::array;
use weir_scripts::{Call, ReplyError, Script};

/// The script.
pub static SCRIPT: Script = Script {
    name: "room_ask",
    source: with_room!("room_ask"),
};

/// A visitor's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VisitorRequest {
    /// The visitor.
    pub visitor: Visitor,
    /// The position in the visitor's token; 0 for none.
    pub place: u64,
    /// The position after a draw.
    pub order: u64,
    /// When the visitor first arrived, in milliseconds since the Unix epoch.
    pub joined_ms: u64,
    /// The hash of the address; `None` without a limit per address.
    pub address: Option<[u8; 8]>,
}

/// The result for a visitor: the status, and the position, 0 for none.
pub type VisitorStatus = (Status, u64);

/// The call for `asks`, in their order; at least one.
pub fn call(keys: &RoomKeys, context: &CallContext, asks: &[VisitorRequest]) -> Call {
    let mut call = begin(&SCRIPT, keys, context);
    for ask in asks {
        keys.push_buckets(ask.visitor, ask.address.unwrap_or_default(), &mut call.keys);
        call.args.push(ask.visitor.as_bytes());
        call.args.push_decimal(ask.place);
        call.args.push_decimal(ask.order);
        call.args.push_decimal(ask.joined_ms);
        call.args
            .push(ask.address.as_ref().map_or(&[][..], |address| address));
    }
    call
}

/// Parses the reply to a call with `count` visitors: the result of each.
///
/// # Errors
/// If the reply is not from this script.
pub fn parse(value: &Value, count: usize) -> Result<(Snapshot, Vec<VisitorStatus>), ReplyError> {
    let read = || {
        let [header, reply] = array(value)? else {
            return None;
        };
        let (pairs, rest) = array(reply)?.as_chunks::<2>();
        let reply = |[status, place]: &[Value; 2]| {
            Some((Status::from_number(number(status)?)?, number(place)?))
        };
        let reply: Vec<VisitorStatus> = pairs.iter().map(reply).collect::<Option<_>>()?;
        (rest.is_empty() && reply.len() == count).then_some((snapshot(header)?, reply))
    };
    read().ok_or(ReplyError {
        script: SCRIPT.name,
    })
}
