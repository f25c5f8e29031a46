//! `link_back.lua`: a click that led nowhere is given back.

use crate::click::ClickId;
use weir_base::resp::Value;

use crate::redis::keys::LinkKeys;
use crate::redis::link_read::MARK_MS;
use weir_scripts::call::decimal;
use weir_scripts::reply::integer;
use weir_scripts::{Call, ReplyError, Script};

/// The script.
pub static SCRIPT: Script = Script {
    name: "link_back",
    source: include_str!("../../lua/link_back.lua"),
};

/// The call that gives a click back, whether it was used, will be, or never arrived.
pub fn call(keys: &LinkKeys, click: ClickId) -> Call {
    Call {
        script: &SCRIPT,
        keys: [keys.clicks(), keys.mark(click)].into(),
        args: [decimal(MARK_MS)].into(),
    }
}

/// Reads the reply: whether the click had been used.
///
/// # Errors
/// When the reply is not one of the script.
pub fn parse(value: &Value) -> Result<bool, ReplyError> {
    match integer(value) {
        Some(0) => Ok(false),
        Some(1) => Ok(true),
        _ => Err(ReplyError {
            script: SCRIPT.name,
        }),
    }
}
