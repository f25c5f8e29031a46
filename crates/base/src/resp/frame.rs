//! Finds the ends of frames without decoding them.

use crate::resp::{
    ARRAY_LEN_MAX, BULK_LEN_MAX, DEPTH_MAX, LINE_LEN_MAX, Malformed, NUMBER_LEN_MAX,
};
use crate::resp::{parse_integer, parse_length};

/// The direction of the frames, which determines the valid types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To Redis: each frame is a command, a non-empty array of bulk strings.
    Commands,
    /// From Redis: each frame is any RESP2 value.
    Replies,
}

/// The result of [`Framer::advance`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The number of bytes read: all of the input, unless `limit` was reached earlier.
    pub used: usize,
    /// The number of frames that ended within them.
    pub frames: usize,
}

/// Counts the frames that end in a stream of bytes, in chunks of any size.
///
/// It holds a few machine words and reads each byte once. After an error the frame boundaries are unknown: drop the
/// framer.
#[derive(Clone, Debug)]
pub struct Framer {
    direction: Direction,
    state: State,
    /// Elements still to come in each open array, outermost first.
    open: [u64; DEPTH_MAX],
    depth: usize,
}

#[derive(Clone, Debug)]
enum State {
    /// A type byte comes next.
    Type,
    /// Within a line that began with this type byte.
    Line { kind: u8, text: LineText },
    /// The line's CR was read, its LF is next.
    LineEnd { kind: u8, text: LineText },
    /// Within a bulk string with this many bytes remaining.
    Bulk { remaining: u64 },
    /// The bulk string's CR is next.
    BulkCr,
    /// The bulk string's LF is next.
    BulkLf,
}

/// The length of a line and its first bytes, enough for any number.
#[derive(Clone, Debug, Default)]
struct LineText {
    length: usize,
    start: [u8; NUMBER_LEN_MAX],
}

impl LineText {
    fn push(&mut self, byte: u8) -> Result<(), Malformed> {
        if let Some(slot) = self.start.get_mut(self.length) {
            *slot = byte;
        }
        self.length += 1;
        if self.length > LINE_LEN_MAX {
            return Err(Malformed::Line);
        }
        Ok(())
    }

    fn number(&self) -> Result<&[u8], Malformed> {
        self.start.get(..self.length).ok_or(Malformed::Number)
    }
}

impl Framer {
    /// A framer at the start of a frame.
    pub fn new(direction: Direction) -> Self {
        Self {
            direction,
            state: State::Type,
            open: [0; DEPTH_MAX],
            depth: 0,
        }
    }

    /// Whether all bytes so far make up whole frames.
    pub fn is_between_frames(&self) -> bool {
        self.depth == 0 && matches!(self.state, State::Type)
    }

    /// Reads `input` until it ends or `limit` frames have ended.
    ///
    /// # Errors
    /// When the bytes are not RESP2, exceed a limit, or are a reply instead of a command.
    pub fn advance(&mut self, input: &[u8], limit: usize) -> Result<Progress, Malformed> {
        let (mut used, mut frames) = (0, 0);
        while frames < limit
            && let Some(&byte) = input.get(used)
        {
            if let State::Bulk { remaining } = &mut self.state {
                let available = (input.len() - used) as u64;
                let skipped = available.min(*remaining);
                *remaining -= skipped;
                // At most the input's length, so it fits.
                used += skipped as usize;
                if *remaining == 0 {
                    self.state = State::BulkCr;
                }
                continue;
            }
            if let Some(length) = self.whole_bulk(input.get(used..).unwrap_or_default()) {
                used += length;
                frames += usize::from(self.value_ended());
                continue;
            }
            used += 1;
            frames += usize::from(self.byte(byte)?);
        }
        Ok(Progress { used, frames })
    }

    /// The length of the next bulk string, header included, if `input` contains it completely. Most do, and skipping
    /// one costs a tenth of reading its header byte by byte. `None` for everything else, including invalid input.
    fn whole_bulk(&self, input: &[u8]) -> Option<usize> {
        let is_next = matches!(self.state, State::Type) && self.check_type(b'$').is_ok();
        let (b'$', line) = input.split_first().filter(|_| is_next)? else {
            return None;
        };
        let (length, digits) = leading_number(line)?;
        let content = line.get(digits..)?.strip_prefix(b"\r\n")?;
        let is_ended = content.get(length..)?.starts_with(b"\r\n");
        is_ended.then_some(1 + digits + 2 + length + 2)
    }

    /// Reads one byte outside a bulk string's content; returns whether it ends a frame.
    fn byte(&mut self, byte: u8) -> Result<bool, Malformed> {
        match core::mem::replace(&mut self.state, State::Type) {
            State::Type => {
                self.check_type(byte)?;
                self.state = State::Line {
                    kind: byte,
                    text: LineText::default(),
                };
                Ok(false)
            }
            State::Line { kind, text } if byte == b'\r' => {
                self.state = State::LineEnd { kind, text };
                Ok(false)
            }
            State::Line { kind, mut text } => {
                text.push(byte)?;
                self.state = State::Line { kind, text };
                Ok(false)
            }
            State::LineEnd { kind, text } if byte == b'\n' => self.line_ended(kind, &text),
            State::BulkCr if byte == b'\r' => {
                self.state = State::BulkLf;
                Ok(false)
            }
            State::BulkLf if byte == b'\n' => Ok(self.value_ended()),
            _ => Err(Malformed::Terminator),
        }
    }

    fn check_type(&self, byte: u8) -> Result<(), Malformed> {
        match (self.direction, self.depth, byte) {
            (_, _, byte) if !matches!(byte, b'+' | b'-' | b':' | b'$' | b'*') => {
                Err(Malformed::Type(byte))
            }
            (Direction::Replies, ..) | (_, 0, b'*') | (_, 1, b'$') => Ok(()),
            _ => Err(Malformed::NotACommand),
        }
    }

    fn line_ended(&mut self, kind: u8, text: &LineText) -> Result<bool, Malformed> {
        match kind {
            b'$' => match parse_length(text.number()?, BULK_LEN_MAX)? {
                None if self.direction == Direction::Commands => Err(Malformed::NotACommand),
                None => Ok(self.value_ended()),
                Some(0) => {
                    self.state = State::BulkCr;
                    Ok(false)
                }
                Some(remaining) => {
                    self.state = State::Bulk { remaining };
                    Ok(false)
                }
            },
            b'*' => match parse_length(text.number()?, ARRAY_LEN_MAX)? {
                None | Some(0) if self.direction == Direction::Commands => {
                    Err(Malformed::NotACommand)
                }
                None => Ok(self.value_ended()),
                Some(_) if self.depth >= DEPTH_MAX => Err(Malformed::Depth),
                Some(0) => Ok(self.value_ended()),
                Some(length) => self.open_array(length).map(|()| false),
            },
            b':' => {
                parse_integer(text.number()?)?;
                Ok(self.value_ended())
            }
            _ => Ok(self.value_ended()),
        }
    }

    fn open_array(&mut self, length: u64) -> Result<(), Malformed> {
        let slot = self.open.get_mut(self.depth).ok_or(Malformed::Depth)?;
        *slot = length;
        self.depth += 1;
        Ok(())
    }

    /// Ends a value, and each array whose last element it is. Returns whether that was the outermost value.
    fn value_ended(&mut self) -> bool {
        while let Some(inner) = self.depth.checked_sub(1)
            && let Some(remaining) = self.open.get_mut(inner)
        {
            *remaining -= 1;
            if *remaining > 0 {
                return false;
            }
            self.depth = inner;
        }
        true
    }
}

/// The number at the start of `text` and the count of its digits: one to four, without leading zeros.
fn leading_number(text: &[u8]) -> Option<(usize, usize)> {
    const DIGITS_MAX: usize = 4;
    let (mut number, mut digits) = (0, 0);
    while let Some(byte) = text.get(digits).filter(|byte| byte.is_ascii_digit()) {
        number = number * 10 + usize::from(byte - b'0');
        digits += 1;
        if digits > DIGITS_MAX {
            return None;
        }
    }
    let is_padded = digits > 1 && text.first() == Some(&b'0');
    (digits > 0 && !is_padded).then_some((number, digits))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::{DecodeError, Value, decode, encode_command};
    use alloc::string::String;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    const REPLIES: &[u8] = b"+OK\r\n-ERR a\r\n:-1\r\n$3\r\na\r\n\r\n$-1\r\n$0\r\n\r\n*0\r\n*-1\r\n\
        *2\r\n*2\r\n:1\r\n*1\r\n$1\r\nx\r\n*-1\r\n";

    fn frames(direction: Direction, pieces: &[&[u8]]) -> Result<(usize, bool), Malformed> {
        let mut framer = Framer::new(direction);
        let mut frames = 0;
        for chunk in pieces {
            frames += framer.advance(chunk, usize::MAX)?.frames;
        }
        Ok((frames, framer.is_between_frames()))
    }

    #[test]
    fn replies_are_counted_when_split_at_any_byte() {
        let whole = frames(Direction::Replies, &[REPLIES]);
        assert_eq!(whole, Ok((9, true)));
        for cut in 0..REPLIES.len() {
            let (a, b) = REPLIES.split_at(cut);
            assert_eq!(frames(Direction::Replies, &[a, b]), whole, "cut at {cut}");
        }
        let bytes: Vec<&[u8]> = REPLIES.chunks(1).collect();
        assert_eq!(frames(Direction::Replies, &bytes), whole);
    }

    #[test]
    fn framer_stops_at_the_limit_without_reading_further() {
        let mut framer = Framer::new(Direction::Replies);
        let first = framer.advance(b":1\r\n:2\r\n:3\r\n", 2);
        assert_eq!(first, Ok(Progress { used: 8, frames: 2 }));
        assert!(framer.is_between_frames());
    }

    #[test]
    fn only_commands_go_to_redis() {
        let check = |input: &[u8]| frames(Direction::Commands, &[input]);
        assert_eq!(
            check(b"*1\r\n$4\r\nPING\r\n*2\r\n$1\r\na\r\n$0\r\n\r\n"),
            Ok((2, true))
        );
        for bad in [
            b"+OK\r\n".as_slice(),
            b"*0\r\n",
            b"*-1\r\n",
            b"*1\r\n:1\r\n",
            b"*1\r\n$-1\r\n",
            b"*1\r\n*1\r\n",
        ] {
            assert_eq!(check(bad), Err(Malformed::NotACommand), "{bad:?}");
        }
        assert_eq!(check(b"GET k\r\n"), Err(Malformed::Type(b'G')));
    }

    #[test]
    fn limits_hold() {
        let check = |input: &[u8]| frames(Direction::Replies, &[input]);
        assert_eq!(
            check(&b"*1\r\n".repeat(DEPTH_MAX + 1)),
            Err(Malformed::Depth)
        );
        assert_eq!(
            check(&[b"-".as_slice(), &[b'x'; LINE_LEN_MAX + 1]].concat()),
            Err(Malformed::Line)
        );
        assert_eq!(check(b"$536870913\r\n"), Err(Malformed::Length));
        let empty_too_deep = [b"*1\r\n".repeat(DEPTH_MAX), b"*0\r\n".to_vec()].concat();
        assert_eq!(check(&empty_too_deep), Err(Malformed::Depth));
        assert_eq!(
            check(b":000000000000000000000000000001\r\n"),
            Err(Malformed::Number)
        );
        assert_eq!(check(b"$1\r\nxy\r\n"), Err(Malformed::Terminator));
        assert_eq!(check(b"+OK\rx"), Err(Malformed::Terminator));
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let text = || {
            prop::collection::vec(
                any::<u8>().prop_filter("line", |b| !b"\r\n".contains(b)),
                0..9,
            )
        };
        let leaf = prop_oneof![
            text().prop_map(Value::Simple),
            text().prop_map(Value::Error),
            any::<i64>().prop_map(Value::Integer),
            prop::collection::vec(any::<u8>(), 0..20).prop_map(Value::Bulk),
            Just(Value::Null),
        ];
        leaf.prop_recursive(4, 32, 5, |inner| {
            prop::collection::vec(inner, 0..5).prop_map(Value::Array)
        })
    }

    fn write(value: &Value, out: &mut Vec<u8>) {
        match value {
            Value::Simple(text) => out.extend([b"+", text.as_slice(), b"\r\n"].concat()),
            Value::Error(text) => out.extend([b"-", text.as_slice(), b"\r\n"].concat()),
            Value::Integer(number) => out.extend(std::format!(":{number}\r\n").bytes()),
            Value::Bulk(bytes) => {
                out.extend(std::format!("${}\r\n", bytes.len()).bytes());
                out.extend([bytes.as_slice(), b"\r\n"].concat());
            }
            Value::Null => out.extend(b"$-1\r\n"),
            Value::Array(values) => {
                out.extend(std::format!("*{}\r\n", values.len()).bytes());
                values.iter().for_each(|value| write(value, out));
            }
        }
    }

    proptest! {
        /// The framer and the decoder must agree on the end of a value, and on incomplete input, for every cut.
        #[test]
        fn framer_and_decoder_agree(value in any_value(), cut in any::<prop::sample::Index>()) {
            let mut input = Vec::new();
            write(&value, &mut input);
            prop_assert_eq!(decode(&input), Ok((value, input.len())));
            let (head, tail) = input.split_at(cut.index(input.len()));
            prop_assert_eq!(decode(head), Err(DecodeError::Incomplete));
            prop_assert_eq!(frames(Direction::Replies, &[head]).unwrap().0, 0);
            prop_assert_eq!(frames(Direction::Replies, &[head, tail]), Ok((1, true)));
        }

        /// For arbitrary bytes: the decoder accepts each frame that the framer ends, with the same length. It accepts
        /// no input that the framer rejects.
        #[test]
        fn framer_and_decoder_agree_on_garbage(input in prop::collection::vec(prop::sample::select(b"*$:+-012\r\nx".to_vec()), 0..40)) {
            let mut framer = Framer::new(Direction::Replies);
            match (framer.advance(&input, 1), decode(&input)) {
                (Ok(Progress { used, frames: 1 }), Ok((_, length))) => prop_assert_eq!(used, length),
                (Ok(Progress { frames: 0, .. }), Err(DecodeError::Incomplete)) => {}
                (Err(_), Err(DecodeError::Malformed(_) | DecodeError::Incomplete)) => {}
                other => prop_assert!(false, "{other:?}"),
            }
        }

        /// The framer has a separate path for bulk strings that are complete in the input.
        #[test]
        fn framing_is_independent_of_input_splits(
            input in prop::collection::vec(prop::sample::select(b"**$$+-0123\r\n\r\nx".to_vec()), 0..40),
            repaired in any::<bool>(),
        ) {
            let mut input = String::from_utf8(input).unwrap();
            if repaired {
                // Random input rarely contains complete bulk strings, so this inserts some.
                input = input.replace('$', "$1\r\nx\r\n").replace('*', "*2\r\n");
            }
            let input = input.as_bytes();
            for direction in [Direction::Commands, Direction::Replies] {
                let pieces: Vec<&[u8]> = input.chunks(1).collect();
                prop_assert_eq!(frames(direction, &pieces), frames(direction, &[input]));
            }
        }

        #[test]
        fn commands_are_counted(commands in prop::collection::vec(prop::collection::vec("[a-z]{0,9}", 1..5), 0..9)) {
            let mut input = Vec::new();
            for command in &commands {
                encode_command(&mut input, command.iter().map(|argument| argument.as_bytes()));
            }
            prop_assert_eq!(frames(Direction::Commands, &[&input]), Ok((commands.len(), true)));
        }
    }
}
