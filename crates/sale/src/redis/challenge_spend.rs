//! `challenge_spend.lua`: maps solved challenges to their tokens.

use alloc::vec::Vec;

use crate::challenge::NAME_LEN;
use weir_base::resp::{Arguments, Value};

use crate::redis::keys;
use weir_scripts::reply::array;
use weir_scripts::{Call, ReplyError, Script};

/// The script.
pub static SCRIPT: Script = Script {
    name: "challenge_spend",
    source: include_str!("../../lua/challenge_spend.lua"),
};

/// A solution to exchange for a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SolutionSpend {
    /// The solution's name: see [`crate::challenge::AcceptedSolution::name`].
    pub name: [u8; NAME_LEN],
    /// When its token is minted, unless it already was.
    pub now_ms: u64,
    /// How long Redis stores that: at least until the challenge has expired, and not 0.
    pub keep_ms: u64,
}

/// Exchanges these solutions. On Redis Cluster, only one per call.
pub fn call(prefix: &str, spends: &[SolutionSpend]) -> Call {
    let mut args = Arguments::default();
    for spend in spends {
        args.push_decimal(spend.now_ms);
        args.push_decimal(spend.keep_ms);
    }
    let key = |spend: &SolutionSpend| keys::challenge(prefix, &spend.name);
    Call {
        script: &SCRIPT,
        keys: spends.iter().map(key).collect(),
        args,
    }
}

/// When the token of each solution was minted, in milliseconds since the Unix epoch, in the order of the call.
///
/// # Errors
/// When it is not a reply for `count` solutions.
pub fn parse(value: &Value, count: usize) -> Result<Vec<u64>, ReplyError> {
    let time = |value: &Value| match value {
        Value::Bulk(digits) => core::str::from_utf8(digits).ok()?.parse().ok(),
        _ => None,
    };
    array(value)
        .filter(|times| times.len() == count)
        .and_then(|times| times.iter().map(time).collect())
        .ok_or(ReplyError {
            script: SCRIPT.name,
        })
}
