//! Reading replies.

use weir_resp::Value;

/// A reply that is not what the script returns: another script's, another version's, or damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the reply is not one that {script} gives")]
pub struct ReplyError {
    /// The script's name.
    pub script: &'static str,
}

pub(crate) fn array(value: &Value) -> Option<&[Value]> {
    match value {
        Value::Array(values) => Some(values),
        _ => None,
    }
}

pub(crate) fn integer(value: &Value) -> Option<i64> {
    match value {
        Value::Integer(number) => Some(*number),
        _ => None,
    }
}

pub(crate) fn unsigned<N: TryFrom<i64>>(value: &Value) -> Option<N> {
    N::try_from(integer(value)?).ok()
}

/// Reads the reply of a script that says 1 for done and 0 for nothing to do.
pub(crate) fn flag(value: &Value, script: &'static crate::Script) -> Result<bool, ReplyError> {
    match value {
        Value::Integer(0) => Ok(false),
        Value::Integer(1) => Ok(true),
        _ => Err(ReplyError {
            script: script.name,
        }),
    }
}

/// Reads the decimal number that a bulk string is.
pub(crate) fn digits(value: &Value) -> Option<u64> {
    match value {
        Value::Bulk(bytes) => core::str::from_utf8(bytes).ok()?.parse().ok(),
        _ => None,
    }
}
