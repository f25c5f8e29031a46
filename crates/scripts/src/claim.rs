//! `claim.lua`: who gets units of which shard.

use alloc::vec::Vec;

use weir_core::id::UserId;
use weir_core::ledger::{Checks, ClaimReply, ClaimTerms, Held};
use weir_core::shard::bucket;
use weir_resp::Value;

use crate::call::decimal;
use crate::keys::ShardKeys;
use crate::reply::{array, integer, unsigned};
use crate::{Call, ReplyError, Script};

/// The script.
pub static SCRIPT: Script = Script {
    name: "claim",
    source: with_records!("claim"),
};

/// The requests of one call that go to one shard, on one set of terms.
#[derive(Clone, Debug)]
pub struct Group<'a> {
    /// The shard.
    pub keys: &'a ShardKeys,
    /// What each user asks for. `now_ms` is the call's: the first group's counts.
    pub terms: ClaimTerms,
    /// Who asks, in the order in which they are decided.
    pub users: &'a [&'a UserId],
}

/// The call that decides `groups`. On Redis Cluster they must all be of one slot.
pub fn call(groups: &[Group<'_>]) -> Call {
    let now_ms = groups.first().map_or(0, |group| group.terms.now_ms);
    let (mut keys, mut args) = (Vec::new(), Vec::from([decimal(now_ms)]));
    for group in groups {
        let of_shard = group.keys;
        keys.extend([
            of_shard.stock(),
            of_shard.claims(),
            of_shard.pending(),
            of_shard.epoch(),
            of_shard.sequence(),
            of_shard.reserved_sets(),
            of_shard.blocked_sets(),
        ]);
        args.extend([
            decimal(group.terms.ttl_ms),
            decimal(group.terms.user_cap),
            decimal(group.terms.quantity),
            letters(group.terms.checks),
            decimal(group.users.len() as u64),
        ]);
        let users = group.users.iter().map(|user| user.as_str().into());
        args.extend(users);
        if group.terms.checks.blocked || group.terms.checks.reserved {
            args.extend(group.users.iter().map(|user| decimal(bucket(user))));
        }
    }
    Call {
        script: &SCRIPT,
        keys,
        args,
    }
}

fn letters(checks: Checks) -> Vec<u8> {
    let all = [
        (checks.blocked, b'b'),
        (checks.reserved, b'r'),
        (checks.drain, b'd'),
    ];
    let asked: Vec<u8> = all
        .into_iter()
        .filter_map(|(is_asked, letter)| is_asked.then_some(letter))
        .collect();
    if asked.is_empty() {
        return b"-".into();
    }
    asked
}

/// Reads the replies, one a user, in the order of the call.
///
/// # Errors
/// When the reply is not one of `count` answers of the script.
pub fn parse(value: &Value, count: usize) -> Result<Vec<ClaimReply>, ReplyError> {
    array(value)
        .filter(|replies| replies.len() == count)
        .and_then(|replies| replies.iter().map(parse_one).collect())
        .ok_or(ReplyError {
            script: SCRIPT.name,
        })
}

fn parse_one(value: &Value) -> Option<ClaimReply> {
    match array(value)? {
        [Value::Integer(1), held @ ..] => Some(ClaimReply::Granted(parse_held(held)?)),
        [Value::Integer(2), held @ ..] => Some(ClaimReply::GrantedAgain(parse_held(held)?)),
        [Value::Integer(3), generation] => Some(ClaimReply::CapReached {
            generation: unsigned(generation)?,
        }),
        [Value::Integer(4), epoch, open_claims] => Some(ClaimReply::Empty {
            epoch: integer(epoch)?,
            open_claims: unsigned(open_claims)?,
        }),
        [Value::Integer(5)] => Some(ClaimReply::Cold),
        [Value::Integer(6)] => Some(ClaimReply::Blocked),
        [Value::Integer(7)] => Some(ClaimReply::NotReserved),
        [Value::Integer(8)] => Some(ClaimReply::Draining),
        _ => None,
    }
}

pub(crate) fn parse_held(fields: &[Value]) -> Option<Held> {
    let [generation, quantity, deadline_ms, handout] = fields else {
        return None;
    };
    Some(Held {
        generation: unsigned(generation)?,
        quantity: unsigned(quantity)?,
        deadline_ms: unsigned(deadline_ms)?,
        handout: unsigned(handout)?,
    })
}
