//! `write_check.lua`: checks that Redis accepts writes. The call needs the connection, the login, the permissions, the
//! role, the memory and the disk like every other script.

use alloc::format;
use alloc::vec::Vec;

use weir_base::resp::Arguments;

use crate::{Call, Script};

/// The script.
pub static SCRIPT: Script = Script {
    name: "write_check",
    source: include_str!("../lua/write_check.lua"),
};

/// Lifetime of the key, in milliseconds.
const KEPT_MS: u64 = 10_000;

/// The key that it writes.
pub fn key(prefix: &str) -> Vec<u8> {
    format!("{prefix}:write-check").into_bytes()
}

/// The call. Only an error in its reply matters.
pub fn call(prefix: &str) -> Call {
    let mut args = Arguments::default();
    args.push_decimal(KEPT_MS);
    Call {
        script: &SCRIPT,
        keys: [key(prefix)].into(),
        args,
    }
}
