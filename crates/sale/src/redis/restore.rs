//! `restore.lua`: writes users' orders from SQL to a cold shard.

use crate::ledger::OrderEntry;
use crate::shard::bucket;
use weir_base::id::UserId;
use weir_base::resp::{Arguments, Value};

use crate::redis::keys::ShardKeys;
use crate::redis::record::orders_word;
use weir_scripts::reply::flag;
use weir_scripts::{Call, ReplyError, Script};

/// The script.
pub static SCRIPT: Script = Script {
    name: "restore",
    source: with_records!("restore"),
};

/// Writes these users' orders, each user's oldest first, in the rebuild of this token. Users without orders are
/// omitted. Without users, it only checks whether this token still owns the rebuild.
pub fn call(keys: &ShardKeys, token: &str, users: &[(&UserId, &[OrderEntry])]) -> Call {
    let mut args = Arguments::from([token.as_bytes()]);
    for (user, orders) in users {
        let Some(last) = orders.last() else { continue };
        args.push(user.as_str().as_bytes());
        args.push_decimal(bucket(user).into());
        args.push_decimal(last.generation);
        args.push(orders_word(orders).as_bytes());
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

/// Parses the reply: whether it did.
///
/// # Errors
/// When it is not a reply of this script.
pub fn parse(value: &Value) -> Result<bool, ReplyError> {
    flag(value, &SCRIPT)
}
