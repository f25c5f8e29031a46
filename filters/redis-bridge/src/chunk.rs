//! An incremental decoder of HTTP/1.1 chunks.

use httparse::{Status, parse_chunk_size};

/// Maximum bytes of a chunk's size line, with its line feed. Envoy's have about ten.
const LINE_LEN_MAX: usize = 64;

/// The caller has ended its body, or sends malformed chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BodyEnd;

/// The decoder. It buffers at most a size line.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    next: ChunkState,
    /// The bytes of a size line so far.
    line: Vec<u8>,
}

/// The next expected input.
#[derive(Clone, Copy, Debug, Default)]
enum ChunkState {
    #[default]
    SizeLine,
    /// This many bytes of data, at least one.
    Data(u64),
    /// The CR after them.
    Cr,
    /// The LF after that.
    Lf,
}

impl Decoder {
    /// Takes bytes off the front of `input` up to and including the next piece of data, and returns that piece, which
    /// is not empty. `None` if `input` ends before it.
    ///
    /// # Errors
    /// [`BodyEnd`]; the decoder cannot be used after it.
    pub fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<&'a [u8]>, BodyEnd> {
        while let Some((&byte, rest)) = input.split_first() {
            if let ChunkState::Data(missing) = self.next {
                return Ok(Some(self.data(missing, input)));
            }
            *input = rest;
            self.next = self.byte(byte)?;
        }
        Ok(None)
    }

    fn data<'a>(&mut self, missing: u64, input: &mut &'a [u8]) -> &'a [u8] {
        let length = usize::try_from(missing)
            .unwrap_or(usize::MAX)
            .min(input.len());
        let (data, rest) = input.split_at(length);
        *input = rest;
        self.next = match missing - length as u64 {
            0 => ChunkState::Cr,
            missing => ChunkState::Data(missing),
        };
        data
    }

    /// Takes a byte that is not data; returns the next state.
    fn byte(&mut self, byte: u8) -> Result<ChunkState, BodyEnd> {
        match (self.next, byte) {
            (ChunkState::SizeLine, _) => self.line_byte(byte),
            (ChunkState::Cr, b'\r') => Ok(ChunkState::Lf),
            (ChunkState::Lf, b'\n') => Ok(ChunkState::SizeLine),
            _ => Err(BodyEnd),
        }
    }

    fn line_byte(&mut self, byte: u8) -> Result<ChunkState, BodyEnd> {
        self.line.push(byte);
        if byte != b'\n' {
            let has_room = self.line.len() < LINE_LEN_MAX;
            return if has_room {
                Ok(ChunkState::SizeLine)
            } else {
                Err(BodyEnd)
            };
        }
        match parse_chunk_size(&self.line) {
            Ok(Status::Complete((_, size))) if size > 0 => {
                self.line.clear();
                Ok(ChunkState::Data(size))
            }
            // Size 0 ends the body. A line feed that ends no line is part of an extension.
            _ => Err(BodyEnd),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The data in `pieces`, and whether `BodyEnd` follows.
    fn read(pieces: &[&[u8]]) -> (Vec<u8>, Result<(), BodyEnd>) {
        let (mut decoder, mut data) = (Decoder::default(), Vec::new());
        for mut chunk in pieces.iter().copied() {
            loop {
                match decoder.next(&mut chunk) {
                    Ok(Some(more)) => data.extend_from_slice(more),
                    Ok(None) => break,
                    Err(over) => return (data, Err(over)),
                }
            }
        }
        (data, Ok(()))
    }

    const CHUNKS: &[u8] = b"3\r\nabc\r\n0A;name=value\r\n0123456789\r\n1 \r\n\r\r\n";

    #[test]
    fn chunks_are_read_at_any_split() {
        let data = b"abc0123456789\r".to_vec();
        for cut in 0..CHUNKS.len() {
            let (head, tail) = CHUNKS.split_at(cut);
            assert_eq!(read(&[head, tail]), (data.clone(), Ok(())), "cut at {cut}");
        }
        let bytes: Vec<&[u8]> = CHUNKS.chunks(1).collect();
        assert_eq!(read(&bytes), (data, Ok(())));
    }

    #[test]
    fn last_or_malformed_chunk_ends_the_body() {
        let over = |input: &str, data: &str| {
            let expected = (data.as_bytes().to_vec(), Err(BodyEnd));
            assert_eq!(read(&[input.as_bytes()]), expected, "{input:?}");
        };
        over("1\r\na\r\n0\r\n", "a");
        over("1\r\na\r\n0\r\n\r\n", "a");
        over("1\r\nab", "a");
        over("1\r\na\rb", "a");
        for line in [
            "", "x", "+1", "-1", " 1", "1 1", "1\n", "1;\n", "1;\r", "\u{e4}",
        ] {
            over(&format!("{line}\r\n"), "");
        }
        over("10000000000000000\r\n", "");
        over(&format!("1;{}", "x".repeat(LINE_LEN_MAX - 2)), "");
    }

    #[test]
    fn chunk_line_may_be_as_long_as_the_limit() {
        let line = format!("1;{}\r\n", "x".repeat(LINE_LEN_MAX - 4));
        let (data, end) = read(&[line.as_bytes(), b"a\r\n"]);
        assert_eq!((data.as_slice(), end), (b"a".as_slice(), Ok(())));
    }

    #[test]
    fn chunk_size_may_exceed_any_memory() {
        let (data, end) = read(&[b"ffffffffffffffff\r\n", b"ab", b"c"]);
        assert_eq!((data.as_slice(), end), (b"abc".as_slice(), Ok(())));
    }
}
