//! `link_clicks.lua`: appends a batch of clicks for the statistics, and parses it at the origin.

use alloc::string::ToString;
use alloc::vec::Vec;
use core::str;

use crate::click::{BatchId, ClickError, Row, decode};
use weir_base::resp::Value;

use crate::redis::keys::{BATCH_ID, BATCH_ROWS, BATCHES_LEN, link_clicks};
use weir_scripts::call::decimal;
use weir_scripts::reply::flag;
use weir_scripts::{Call, ReplyError, Script};

/// The script.
pub static SCRIPT: Script = Script {
    name: "link_clicks",
    source: include_str!("../../lua/link_clicks.lua"),
};

/// The call that appends a batch to the stream. It is safe to retry.
pub fn call(prefix: &str, id: BatchId, payload: Vec<u8>) -> Call {
    Call {
        script: &SCRIPT,
        keys: [link_clicks(prefix)].into(),
        args: [decimal(BATCHES_LEN), id.to_string().into_bytes(), payload].into(),
    }
}

/// Parses an entry that the script has added to the stream; `field` returns a field's value.
///
/// # Errors
/// If the entry is not a batch.
pub fn read_entry<'a>(
    field: impl Fn(&[u8]) -> Option<&'a [u8]>,
) -> Result<(BatchId, Vec<Row>), ClickError> {
    let id = str::from_utf8(field(BATCH_ID).unwrap_or_default());
    let id = id.map_err(|_| ClickError::Id)?;
    let rows = decode(field(BATCH_ROWS).unwrap_or_default())?;
    Ok((id.parse()?, rows))
}

/// Reads the reply.
///
/// # Errors
/// If the reply is not from this script.
pub fn parse(value: &Value) -> Result<(), ReplyError> {
    flag(value, &SCRIPT).map(|_| ())
}
