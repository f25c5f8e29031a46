//! `limit_back.lua`: undoes the charges of ended requests.

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

/// A charge to undo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Charge {
    /// The key.
    pub key: LimitKey,
    /// The quota at the time of the charge.
    pub quota: Quota,
    /// The number of units: [`Answer::used`](crate::redis::limit::Answer::used), or fewer.
    pub cost: u32,
    /// The [mark](crate::Check::mark) of the check that allowed the request.
    pub mark: u64,
}

/// The call that undoes `charges` in order, on Redis' own clock.
///
/// Redis does not identify charges, so undoing one twice, for example after a lost reply, counts twice. There must be
/// at least one. On Redis Cluster all keys of a call must be in one slot.
pub fn call(charges: &[Charge]) -> Call {
    call_at(charges, 0)
}

/// [`call`] at `now_ms` instead of Redis' clock; 0 is Redis' clock. Only for tests.
pub fn call_at(charges: &[Charge], now_ms: u64) -> Call {
    let mut terms = Terms::default();
    for charge in charges {
        terms.push_limit(&charge.key, charge.quota);
        terms.push(charge.cost.into());
        terms.push(charge.mark);
    }
    terms.into_call(&SCRIPT, now_ms)
}

/// Reads the reply: the number of charges that still counted and were undone.
///
/// # Errors
/// When the reply does not match the script and `count` charges.
pub fn parse(value: &Value, count: usize) -> Result<usize, ReplyError> {
    unsigned(value)
        .filter(|found| *found <= count)
        .ok_or(ReplyError {
            script: SCRIPT.name,
        })
}
