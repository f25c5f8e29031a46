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
