//! `limit_back.lua`: requests in flight have ended, and no longer count.

use crate::Quota;
use weir_base::resp::Value;

use crate::redis::keys::LimitKey;
use crate::redis::limit::Terms;
use weir_scripts::reply::unsigned;
use weir_scripts::{Call, ReplyError, Script};

/// The script.
pub static SCRIPT: Script = Script {
    name: "limit_back",
    source: with_limit_states!("limit_back"),
};

/// What a request was charged, and is to have back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Charge {
    /// Whose limit.
    pub key: LimitKey,
    /// What is allowed, as when it was charged.
    pub quota: Quota,
    /// How many units: [`Answer::taken`](crate::redis::limit::Answer::taken), or fewer.
    pub cost: u32,
    /// The mark of the [check](crate::Check::mark) that let it pass.
    pub mark: u64,
}

/// The call that takes back `charges`, in their order and on Redis' own clock.
///
/// Redis does not tell charges apart, so one that is taken back twice, as after a lost reply, counts
/// twice. There must be at least one. On Redis Cluster all keys of a call must be of one slot.
pub fn call(charges: &[Charge]) -> Call {
    call_at(charges, 0)
}

/// [`call`] at `now_ms` in place of Redis' clock; 0 is Redis' clock. Only for tests.
pub fn call_at(charges: &[Charge], now_ms: u64) -> Call {
    let mut terms = Terms::default();
    for charge in charges {
        terms.push_limit(&charge.key, charge.quota);
        terms.push(charge.cost.into());
        terms.push(charge.mark);
    }
    terms.into_call(&SCRIPT, now_ms)
}

/// Reads the reply: of how many charges something still counted, and was taken back.
///
/// # Errors
/// When the reply is not one of the script to `count` charges.
pub fn parse(value: &Value, count: usize) -> Result<usize, ReplyError> {
    unsigned(value)
        .filter(|found| *found <= count)
        .ok_or(ReplyError {
            script: SCRIPT.name,
        })
}
