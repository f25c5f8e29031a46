//! `release.lua`: releases claims.

use alloc::vec::Vec;

use crate::ledger::{ReleaseKind, ReleaseReply};
use crate::shard::bucket;
use weir_base::id::UserId;
use weir_base::resp::{Arguments, Value};

use crate::redis::keys::ShardKeys;
use weir_scripts::reply::{FromReply, array};
use weir_scripts::{Call, ReplyError, Script};

/// The script.
pub static SCRIPT: Script = Script {
    name: "release",
    source: with_records!("release"),
};

/// Releases `claims` of one shard, each a user, a generation and a kind.
pub fn call(keys: &ShardKeys, claims: &[(&UserId, u64, ReleaseKind)]) -> Call {
    let mut args = Arguments::default();
    for &(user, generation, kind) in claims {
        args.push(user.as_str().as_bytes());
        args.push_decimal(bucket(user).into());
        args.push_decimal(generation);
        match kind {
            ReleaseKind::Delivery(delivery) => args.push_decimal(delivery.into()),
            ReleaseKind::Decided => args.push(b"decided"),
            ReleaseKind::Void => args.push(b"void"),
        }
    }
    Call {
        script: &SCRIPT,
        keys: keys.of_user().into(),
        args,
    }
}

/// Parses the replies, one per claim, in the order of the call.
///
/// # Errors
/// When it is not a reply of this script with `count` answers.
pub fn parse(value: &Value, count: usize) -> Result<Vec<ReleaseReply>, ReplyError> {
    array(value)
        .filter(|replies| replies.len() == count)
        .and_then(|replies| replies.iter().map(ReleaseReply::from_reply).collect())
        .ok_or(ReplyError {
            script: SCRIPT.name,
        })
}
