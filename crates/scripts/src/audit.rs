//! `audit.lua`: the terms of the invariant.

use alloc::vec::Vec;

use weir_core::ledger::Audit;
use weir_resp::Value;

use crate::keys::ShardKeys;
use crate::reply::{array, integer, unsigned};
use crate::{Call, ReplyError, Script};

/// The script.
pub static SCRIPT: Script = Script {
    name: "audit",
    source: include_str!("../lua/audit.lua"),
};

/// What the script says for the stock of a cold shard.
const COLD: i64 = -1;

/// The call that reads one shard.
pub fn call(keys: &ShardKeys) -> Call {
    Call {
        script: &SCRIPT,
        keys: Vec::from([keys.stock(), keys.claims(), keys.epoch()]),
        args: Vec::new(),
    }
}

/// Reads the reply.
///
/// # Errors
/// When the reply is not one of the script's.
pub fn parse(value: &Value) -> Result<Audit, ReplyError> {
    parse_terms(value).ok_or(ReplyError {
        script: SCRIPT.name,
    })
}

fn parse_terms(value: &Value) -> Option<Audit> {
    let [stock, held, bought, epoch] = array(value)? else {
        return None;
    };
    let stock = match integer(stock)? {
        COLD => None,
        units => Some(u64::try_from(units).ok()?),
    };
    Some(Audit {
        stock,
        held: unsigned(held)?,
        bought: unsigned(bought)?,
        epoch: integer(epoch)?,
    })
}
