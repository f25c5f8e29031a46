//! Parsers of replies.

pub use weir_base::resp::Value;

/// The reply is not from this script: another script's, another version's, or damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unexpected reply of the script {script}")]
pub struct ReplyError {
    /// The script's name.
    pub script: &'static str,
}

/// The values of an array.
pub fn array(value: &Value) -> Option<&[Value]> {
    match value {
        Value::Array(values) => Some(values),
        _ => None,
    }
}

/// The number of an integer reply.
pub fn integer(value: &Value) -> Option<i64> {
    match value {
        Value::Integer(number) => Some(*number),
        _ => None,
    }
}

/// The number of an integer reply, if it fits `N`.
pub fn unsigned<N: TryFrom<i64>>(value: &Value) -> Option<N> {
    N::try_from(integer(value)?).ok()
}

/// A type that a script replies with.
pub trait FromReply: Sized {
    /// Parses the reply; `None` for a value that the script never returns.
    fn from_reply(value: &Value) -> Option<Self>;
}

/// 1 for done, 0 for no change.
impl FromReply for bool {
    fn from_reply(value: &Value) -> Option<Self> {
        match value {
            Value::Integer(0) => Some(false),
            Value::Integer(1) => Some(true),
            _ => None,
        }
    }
}

/// A count.
impl FromReply for usize {
    fn from_reply(value: &Value) -> Option<Self> {
        unsigned(value)
    }
}

/// Parses the reply of a script.
///
/// # Errors
/// If the reply is not from this script.
pub fn read<T: FromReply>(value: &Value, script: &'static crate::Script) -> Result<T, ReplyError> {
    T::from_reply(value).ok_or(ReplyError {
        script: script.name,
    })
}

/// Parses the reply of a script that returns 1 for done and 0 for no change.
///
/// # Errors
/// If the reply is not from this script.
pub fn flag(value: &Value, script: &'static crate::Script) -> Result<bool, ReplyError> {
    read(value, script)
}

/// The bytes of a bulk reply.
pub fn text(value: &Value) -> Option<&[u8]> {
    match value {
        Value::Bulk(text) => Some(text),
        _ => None,
    }
}

/// Parses a number in the scripts' format.
pub fn digits(text: &[u8]) -> Option<u64> {
    let mut text = Numbers(text);
    let number = text.number()?;
    text.take().is_none().then_some(number)
}

/// Text that contains numbers in the scripts' format: digits without leading zeros. Each byte is read once.
pub struct Numbers<'a>(pub &'a [u8]);

impl Numbers<'_> {
    /// Takes the next number.
    pub fn number(&mut self) -> Option<u64> {
        // 19 digits never overflow, and Lua's integers have fewer.
        const LEN_MAX: usize = 19;
        let (mut number, mut len) = (0, 0);
        while let Some(byte) = self.0.get(len).filter(|byte| byte.is_ascii_digit()) {
            if len == LEN_MAX {
                return None;
            }
            number = number * 10 + u64::from(byte - b'0');
            len += 1;
        }
        let is_padded = len > 1 && self.0.first() == Some(&b'0');
        self.0 = self.0.get(len..)?;
        (len > 0 && !is_padded).then_some(number)
    }

    /// Takes the next byte.
    pub fn take(&mut self) -> Option<u8> {
        let (&byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(byte)
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn only_canonical_decimals_are_parsed_as_numbers() {
        for number in [0_u64, 7, 10, 1_700_000_000_000, 9_999_999_999_999_999_999] {
            assert_eq!(digits(number.to_string().as_bytes()), Some(number));
        }
        for text in [
            "",
            "-1",
            "+1",
            " 1",
            "1 ",
            "01",
            "00",
            "1e3",
            "1.0",
            "x",
            "10000000000000000000",
        ] {
            assert_eq!(digits(text.as_bytes()), None, "{text}");
        }
    }
}
