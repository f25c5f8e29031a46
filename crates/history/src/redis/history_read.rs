//! `history_read.lua`: reads one owner's list or its length.

use weir_base::resp::{Arguments, Value};

use crate::redis::history::{List, list};
use crate::redis::keys::HistoryKeys;
use weir_scripts::reply::unsigned;
use weir_scripts::{Call, ReplyError, Script};

/// The script.
pub static SCRIPT: Script = Script {
    name: "history_read",
    source: include_str!("../../lua/history_read.lua"),
};

/// A promise to count: the caller stores the count with [`history_count`](crate::redis::history_count).
#[derive(Clone, Copy, Debug)]
pub struct Promise<'a> {
    /// A unique name.
    pub name: &'a str,
    /// Lifetime of the promise, in milliseconds.
    pub life_ms: u64,
}

/// A generation for a list that has none.
#[derive(Clone, Copy, Debug)]
pub struct NewGeneration<'a> {
    /// A unique name of digits and letters.
    pub name: &'a str,
    /// Lifetime of the marker with it, in milliseconds: longer than loading a list takes.
    pub life_ms: u64,
}

/// The reply to a read of the count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CountReply {
    /// The stored count.
    Known(u64),
    /// No stored count: the list instead.
    Unknown(List),
}

/// The call that reads the list, or with a promise, the stored count if there is one.
pub fn call(
    keys: &HistoryKeys,
    generation: NewGeneration<'_>,
    promise: Option<Promise<'_>>,
) -> Call {
    let mut args = Arguments::default();
    args.push(generation.name.as_bytes());
    args.push_decimal(generation.life_ms);
    if let Some(promise) = promise {
        args.push(promise.name.as_bytes());
        args.push_decimal(promise.life_ms);
    }
    Call {
        script: &SCRIPT,
        keys: [keys.views(), keys.marker(), keys.count()].into(),
        args,
    }
}

/// Parses the reply to a call without a promise.
///
/// # Errors
/// If the reply is not from this script.
pub fn parse(value: &Value) -> Result<List, ReplyError> {
    list(value).ok_or(ReplyError {
        script: SCRIPT.name,
    })
}

/// Parses the reply to a call with a promise.
///
/// # Errors
/// If the reply is not from this script.
pub fn parse_count(value: &Value) -> Result<CountReply, ReplyError> {
    match unsigned::<u64>(value) {
        Some(count) => Ok(CountReply::Known(count)),
        None => parse(value).map(CountReply::Unknown),
    }
}
