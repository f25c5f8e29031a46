//! The keys of the reports that gateways publish.

use alloc::format;
use alloc::vec::Vec;

/// The key of the reports in the minute of `at_ms`, in milliseconds since the Unix epoch.
pub fn gateways(prefix: &str, at_ms: u64) -> Vec<u8> {
    format!("{prefix}:gateways:{}", at_ms / 60_000).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_minute_has_its_own_report_key() {
        assert_eq!(gateways("w", 59_999), b"w:gateways:0");
        assert_eq!(gateways("w", 60_000), b"w:gateways:1");
    }
}
