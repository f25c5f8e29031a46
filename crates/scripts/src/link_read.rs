//! `link_read.lua`: a short link is asked for.

use alloc::vec::Vec;

use weir_resp::Value;

use crate::call::decimal;
use crate::keys::LinkKeys;
use crate::reply::{array, integer};
use crate::{Call, ReplyError, Script};

/// The script.
pub static SCRIPT: Script = Script {
    name: "link_read",
    source: include_str!("../lua/link_read.lua"),
};

/// What stands in Redis of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// Its [record](weir_link::record::Link::decode).
    pub record: Vec<u8>,
    /// How long it still lives if nobody asks for it again, in milliseconds; `None` is for ever.
    pub left_ms: Option<u64>,
    /// How many clicks it had left before this one, if it has only so many. With none left nothing was
    /// counted, and the link leads nowhere.
    pub clicks_left: Option<u64>,
}

/// The call that reads a link, renews its life if more than `renew_permille` thousandths of it are gone, and
/// if `is_click` uses one of its clicks, if it has only so many.
pub fn call(keys: &LinkKeys, renew_permille: u32, is_click: bool) -> Call {
    Call {
        script: &SCRIPT,
        keys: [keys.record(), keys.clicks()].into(),
        args: [decimal(renew_permille), decimal(u32::from(is_click))].into(),
    }
}

/// Reads the reply: `None` if there is no such link.
///
/// # Errors
/// When the reply is not one of the script.
pub fn parse(value: &Value) -> Result<Option<Read>, ReplyError> {
    if *value == Value::Null {
        return Ok(None);
    }
    read(value).map(Some).ok_or(ReplyError {
        script: SCRIPT.name,
    })
}

fn read(value: &Value) -> Option<Read> {
    let [Value::Bulk(record), pttl, left] = array(value)? else {
        return None;
    };
    Some(Read {
        record: record.clone(),
        left_ms: bounded(pttl)?,
        clicks_left: bounded(left)?,
    })
}

/// A number, or -1 for none.
fn bounded(value: &Value) -> Option<Option<u64>> {
    match integer(value)? {
        -1 => Some(None),
        number => u64::try_from(number).ok().map(Some),
    }
}
