//! A bounded codec for RESP2, the protocol of Redis
//! (<https://redis.io/docs/latest/develop/reference/protocol-spec/>).
//!
//! - [`encode_command`] writes a command; [`encode_parts`] writes one from prepared [`Arguments`].
//! - [`decode`] reads one complete reply; [`DecodeError::Incomplete`] for truncated input is ordinary control flow.
//! - [`Framer`] finds the ends of frames in chunks of any size and reads each byte once.
//!
//! Everything is bounded: nesting by [`DEPTH_MAX`], lines by [`LINE_LEN_MAX`], bulk strings by [`BULK_LEN_MAX`], arrays
//! by [`ARRAY_LEN_MAX`]. An announced length allocates nothing. Integers are `i64`, because `TTL` returns -1 and -2.

mod decode;
mod encode;
mod frame;

pub use decode::{DecodeError, Value, decode};
pub use encode::{Arguments, encode_command, encode_parts};
pub use frame::{Direction, Framer, Progress};

/// The maximum nesting of arrays. Replies of Weir's scripts nest twice.
pub const DEPTH_MAX: usize = 16;

/// The maximum bytes of a line: a type and a length, an integer, a status or an error. Redis has the same limit for
/// inline commands.
pub const LINE_LEN_MAX: usize = 64 * 1024;

/// The maximum bytes of a bulk string: Redis' own default (`proto-max-bulk-len`).
pub const BULK_LEN_MAX: u64 = 512 * 1024 * 1024;

/// The maximum elements of an array: Redis' own limit for the arguments of a command.
pub const ARRAY_LEN_MAX: u64 = 1024 * 1024;

/// Why an input is not RESP2 or exceeds a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The first byte of a frame is not a type.
    #[error("{0:#04x} starts no RESP frame")]
    Type(u8),
    /// A line contains no number, or one that is out of range.
    #[error("a length or integer is not a number")]
    Number,
    /// A length is negative (except -1) or exceeds its limit.
    #[error("a length is out of bounds")]
    Length,
    /// A line is longer than [`LINE_LEN_MAX`].
    #[error("a line is longer than {LINE_LEN_MAX} bytes")]
    Line,
    /// `\r\n` is missing.
    #[error("a line or bulk string does not end in CR LF")]
    Terminator,
    /// Arrays nest deeper than [`DEPTH_MAX`].
    #[error("arrays nest deeper than {DEPTH_MAX}")]
    Depth,
    /// A command is not a non-empty array of bulk strings.
    #[error("a command is not an array of bulk strings")]
    NotACommand,
}

/// The length of the longest number in RESP: `-9223372036854775808`.
const NUMBER_LEN_MAX: usize = 20;

/// Parses a decimal number of RESP: an optional `-`, then at least one digit.
fn parse_integer(digits: &[u8]) -> Result<i64, Malformed> {
    // `i64::from_str` also accepts a leading `+` and leading zeros, which Redis never sends.
    if digits.first() == Some(&b'+') || digits.len() > NUMBER_LEN_MAX {
        return Err(Malformed::Number);
    }
    core::str::from_utf8(digits)
        .ok()
        .and_then(|text| text.parse().ok())
        .ok_or(Malformed::Number)
}

/// Parses a length: `None` for -1, which announces a null.
fn parse_length(digits: &[u8], max: u64) -> Result<Option<u64>, Malformed> {
    match parse_integer(digits)? {
        -1 => Ok(None),
        length => match u64::try_from(length) {
            Ok(length) if length <= max => Ok(Some(length)),
            _ => Err(Malformed::Length),
        },
    }
}
