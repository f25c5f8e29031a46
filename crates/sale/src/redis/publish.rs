//! `publish.lua`: gives gateways a catalogue.

use weir_base::resp::Value;

use crate::redis::keys;
use weir_scripts::call::decimal;
use weir_scripts::reply::flag;
use weir_scripts::{Call, ReplyError, Script};

/// The script.
pub static SCRIPT: Script = Script {
    name: "publish",
    source: include_str!("../../lua/publish.lua"),
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
