//! `probe.lua`: reads summaries of shards.

use alloc::vec::Vec;

use crate::ledger::ShardProbe;
use weir_base::resp::{Arguments, Value};

use crate::redis::keys::ShardKeys;
use weir_scripts::reply::{array, integer, unsigned};
use weir_scripts::{Call, ReplyError, Script};

/// The script.
pub static SCRIPT: Script = Script {
    name: "probe",
    source: with_shard!("probe"),
};

/// Probes these shards. On Redis Cluster all must be in one slot.
pub fn call(shards: &[ShardKeys]) -> Call {
    let keys = shards
        .iter()
        .flat_map(|keys| [keys.stock(), keys.epoch(), keys.sums(), keys.transfers()]);
    Call {
        script: &SCRIPT,
        keys: keys.collect(),
        args: Arguments::default(),
    }
}

/// Parses the reply, in the order of the call.
///
/// # Errors
/// When it is not a reply for `count` shards.
pub fn parse(value: &Value, count: usize) -> Result<Vec<ShardProbe>, ReplyError> {
    array(value)
        .filter(|shards| shards.len() == count)
        .and_then(|shards| shards.iter().map(parse_one).collect())
        .ok_or(ReplyError {
            script: SCRIPT.name,
        })
}

fn parse_one(value: &Value) -> Option<ShardProbe> {
    match array(value)? {
        [] => Some(ShardProbe {
            stock: None,
            epoch: 0,
            open_claims: 0,
            moving: 0,
        }),
        [stock, epoch, open_claims, moving] => Some(ShardProbe {
            stock: Some(integer(stock)?),
            epoch: integer(epoch)?,
            open_claims: unsigned(open_claims)?,
            moving: unsigned(moving)?,
        }),
        _ => None,
    }
}
