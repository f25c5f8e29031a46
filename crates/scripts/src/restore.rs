//! `restore.lua`: writes users' orders on a cold shard, as SQL knows them.

use alloc::vec::Vec;

use alloc::format;
use alloc::string::String;

use weir_base::id::UserId;
use weir_resp::{Arguments, Value};
use weir_sale::ledger::OrderEntry;

use crate::keys::ShardKeys;
use crate::reply::flag;
use crate::settle::mark;
use crate::{Call, ReplyError, Script};

/// The script.
pub static SCRIPT: Script = Script {
    name: "restore",
    source: with_records!("restore"),
};

/// The call that writes these users' orders, each user's oldest first. Users without orders are left
/// out.
pub fn call(keys: &ShardKeys, users: &[(&UserId, &[OrderEntry])]) -> Call {
    let mut args = Arguments::default();
    for (user, orders) in users {
        let Some(last) = orders.last() else { continue };
        args.push(user.as_str().as_bytes());
        args.push_decimal(last.generation);
        args.push(as_record(orders).as_bytes());
    }
    Call {
        script: &SCRIPT,
        keys: [keys.stock(), keys.claims(), keys.sequence()].into(),
        args,
    }
}

fn as_record(orders: &[OrderEntry]) -> String {
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

/// Reads the reply: whether the shard is cold.
///
/// # Errors
/// When the reply is not one of the script's.
pub fn parse(value: &Value) -> Result<bool, ReplyError> {
    flag(value, &SCRIPT)
}
