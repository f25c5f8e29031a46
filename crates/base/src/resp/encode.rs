//! Encoding of commands.

use alloc::string::String;
use alloc::vec::Vec;

/// Appends a command, an array of bulk strings, to `out`.
///
/// ```
/// let mut out = Vec::new();
/// weir_base::resp::encode_command(&mut out, [b"GET".as_slice(), b"k"]);
/// assert_eq!(out, b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n");
/// ```
pub fn encode_command<'a, I>(out: &mut Vec<u8>, arguments: I)
where
    I: IntoIterator<Item = &'a [u8]>,
    I::IntoIter: ExactSizeIterator,
{
    let arguments = arguments.into_iter();
    push_number(out, b'*', arguments.len() as u64);
    for argument in arguments {
        push_bulk(out, &[argument]);
    }
}

/// The usual overhead of a bulk string: type, length, and CR LF twice. Long strings need a few more bytes.
const FRAME_LEN_USUAL: usize = 9;

/// Encoded arguments of a command in one allocation.
///
/// ```
/// let mut keys = weir_base::resp::Arguments::from([b"a".as_slice(), b"b"]);
/// keys.push_joined(&[b"prefix:", b"c"]);
/// let mut out = Vec::new();
/// weir_base::resp::encode_parts(&mut out, &[&keys, &weir_base::resp::Arguments::from([b"d"])]);
/// assert!(out.starts_with(b"*4\r\n$1\r\na\r\n"));
/// assert!(keys.iter().eq([b"a".as_slice(), b"b", b"prefix:c"]));
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Arguments {
    count: usize,
    bytes: Vec<u8>,
}

impl Arguments {
    /// An empty list with capacity for `bytes` encoded bytes.
    pub fn with_capacity(bytes: usize) -> Self {
        Self {
            count: 0,
            bytes: Vec::with_capacity(bytes),
        }
    }

    /// The number of arguments.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds an argument.
    pub fn push(&mut self, argument: &[u8]) {
        self.push_joined(&[argument]);
    }

    /// Adds the concatenation of `parts` as one argument.
    pub fn push_joined(&mut self, parts: &[&[u8]]) {
        self.count += 1;
        push_bulk(&mut self.bytes, parts);
    }

    /// Adds a number in decimal.
    pub fn push_decimal(&mut self, number: u64) {
        self.push(itoa::Buffer::new().format(number).as_bytes());
    }

    /// Iterates over the arguments in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = self.bytes.as_slice();
        core::iter::from_fn(move || {
            let (argument, behind) = first_bulk(rest)?;
            rest = behind;
            Some(argument)
        })
    }
}

impl core::fmt::Debug for Arguments {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let texts = self.iter().map(String::from_utf8_lossy);
        f.debug_list().entries(texts).finish()
    }
}

impl<A: AsRef<[u8]>> FromIterator<A> for Arguments {
    fn from_iter<I: IntoIterator<Item = A>>(arguments: I) -> Self {
        let mut all = Self::default();
        for argument in arguments {
            all.push(argument.as_ref());
        }
        all
    }
}

impl<A: AsRef<[u8]>, const N: usize> From<[A; N]> for Arguments {
    fn from(arguments: [A; N]) -> Self {
        let lengths = arguments.iter().map(|argument| argument.as_ref().len());
        let bytes: usize = lengths.map(|length| length + FRAME_LEN_USUAL).sum();
        let mut all = Self::with_capacity(bytes);
        for argument in &arguments {
            all.push(argument.as_ref());
        }
        all
    }
}

/// Appends one command whose arguments are those of all `parts`, in order.
pub fn encode_parts(out: &mut Vec<u8>, parts: &[&Arguments]) {
    let count = parts.iter().map(|part| part.count as u64).sum();
    push_number(out, b'*', count);
    for part in parts {
        out.extend_from_slice(&part.bytes);
    }
}

/// Appends the concatenation of `parts` as a bulk string.
fn push_bulk(out: &mut Vec<u8>, parts: &[&[u8]]) {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    push_number(out, b'$', length as u64);
    for part in parts {
        out.extend_from_slice(part);
    }
    out.extend_from_slice(b"\r\n");
}

/// Splits `bytes`, which [`push_bulk`] wrote, into the first bulk string and the rest.
fn first_bulk(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|&byte| byte == b'\r')?;
    let (line, behind) = bytes.split_at_checked(end)?;
    let length = core::str::from_utf8(line.get(1..)?).ok()?.parse().ok()?;
    let (argument, behind) = behind.get(2..)?.split_at_checked(length)?;
    Some((argument, behind.get(2..)?))
}

/// Appends `kind`, the number in decimal, and CR LF. Rust's formatting would cost more than the rest of a command.
fn push_number(out: &mut Vec<u8>, kind: u8, number: u64) {
    out.push(kind);
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::{Value, decode};
    use alloc::vec;
    use proptest::prelude::*;

    #[test]
    fn lengths_of_every_size_are_written_in_decimal() {
        for length in [0, 9, 10, 99, 100, 12_345] {
            let mut out = Vec::new();
            encode_command(&mut out, [vec![b'x'; length].as_slice()]);
            let head = std::format!("*1\r\n${length}\r\n");
            assert_eq!(&out[..head.len()], head.as_bytes());
            assert_eq!(out.len(), head.len() + length + 2);
        }
    }

    proptest! {
        #[test]
        fn encoded_command_decodes_as_array_of_its_arguments(
            arguments in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..9),
        ) {
            let mut out = Vec::new();
            encode_command(&mut out, arguments.iter().map(Vec::as_slice));
            let (value, used) = decode(&out).unwrap();
            prop_assert_eq!(used, out.len());
            let bulks = arguments.into_iter().map(Value::Bulk).collect();
            prop_assert_eq!(value, Value::Array(bulks));
        }

        #[test]
        fn arguments_in_one_buffer_equal_the_original_arguments(
            arguments in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..9),
            cut in any::<prop::sample::Index>(),
            number: u64,
        ) {
            let (head, tail) = arguments.split_at(cut.index(arguments.len()));
            let (head, mut tail): (Arguments, Arguments) = (head.iter().collect(), tail.iter().collect());
            prop_assert!(head.iter().chain(tail.iter()).eq(arguments.iter().map(Vec::as_slice)));
            prop_assert_eq!(head.len() + tail.len(), arguments.len());
            tail.push_decimal(number);
            tail.push_joined(&[b"a", b"", b"bc"]);
            let digits = std::format!("{number}");
            let more = [digits.as_bytes(), b"abc"];
            let all: Vec<&[u8]> = arguments.iter().map(Vec::as_slice).chain(more).collect();
            let (mut out, mut expected) = (Vec::new(), Vec::new());
            encode_parts(&mut out, &[&head, &tail]);
            encode_command(&mut expected, all);
            prop_assert_eq!(out, expected);
        }
    }
}
