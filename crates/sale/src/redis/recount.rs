//! `recount.lua`: the sums of a shard of which Redis was made to forget a key.

use crate::ledger::Audit;
use weir_base::resp::Value;

use crate::redis::keys::ShardKeys;
use weir_scripts::call::decimal;
use weir_scripts::reply::{Numbers, flag};
use weir_scripts::{Call, ReplyError, Script};

/// The script.
pub static SCRIPT: Script = Script {
    name: "recount",
    source: with_shard!("recount"),
};

/// The call that notes these sums of open claims and orders, if the shard is still of their version.
pub fn call(keys: &ShardKeys, sums: &Audit) -> Call {
    Call {
        script: &SCRIPT,
        keys: [keys.stock(), keys.epoch(), keys.sums()].into(),
        args: [
            decimal(sums.version),
            decimal(sums.open),
            decimal(sums.held),
            decimal(sums.bought),
            decimal(sums.deferred),
            decimal(sums.checksum),
        ]
        .into(),
    }
}

/// The units of an open claim, and its deadline in milliseconds, as they stand in [`ShardKeys::claims`].
pub fn read_claim(record: &[u8]) -> Option<(u64, u64)> {
    let mut text = Numbers(record);
    let mut next = || {
        let number = text.number()?;
        (text.take()? == b' ').then_some(number)
    };
    let _generation = next()?;
    Some((next()?, next()?))
}

/// Reads the reply: whether it did.
///
/// # Errors
/// When the reply is not one of the script's.
pub fn parse(value: &Value) -> Result<bool, ReplyError> {
    flag(value, &SCRIPT)
}
