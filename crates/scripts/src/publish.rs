//! `publish.lua`: gives gateways a catalogue.

use weir_resp::Value;

use crate::call::decimal;
use crate::reply::flag;
use crate::{Call, ReplyError, Script, keys};

/// The script.
pub static SCRIPT: Script = Script {
    name: "publish",
    source: include_str!("../lua/publish.lua"),
};

/// The call that writes a catalogue of this version, unless a later one is there.
pub fn call(prefix: &str, version: u64, catalogue: &[u8]) -> Call {
    Call {
        script: &SCRIPT,
        keys: [keys::catalogue(prefix)].into(),
        args: [decimal(version), catalogue.into()].into(),
    }
}

/// Reads the reply: whether it did.
///
/// # Errors
/// When the reply is not one of the script's.
pub fn parse(value: &Value) -> Result<bool, ReplyError> {
    flag(value, &SCRIPT)
}
