//! `claim.lua`: who gets units of which shard.

use alloc::vec::Vec;

use weir_core::id::UserId;
use weir_core::ledger::{Checks, ClaimReply, ClaimTerms, Held};
use weir_core::shard::bucket;
use weir_resp::Value;

use crate::call::decimal;
use crate::keys::ShardKeys;
use crate::reply::{digits, text};
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

/// The call that decides `groups`, each of another shard. On Redis Cluster they must all be of one slot.
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
    text(value)
        .map(|text| text.split(|&byte| byte == b','))
        .and_then(|answers| answers.map(parse_one).collect())
        .filter(|replies: &Vec<ClaimReply>| replies.len() == count)
        .ok_or(ReplyError {
            script: SCRIPT.name,
        })
}

fn parse_one(answer: &[u8]) -> Option<ClaimReply> {
    let mut fields = answer.split(|&byte| byte == b' ');
    let code = fields.next()?;
    let mut number = || digits(fields.next()?);
    let reply = match code {
        b"1" => ClaimReply::Granted(next_held(number)?),
        b"2" => ClaimReply::GrantedAgain(next_held(number)?),
        b"3" => ClaimReply::CapReached {
            generation: number()?,
        },
        b"4" => ClaimReply::Empty {
            epoch: number()?.try_into().ok()?,
            open_claims: number()?,
        },
        b"5" => ClaimReply::Cold,
        b"6" => ClaimReply::Blocked,
        b"7" => ClaimReply::NotReserved,
        b"8" => ClaimReply::Draining,
        _ => return None,
    };
    fields.next().is_none().then_some(reply)
}

fn next_held(mut number: impl FnMut() -> Option<u64>) -> Option<Held> {
    Some(Held {
        generation: number()?,
        quantity: number()?.try_into().ok()?,
        deadline_ms: number()?,
        handout: number()?.try_into().ok()?,
    })
}
