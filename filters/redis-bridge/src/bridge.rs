//! The bridge's state machine: bytes in, bytes out, independent of a host.
//!
//! A caller sends one head, then an endless series of chunks with messages: each message is a call. The bridge reads
//! and checks a whole call before it passes any of it, so a refusal is definite: nothing has run. A response is
//! complete when as many replies as commands have arrived. It goes out as one chunk with one message; the first one
//! follows the response's head. Splits of the bytes do not matter on either side, and chunks may end anywhere within
//! messages.
//!
//! A network filter can write to the caller only while data arrives from the other side. A refused call therefore sends
//! a PING, which Redis or `redis_proxy` answers, and the refusal replaces that answer. After any error the response
//! ends (or, to a head that opens no stream, contains `connection: close`). The caller then closes, and later bytes are
//! dropped, so no reply can reach another call. The message that ends a stream begins with one of the words in
//! [`weir_proxy_kit::bridge`], which states whether the call may have run.

use std::rc::Rc;

use weir_base::resp::{Direction, Framer};
use weir_proxy_kit::bridge as words;

use crate::chunk::{BodyEnd, Decoder};
use crate::config::Config;
use crate::head;
use crate::message::{BODY_LEN_MAX, Chunk, Reader, RejectedMessage};

/// A command that makes the other side answer, so that a refusal can be written.
const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";

/// The chunk that ends a response.
const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// What to do with bytes from the caller, which are always removed from Envoy's buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inbound {
    /// Nothing passes yet.
    Wait,
    /// These bytes pass instead.
    Pass(Vec<u8>),
    /// The connection must be closed: its caller has ended the stream, or violates HTTP/1.1 or the limit of one call at
    /// a time.
    Close,
}

/// What to do with bytes from Redis, which are always removed from Envoy's buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outbound {
    /// Nothing passes yet.
    Wait,
    /// These bytes pass instead.
    Pass(Vec<u8>),
}

/// One connection from a filter's cluster to Redis.
#[derive(Debug)]
pub struct Bridge {
    config: Rc<Config>,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Reads the caller's head: its bytes so far.
    Head(Vec<u8>),
    /// The head opens no stream; this response goes out with the next bytes from the other side.
    Denying(Vec<u8>),
    /// Calls arrive in sequence.
    Open(Box<Stream>),
    /// An error went out: the caller will close.
    Closed,
}

impl Bridge {
    /// A new connection.
    pub fn new(config: Rc<Config>) -> Self {
        Self {
            config,
            state: State::Head(Vec::new()),
        }
    }

    /// Handles bytes from the caller.
    pub fn inbound(&mut self, bytes: &[u8]) -> Inbound {
        let passed = match &mut self.state {
            _ if bytes.is_empty() => Ok(None),
            State::Head(_) => self.head(bytes),
            State::Open(stream) => stream.inbound(bytes, &self.config),
            State::Denying(_) | State::Closed => Err(BodyEnd),
        };
        match passed {
            Ok(None) => Inbound::Wait,
            Ok(Some(bytes)) => Inbound::Pass(bytes),
            Err(BodyEnd) => {
                self.state = State::Closed;
                Inbound::Close
            }
        }
    }

    /// Handles bytes of the head, and possibly of what follows it; returns what passes.
    fn head(&mut self, bytes: &[u8]) -> Result<Option<Vec<u8>>, BodyEnd> {
        let State::Head(received) = &mut self.state else {
            return Err(BodyEnd);
        };
        received.extend_from_slice(bytes);
        match head::read(received) {
            Ok(None) => Ok(None),
            Ok(Some(length)) => {
                let mut stream = Box::<Stream>::default();
                let rest = received.get(length..).unwrap_or_default();
                let passed = stream.inbound(rest, &self.config);
                self.state = State::Open(stream);
                passed
            }
            Err(reason) => {
                self.state = State::Denying(head::error(reason));
                Ok(Some(PING.to_vec()))
            }
        }
    }

    /// Handles bytes from Redis.
    pub fn outbound(&mut self, bytes: &[u8]) -> Outbound {
        let answer = match &mut self.state {
            _ if bytes.is_empty() => Ok(Outbound::Wait),
            State::Open(stream) => stream.outbound(bytes, &self.config),
            State::Denying(response) => Err(Outbound::Pass(std::mem::take(response))),
            State::Head(_) | State::Closed => Err(Outbound::Wait),
        };
        answer.unwrap_or_else(|last| {
            self.state = State::Closed;
            last
        })
    }

    /// Redis has refused the login with this error. Returns the last bytes for the caller; later bytes from Redis are dropped.
    pub fn login_refused(&mut self, error: &str) -> Outbound {
        let last = match &mut self.state {
            State::Open(stream) => stream.last(words::LOGIN, error),
            State::Denying(response) => Outbound::Pass(std::mem::take(response)),
            State::Head(_) | State::Closed => Outbound::Wait,
        };
        self.state = State::Closed;
        last
    }
}

/// The stream after a head: call, response, call, response.
#[derive(Debug, Default)]
struct Stream {
    chunks: Decoder,
    call: Call,
    /// Whether the response's head has gone out.
    head_sent: bool,
}

#[derive(Debug)]
enum Call {
    /// The call is arriving.
    Reading(Reader),
    /// The call has passed; its replies are arriving.
    Answering(Replies),
    /// The call was refused; the refusal goes out with the next bytes from the other side.
    Refusing(RejectedMessage),
}

impl Default for Call {
    fn default() -> Self {
        Self::Reading(Reader::default())
    }
}

impl Stream {
    /// Returns what passes to Redis, if anything.
    fn inbound(&mut self, mut bytes: &[u8], config: &Config) -> Result<Option<Vec<u8>>, BodyEnd> {
        let mut passed = None;
        while let Some(mut data) = self.chunks.next(&mut bytes)? {
            passed = self.data(&mut data, config).or(passed);
            // A second call before the first response: replies could no longer be assigned.
            if !data.is_empty() {
                return Err(BodyEnd);
            }
        }
        Ok(passed)
    }

    /// Takes the call's bytes off the front of `data`; returns what passes.
    fn data(&mut self, data: &mut &[u8], config: &Config) -> Option<Vec<u8>> {
        let accepted = match &mut self.call {
            Call::Reading(reader) => reader.take(data, config.request_bytes_max),
            Call::Refusing(refused) => {
                refused.skip(data);
                Ok(None)
            }
            Call::Answering(_) => Ok(None),
        };
        let count = |body| counted(body, config.commands_max);
        match accepted.and_then(|body| body.map(count).transpose()) {
            Ok(None) => None,
            Ok(Some((commands, body))) => {
                self.call = Call::Answering(Replies::new(commands, self.unsent_head()));
                Some(body)
            }
            Err(mut refused) => {
                refused.skip(data);
                self.call = Call::Refusing(refused);
                Some(PING.to_vec())
            }
        }
    }

    /// Returns what passes to the caller.
    ///
    /// # Errors
    /// The last bytes for the caller.
    fn outbound(&mut self, bytes: &[u8], config: &Config) -> Result<Outbound, Outbound> {
        match std::mem::take(&mut self.call) {
            Call::Reading(_) => Err(Outbound::Wait),
            Call::Refusing(refused) => Err(self.last(words::REFUSED, refused.reason)),
            Call::Answering(mut replies) => match replies.take(bytes, config.replies_bytes_max) {
                Ok(false) => {
                    self.call = Call::Answering(replies);
                    Ok(Outbound::Wait)
                }
                Ok(true) => {
                    self.head_sent = true;
                    Ok(Outbound::Pass(replies.chunk.finish()))
                }
                // It is unknown whether the commands ran.
                Err(reason) => Err(self.last(words::FAILED, reason)),
            },
        }
    }

    /// The end of the response, with the reason for the missing replies.
    fn last(&self, word: &str, reason: &str) -> Outbound {
        let mut chunk = Chunk::after(self.unsent_head());
        chunk.push(word.as_bytes());
        chunk.push(reason.as_bytes());
        let mut response = chunk.finish();
        response.extend_from_slice(LAST_CHUNK);
        Outbound::Pass(response)
    }

    /// The prefix of the next response.
    fn unsent_head(&self) -> &'static [u8] {
        if self.head_sent { b"" } else { head::STREAM }
    }
}

/// The replies to a call that have arrived.
#[derive(Debug)]
struct Replies {
    framer: Framer,
    missing: usize,
    chunk: Chunk,
}

impl Replies {
    fn new(missing: usize, head: &[u8]) -> Self {
        Self {
            framer: Framer::new(Direction::Replies),
            missing,
            chunk: Chunk::after(head),
        }
    }

    /// Adds `bytes`; returns whether all replies have arrived.
    ///
    /// # Errors
    /// Why the replies are invalid.
    fn take(&mut self, bytes: &[u8], bytes_max: usize) -> Result<bool, &'static str> {
        if bytes.len() > bytes_max.min(BODY_LEN_MAX) - self.chunk.body_len() {
            return Err("the replies are longer than replies_bytes_max");
        }
        let progress = self.framer.advance(bytes, self.missing);
        let progress = progress.map_err(|_| "the replies are not RESP")?;
        if progress.used < bytes.len() {
            return Err("more replies than commands");
        }
        self.missing -= progress.frames;
        self.chunk.push(bytes);
        Ok(self.missing == 0)
    }
}

/// A call's body that may pass, with its number of commands.
fn counted(body: Vec<u8>, commands_max: usize) -> Result<(usize, Vec<u8>), RejectedMessage> {
    let commands = count_commands(&body, commands_max).map_err(RejectedMessage::whole)?;
    Ok((commands, body))
}

/// The number of commands in the body of a call.
///
/// # Errors
/// Why it is refused.
fn count_commands(body: &[u8], commands_max: usize) -> Result<usize, &'static str> {
    let mut framer = Framer::new(Direction::Commands);
    let progress = framer
        .advance(body, commands_max)
        .map_err(|_| "the body is not RESP commands")?;
    if progress.used < body.len() {
        return Err("more commands than commands_max");
    }
    if progress.frames == 0 || !framer.is_between_frames() {
        return Err("the body does not end with a whole command");
    }
    Ok(progress.frames)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HEAD: &[u8] = b"POST / HTTP/1.1\r\nhost: r\r\ntransfer-encoding: chunked\r\n\r\n";
    const TWO: &[u8] = b"*1\r\n$4\r\nPING\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n";

    fn message(body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len()).unwrap().to_be_bytes();
        [&[0], length.as_slice(), body].concat()
    }

    fn chunk(data: &[u8]) -> Vec<u8> {
        let size = format!("{:x}\r\n", data.len());
        [size.as_bytes(), data, b"\r\n"].concat()
    }

    fn call(body: &[u8]) -> Vec<u8> {
        chunk(&message(body))
    }

    fn first(body: &[u8]) -> Vec<u8> {
        [HEAD, &call(body)].concat()
    }

    /// The caller's message for replies, or for a word and a reason.
    fn answer(body: &[u8]) -> Vec<u8> {
        let message = message(body);
        let size = format!("{:08x}\r\n", message.len());
        [size.as_bytes(), &message, b"\r\n"].concat()
    }

    fn first_answer(body: &[u8]) -> Vec<u8> {
        let head = b"HTTP/1.1 200 OK\r\ncontent-type: application/grpc\r\ntransfer-encoding: chunked\r\n\r\n";
        [head.as_slice(), &answer(body)].concat()
    }

    fn bridge() -> Bridge {
        Bridge::new(Rc::default())
    }

    /// A bridge whose caller has opened a stream.
    fn open() -> Bridge {
        let mut bridge = bridge();
        assert_eq!(bridge.inbound(HEAD), Inbound::Wait);
        bridge
    }

    /// The bytes that pass for `pieces` from the caller.
    fn inbound(bridge: &mut Bridge, pieces: &[&[u8]]) -> Vec<u8> {
        let pass = |chunk: &&[u8]| match bridge.inbound(chunk) {
            Inbound::Wait => vec![],
            Inbound::Pass(bytes) => bytes,
            Inbound::Close => panic!("closed"),
        };
        pieces.iter().flat_map(pass).collect()
    }

    /// The bytes that pass for `pieces` from Redis.
    fn outbound(bridge: &mut Bridge, pieces: &[&[u8]]) -> Vec<u8> {
        let pass = |chunk: &&[u8]| match bridge.outbound(chunk) {
            Outbound::Wait => vec![],
            Outbound::Pass(bytes) => bytes,
        };
        pieces.iter().flat_map(pass).collect()
    }

    fn check_closed(mut bridge: Bridge) {
        assert_eq!(outbound(&mut bridge, &[b"+MORE\r\n"]), b"");
        assert_eq!(bridge.inbound(&call(TWO)), Inbound::Close);
        assert_eq!(outbound(&mut bridge, &[b"+MORE\r\n"]), b"");
    }

    #[test]
    fn stream_carries_many_calls_after_one_head() {
        let (mut bridge, replies) = (bridge(), b"+PONG\r\n$1\r\nv\r\n");
        assert_eq!(inbound(&mut bridge, &[&first(TWO)]), TWO);
        assert_eq!(outbound(&mut bridge, &[replies]), first_answer(replies));
        for _ in 0..3 {
            assert_eq!(inbound(&mut bridge, &[&call(TWO)]), TWO);
            assert_eq!(outbound(&mut bridge, &[replies]), answer(replies));
        }
    }

    #[test]
    fn chunks_may_end_inside_messages() {
        let (mut bridge, message) = (open(), message(PING));
        let (head, tail) = message.split_at(3);
        for _ in 0..2 {
            let mixed = [tail, head].concat();
            assert_eq!(bridge.inbound(&chunk(head)), Inbound::Wait);
            // The call is complete here; the rest of the chunk belongs to the next one, and arrives later.
            let mixed = chunk(&mixed);
            let (now, later) = mixed.split_at(mixed.len() - head.len() - 2);
            assert_eq!(inbound(&mut bridge, &[now]), PING);
            outbound(&mut bridge, &[b"+PONG\r\n"]);
            assert_eq!(inbound(&mut bridge, &[later, &chunk(tail)]), PING);
            outbound(&mut bridge, &[b"+PONG\r\n"]);
        }
    }

    #[test]
    fn invalid_stream_head_is_answered_with_400() {
        let mut bridge = bridge();
        assert_eq!(inbound(&mut bridge, &[b"nonsense\r\n\r\n"]), PING);
        let response = String::from_utf8(outbound(&mut bridge, &[b"+PONG\r\n"])).unwrap();
        assert!(response.starts_with("HTTP/1.1 400 Bad Request\r\n"));
        assert!(response.contains("connection: close\r\n"), "{response}");
        assert!(response.ends_with("\r\n\r\nthe head is not HTTP/1.1\n"));
        check_closed(bridge);
    }

    #[test]
    fn bytes_after_an_invalid_stream_head_close_the_connection() {
        let mut bridge = bridge();
        inbound(&mut bridge, &[b"nonsense\r\n\r\n"]);
        assert_eq!(bridge.inbound(b"x"), Inbound::Close);
        check_closed(bridge);
    }

    /// Refused before anything passes. The refusal replaces the PONG, and nothing follows it.
    fn check_refused(data: &[u8], reason: &str) {
        let last = format!("refused: {reason}");
        let (first, later) = (first_answer(last.as_bytes()), answer(last.as_bytes()));
        check_no_reply(&last);

        let mut bridge = open();
        assert_eq!(inbound(&mut bridge, &[&chunk(data)]), PING, "{reason}");
        assert_eq!(
            outbound(&mut bridge, &[b"+PONG\r\n"]),
            [&first, LAST_CHUNK].concat()
        );
        check_closed(bridge);

        let mut bridge = open();
        inbound(&mut bridge, &[&call(PING)]);
        outbound(&mut bridge, &[b"+PONG\r\n"]);
        assert_eq!(inbound(&mut bridge, &[&chunk(data)]), PING, "{reason}");
        let response = outbound(&mut bridge, &[b"+PO", b"NG\r\n"]);
        assert_eq!(response, [&later, LAST_CHUNK].concat());
        check_closed(bridge);
    }

    /// Filters must not parse the message as replies.
    fn check_no_reply(text: &str) {
        let read = weir_base::resp::decode(text.as_bytes());
        assert!(matches!(
            read,
            Err(weir_base::resp::DecodeError::Malformed(_))
        ));
    }

    #[test]
    fn bad_call_is_refused_before_any_byte_passes() {
        check_refused(&message(b"GET k\r\n"), "the body is not RESP commands");
        let not_whole = "the body does not end with a whole command";
        check_refused(&message(b"*1\r\n$4\r\nPI"), not_whole);
        check_refused(&message(b""), not_whole);
        check_refused(b"\x01\0\0\0\x01a", "the message has flags");
        let long = "the body is longer than request_bytes_max";
        check_refused(b"\0\x00\x10\0\x01", long);
        check_refused(b"\0\xff\xff\xff\xffabc", long);
        let many = message(&b"*1\r\n$1\r\nx\r\n".repeat(4_097));
        check_refused(&many, "more commands than commands_max");
    }

    #[test]
    fn rest_of_a_refused_message_is_discarded() {
        let config = Config {
            request_bytes_max: 20,
            ..Config::default()
        };
        let (mut bridge, bytes) = (Bridge::new(config.into()), first(TWO));
        assert_eq!(inbound(&mut bridge, &cut(&bytes, &[7])), PING);
        assert_eq!(bridge.inbound(b"1\r\nx"), Inbound::Close);
        check_closed(bridge);
    }

    fn check_failed(replies: &[&[u8]], reason: &str) {
        let config = Config {
            replies_bytes_max: 20,
            ..Config::default()
        };
        let mut bridge = Bridge::new(config.into());
        inbound(&mut bridge, &[&first(TWO)]);
        let last = format!("failed: {reason}");
        check_no_reply(&last);
        let expected = [&first_answer(last.as_bytes()), LAST_CHUNK].concat();
        assert_eq!(outbound(&mut bridge, replies), expected);
        check_closed(bridge);
    }

    #[test]
    fn bad_replies_end_the_stream_and_never_reach_the_next_call() {
        check_failed(&[b"HTTP"], "the replies are not RESP");
        check_failed(&[b"+A\r\n", b"+B\r\n+C\r\n"], "more replies than commands");
        check_failed(
            &[b"+A\r\n", b"$100\r\n", &[b'x'; 20]],
            "the replies are longer than replies_bytes_max",
        );
    }

    #[test]
    fn unrequested_bytes_from_redis_end_the_connection() {
        for mut bridge in [bridge(), open()] {
            assert_eq!(outbound(&mut bridge, &[b"+STRAY\r\n"]), b"");
            check_closed(bridge);
        }
    }

    #[test]
    fn second_call_before_the_first_answer_closes_the_stream() {
        for second in [&call(TWO), b"1\r\n\0".as_slice()] {
            let mut bridge = open();
            inbound(&mut bridge, &[&call(TWO)]);
            assert_eq!(bridge.inbound(second), Inbound::Close);
            check_closed(bridge);
        }
        for both in [call(TWO).repeat(2), chunk(&message(TWO).repeat(2))] {
            let mut bridge = open();
            assert_eq!(bridge.inbound(&both), Inbound::Close);
            check_closed(bridge);
        }
    }

    #[test]
    fn end_of_a_chunk_may_arrive_later() {
        let (mut bridge, call) = (open(), call(TWO));
        let (body, end) = call.split_at(call.len() - 2);
        assert_eq!(inbound(&mut bridge, &[body]), TWO);
        assert_eq!(inbound(&mut bridge, &cut(end, &[1])), b"");
        outbound(&mut bridge, &[b"+PONG\r\n+v\r\n"]);
        assert_eq!(inbound(&mut bridge, &[body]), TWO);
        outbound(&mut bridge, &[b"+PONG\r\n+v\r\n"]);
        assert_eq!(inbound(&mut bridge, &[end, &call]), TWO);
    }

    #[test]
    fn last_chunk_or_malformed_chunk_closes_the_stream() {
        for end in [b"0\r\n".as_slice(), b"x", b"1\r\nab"] {
            let end = [end, b"\r\n"].concat();
            let mut bridge = open();
            assert_eq!(bridge.inbound(&end), Inbound::Close);
            check_closed(bridge);
            let mut bridge = open();
            inbound(&mut bridge, &[&call(TWO)]);
            assert_eq!(bridge.inbound(&end), Inbound::Close);
            check_closed(bridge);
        }
    }

    proptest! {
        /// However both directions are split, the result is the same.
        #[test]
        fn splits_of_both_directions_give_the_same_result(
            commands in 1..20_usize, size in 0..300_usize, chunk_size in 1..600_usize,
            cuts in prop::collection::vec(1..60_usize, 1..6),
        ) {
            let body = [format!("*2\r\n$1\r\nx\r\n${size}\r\n").as_bytes(), &vec![b'\r'; size], b"\r\n"].concat().repeat(commands);
            let call: Vec<u8> = message(&body).chunks(chunk_size).flat_map(chunk).collect();
            let replies = b"*2\r\n*1\r\n:1\r\n-ERR a\r\n".repeat(commands);
            let mut bridge = bridge();
            for head in [HEAD, b""] {
                let bytes = [head, &call].concat();
                prop_assert_eq!(&inbound(&mut bridge, &cut(&bytes, &cuts)), &body);
                let expected = if head.is_empty() { answer(&replies) } else { first_answer(&replies) };
                prop_assert_eq!(outbound(&mut bridge, &cut(&replies, &cuts)), expected);
            }
        }

        /// No bytes from either side panic it, whether or not a stream is open.
        #[test]
        fn arbitrary_bytes_never_panic_the_bridge(
            start in prop::sample::select(vec![b"".as_slice(), HEAD, b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nff\r\n\0\0\0\0\x0e"]),
            steps in prop::collection::vec((any::<bool>(), prop::collection::vec(any::<u8>(), 0..60)), 0..20),
        ) {
            let mut bridge = bridge();
            bridge.inbound(start);
            for (is_inbound, bytes) in steps {
                if is_inbound { bridge.inbound(&bytes); } else { bridge.outbound(&bytes); }
            }
        }
    }

    /// Splits `bytes` into pieces of the lengths in `cuts`, repeatedly.
    fn cut<'a>(mut bytes: &'a [u8], cuts: &[usize]) -> Vec<&'a [u8]> {
        let mut pieces = Vec::new();
        for &length in cuts.iter().cycle() {
            let (chunk, rest) = bytes.split_at(length.min(bytes.len()));
            pieces.push(chunk);
            bytes = rest;
            if bytes.is_empty() {
                break;
            }
        }
        pieces
    }
}
