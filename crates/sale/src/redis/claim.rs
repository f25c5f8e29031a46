//! `claim.lua`, preceded by `first_claim.lua`: grants units of shards.

use alloc::string::ToString;
use alloc::vec::Vec;

use crate::idempotency::AttemptTag;
use crate::ledger::{Checks, ClaimReply, ClaimTerms, OpenClaim};
use crate::shard::{BUCKETS, bucket};
use weir_base::id::UserId;
use weir_base::resp::{Arguments, Value};

use crate::redis::keys::ShardKeys;
use weir_scripts::reply::{Numbers, text};
use weir_scripts::{Call, ReplyError, Script};

/// The script.
pub static SCRIPT: Script = Script {
    name: "claim",
    source: concat!(
        include_str!("../../lua/first_claim.lua"),
        with_records!("claim")
    ),
};

/// The requests of one call for one shard, with one set of terms.
#[derive(Clone, Debug)]
pub struct Group<'a> {
    /// The shard.
    pub keys: ShardKeys,
    /// The terms of each claim.
    pub terms: ClaimTerms,
    /// The users, in the order of the decisions.
    pub users: Vec<&'a UserId>,
    /// For each user, the idempotency key's tag, if any. Empty if no request has one.
    pub attempts: Vec<Option<AttemptTag>>,
}

impl Group<'_> {
    fn has_attempts(&self) -> bool {
        self.attempts.iter().any(Option::is_some)
    }
}

/// How long Redis stores the claim of an attempt, in milliseconds: a day. `claim.lua` contains the same value.
pub const ATTEMPT_TTL_MS: u64 = 24 * 60 * 60 * 1_000;

/// The usual encoded length of a group's keys and terms with one user, as the initial capacity.
const GROUP_LEN_USUAL: usize = 320;
const USER_LEN_USUAL: usize = 32;
const TERMS_LEN_USUAL: usize = 48;

/// The call that decides `groups`, each of a different shard. On Redis Cluster all must be in one slot.
pub fn call(groups: &[Group<'_>]) -> Call {
    let users: usize = groups.iter().map(|group| group.users.len()).sum();
    let mut call = Call {
        script: &SCRIPT,
        keys: Arguments::with_capacity(groups.len() * GROUP_LEN_USUAL),
        args: Arguments::with_capacity(users * USER_LEN_USUAL + groups.len() * TERMS_LEN_USUAL),
    };
    call.args.push_decimal(groups.len() as u64);
    for group in groups {
        group.keys.push_ledger_of_claims(&mut call.keys);
        push_requests(&mut call.args, group);
    }
    for group in groups {
        group
            .keys
            .push_checked_sets(group.terms.checks, &mut call.keys);
        if group.has_attempts() {
            group.keys.push_attempts(&mut call.keys);
        }
    }
    call
}

fn push_requests(args: &mut Arguments, group: &Group<'_>) {
    let Group { terms, users, .. } = group;
    args.push_decimal(terms.ttl_ms);
    args.push_decimal(terms.user_cap.into());
    args.push_decimal(terms.quantity.into());
    args.push(letters(terms.checks, group.has_attempts()));
    let buckets: Vec<u8> = users.iter().map(|user| bucket_byte(user)).collect();
    args.push(&buckets);
    for user in users {
        args.push(user.as_str().as_bytes());
    }
    if group.has_attempts() {
        let tags = group
            .attempts
            .iter()
            .map(Some)
            .chain(core::iter::repeat(None));
        for (_, tag) in users.iter().zip(tags) {
            match tag.copied().flatten() {
                Some(tag) => args.push(tag.to_string().as_bytes()),
                None => args.push(b"-"),
            }
        }
    }
}

/// The user's bucket in its home shard as one byte: [`BUCKETS`] is at most 256.
fn bucket_byte(user: &UserId) -> u8 {
    const { assert!(BUCKETS <= 1 << u8::BITS) };
    bucket(user) as u8
}

fn letters(checks: Checks, has_attempts: bool) -> &'static [u8] {
    if has_attempts {
        return match (checks.blocked, checks.reserved, checks.drain) {
            (false, false, false) => b"k",
            (false, false, true) => b"dk",
            (false, true, false) => b"rk",
            (false, true, true) => b"rdk",
            (true, false, false) => b"bk",
            (true, false, true) => b"bdk",
            (true, true, false) => b"brk",
            (true, true, true) => b"brdk",
        };
    }
    match (checks.blocked, checks.reserved, checks.drain) {
        (false, false, false) => b"-",
        (false, false, true) => b"d",
        (false, true, false) => b"r",
        (false, true, true) => b"rd",
        (true, false, false) => b"b",
        (true, false, true) => b"bd",
        (true, true, false) => b"br",
        (true, true, true) => b"brd",
    }
}

/// Parses the replies, one per user, in the order of the call.
///
/// # Errors
/// When it is not a reply of this script with `count` answers.
pub fn parse(value: &Value, count: usize) -> Result<Vec<ClaimReply>, ReplyError> {
    text(value)
        .and_then(|text| answers(Numbers(text), count))
        .filter(|replies| replies.len() == count)
        .ok_or(ReplyError {
            script: SCRIPT.name,
        })
}

fn answers(mut text: Numbers<'_>, count: usize) -> Option<Vec<ClaimReply>> {
    let mut replies = Vec::with_capacity(count);
    loop {
        replies.push(answer(&mut text)?);
        match text.take() {
            Some(b',') => {}
            Some(_) => return None,
            None => return Some(replies),
        }
    }
}

fn answer(text: &mut Numbers<'_>) -> Option<ClaimReply> {
    let code = text.number()?;
    let mut next = || text.take().filter(|&byte| byte == b' ').and(text.number());
    Some(match code {
        1 => ClaimReply::Granted(next_held(next)?),
        2 => ClaimReply::GrantedAgain(next_held(next)?),
        3 => ClaimReply::CapReached {
            generation: next()?,
        },
        4 => ClaimReply::Empty {
            epoch: next()?.try_into().ok()?,
            open_claims: next()?,
        },
        5 => ClaimReply::Cold,
        6 => ClaimReply::Blocked,
        7 => ClaimReply::NotReserved,
        8 => ClaimReply::Draining,
        9 => ClaimReply::Ordered {
            generation: next()?,
            quantity: next()?.try_into().ok()?,
        },
        10 => ClaimReply::InProgress,
        _ => return None,
    })
}

fn next_held(mut next: impl FnMut() -> Option<u64>) -> Option<OpenClaim> {
    Some(OpenClaim {
        generation: next()?,
        quantity: next()?.try_into().ok()?,
        deadline_ms: next()?,
        delivery: next()?.try_into().ok()?,
    })
}
