//! A bounded codec for RESP2, the protocol of Redis
//! (<https://redis.io/docs/latest/develop/reference/protocol-spec/>).
//!
//! - [`encode_command`] writes a command; [`Arguments`] are parts of one, ready to be written by [`encode_parts`].
//! - [`decode`] reads one whole reply; an input that ends too early is [`DecodeError::Incomplete`],
//!   which is ordinary control flow, not a fault.
//! - [`Framer`] only finds where frames end, in input that may be cut anywhere, each byte once.
//!
//! All of it is bounded: nesting by [`DEPTH_MAX`], lines by [`LINE_LEN_MAX`], bulk strings by
//! [`BULK_LEN_MAX`], arrays by [`ARRAY_LEN_MAX`]; and nothing is allocated for a length that was
//! only announced. Integers are `i64`: TTL answers -1 and -2.

mod decode;
mod encode;
mod frame;

pub use decode::{DecodeError, Value, decode};
pub use encode::{Arguments, encode_command, encode_parts};
pub use frame::{Direction, Framer, Progress};

/// The deepest nesting of arrays. Replies of Weir's scripts nest twice.
pub const DEPTH_MAX: usize = 16;

/// The most bytes of a line, which carries a type and a length, an integer, or a status or error
/// text. Redis' own limit for an inline command is the same.
pub const LINE_LEN_MAX: usize = 64 * 1024;

/// The most bytes of one bulk string: Redis' own default (`proto-max-bulk-len`).
pub const BULK_LEN_MAX: u64 = 512 * 1024 * 1024;

/// The most elements of one array: Redis' own limit for the arguments of a command.
pub const ARRAY_LEN_MAX: u64 = 1024 * 1024;

/// Why an input is not RESP2, or is beyond the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// A frame starts with a byte that names no type.
    #[error("{0:#04x} starts no RESP frame")]
    Type(u8),
    /// A line that should hold a number does not, or one that does not fit.
    #[error("a length or integer is not a number")]
    Number,
    /// A length is negative and not -1, or beyond its limit.
    #[error("a length is out of bounds")]
    Length,
    /// A line is longer than [`LINE_LEN_MAX`].
    #[error("a line is longer than {LINE_LEN_MAX} bytes")]
    Line,
    /// What must be `\r\n` is not.
    #[error("a line or bulk string does not end in CR LF")]
    Terminator,
    /// Arrays nest deeper than [`DEPTH_MAX`].
    #[error("arrays nest deeper than {DEPTH_MAX}")]
    Depth,
    /// A command is not a non-empty array of bulk strings.
    #[error("a command is not an array of bulk strings")]
    NotACommand,
}

/// Digits of the longest number that RESP has: `-9223372036854775808`.
const NUMBER_LEN_MAX: usize = 20;

/// Reads a decimal number as RESP writes it: an optional `-`, then at least one digit.
fn parse_integer(digits: &[u8]) -> Result<i64, Malformed> {
    // `i64::from_str` takes a leading `+` and any number of zeros too, which Redis never sends.
    if digits.first() == Some(&b'+') || digits.len() > NUMBER_LEN_MAX {
        return Err(Malformed::Number);
    }
    core::str::from_utf8(digits)
        .ok()
        .and_then(|text| text.parse().ok())
        .ok_or(Malformed::Number)
}

/// Reads a length: `None` for -1, which announces a null.
fn parse_length(digits: &[u8], max: u64) -> Result<Option<u64>, Malformed> {
    match parse_integer(digits)? {
        -1 => Ok(None),
        length => match u64::try_from(length) {
            Ok(length) if length <= max => Ok(Some(length)),
            _ => Err(Malformed::Length),
        },
    }
}
