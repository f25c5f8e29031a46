//! The bridge's state machine: bytes in, bytes out, no host.
//!
//! A call is read whole and checked before any of it is passed on, so a refusal is definite:
//! nothing has run. Its response is complete when as many replies have come as commands went; how
//! the bytes are cut on either side does not matter.
//!
//! A network filter can write to the caller only while data comes from the other side. A refused
//! call therefore sends `redis_proxy` a PING, which it answers itself, without Redis; the refusal
//! goes out in place of the answer. After any error the response says `connection: close`, the
//! caller closes, and whatever still comes is thrown away: no reply can ever meet another call.

use weir_resp::{Direction, Framer};

use crate::config::Config;
use crate::head;

/// What makes `redis_proxy` answer, and so lets a refusal be written.
const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";

/// What becomes of bytes that came from the caller. They are always taken off Envoy's buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inbound {
    /// Nothing passes yet.
    Wait,
    /// All but the first `head` of these bytes pass: the call came in one piece.
    PassAfter {
        /// How many bytes to take off the front.
        head: usize,
    },
    /// These bytes pass instead.
    Pass(Vec<u8>),
    /// The connection must be closed: its caller does not keep to HTTP/1.1.
    Close,
}

/// What becomes of bytes that came from `redis_proxy`. They are always taken off Envoy's buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outbound {
    /// Nothing passes yet.
    Wait,
    /// These bytes pass instead.
    Pass(Vec<u8>),
}

/// One connection from a filter's cluster to `redis_proxy`.
#[derive(Debug)]
pub struct Bridge {
    config: Config,
    state: State,
}

#[derive(Debug)]
enum State {
    /// A call is coming in: what has come of it.
    Reading(Vec<u8>),
    /// A call has gone on; its replies are coming in.
    Answering {
        framer: Framer,
        missing: usize,
        replies: Vec<u8>,
    },
    /// A call was refused; this response goes out with the next bytes from the other side.
    Refusing(Vec<u8>),
    /// An error went out: the caller is about to close.
    Closed,
}

impl Bridge {
    /// A connection that has just come up.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            state: State::Reading(Vec::new()),
        }
    }

    /// Bytes have come from the caller.
    pub fn inbound(&mut self, bytes: &[u8]) -> Inbound {
        match &mut self.state {
            _ if bytes.is_empty() => Inbound::Wait,
            State::Reading(buffer) if buffer.is_empty() => match Self::read(&self.config, bytes) {
                Ok(None) => {
                    buffer.extend_from_slice(bytes);
                    Inbound::Wait
                }
                Ok(Some(call)) => {
                    self.state = State::answering(call.commands);
                    Inbound::PassAfter { head: call.head }
                }
                Err(refusal) => self.refuse(&refusal),
            },
            State::Reading(buffer) => {
                buffer.extend_from_slice(bytes);
                match Self::read(&self.config, buffer) {
                    Ok(None) => Inbound::Wait,
                    Ok(Some(call)) => {
                        let body = buffer.split_off(call.head);
                        self.state = State::answering(call.commands);
                        Inbound::Pass(body)
                    }
                    Err(refusal) => self.refuse(&refusal),
                }
            }
            // A second call before the first is answered: replies could no longer be told apart.
            State::Answering { .. } | State::Refusing(_) | State::Closed => {
                self.state = State::Closed;
                Inbound::Close
            }
        }
    }

    fn refuse(&mut self, refusal: &Refusal) -> Inbound {
        self.state = State::Refusing(head::error(refusal.status, refusal.reason));
        Inbound::Pass(PING.to_vec())
    }

    /// Reads a call: `None` if it is not there whole yet.
    fn read(config: &Config, bytes: &[u8]) -> Result<Option<Call>, Refusal> {
        let Some(head) = head::read(bytes).map_err(Refusal::bad)? else {
            return Ok(None);
        };
        if head.body_length > config.request_bytes_max {
            return Err(Refusal::too_large(
                "the body is longer than request_bytes_max",
            ));
        }
        let body = bytes.get(head.length..).unwrap_or_default();
        if body.len() < head.body_length {
            return Ok(None);
        }
        if body.len() > head.body_length {
            return Err(Refusal::bad("there is more than one call"));
        }
        let commands = count_commands(body, config.commands_max)?;
        Ok(Some(Call {
            head: head.length,
            commands,
        }))
    }

    /// Bytes have come from `redis_proxy`.
    pub fn outbound(&mut self, bytes: &[u8]) -> Outbound {
        match &mut self.state {
            _ if bytes.is_empty() => Outbound::Wait,
            State::Answering {
                framer,
                missing,
                replies,
            } => {
                if replies.len() + bytes.len() > self.config.replies_bytes_max {
                    return self.fail("the replies are longer than replies_bytes_max");
                }
                let Ok(progress) = framer.advance(bytes, *missing) else {
                    return self.fail("the replies are not RESP");
                };
                if progress.used < bytes.len() {
                    return self.fail("there are more replies than commands");
                }
                *missing -= progress.frames;
                replies.extend_from_slice(bytes);
                if *missing > 0 {
                    return Outbound::Wait;
                }
                let response = head::success(replies);
                self.state = State::Reading(Vec::new());
                Outbound::Pass(response)
            }
            State::Refusing(response) => {
                let response = std::mem::take(response);
                self.state = State::Closed;
                Outbound::Pass(response)
            }
            State::Reading(_) => {
                self.state = State::Closed;
                Outbound::Wait
            }
            State::Closed => Outbound::Wait,
        }
    }

    /// The replies are no good: whether the commands ran is not known.
    fn fail(&mut self, reason: &str) -> Outbound {
        self.state = State::Closed;
        Outbound::Pass(head::error("502 Bad Gateway", reason))
    }
}

impl State {
    fn answering(commands: usize) -> Self {
        Self::Answering {
            framer: Framer::new(Direction::Replies),
            missing: commands,
            replies: Vec::new(),
        }
    }
}

/// A call that was read whole.
struct Call {
    /// The length of its head.
    head: usize,
    /// How many commands its body holds.
    commands: usize,
}

/// Why a call is not passed on.
struct Refusal {
    status: &'static str,
    reason: &'static str,
}

impl Refusal {
    fn bad(reason: &'static str) -> Self {
        let status = "400 Bad Request";
        Self { status, reason }
    }

    fn too_large(reason: &'static str) -> Self {
        let status = "413 Content Too Large";
        Self { status, reason }
    }
}

fn count_commands(body: &[u8], commands_max: usize) -> Result<usize, Refusal> {
    let mut framer = Framer::new(Direction::Commands);
    let progress = framer
        .advance(body, commands_max)
        .map_err(|_| Refusal::bad("the body is not RESP commands"))?;
    if progress.used < body.len() {
        return Err(Refusal::too_large(
            "there are more commands than commands_max",
        ));
    }
    if progress.frames == 0 || !framer.is_between_frames() {
        return Err(Refusal::bad("the body does not end with a whole command"));
    }
    Ok(progress.frames)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn call(body: &[u8]) -> Vec<u8> {
        let head = format!(
            "POST / HTTP/1.1\r\nhost: r\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        [head.as_bytes(), body].concat()
    }

    fn bridge() -> Bridge {
        Bridge::new(Config::default())
    }

    /// What passes when `pieces` come from the caller.
    fn inbound(bridge: &mut Bridge, pieces: &[&[u8]]) -> Vec<u8> {
        let pass = |piece: &&[u8]| match bridge.inbound(piece) {
            Inbound::Wait => vec![],
            Inbound::PassAfter { head } => piece[head..].to_vec(),
            Inbound::Pass(bytes) => bytes,
            Inbound::Close => panic!("closed"),
        };
        pieces.iter().flat_map(pass).collect()
    }

    /// What passes when `pieces` come from `redis_proxy`.
    fn outbound(bridge: &mut Bridge, pieces: &[&[u8]]) -> Vec<u8> {
        let pass = |piece: &&[u8]| match bridge.outbound(piece) {
            Outbound::Wait => vec![],
            Outbound::Pass(bytes) => bytes,
        };
        pieces.iter().flat_map(pass).collect()
    }

    const TWO: &[u8] = b"*1\r\n$4\r\nPING\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n";

    #[test]
    fn a_connection_carries_call_after_call() {
        let mut bridge = bridge();
        for _ in 0..3 {
            assert_eq!(inbound(&mut bridge, &[&call(TWO)]), TWO);
            let response = outbound(&mut bridge, &[b"+PONG\r\n$1\r\nv\r\n"]);
            assert_eq!(
                response,
                b"HTTP/1.1 200 OK\r\ncontent-length: 14\r\n\r\n+PONG\r\n$1\r\nv\r\n"
            );
        }
    }

    /// Refused before anything passes; the response comes out in place of the PONG, and nothing after.
    fn check_refused(input: &[u8], status: &str, reason: &str) {
        let mut bridge = bridge();
        assert_eq!(inbound(&mut bridge, &[input]), PING, "{reason}");
        let response = String::from_utf8(outbound(&mut bridge, &[b"+PONG\r\n"])).unwrap();
        assert!(
            response.starts_with(&format!("HTTP/1.1 {status}")),
            "{response}"
        );
        assert!(response.contains("connection: close\r\n"), "{response}");
        assert!(
            response.ends_with(&format!("\r\n\r\n{reason}\n")),
            "{response}"
        );
        check_no_reply(reason);
        assert_eq!(outbound(&mut bridge, &[b"+MORE\r\n"]), b"");
        assert_eq!(bridge.inbound(&call(TWO)), Inbound::Close);
    }

    /// Filters take a body that reads as replies for replies, whatever the status.
    fn check_no_reply(reason: &str) {
        let read = weir_resp::decode(reason.as_bytes());
        assert!(matches!(read, Err(weir_resp::DecodeError::Malformed(_))));
    }

    #[test]
    fn a_bad_call_is_refused_before_anything_passes() {
        check_refused(b"nonsense\r\n\r\n", "400", "the head is not HTTP/1.1");
        check_refused(&call(b"GET k\r\n"), "400", "the body is not RESP commands");
        check_refused(
            &call(b"*1\r\n$4\r\nPI"),
            "400",
            "the body does not end with a whole command",
        );
        check_refused(
            &call(b""),
            "400",
            "the body does not end with a whole command",
        );
        check_refused(
            &[call(TWO), call(TWO)].concat(),
            "400",
            "there is more than one call",
        );
        check_refused(
            b"POST / HTTP/1.1\r\ncontent-length: 1048577\r\n\r\n",
            "413",
            "the body is longer than request_bytes_max",
        );
        let many = b"*1\r\n$1\r\nx\r\n".repeat(4_097);
        check_refused(
            &call(&many),
            "413",
            "there are more commands than commands_max",
        );
    }

    fn check_failed(replies: &[&[u8]], reason: &str) {
        let config = Config {
            replies_bytes_max: 20,
            ..Config::default()
        };
        let mut bridge = Bridge::new(config);
        inbound(&mut bridge, &[&call(TWO)]);
        let response = String::from_utf8(outbound(&mut bridge, replies)).unwrap();
        assert!(response.starts_with("HTTP/1.1 502"), "{response}");
        assert!(
            response.ends_with(&format!("\r\n\r\n{reason}\n")),
            "{response}"
        );
        check_no_reply(reason);
        assert_eq!(bridge.inbound(&call(TWO)), Inbound::Close);
    }

    #[test]
    fn bad_replies_end_the_call_and_never_meet_the_next() {
        check_failed(&[b"HTTP"], "the replies are not RESP");
        check_failed(
            &[b"+A\r\n", b"+B\r\n+C\r\n"],
            "there are more replies than commands",
        );
        check_failed(
            &[b"+A\r\n", b"$100\r\n", &[b'x'; 20]],
            "the replies are longer than replies_bytes_max",
        );
    }

    #[test]
    fn bytes_from_redis_without_a_call_end_the_connection() {
        let mut bridge = bridge();
        assert_eq!(outbound(&mut bridge, &[b"+STRAY\r\n"]), b"");
        assert_eq!(bridge.inbound(&call(TWO)), Inbound::Close);
    }

    #[test]
    fn a_second_call_before_the_first_is_answered_closes() {
        let mut bridge = bridge();
        inbound(&mut bridge, &[&call(TWO)]);
        assert_eq!(bridge.inbound(&call(TWO)), Inbound::Close);
        assert_eq!(outbound(&mut bridge, &[b"+PONG\r\n"]), b"");
    }

    proptest! {
        /// However both directions are cut, the same bytes come out.
        #[test]
        fn cuts_do_not_matter(
            commands in 1..20_usize, size in 0..300_usize,
            cuts in prop::collection::vec(1..60_usize, 1..6),
        ) {
            let body = [format!("*2\r\n$1\r\nx\r\n${size}\r\n").as_bytes(), &vec![b'\r'; size], b"\r\n"].concat().repeat(commands);
            let replies = b"*2\r\n*1\r\n:1\r\n-ERR a\r\n".repeat(commands);
            let mut bridge = bridge();
            for _ in 0..2 {
                prop_assert_eq!(&inbound(&mut bridge, &cut(&call(&body), &cuts)), &body);
                prop_assert_eq!(outbound(&mut bridge, &cut(&replies, &cuts)), head::success(&replies));
            }
        }

        /// No bytes from either side panic it, and after an error nothing but the error comes out.
        #[test]
        fn garbage_does_no_harm(steps in prop::collection::vec((any::<bool>(), prop::collection::vec(any::<u8>(), 0..60)), 0..20)) {
            let mut bridge = bridge();
            for (is_inbound, bytes) in steps {
                if is_inbound { bridge.inbound(&bytes); } else { bridge.outbound(&bytes); }
            }
        }
    }

    /// Cuts `bytes` into pieces of the lengths in `cuts`, again and again.
    fn cut<'a>(mut bytes: &'a [u8], cuts: &[usize]) -> Vec<&'a [u8]> {
        let mut pieces = Vec::new();
        for &length in cuts.iter().cycle() {
            let (piece, rest) = bytes.split_at(length.min(bytes.len()));
            pieces.push(piece);
            bytes = rest;
            if bytes.is_empty() {
                break;
            }
        }
        pieces
    }
}
