//! `stock_change.lua`: an operator adds units to a sale, or withdraws some.

use alloc::format;

use crate::ledger::{StockChange, StockChanged};
use weir_base::resp::{Arguments, Value};

use crate::redis::keys::ShardKeys;
use weir_scripts::reply::{array, integer};
use weir_scripts::{Call, ReplyError, Script};

/// The script.
pub static SCRIPT: Script = Script {
    name: "stock_change",
    source: with_shard!("stock_change"),
};

/// The call that tells a shard of its part of a change.
pub fn call(keys: &ShardKeys, change: StockChange) -> Call {
    let mut args = Arguments::default();
    args.push_decimal(change.number);
    args.push(format!("{}", change.units).as_bytes());
    Call {
        script: &SCRIPT,
        keys: [keys.stock(), keys.epoch(), keys.sums(), keys.change()].into(),
        args,
    }
}

/// Reads the reply.
///
/// # Errors
/// When the reply is not one of the script's.
pub fn parse(value: &Value) -> Result<StockChanged, ReplyError> {
    let reply = match array(value) {
        Some([Value::Integer(1), units]) => integer(units).map(StockChanged::Done),
        Some([Value::Integer(2)]) => Some(StockChanged::Over),
        Some([Value::Integer(3)]) => Some(StockChanged::Cold),
        _ => None,
    };
    reply.ok_or(ReplyError {
        script: SCRIPT.name,
    })
}
