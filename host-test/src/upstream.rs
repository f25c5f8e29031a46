//! The servers of `proxy_http_call` and of gRPC streams: scripted, or a real Redis.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the host, and must stop the test"
)]

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::rc::Rc;
use std::time::Duration;

use crate::abi::Headers;
use crate::redis::{self, RespCommand, RespValue};
use crate::resp::{self, Short};
use crate::world::{ContextId, Thread, VmUid};

/// Timeout of a real server, in real time.
const RESP_PATIENCE: Duration = Duration::from_secs(5);

/// The response to a call with an incomplete Redis command.
const NOT_COMMANDS: &str = "the body has an incomplete RESP command";

/// The id of a call, unique over all VMs of a host. (The filter's own tokens repeat in each VM.)
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallId(pub u64);

/// A `proxy_http_call`, or one message over a gRPC stream, without an answer yet.
#[derive(Debug, Clone)]
pub struct Call {
    /// Its id, for [`Host::answer`](crate::Host::answer).
    pub id: CallId,
    /// The cluster.
    pub cluster: String,
    /// Request headers, with `:method`, `:path` and `:authority`. A message has those of its stream, with the stream's
    /// initial metadata.
    pub headers: Headers,
    /// The request body, or the message.
    pub body: Vec<u8>,
    /// The filter's trailers. Envoy drops them; they are here for tests.
    pub trailers: Headers,
    /// `None`: no timeout (the filter set 0, or sent a message).
    pub timeout: Option<Duration>,
    /// The thread whose VM made the call.
    pub thread: Thread,
    /// The time of the call, in nanoseconds of virtual time since the Unix epoch.
    pub at_ns: u64,
    pub(crate) vm: VmUid,
    /// Always a root context: Envoy ties calls to it, whichever context dispatched them.
    pub(crate) root: ContextId,
    /// The filter's token of the call or of the gRPC stream.
    pub(crate) token: u32,
}

impl Call {
    /// The filter's id of the gRPC stream for this message; `None` for a `proxy_http_call`.
    pub fn stream(&self) -> Option<u32> {
        crate::grpc::is_stream(self.token).then_some(self.token)
    }

    /// The Redis commands in the body; `None` if it contains anything else.
    pub fn commands(&self) -> Option<Vec<RespCommand>> {
        redis::commands(&self.body)
    }

    /// The body as text, with replacement characters for invalid UTF-8.
    pub fn body_text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// An upstream's reply to a call.
///
/// For a message on a gRPC stream, a 200 is one message back, and the stream stays open. Any other status, and
/// [`Fail`](Self::Fail), close the stream: with `UNAVAILABLE` (502, 503, 504, `Fail`), `INTERNAL` (400) or `UNKNOWN`.
/// The stream's other messages then get no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// None yet: the call waits for [`Host::answer`](crate::Host::answer), or for its timeout.
    Hold,
    /// The callback gets no headers, body or trailers, as after a reset or a timeout.
    Fail,
    /// An HTTP response.
    Response {
        /// With `:status` first.
        headers: Headers,
        /// The body.
        body: Vec<u8>,
        /// Usually empty.
        trailers: Headers,
    },
    /// The inner reply, after this much virtual time.
    After(Duration, Box<Reply>),
}

impl Reply {
    /// A response with a status and a body.
    pub fn status(status: u16, body: impl Into<Vec<u8>>) -> Self {
        let body = body.into();
        let mut headers = Headers::new();
        headers.add(":status", status.to_string());
        headers.add("content-length", body.len().to_string());
        Self::Response {
            headers,
            body,
            trailers: Headers::new(),
        }
    }

    /// A 200 with a body.
    pub fn ok(body: impl Into<Vec<u8>>) -> Self {
        Self::status(200, body)
    }

    /// A 200 with the Redis replies to a call's commands: one value each.
    pub fn resp(values: impl IntoIterator<Item = RespValue>) -> Self {
        let mut body = Vec::new();
        values.into_iter().for_each(|value| value.encode(&mut body));
        Self::ok(body)
    }

    /// Envoy's own 503 when it cannot connect to the upstream.
    pub fn unreachable() -> Self {
        const TEXT: &str = "upstream connect error or disconnect/reset before headers. \
                            reset reason: connection failure";
        Self::status(503, TEXT).header("content-type", "text/plain")
    }

    /// Adds a header to a response; other replies are unchanged.
    #[must_use]
    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        match &mut self {
            Self::Response { headers, .. } => headers.add(name, value),
            Self::After(_, inner) => **inner = inner.clone().header(name, value),
            Self::Hold | Self::Fail => {}
        }
        self
    }

    /// The same reply, this much virtual time later.
    #[must_use]
    pub fn after(self, delay: Duration) -> Self {
        Self::After(delay, Box::new(self))
    }
}

type Script = Rc<RefCell<dyn FnMut(&Call) -> Reply>>;

/// A cluster for `proxy_http_call` and `proxy_grpc_stream`.
#[derive(Clone)]
pub struct Upstream(pub(crate) Kind);

#[derive(Clone)]
pub(crate) enum Kind {
    Scripted(Script),
    Resp(Rc<RespServer>),
    Unhealthy,
}

impl Upstream {
    /// A closure answers each call when it arrives, one turn of the event loop after its dispatch.
    pub fn scripted(script: impl FnMut(&Call) -> Reply + 'static) -> Self {
        Self(Kind::Scripted(Rc::new(RefCell::new(script))))
    }

    /// These replies, one per call; later calls are held.
    pub fn replies(replies: impl IntoIterator<Item = Reply>) -> Self {
        let mut replies: VecDeque<_> = replies.into_iter().collect();
        Self::scripted(move |_| replies.pop_front().unwrap_or(Reply::Hold))
    }

    /// Every call waits for [`Host::answer`](crate::Host::answer), or for its timeout.
    pub fn held() -> Self {
        Self::scripted(|_| Reply::Hold)
    }

    /// A cluster without a healthy host: the dispatch, or the opening of a gRPC stream, fails with `InternalFailure`,
    /// and no callback follows.
    pub fn unhealthy() -> Self {
        Self(Kind::Unhealthy)
    }

    /// A scripted Redis: a closure gets each command of a call and returns its reply. Commands run in order; a call
    /// whose body isn't RESP commands gets a 400.
    ///
    /// For late or lost replies, use [`scripted`](Self::scripted) with [`Call::commands`] and [`Reply::resp`].
    ///
    /// ```
    /// use std::collections::HashMap;
    /// use weir_host_test::{RespValue, Upstream};
    ///
    /// let mut counters = HashMap::<String, i64>::new();
    /// let redis = Upstream::scripted_resp(move |command| match command.name().as_str() {
    ///     "INCR" => {
    ///         let counter = counters.entry(command.text(0)).or_default();
    ///         *counter += 1;
    ///         RespValue::Integer(*counter)
    ///     }
    ///     other => RespValue::error(format!("ERR unknown command '{other}'")),
    /// });
    /// # let _ = redis;
    /// ```
    pub fn scripted_resp(mut script: impl FnMut(&RespCommand) -> RespValue + 'static) -> Self {
        Self::scripted(move |call| match call.commands() {
            Some(commands) => Reply::resp(commands.iter().map(&mut script)),
            None => Reply::status(400, NOT_COMMANDS),
        })
    }

    /// A real server with RESP (Redis, Valkey) at `address`, as `redis-bridge` and `redis_proxy` reach it. It sends the
    /// body of a call unchanged, and returns one reply per command as the body of a 200. If the server is unreachable,
    /// or does not answer within 5 s of real time, the call gets [`Reply::unreachable`]; if the body isn't RESP, a 400.
    ///
    /// All calls share one connection.
    pub fn resp(address: impl Into<String>) -> Self {
        Self(Kind::Resp(Rc::new(RespServer {
            address: address.into(),
            connection: RefCell::new(None),
        })))
    }

    pub(crate) fn answer(&self, call: &Call) -> Reply {
        match &self.0 {
            Kind::Scripted(script) => (script.borrow_mut())(call),
            Kind::Resp(server) => server.answer(&call.body),
            Kind::Unhealthy => Reply::unreachable(),
        }
    }
}

pub(crate) struct RespServer {
    address: String,
    connection: RefCell<Option<TcpStream>>,
}

impl RespServer {
    fn answer(&self, commands: &[u8]) -> Reply {
        let Ok(count) = resp::count(commands) else {
            return Reply::status(400, NOT_COMMANDS);
        };
        // A failed connection is in an unknown state: never reuse it.
        let connection = self.connection.borrow_mut().take();
        let result = connection
            .map_or_else(|| self.connect(), Ok)
            .and_then(|mut connection| {
                let replies = exchange(&mut connection, commands, count)?;
                Ok((connection, replies))
            });
        match result {
            Ok((connection, replies)) => {
                *self.connection.borrow_mut() = Some(connection);
                Reply::ok(replies)
            }
            Err(_) => Reply::unreachable(),
        }
    }

    fn connect(&self) -> std::io::Result<TcpStream> {
        let connection = TcpStream::connect(&self.address)?;
        connection.set_nodelay(true)?;
        connection.set_read_timeout(Some(RESP_PATIENCE))?;
        connection.set_write_timeout(Some(RESP_PATIENCE))?;
        Ok(connection)
    }
}

fn exchange(server: &mut TcpStream, commands: &[u8], count: usize) -> std::io::Result<Vec<u8>> {
    server.write_all(commands)?;
    let mut replies = Vec::new();
    let mut chunk = [0; 16 << 10];
    loop {
        match resp::length_of(count, &replies) {
            Ok(length) if length == replies.len() => return Ok(replies),
            Ok(_) | Err(Short::Malformed) => return Err(std::io::ErrorKind::InvalidData.into()),
            Err(Short::Incomplete) => {}
        }
        let n = server.read(&mut chunk)?;
        if n == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        replies.extend_from_slice(&chunk[..n]);
    }
}
