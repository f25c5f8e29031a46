//! Decoding of complete replies.

use alloc::vec::Vec;

use crate::resp::{ARRAY_LEN_MAX, BULK_LEN_MAX, DEPTH_MAX, LINE_LEN_MAX, Malformed};
use crate::resp::{parse_integer, parse_length};

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A status, such as `OK`.
    Simple(Vec<u8>),
    /// An error, such as `NOSCRIPT No matching script.`
    Error(Vec<u8>),
    /// An integer.
    Integer(i64),
    /// A byte string.
    Bulk(Vec<u8>),
    /// An array.
    Array(Vec<Value>),
    /// A null bulk string or a null array: RESP2 has both, with one meaning.
    Null,
}

/// Why decoding returns no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The input ends within a value.
    #[error("the input ends before the value does")]
    Incomplete,
    /// The input is not the beginning of a valid value.
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

/// Decodes the value at the start of `input`, and returns it with its length in bytes.
///
/// # Errors
/// [`DecodeError::Incomplete`] if the input ends too early, [`DecodeError::Malformed`] if it is not RESP2 or exceeds a
/// limit.
pub fn decode(input: &[u8]) -> Result<(Value, usize), DecodeError> {
    let mut reader = Reader { rest: input };
    let value = reader.value(0)?;
    Ok((value, input.len() - reader.rest.len()))
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Recurses at most [`DEPTH_MAX`] deep.
    fn value(&mut self, depth: usize) -> Result<Value, DecodeError> {
        let (&kind, after) = self.rest.split_first().ok_or(DecodeError::Incomplete)?;
        if !matches!(kind, b'+' | b'-' | b':' | b'$' | b'*') {
            return Err(Malformed::Type(kind).into());
        }
        self.rest = after;
        let line = self.line()?;
        match kind {
            b'+' => Ok(Value::Simple(line.to_vec())),
            b'-' => Ok(Value::Error(line.to_vec())),
            b':' => Ok(Value::Integer(parse_integer(line)?)),
            b'$' => self.bulk(line),
            _ => self.array(line, depth),
        }
    }

    fn line(&mut self) -> Result<&'a [u8], DecodeError> {
        let Some(end) = self.rest.iter().position(|&byte| byte == b'\r') else {
            return match self.rest.len() {
                length if length > LINE_LEN_MAX => Err(Malformed::Line.into()),
                _ => Err(DecodeError::Incomplete),
            };
        };
        if end > LINE_LEN_MAX {
            return Err(Malformed::Line.into());
        }
        let line = self.take(end)?;
        self.terminator()?;
        Ok(line)
    }

    fn bulk(&mut self, line: &[u8]) -> Result<Value, DecodeError> {
        let Some(length) = parse_length(line, BULK_LEN_MAX)? else {
            return Ok(Value::Null);
        };
        // Bounded by BULK_LEN_MAX, so it fits in 32 bits.
        let bytes = self.take(length as usize)?;
        self.terminator()?;
        Ok(Value::Bulk(bytes.to_vec()))
    }

    fn array(&mut self, line: &[u8], depth: usize) -> Result<Value, DecodeError> {
        let Some(length) = parse_length(line, ARRAY_LEN_MAX)? else {
            return Ok(Value::Null);
        };
        if depth >= DEPTH_MAX {
            return Err(Malformed::Depth.into());
        }
        // Grows with each element: an announced length allocates nothing.
        let mut values = Vec::new();
        for _ in 0..length {
            values.push(self.value(depth + 1)?);
        }
        Ok(Value::Array(values))
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        let (accepted, rest) = self
            .rest
            .split_at_checked(length)
            .ok_or(DecodeError::Incomplete)?;
        self.rest = rest;
        Ok(accepted)
    }

    fn terminator(&mut self) -> Result<(), DecodeError> {
        match self.rest {
            [b'\r', b'\n', rest @ ..] => {
                self.rest = rest;
                Ok(())
            }
            [] | [b'\r'] => Err(DecodeError::Incomplete),
            _ => Err(Malformed::Terminator.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    fn check(input: &[u8], expected: Result<Value, DecodeError>) {
        assert_eq!(decode(input).map(|(value, _)| value), expected, "{input:?}");
    }

    #[test]
    fn every_resp_type_is_decoded() {
        check(b"+OK\r\n", Ok(Value::Simple(b"OK".to_vec())));
        check(b"-ERR no\r\n", Ok(Value::Error(b"ERR no".to_vec())));
        check(b":-2\r\n", Ok(Value::Integer(-2)));
        check(b":9223372036854775807\r\n", Ok(Value::Integer(i64::MAX)));
        check(b"$4\r\na\r\nb\r\n", Ok(Value::Bulk(b"a\r\nb".to_vec())));
        check(b"$0\r\n\r\n", Ok(Value::Bulk(vec![])));
        check(b"$-1\r\n", Ok(Value::Null));
        check(b"*-1\r\n", Ok(Value::Null));
        check(b"*0\r\n", Ok(Value::Array(vec![])));
        let nested = Value::Array(vec![Value::Array(vec![Value::Integer(1)]), Value::Null]);
        check(b"*2\r\n*1\r\n:1\r\n$-1\r\n", Ok(nested));
    }

    #[test]
    fn invalid_resp_is_refused_with_its_reason() {
        let bad = |input: &[u8], reason| check(input, Err(DecodeError::Malformed(reason)));
        bad(b"HTTP/1.1 200 OK\r\n", Malformed::Type(b'H'));
        bad(b":+1\r\n", Malformed::Number);
        bad(b":\r\n", Malformed::Number);
        bad(b":1x\r\n", Malformed::Number);
        bad(b":000000000000000000001\r\n", Malformed::Number);
        bad(b":9223372036854775808\r\n", Malformed::Number);
        bad(b"$-2\r\n", Malformed::Length);
        bad(b"$536870913\r\n", Malformed::Length);
        bad(b"*1048577\r\n", Malformed::Length);
        bad(b"$1\r\nabc", Malformed::Terminator);
        bad(b"+OK\rX", Malformed::Terminator);
        bad(&b"*1\r\n".repeat(DEPTH_MAX + 1), Malformed::Depth);
        bad(
            &[b"+".as_slice(), &vec![b'x'; LINE_LEN_MAX + 2]].concat(),
            Malformed::Line,
        );
    }

    #[test]
    fn announced_length_without_data_allocates_nothing() {
        check(b"$536870912\r\n", Err(DecodeError::Incomplete));
        check(b"*1048576\r\n", Err(DecodeError::Incomplete));
    }

    #[test]
    fn bytes_after_a_value_are_not_consumed() {
        assert_eq!(decode(b":1\r\n:2\r\n"), Ok((Value::Integer(1), 4)));
    }

    proptest! {
        #[test]
        fn arbitrary_input_never_panics_the_decoder(input in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&input);
        }
    }
}
