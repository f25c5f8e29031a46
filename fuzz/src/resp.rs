//! The two RESP parsers.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is what the fuzzer looks for"
)]

use weir_base::resp::{
    ARRAY_LEN_MAX, BULK_LEN_MAX, DEPTH_MAX, DecodeError, Direction, Framer, LINE_LEN_MAX,
    Malformed, Value, decode,
};

use crate::pieces;

/// Inputs up to this length are cut at every byte, longer ones only at some.
const EVERY_CUT_MAX: usize = 256;

/// [`decode`]. Checks that an accepted value is within the limits, has the reported length and survives encoding, that
/// incomplete input can continue, and that malformed input cannot.
pub fn resp_decode(data: &[u8]) {
    match decode(data) {
        Ok((value, used)) => {
            assert!((1..=data.len()).contains(&used));
            check_limits(&value, 0);
            assert_eq!(decode(&data[..used]), Ok((value.clone(), used)));
            for cut in cuts(used) {
                assert_eq!(decode(&data[..cut]), Err(DecodeError::Incomplete));
            }
            let mut written = Vec::new();
            write(&value, &mut written);
            assert!(written.len() <= used, "the canonical form is the shortest");
            assert_eq!(decode(&written), Ok((value, written.len())));
        }
        Err(DecodeError::Incomplete) => {
            for cut in cuts(data.len()) {
                assert_eq!(decode(&data[..cut]), Err(DecodeError::Incomplete));
            }
        }
        Err(malformed) => {
            for more in [b"\r\n".as_slice(), b":1\r\n", b"0", b"\n"] {
                assert_eq!(decode(&[data, more].concat()), Err(malformed));
            }
        }
    }
}

fn cuts(length: usize) -> impl Iterator<Item = usize> {
    (0..length).step_by(1 + length / EVERY_CUT_MAX)
}

fn check_limits(value: &Value, depth: usize) {
    match value {
        Value::Simple(line) | Value::Error(line) => {
            assert!(line.len() <= LINE_LEN_MAX);
            assert!(!line.contains(&b'\r'));
        }
        Value::Bulk(bytes) => assert!(bytes.len() as u64 <= BULK_LEN_MAX),
        Value::Array(values) => {
            assert!(depth < DEPTH_MAX);
            assert!(values.len() as u64 <= ARRAY_LEN_MAX);
            values.iter().for_each(|v| check_limits(v, depth + 1));
        }
        Value::Integer(_) | Value::Null => {}
    }
}

/// Appends `value` in Redis' encoding.
fn write(value: &Value, out: &mut Vec<u8>) {
    let line = |kind: &str, text: &[u8]| [kind.as_bytes(), text, b"\r\n"].concat();
    match value {
        Value::Simple(text) => out.extend(line("+", text)),
        Value::Error(text) => out.extend(line("-", text)),
        Value::Integer(number) => out.extend(line(":", number.to_string().as_bytes())),
        Value::Bulk(bytes) => {
            out.extend(line("$", bytes.len().to_string().as_bytes()));
            out.extend(line("", bytes));
        }
        Value::Null => out.extend(b"$-1\r\n"),
        Value::Array(values) => {
            out.extend(line("*", values.len().to_string().as_bytes()));
            values.iter().for_each(|value| write(value, out));
        }
    }
}

/// [`Framer`] in both directions. Checks for any cuts that its frames end where [`decode`]'s values end, that it
/// refuses the same input for the same reason, and that it passes only commands to Redis.
pub fn resp_framer(data: &[u8]) {
    let pieces = pieces::cut(data);
    let stream = pieces.concat();
    for direction in [Direction::Replies, Direction::Commands] {
        let framed = frame(direction, pieces.iter().copied());
        assert_eq!(framed, frame(direction, [stream.as_slice()]));
        if stream.len() <= EVERY_CUT_MAX {
            assert_eq!(framed, frame(direction, stream.chunks(1)));
        }
        check_counting(direction, &stream, &framed);
        check_against_decoder(direction, &stream, &framed);
    }
}

/// The result of parsing a stream.
#[derive(Debug, PartialEq)]
struct Framed {
    /// The ends of frames.
    ends: Vec<usize>,
    /// Whether the stream ends between frames, or why it is refused.
    end: Result<bool, Malformed>,
}

/// The framer's result for a stream in `pieces`.
fn frame<'a>(direction: Direction, pieces: impl IntoIterator<Item = &'a [u8]>) -> Framed {
    let mut framer = Framer::new(direction);
    let (mut ends, mut at) = (Vec::new(), 0);
    for mut chunk in pieces {
        while !chunk.is_empty() {
            let progress = match framer.advance(chunk, 1) {
                Ok(progress) => progress,
                Err(malformed) => {
                    let end = Err(malformed);
                    return Framed { ends, end };
                }
            };
            assert!((1..=chunk.len()).contains(&progress.used));
            at += progress.used;
            chunk = &chunk[progress.used..];
            if progress.frames == 1 {
                assert!(framer.is_between_frames());
                ends.push(at);
            } else {
                assert_eq!(progress.frames, 0);
                assert!(chunk.is_empty(), "it stops only at the end of a frame");
            }
        }
    }
    let end = Ok(framer.is_between_frames());
    Framed { ends, end }
}

/// Checks that parsing all at once equals parsing frame by frame, and that a limit of zero reads nothing.
fn check_counting(direction: Direction, stream: &[u8], framed: &Framed) {
    let mut framer = Framer::new(direction);
    assert_eq!(
        framer.advance(stream, 0).map(|progress| progress.used),
        Ok(0)
    );
    let all = framer.advance(stream, usize::MAX);
    assert_eq!(all.err(), framed.end.err());
    if let Ok(progress) = all {
        assert_eq!(
            (progress.used, progress.frames),
            (stream.len(), framed.ends.len())
        );
    }
}

fn check_against_decoder(direction: Direction, stream: &[u8], framed: &Framed) {
    let decoded = decode_all(direction, stream);
    let at_least = framed.ends.len().min(decoded.ends.len());
    assert_eq!(framed.ends[..at_least], decoded.ends[..at_least]);
    match (&framed.end, &decoded.end) {
        _ if framed == &decoded => {}
        // The framer detects a non-command before its end, so this is its first error.
        (Err(Malformed::NotACommand), _) if direction == Direction::Commands => {
            assert_eq!(framed.ends, decoded.ends);
        }
        _ => panic!("framer {framed:?}, decoder {decoded:?}"),
    }
}

/// The decoder's result for the stream, value by value.
fn decode_all(direction: Direction, stream: &[u8]) -> Framed {
    let (mut ends, mut at) = (Vec::new(), 0);
    let end = loop {
        match decode(&stream[at..]) {
            Ok((value, _)) if direction == Direction::Commands && !is_command(&value) => {
                break Err(Malformed::NotACommand);
            }
            Ok((_, used)) => {
                at += used;
                ends.push(at);
            }
            Err(DecodeError::Incomplete) => break Ok(at == stream.len()),
            Err(DecodeError::Malformed(malformed)) => break Err(malformed),
        }
    };
    Framed { ends, end }
}

/// Whether `value` is a command: a non-empty array of bulk strings.
pub(crate) fn is_command(value: &Value) -> bool {
    let is_bulk = |value: &Value| matches!(value, Value::Bulk(_));
    matches!(value, Value::Array(values) if !values.is_empty() && values.iter().all(is_bulk))
}
