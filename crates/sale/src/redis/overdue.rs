//! `overdue.lua`: lists claims whose deadline has passed.

use alloc::vec::Vec;

use crate::ledger::{OpenClaim, Overdue};
use weir_base::id::UserId;
use weir_base::resp::Value;

use crate::redis::keys::ShardKeys;
use weir_scripts::call::decimal;
use weir_scripts::reply::{array, unsigned};
use weir_scripts::{Call, ReplyError, Script};

/// The script.
pub static SCRIPT: Script = Script {
    name: "overdue",
    source: with_records!("overdue"),
};

/// Lists at most `limit` claims of a shard whose deadline passed at least `grace_ms` ago.
pub fn call(keys: &ShardKeys, grace_ms: u64, limit: u32) -> Call {
    Call {
        script: &SCRIPT,
        keys: [keys.claims(), keys.pending()].into(),
        args: [decimal(grace_ms), decimal(limit)].into(),
    }
}

/// Lists at most `limit` open claims of a shard, with any deadline.
pub fn all(keys: &ShardKeys, limit: u32) -> Call {
    // A negative grace period that includes every deadline.
    const EVER: &[u8] = b"-1000000000000000";
    Call {
        args: [EVER.into(), decimal(limit)].into(),
        ..call(keys, 0, limit)
    }
}

/// Parses the reply: the earliest first.
///
/// # Errors
/// When it is not a reply of this script.
pub fn parse(value: &Value) -> Result<Vec<Overdue>, ReplyError> {
    array(value)
        .and_then(|claims| claims.iter().map(parse_one).collect())
        .ok_or(ReplyError {
            script: SCRIPT.name,
        })
}

fn parse_one(value: &Value) -> Option<Overdue> {
    let [Value::Bulk(user), held @ ..] = array(value)? else {
        return None;
    };
    Some(Overdue {
        user: UserId::new(user).ok()?,
        held: parse_held(held)?,
    })
}

fn parse_held(fields: &[Value]) -> Option<OpenClaim> {
    let [generation, quantity, deadline_ms, delivery] = fields else {
        return None;
    };
    Some(OpenClaim {
        generation: unsigned(generation)?,
        quantity: unsigned(quantity)?,
        deadline_ms: unsigned(deadline_ms)?,
        delivery: unsigned(delivery)?,
    })
}
