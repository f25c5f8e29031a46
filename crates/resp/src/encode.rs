//! Writing commands.

use alloc::vec::Vec;

/// Appends a command, an array of bulk strings, to `out`.
///
/// ```
/// let mut out = Vec::new();
/// weir_resp::encode_command(&mut out, [b"GET".as_slice(), b"k"]);
/// assert_eq!(out, b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n");
/// ```
pub fn encode_command<'a, I>(out: &mut Vec<u8>, arguments: I)
where
    I: IntoIterator<Item = &'a [u8]>,
    I::IntoIter: ExactSizeIterator,
{
    let arguments = arguments.into_iter();
    push_length(out, b'*', arguments.len());
    for argument in arguments {
        push_length(out, b'$', argument.len());
        out.extend_from_slice(argument);
        out.extend_from_slice(b"\r\n");
    }
}

/// `kind`, the length in decimal, CR LF; without going through the formatting machinery, which
/// costs more than all the rest of a command.
fn push_length(out: &mut Vec<u8>, kind: u8, length: usize) {
    out.push(kind);
    let start = out.len();
    let mut rest = length;
    loop {
        // A digit, so it fits.
        out.push(b'0' + (rest % 10) as u8);
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if let Some(digits) = out.get_mut(start..) {
        digits.reverse();
    }
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Value, decode};
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
        fn a_command_reads_back_as_an_array_of_its_arguments(
            arguments in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..9),
        ) {
            let mut out = Vec::new();
            encode_command(&mut out, arguments.iter().map(Vec::as_slice));
            let (value, used) = decode(&out).unwrap();
            prop_assert_eq!(used, out.len());
            let bulks = arguments.into_iter().map(Value::Bulk).collect();
            prop_assert_eq!(value, Value::Array(bulks));
        }
    }
}
