//! Both directions of the bridge.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is what the fuzzer looks for"
)]

use std::rc::Rc;

use weir_base::resp::{DecodeError, decode};
use weir_redis_bridge::bridge::{Bridge, Inbound, Outbound};
use weir_redis_bridge::config::Config;

use crate::resp::is_command;

/// Sent in place of a refused call's commands.
const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";

/// Ends a step of the input (ASCII's record separator).
const END: u8 = 0x1e;

/// A first call up to this length, including its head, is also passed to a bridge byte by byte.
const EVERY_CUT_MAX: usize = 512;

/// The flags and the length of a message.
const PREFIX_LEN: usize = 5;

/// The maximum length of a chunk's size line.
const LINE_LEN_MAX: usize = 64;

/// [`Bridge`], compared with a model that stores all bytes from the caller and parses them again at each step: chunks,
/// then messages, then RESP with the decoder instead of the framer.
///
/// The input is a record of limits (empty: the defaults) and one record per step, separated by the byte 0x1e. A step's
/// first byte selects the meaning of the others:
/// | | |
/// |---|---|
/// | `<` | bytes from Redis |
/// | `!` | the body of a call that comes in one piece: a message in a chunk, with a head in front if nothing has come before |
/// | `?` | the same in two pieces; the next byte says where the cut is |
/// | any other, such as `>` | bytes from the caller |
///
/// Only complete commands or the PING pass to Redis. Only complete messages pass to the caller, each in response to its
/// call; the first one is preceded by the response head. After an error nothing passes.
pub fn bridge(data: &[u8]) {
    let mut records = data.split(|&byte| byte == END);
    let mut model = Model::new(limits(records.next().unwrap_or_default()).into());
    for record in records {
        match record {
            [] => model.inbound(b""),
            [b'<', bytes @ ..] => model.outbound(bytes),
            [b'!', body @ ..] => model.inbound(&model.call(body)),
            [b'?', cut, body @ ..] => {
                let call = model.call(body);
                let (head, tail) = call.split_at(usize::from(*cut).min(call.len()));
                model.inbound(head);
                model.inbound(tail);
            }
            [_, bytes @ ..] => model.inbound(bytes),
        }
    }
}

/// Three bytes select small limits; fewer keep the defaults.
fn limits(record: &[u8]) -> Config {
    match record {
        [request, replies, commands, ..] => Config {
            request_bytes_max: 1 + usize::from(*request),
            replies_bytes_max: 1 + usize::from(*replies),
            commands_max: 1 + usize::from(commands & 0x0f),
            auth: None,
        },
        _ => Config::default(),
    }
}

struct Model {
    config: Rc<Config>,
    bridge: Bridge,
    /// All bytes from the caller.
    received: Vec<u8>,
    /// The length of the request head, once a stream is open.
    head: Option<usize>,
    /// The number of chunk bytes of calls that were passed on or refused.
    used: usize,
    /// Whether the response head was sent.
    answered: bool,
    phase: Phase,
}

/// The phase of the connection according to the model.
#[derive(Debug)]
enum Phase {
    /// Receiving a head or a call.
    Reading,
    /// This many commands were passed on, and these replies have arrived.
    Answering { commands: usize, replies: Vec<u8> },
    /// The PING was sent in place of a refused call.
    Refusing,
    /// The PING was sent because the head opens no stream.
    Denying,
    /// Nothing passes any more.
    Closed,
}

impl Model {
    fn new(config: Rc<Config>) -> Self {
        Self {
            bridge: Bridge::new(Rc::clone(&config)),
            config,
            received: Vec::new(),
            head: None,
            used: 0,
            answered: false,
            phase: Phase::Reading,
        }
    }

    /// The caller's bytes for a call with this body.
    fn call(&self, body: &[u8]) -> Vec<u8> {
        let head: &[u8] = match self.received.as_slice() {
            [] => b"POST / HTTP/1.1\r\nhost: weir_redis\r\ntransfer-encoding: chunked\r\n\r\n",
            _ => b"",
        };
        let size = format!("{:x}\r\n\0", PREFIX_LEN + body.len());
        let length = (body.len() as u32).to_be_bytes();
        [head, size.as_bytes(), &length, body, b"\r\n"].concat()
    }

    fn inbound(&mut self, bytes: &[u8]) {
        let answer = self.bridge.inbound(bytes);
        if bytes.is_empty() {
            assert_eq!(answer, Inbound::Wait);
            return;
        }
        self.received.extend_from_slice(bytes);
        let expected = match &self.phase {
            Phase::Denying | Phase::Closed => Inbound::Close,
            _ if self.head.is_none() => self.expect_head(),
            _ => self.expect_data(),
        };
        assert_eq!(answer, expected, "{:?}", self.phase);
        if expected == Inbound::Close {
            self.phase = Phase::Closed;
        }
    }

    /// The expected result for received bytes, none of which has passed.
    fn expect_head(&mut self) -> Inbound {
        // The result is independent of how the head and the first call are cut.
        let whole = Bridge::new(Rc::clone(&self.config)).inbound(&self.received);
        let end = head_end(&self.received);
        let head = &self.received[..end.unwrap_or(self.received.len())];
        if Bridge::new(Rc::clone(&self.config)).inbound(head) != Inbound::Wait {
            assert_eq!(whole, Inbound::Pass(PING.to_vec()));
            self.phase = Phase::Denying;
            return whole;
        }
        if end.is_none() {
            assert_eq!(whole, Inbound::Wait);
            return whole;
        }
        check_head(head);
        self.head = end;
        let expected = self.expect_data();
        assert_eq!(whole, expected);
        if expected != Inbound::Close && self.received.len() <= EVERY_CUT_MAX {
            let mut bridge = Bridge::new(Rc::clone(&self.config));
            let bytes = self.received.iter().map(|byte| bridge.inbound(&[*byte]));
            let mut passed = bytes.filter(|answer| *answer != Inbound::Wait);
            assert_eq!(passed.next().unwrap_or(Inbound::Wait), expected);
            assert_eq!(passed.next(), None);
        }
        expected
    }

    /// The expected result for bytes after the head.
    fn expect_data(&mut self) -> Inbound {
        let chunks = Chunks::read(&self.received[self.head.expect("a stream is open")..]);
        if chunks.is_over {
            return Inbound::Close;
        }
        let untaken = chunks.data.get(self.used..).unwrap_or_default();
        if !matches!(self.phase, Phase::Reading) {
            return match untaken {
                [] => Inbound::Wait,
                _ => Inbound::Close,
            };
        }
        let [flags, a, b, c, d, rest @ ..] = untaken else {
            return Inbound::Wait;
        };
        let length = u32::from_be_bytes([*a, *b, *c, *d]) as usize;
        if rest.len() > length {
            return Inbound::Close;
        }
        let is_bad = *flags != 0 || length > self.config.request_bytes_max;
        if !is_bad && rest.len() < length {
            return Inbound::Wait;
        }
        self.used += PREFIX_LEN + length;
        match count_commands(rest) {
            Some(commands) if !is_bad && (1..=self.config.commands_max).contains(&commands) => {
                let replies = Vec::new();
                self.phase = Phase::Answering { commands, replies };
                Inbound::Pass(rest.to_vec())
            }
            _ => {
                self.phase = Phase::Refusing;
                Inbound::Pass(PING.to_vec())
            }
        }
    }

    fn outbound(&mut self, bytes: &[u8]) {
        let answer = self.bridge.outbound(bytes);
        let passed = match &answer {
            Outbound::Wait => None,
            Outbound::Pass(passed) => Some(passed.as_slice()),
        };
        if bytes.is_empty() {
            assert_eq!(passed, None);
            return;
        }
        self.phase = match (&mut self.phase, passed) {
            (Phase::Answering { commands, replies }, passed) => {
                replies.extend_from_slice(bytes);
                let expected = expect(replies, *commands, self.config.replies_bytes_max);
                let Some(passed) = passed else {
                    assert_eq!(expected, Expected::Wait);
                    return;
                };
                let answer = Answer::read(passed, !self.answered);
                if answer.is_last {
                    assert_eq!(expected, Expected::Failure);
                    assert!(answer.body.starts_with(b"failed: "));
                    Phase::Closed
                } else {
                    assert_eq!(expected, Expected::Success);
                    assert_eq!(&answer.body, replies);
                    self.answered = true;
                    Phase::Reading
                }
            }
            (Phase::Refusing, Some(passed)) => {
                let answer = Answer::read(passed, !self.answered);
                assert!(answer.is_last && answer.body.starts_with(b"refused: "));
                Phase::Closed
            }
            (Phase::Denying, Some(passed)) => {
                check_denial(passed);
                Phase::Closed
            }
            (Phase::Reading | Phase::Closed, None) => Phase::Closed,
            _ => panic!("{answer:?} is no answer here"),
        };
    }
}

/// The end of a head, including its empty line. Empty lines before the head are skipped.
fn head_end(received: &[u8]) -> Option<usize> {
    let (mut end, mut has_text) = (0, false);
    for line in received.split_inclusive(|&byte| byte == b'\n') {
        end += line.len();
        let is_empty = matches!(line, b"\n" | b"\r\n");
        if is_empty && has_text {
            return Some(end);
        }
        has_text |= !is_empty;
    }
    None
}

/// A head has opened a stream: checks it with a simple parser.
fn check_head(head: &[u8]) {
    let head = String::from_utf8_lossy(head);
    let mut lines = head.trim_start().lines();
    let first = lines.next().expect("a head has a line");
    assert!(first.starts_with("POST ") && first.ends_with(" HTTP/1.1"));
    let mut encodings = Vec::new();
    for line in lines {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let name = name.to_ascii_lowercase();
        assert_ne!(name, "content-length");
        if name == "transfer-encoding" {
            encodings.push(value.trim().to_ascii_lowercase());
        }
    }
    assert_eq!(encodings, ["chunked"]);
}

/// The contents of chunks.
struct Chunks<'a> {
    data: Vec<u8>,
    /// Whether they end with the last chunk, or with an invalid one.
    is_over: bool,
    /// The bytes after the last complete chunk.
    rest: &'a [u8],
}

impl<'a> Chunks<'a> {
    fn read(mut bytes: &'a [u8]) -> Self {
        let mut data = Vec::new();
        let is_over = loop {
            let line = &bytes[..bytes.len().min(LINE_LEN_MAX)];
            let Some(end) = line.iter().position(|&byte| byte == b'\n') else {
                break line.len() == LINE_LEN_MAX;
            };
            let Some(size) = chunk_size(&line[..=end]).filter(|&size| size > 0) else {
                break true;
            };
            let rest = &bytes[end + 1..];
            // At most the remaining length, so it fits.
            let length = size.min(rest.len() as u64) as usize;
            let (chunk, after) = rest.split_at(length);
            data.extend_from_slice(chunk);
            match after {
                [] | [b'\r'] => break false,
                [b'\r', b'\n', rest @ ..] => bytes = rest,
                _ => break true,
            }
        };
        Self {
            data,
            is_over,
            rest: bytes,
        }
    }
}

/// The size in a size line, with its line feed: digits, then an optional extension.
fn chunk_size(line: &[u8]) -> Option<u64> {
    let line = line.strip_suffix(b"\r\n")?;
    if line.contains(&b'\r') {
        return None;
    }
    let digits = line.split(|&byte| byte == b';').next()?;
    let digits = std::str::from_utf8(digits).ok()?;
    let digits = digits.trim_end_matches([' ', '\t']);
    let is_number = digits.bytes().all(|byte| byte.is_ascii_hexdigit()) && digits.len() <= 16;
    is_number.then(|| u64::from_str_radix(digits, 16).ok())?
}

/// The number of commands in `body`, if it contains nothing else.
fn count_commands(body: &[u8]) -> Option<usize> {
    let (mut rest, mut commands) = (body, 0);
    while !rest.is_empty() {
        let (value, used) = decode(rest).ok()?;
        if !is_command(&value) {
            return None;
        }
        rest = &rest[used..];
        commands += 1;
    }
    Some(commands)
}

/// The expected result for replies.
#[derive(Debug, PartialEq, Eq)]
enum Expected {
    Wait,
    Success,
    Failure,
}

fn expect(replies: &[u8], commands: usize, bytes_max: usize) -> Expected {
    if replies.len() > bytes_max {
        return Expected::Failure;
    }
    let mut rest = replies;
    for _ in 0..commands {
        match decode(rest) {
            Ok((_, used)) => rest = &rest[used..],
            Err(DecodeError::Incomplete) => return Expected::Wait,
            Err(DecodeError::Malformed(_)) => return Expected::Failure,
        }
    }
    match rest {
        [] => Expected::Success,
        _ => Expected::Failure,
    }
}

/// The bytes sent to the caller of a stream.
struct Answer {
    body: Vec<u8>,
    /// Whether the response ends with it.
    is_last: bool,
}

impl Answer {
    /// Parses one message in one chunk, preceded by a response head if `is_first`.
    fn read(bytes: &[u8], is_first: bool) -> Self {
        let head: &[u8] = match is_first {
            true => {
                b"HTTP/1.1 200 OK\r\ncontent-type: application/grpc\r\ntransfer-encoding: chunked\r\n\r\n"
            }
            false => b"",
        };
        let chunks = bytes.strip_prefix(head).expect("the head, once");
        let chunks = Chunks::read(chunks);
        let is_last = chunks.rest == b"0\r\n\r\n";
        assert!(is_last || chunks.rest.is_empty());
        let (prefix, body) = chunks.data.split_at(PREFIX_LEN);
        let length = (body.len() as u32).to_be_bytes();
        assert_eq!(prefix, [&[0], length.as_slice()].concat());
        Self {
            body: body.to_vec(),
            is_last,
        }
    }
}

/// Checks the response to a caller whose head opens no stream.
fn check_denial(bytes: &[u8]) {
    let text = std::str::from_utf8(bytes).expect("it is text");
    let (head, body) = text.split_once("\r\n\r\n").expect("it has a head");
    let mut lines = head.split("\r\n");
    assert_eq!(lines.next(), Some("HTTP/1.1 400 Bad Request"));
    let headers: Vec<_> = lines.collect();
    assert!(headers.contains(&"connection: close"));
    assert!(headers.contains(&format!("content-length: {}", body.len()).as_str()));
}
