//! The other end of `proxy_http_call` and of gRPC streams: scripted answers, or a real Redis.

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

/// How long a real server may keep a test waiting (real time, not virtual).
const RESP_PATIENCE: Duration = Duration::from_secs(5);

/// The answer to a call that is no whole Redis commands.
const NOT_COMMANDS: &str = "the body has an incomplete RESP command";

/// Names one call, over all VMs of a host. (The filter's own tokens repeat from VM to VM.)
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallId(pub u64);

/// One `proxy_http_call` that a filter made, or one message that it sent over a gRPC stream, and that has had no answer
/// yet.
#[derive(Debug, Clone)]
pub struct Call {
    /// Its name, for [`Host::answer`](crate::Host::answer).
    pub id: CallId,
    /// The cluster that the filter named.
    pub cluster: String,
    /// Request headers, with `:method`, `:path` and `:authority`. A message has those of its stream, with the stream's
    /// initial metadata.
    pub headers: Headers,
    /// The request body, or the message.
    pub body: Vec<u8>,
    /// What the filter gave as trailers. Envoy drops them; they are here so that a test can see it tried.
    pub trailers: Headers,
    /// `None` is no timeout at all (the filter gave 0, or sent a message).
    pub timeout: Option<Duration>,
    /// The thread whose VM made the call.
    pub thread: Thread,
    /// Virtual time of the call, in nanoseconds since the Unix epoch.
    pub at_ns: u64,
    pub(crate) vm: VmUid,
    /// Always a root context: Envoy ties calls to it, whichever context dispatched them.
    pub(crate) root: ContextId,
    /// The filter's name for it: the call's, or the gRPC stream's.
    pub(crate) token: u32,
}

impl Call {
    /// The id of the gRPC stream that this was sent over, as the filter knows it; `None` for a `proxy_http_call`.
    pub fn stream(&self) -> Option<u32> {
        crate::grpc::is_stream(self.token).then_some(self.token)
    }

    /// The Redis commands that the body consists of; `None` if it is anything else.
    pub fn commands(&self) -> Option<Vec<RespCommand>> {
        redis::commands(&self.body)
    }

    /// The body as text, with replacement characters where it is not UTF-8.
    pub fn body_text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// What an upstream does with a call.
///
/// To a message on a gRPC stream, a 200 is one message back, and the stream stays open. Any other status, and
/// [`Fail`](Self::Fail), close the stream: with `UNAVAILABLE` (502, 503, 504, `Fail`), `INTERNAL` (400) or `UNKNOWN`.
/// What else was sent over it has no answer then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// Nothing: the call waits for [`Host::answer`](crate::Host::answer), or for its timeout.
    Hold,
    /// The callback gets no headers, no body and no trailers, as after a reset or a timeout.
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
    /// The reply inside, after this much virtual time.
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

    /// A 200 with what Redis would reply to the commands of a call: a value for each.
    pub fn resp(values: impl IntoIterator<Item = RespValue>) -> Self {
        let mut body = Vec::new();
        values.into_iter().for_each(|value| value.encode(&mut body));
        Self::ok(body)
    }

    /// What Envoy answers in the upstream's place when it cannot connect: a 503 of its own.
    pub fn unreachable() -> Self {
        const TEXT: &str = "upstream connect error or disconnect/reset before headers. \
                            reset reason: connection failure";
        Self::status(503, TEXT).header("content-type", "text/plain")
    }

    /// Adds a header to a response; any other reply stays as it is.
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

/// A cluster, as `proxy_http_call` and `proxy_grpc_stream` find it.
#[derive(Clone)]
pub struct Upstream(pub(crate) Kind);

#[derive(Clone)]
pub(crate) enum Kind {
    Scripted(Script),
    Resp(Rc<RespServer>),
    Unhealthy,
}

impl Upstream {
    /// A closure answers each call when it arrives, one turn of the event loop after it was dispatched.
    pub fn scripted(script: impl FnMut(&Call) -> Reply + 'static) -> Self {
        Self(Kind::Scripted(Rc::new(RefCell::new(script))))
    }

    /// These replies, one a call; afterwards every call is held.
    pub fn replies(replies: impl IntoIterator<Item = Reply>) -> Self {
        let mut replies: VecDeque<_> = replies.into_iter().collect();
        Self::scripted(move |_| replies.pop_front().unwrap_or(Reply::Hold))
    }

    /// Every call waits for [`Host::answer`](crate::Host::answer), or for its timeout.
    pub fn held() -> Self {
        Self::scripted(|_| Reply::Hold)
    }

    /// A cluster without a healthy host: the dispatch itself, or the opening of a gRPC stream, fails with
    /// `InternalFailure`, and no callback ever comes.
    pub fn unhealthy() -> Self {
        Self(Kind::Unhealthy)
    }

    /// Redis by script: a closure gets each command of a call and returns its reply. Commands run in their order; a call
    /// whose body isn't RESP commands gets a 400.
    ///
    /// For replies that are late or lost, use [`scripted`](Self::scripted) with [`Call::commands`] and [`Reply::resp`].
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

    /// A real server that speaks RESP (Redis, Valkey) at `address`, as `redis-bridge` and `redis_proxy`
    /// would reach it: the body of a call is sent as it is, and as many replies as it held commands come
    /// back as the body of a 200. If the server can't be reached, or does not answer within 5 s
    /// of real time, the call gets [`Reply::unreachable`]; if the body isn't RESP, a 400.
    ///
    /// One connection is kept for all calls.
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
        // A connection that failed is in an unknown state: never use it again.
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
