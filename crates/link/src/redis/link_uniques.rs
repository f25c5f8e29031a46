//! `link_uniques.lua`: counts unique visitors and addresses of a link.

use weir_base::resp::{Arguments, Value};

use crate::redis::keys::UniquesKeys;
use weir_scripts::reply::{array, unsigned};
use weir_scripts::{Call, ReplyError, Script};

/// Maximum visitors, and maximum addresses, in one call: Lua's stack holds a few thousand values.
pub const ADDED_MAX: usize = 1_024;

/// The script.
pub static SCRIPT: Script = Script {
    name: "link_uniques",
    source: include_str!("../../lua/link_uniques.lua"),
};

/// The hash of a visitor or address: Redis never contains the original.
pub type UniqueHash = [u8; 16];

/// When the counts expire, in milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expiries {
    /// Expiry of the hour's counts.
    pub hour_ms: u64,
    /// Expiry of the day's counts.
    pub day_ms: u64,
}

/// Unique counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UniqueCounts {
    /// Visitors in the hour.
    pub hour_visitors: u64,
    /// Addresses in the hour.
    pub hour_addresses: u64,
    /// Visitors in the day.
    pub day_visitors: u64,
    /// Addresses in the day.
    pub day_addresses: u64,
}

/// The call that adds `visitors` and `addresses`, each at most [`ADDED_MAX`].
pub fn call(
    keys: &UniquesKeys,
    expiries: Expiries,
    visitors: &[UniqueHash],
    addresses: &[UniqueHash],
) -> Call {
    let mut args = Arguments::default();
    args.push_decimal(expiries.hour_ms);
    args.push_decimal(expiries.day_ms);
    args.push_decimal(visitors.len() as u64);
    for hash in visitors.iter().chain(addresses) {
        args.push(hash.as_ref());
    }
    Call {
        script: &SCRIPT,
        keys: keys.all().into(),
        args,
    }
}

/// Parses the reply.
///
/// # Errors
/// If the reply is not from this script.
pub fn parse(value: &Value) -> Result<UniqueCounts, ReplyError> {
    let counts = || match array(value)? {
        [hour_visitors, hour_addresses, day_visitors, day_addresses] => Some(UniqueCounts {
            hour_visitors: unsigned(hour_visitors)?,
            hour_addresses: unsigned(hour_addresses)?,
            day_visitors: unsigned(day_visitors)?,
            day_addresses: unsigned(day_addresses)?,
        }),
        _ => None,
    };
    counts().ok_or(ReplyError {
        script: SCRIPT.name,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn uniques_reply_has_four_counts() {
        let counts = [1, 2, 3, 4].map(Value::Integer);
        let read = parse(&Value::Array(counts.to_vec())).unwrap();
        assert_eq!((read.hour_visitors, read.day_addresses), (1, 4));
        for other in [
            Value::Null,
            Value::Array(vec![Value::Integer(1)]),
            Value::Array(vec![Value::Integer(-1); 4]),
        ] {
            assert!(parse(&other).is_err(), "{other:?}");
        }
    }
}
