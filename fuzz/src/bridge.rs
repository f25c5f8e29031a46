//! The bridge's two directions.

use weir_redis_bridge::bridge::{Bridge, Inbound, Outbound};
use weir_redis_bridge::config::Config;
use weir_resp::{DecodeError, decode};

use crate::resp::is_command;

/// What a refused call sends in place of its commands.
const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";

/// Ends a step of the input (ASCII's record separator).
const END: u8 = 0x1e;

/// Calls up to this length are also given to a bridge byte by byte.
const EVERY_CUT_MAX: usize = 512;

/// [`Bridge`], beside a model of it that reads RESP with the decoder and not the framer.
///
/// The input is a record of limits (empty: the defaults) and one record for each step, with the
/// byte 0x1e between them. A step's first byte says what its others are:
///
/// | | |
/// |---|---|
/// | `<` | bytes from `redis_proxy` |
/// | `!` | the body of a call that comes in one piece, with a head that fits |
/// | `?` | the same in two pieces; the next byte says where the cut is |
/// | any other, such as `>` | bytes from the caller |
///
/// What passes to `redis_proxy` is always whole commands, or the PING; what passes to the caller is
/// always one whole response, to the call that it made; after an error nothing passes any more.
pub fn bridge(data: &[u8]) {
    let mut records = data.split(|&byte| byte == END);
    let config = limits(records.next().unwrap_or_default());
    let mut model = Model {
        config,
        bridge: Bridge::new(config),
        phase: Phase::Reading(Vec::new()),
    };
    for record in records {
        match record {
            [] => model.inbound(b""),
            [b'<', bytes @ ..] => model.outbound(bytes),
            [b'!', body @ ..] => model.inbound(&call(body)),
            [b'?', cut, body @ ..] => {
                let call = call(body);
                let (head, tail) = call.split_at(usize::from(*cut).min(call.len()));
                model.inbound(head);
                model.inbound(tail);
            }
            [_, bytes @ ..] => model.inbound(bytes),
        }
    }
}

/// Three bytes make small limits; fewer leave the defaults.
fn limits(record: &[u8]) -> Config {
    match record {
        [request, replies, commands, ..] => Config {
            request_bytes_max: 1 + usize::from(*request),
            replies_bytes_max: 1 + usize::from(*replies),
            commands_max: 1 + usize::from(commands & 0x0f),
        },
        _ => Config::default(),
    }
}

fn call(body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!("POST / HTTP/1.1\r\nhost: weir_redis\r\ncontent-length: {length}\r\n\r\n");
    [head.as_bytes(), body].concat()
}

struct Model {
    config: Config,
    bridge: Bridge,
    phase: Phase,
}

/// Where the connection must be by what has been seen of it.
enum Phase {
    /// This much of a call has come.
    Reading(Vec<u8>),
    /// This many commands went on, and these replies have come.
    Answering { commands: usize, replies: Vec<u8> },
    /// The PING went on.
    Refusing,
    /// Nothing passes any more.
    Closed,
}

impl Model {
    fn inbound(&mut self, bytes: &[u8]) {
        let answer = self.bridge.inbound(bytes);
        if bytes.is_empty() {
            assert_eq!(answer, Inbound::Wait);
            return;
        }
        let Phase::Reading(received) = &mut self.phase else {
            assert_eq!(answer, Inbound::Close);
            self.phase = Phase::Closed;
            return;
        };
        let in_one_piece = received.is_empty();
        received.extend_from_slice(bytes);

        // However a call is cut, it comes to the same as in one piece.
        let whole = Bridge::new(self.config).inbound(received);
        match (&whole, &answer) {
            (Inbound::PassAfter { head }, Inbound::Pass(passed)) => {
                assert!(!in_one_piece && passed == &received[*head..]);
            }
            _ => assert_eq!(whole, answer),
        }
        self.phase = match whole {
            Inbound::Wait => return,
            Inbound::PassAfter { head } => called(self.config, received, head),
            Inbound::Pass(passed) => {
                assert_eq!(passed, PING);
                Phase::Refusing
            }
            Inbound::Close => panic!("closed without a reason"),
        };
    }

    fn outbound(&mut self, bytes: &[u8]) {
        let answer = self.bridge.outbound(bytes);
        if bytes.is_empty() {
            assert_eq!(answer, Outbound::Wait);
            return;
        }
        let response = match &answer {
            Outbound::Wait => None,
            Outbound::Pass(response) => Some(Response::read(response)),
        };
        self.phase = match (&mut self.phase, response) {
            (Phase::Answering { commands, replies }, response) => {
                replies.extend_from_slice(bytes);
                let expected = expect(replies, *commands, self.config.replies_bytes_max);
                match response {
                    None => {
                        assert_eq!(expected, Expected::Wait);
                        return;
                    }
                    Some(response) if response.status == 200 => {
                        assert_eq!(expected, Expected::Success);
                        assert!(!response.closes);
                        assert_eq!(response.body, replies.as_slice());
                        Phase::Reading(Vec::new())
                    }
                    Some(response) => {
                        assert_eq!(expected, Expected::Failure);
                        assert!(response.status == 502 && response.closes);
                        Phase::Closed
                    }
                }
            }
            (Phase::Refusing, Some(response)) => {
                assert!([400, 413].contains(&response.status) && response.closes);
                Phase::Closed
            }
            (Phase::Reading(_) | Phase::Closed, None) => Phase::Closed,
            _ => panic!("{answer:?} is no answer here"),
        };
    }
}

/// A call was passed on: checks that it had to be.
fn called(config: Config, received: &[u8], head: usize) -> Phase {
    let (head, body) = received.split_at(head);
    assert!(body.len() <= config.request_bytes_max);
    assert_eq!(content_length(head), body.len());
    let (mut rest, mut commands) = (body, 0);
    while !rest.is_empty() {
        let (value, used) = decode(rest).expect("only whole commands pass");
        assert!(is_command(&value), "{value:?}");
        rest = &rest[used..];
        commands += 1;
    }
    assert!((1..=config.commands_max).contains(&commands));
    if received.len() <= EVERY_CUT_MAX {
        let (last, others) = received.split_last().expect("a call is not empty");
        let mut bridge = Bridge::new(config);
        for byte in others {
            assert_eq!(bridge.inbound(&[*byte]), Inbound::Wait);
        }
        assert_eq!(bridge.inbound(&[*last]), Inbound::Pass(body.to_vec()));
    }
    let replies = Vec::new();
    Phase::Answering { commands, replies }
}

/// What must become of replies.
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

/// The one content-length of a request's head, read in the plainest way.
fn content_length(head: &[u8]) -> usize {
    let head = String::from_utf8_lossy(head);
    assert!(head.trim_start().starts_with("POST "));
    let mut lengths = Vec::new();
    for line in head.trim_start().lines().skip(1) {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let name = name.to_ascii_lowercase();
        assert_ne!(name, "transfer-encoding");
        if name == "content-length" {
            lengths.push(value.trim().parse().expect("a number"));
        }
    }
    assert_eq!(lengths.len(), 1);
    lengths[0]
}

/// A response as its caller reads it.
struct Response<'a> {
    status: u16,
    closes: bool,
    body: &'a [u8],
}

impl<'a> Response<'a> {
    fn read(bytes: &'a [u8]) -> Self {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n");
        let (head, body) = bytes.split_at(end.expect("a response has a head") + 4);
        let head = std::str::from_utf8(head).expect("a head is text");
        let mut lines = head.trim_end().split("\r\n");
        let status_line = lines.next().and_then(|line| line.strip_prefix("HTTP/1.1 "));
        let status = status_line.and_then(|rest| rest.get(..3)?.parse().ok());
        let headers: Vec<_> = lines.filter_map(|line| line.split_once(": ")).collect();
        let header = |name| headers.iter().find(|(n, _)| *n == name).map(|(_, v)| *v);
        let length = body.len().to_string();
        assert_eq!(header("content-length"), Some(length.as_str()));
        Self {
            status: status.expect("a head starts with a status"),
            closes: header("connection") == Some("close"),
            body,
        }
    }
}
