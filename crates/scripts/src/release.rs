//! `release.lua`: claims are given back.

use alloc::vec::Vec;

use weir_core::id::UserId;
use weir_core::ledger::{ReleaseKind, ReleaseReply};
use weir_resp::Value;

use crate::call::decimal;
use crate::keys::ShardKeys;
use crate::reply::array;
use crate::{Call, ReplyError, Script, with_records};

/// The script.
pub static SCRIPT: Script = Script {
    name: "release",
    source: with_records!("release"),
};

/// The call that gives back `claims`, each a user and a generation, of one shard.
pub fn call(keys: &ShardKeys, kind: ReleaseKind, claims: &[(&UserId, u64)]) -> Call {
    let kind = match kind {
        ReleaseKind::Handout => "handout",
        ReleaseKind::Decided => "decided",
        ReleaseKind::Void => "void",
    };
    let mut args = Vec::from([Vec::from(kind)]);
    for &(user, generation) in claims {
        args.push(user.as_str().into());
        args.push(decimal(generation));
    }
    Call {
        script: &SCRIPT,
        keys: Vec::from([keys.stock(), keys.claims(), keys.pending(), keys.epoch()]),
        args,
    }
}

/// Reads the replies, one a claim, in the order of the call.
///
/// # Errors
/// When the reply is not one of `count` answers of the script.
pub fn parse(value: &Value, count: usize) -> Result<Vec<ReleaseReply>, ReplyError> {
    let parse_one = |value: &Value| match value {
        Value::Integer(0) => Some(ReleaseReply::Nothing),
        Value::Integer(1) => Some(ReleaseReply::Ended),
        Value::Integer(2) => Some(ReleaseReply::StillOut),
        _ => None,
    };
    array(value)
        .filter(|replies| replies.len() == count)
        .and_then(|replies| replies.iter().map(parse_one).collect())
        .ok_or(ReplyError {
            script: SCRIPT.name,
        })
}
