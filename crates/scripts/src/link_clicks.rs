//! `link_clicks.lua`: a batch of clicks goes to the statistics.

use alloc::string::ToString;
use alloc::vec::Vec;

use weir_link::click::BatchId;
use weir_resp::Value;

use crate::call::decimal;
use crate::keys::{BATCHES_LEN, link_clicks};
use crate::reply::flag;
use crate::{Call, ReplyError, Script};

/// The script.
pub static SCRIPT: Script = Script {
    name: "link_clicks",
    source: include_str!("../lua/link_clicks.lua"),
};

/// The call that appends a batch to the stream. It may be made again if it is not known to have been.
pub fn call(prefix: &str, id: BatchId, payload: Vec<u8>) -> Call {
    Call {
        script: &SCRIPT,
        keys: [link_clicks(prefix)].into(),
        args: [decimal(BATCHES_LEN), id.to_string().into_bytes(), payload].into(),
    }
}

/// Reads the reply.
///
/// # Errors
/// When the reply is not one of the script.
pub fn parse(value: &Value) -> Result<(), ReplyError> {
    flag(value, &SCRIPT).map(|_| ())
}
