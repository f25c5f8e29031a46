//! `history_read.lua`: one owner's list, or how long it is.

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

/// A promise to count: whoever makes it tells the count by [`history_count`](crate::redis::history_count).
#[derive(Clone, Copy, Debug)]
pub struct Promise<'a> {
    /// A name that no other promise has.
    pub name: &'a str,
    /// How long it holds, in milliseconds.
    pub life_ms: u64,
}

/// A generation for a list that has none.
#[derive(Clone, Copy, Debug)]
pub struct NewGeneration<'a> {
    /// A name that no other has, of digits and letters.
    pub name: &'a str,
    /// How long the marker lives that has it, in milliseconds: longer than it takes to load a list.
    pub life_ms: u64,
}

/// What Redis says to who asks for a count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CountReply {
    /// So many.
    Known(u64),
    /// Nobody knows: the list tells.
    Unknown(List),
}

/// The call that reads the list; with a promise, the count if there is one.
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

/// Reads the reply to a call without a promise.
///
/// # Errors
/// When the reply is not one of the script.
pub fn parse(value: &Value) -> Result<List, ReplyError> {
    list(value).ok_or(ReplyError {
        script: SCRIPT.name,
    })
}

/// Reads the reply to a call with a promise.
///
/// # Errors
/// When the reply is not one of the script.
pub fn parse_count(value: &Value) -> Result<CountReply, ReplyError> {
    match unsigned::<u64>(value) {
        Some(count) => Ok(CountReply::Known(count)),
        None => parse(value).map(CountReply::Unknown),
    }
}
