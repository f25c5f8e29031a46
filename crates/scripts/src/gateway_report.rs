//! `gateway_report.lua`: what the engines of gateways run, by the minute, for operators.

use weir_base::resp::Arguments;

use crate::{Call, Script};

/// The script.
pub static SCRIPT: Script = Script {
    name: "gateway_report",
    source: include_str!("../lua/gateway_report.lua"),
};

/// Retention of a minute's reports, in seconds.
pub const KEPT_S: u64 = 180;

/// Maximum number of reporters in one minute.
pub const REPORTERS_MAX: u64 = 512;

/// Maximum bytes of a report with the name of its reporter.
pub const BYTES_MAX: usize = 8_192;

/// The call that stores the `report` of `reporter` at `key`.
pub fn call(key: &[u8], reporter: &str, report: &[u8]) -> Call {
    let mut args = Arguments::default();
    args.push_decimal(KEPT_S);
    args.push_decimal(REPORTERS_MAX);
    args.push_decimal(BYTES_MAX as u64);
    args.push(reporter.as_bytes());
    args.push(report);
    Call {
        script: &SCRIPT,
        keys: [key].into(),
        args,
    }
}
