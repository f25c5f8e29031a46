//! `restore.lua`: writes users' orders on a cold shard, as SQL knows them.

use alloc::vec::Vec;

use alloc::format;
use alloc::string::String;

use crate::ledger::OrderEntry;
use crate::shard::bucket;
use weir_base::id::UserId;
use weir_base::resp::{Arguments, Value};

use crate::redis::keys::ShardKeys;
use crate::redis::settle::mark;
use weir_scripts::reply::flag;
use weir_scripts::{Call, ReplyError, Script};

/// The script.
pub static SCRIPT: Script = Script {
    name: "restore",
    source: with_records!("restore"),
};

/// The call that writes these users' orders, each user's oldest first, in the rebuild of this token. Users without
/// orders are left out. Without any user, it tells whether the rebuild is still this one's.
pub fn call(keys: &ShardKeys, token: &str, users: &[(&UserId, &[OrderEntry])]) -> Call {
    let mut args = Arguments::from([token.as_bytes()]);
    for (user, orders) in users {
        let Some(last) = orders.last() else { continue };
        args.push(user.as_str().as_bytes());
        args.push_decimal(bucket(user).into());
        args.push_decimal(last.generation);
        args.push(as_record(orders).as_bytes());
    }
    Call {
        script: &SCRIPT,
        keys: [
            keys.stock(),
            keys.epoch(),
            keys.sums(),
            keys.rebuild(),
            keys.sequence(),
            keys.bought(),
        ]
        .into(),
        args,
    }
}

/// Orders as records have them; `-` if there are none.
pub(crate) fn as_record(orders: &[OrderEntry]) -> String {
    if orders.is_empty() {
        return "-".into();
    }
    let entry = |order: &OrderEntry| {
        format!(
            "{}{}{}",
            order.generation,
            mark(order.deduction),
            order.units
        )
    };
    orders.iter().map(entry).collect::<Vec<_>>().join(",")
}

/// Reads the reply: whether it did.
///
/// # Errors
/// When the reply is not one of the script's.
pub fn parse(value: &Value) -> Result<bool, ReplyError> {
    flag(value, &SCRIPT)
}
