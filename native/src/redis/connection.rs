//! One connection to a Redis server.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::rustls::pki_types::ServerName;
use weir_base::resp::{Direction, Framer};
use weir_engine::redis::{DefiniteFailure, Failure, Reply, UnknownFailure, is_noscript};

use super::{Dial, timeout};
use crate::service::with_deadline;
use crate::settings::host_and_port;

/// The most bytes of the replies to one call, the same limit as the bridge's.
const REPLIES_BYTES_MAX: usize = 16 << 20;

/// Initial buffer size, enough for the replies of most calls.
const ROOM: usize = 4096;

trait Stream: AsyncRead + AsyncWrite + Unpin {}
impl<S: AsyncRead + AsyncWrite + Unpin> Stream for S {}

/// An idle connection.
pub(super) struct Connection {
    stream: Box<dyn Stream>,
}

impl Connection {
    /// Connects until `deadline`, with optional TLS and login.
    pub(super) async fn open(
        address: &str,
        dial: &Dial,
        deadline: Instant,
    ) -> Result<Self, DefiniteFailure> {
        let deadline = deadline.min(Instant::now() + dial.connect_timeout);
        let opened = with_deadline(deadline, Self::try_open(address, dial)).await;
        // No byte of the call was written.
        let mut connection = match opened {
            Some(Ok(connection)) => connection,
            Some(Err(error)) => return Err(no_connection(address, &error)),
            None => return Err(late(address)),
        };
        if let Some(login) = &dial.login {
            let logged_in = with_deadline(deadline, connection.log_in(login)).await;
            logged_in.unwrap_or_else(|| Err(late(address)))?;
        }
        Ok(connection)
    }

    async fn try_open(address: &str, dial: &Dial) -> io::Result<Self> {
        let bad = || io::Error::other("not host:port");
        let (host, port) = host_and_port(address).ok_or_else(bad)?;
        let tcp = TcpStream::connect((host, port)).await?;
        // Batches are written whole, so Nagle's algorithm would only delay them.
        tcp.set_nodelay(true)?;
        let stream: Box<dyn Stream> = match &dial.tls {
            Some(tls) => {
                let own = || ServerName::try_from(host.to_owned()).map_err(io::Error::other);
                let name = tls.server_name.clone().map_or_else(own, Ok)?;
                Box::new(tls.connector.connect(name, tcp).await?)
            }
            None => Box::new(tcp),
        };
        Ok(Self { stream })
    }

    async fn log_in(&mut self, login: &[u8]) -> Result<(), DefiniteFailure> {
        let reply = self.exchange(login, 1).await;
        match reply {
            Ok(reply) if reply.starts_with(b"+") => Ok(()),
            Ok(reply) => {
                let error = reply.strip_prefix(b"-").unwrap_or(&reply);
                let error = String::from_utf8_lossy(error).trim_end().to_owned();
                Err(DefiniteFailure::Login(error))
            }
            Err(failure) => Err(DefiniteFailure::Refused(format!("login failed: {failure}"))),
        }
    }

    /// Checks that the server is a primary with a replica. A former primary that returns also calls itself a primary for some
    /// seconds, but has no replica.
    pub(super) async fn check_primary(
        &mut self,
        address: &str,
        deadline: Instant,
    ) -> Result<(), DefiniteFailure> {
        let reply = self.call(b"*1\r\n$4\r\nROLE\r\n", 1, deadline).await;
        let reply = reply.map_err(|failure| {
            DefiniteFailure::Refused(format!("no role from {address}: {failure}"))
        })?;
        match is_primary_with_replica(&reply) {
            true => Ok(()),
            false => Err(DefiniteFailure::Refused(format!(
                "{address} is not a primary with a replica"
            ))),
        }
    }

    /// Sends commands and waits for `count` replies. Reuse the connection only if [`is_good`] returns `true`.
    pub(super) async fn call(&mut self, commands: &[u8], count: usize, deadline: Instant) -> Reply {
        let replies = with_deadline(deadline, self.exchange(commands, count)).await;
        replies.unwrap_or_else(|| Err(timeout()))
    }

    async fn exchange(&mut self, commands: &[u8], count: usize) -> Reply {
        let lost = |_| Failure::from(UnknownFailure::Lost);
        self.stream.write_all(commands).await.map_err(lost)?;
        self.stream.flush().await.map_err(lost)?;
        let mut framer = Framer::new(Direction::Replies);
        let mut replies = Vec::with_capacity(ROOM);
        let mut rest = count;
        while rest > 0 {
            let existing = replies.len();
            if self.stream.read_buf(&mut replies).await.map_err(lost)? == 0 {
                return Err(UnknownFailure::Lost.into());
            }
            let new = replies.get(existing..).unwrap_or_default();
            let garbled = |_| Failure::from(UnknownFailure::Garbled);
            let progress = framer.advance(new, rest).map_err(garbled)?;
            rest -= progress.frames;
            if progress.used < new.len() {
                // More bytes than the requested replies.
                return Err(UnknownFailure::Garbled.into());
            }
            if replies.len() > REPLIES_BYTES_MAX {
                return Err(UnknownFailure::Bridge("the replies are too long".into()).into());
            }
        }
        Ok(replies)
    }

    /// Whether the connection is still open and has no unrequested bytes.
    pub(super) fn is_quiet(&mut self) -> bool {
        let mut byte = [0; 1];
        let mut buffer = ReadBuf::new(&mut byte);
        let mut context = Context::from_waker(Waker::noop());
        // Over TLS, this also processes TLS records such as session tickets.
        matches!(
            Pin::new(&mut *self.stream).poll_read(&mut context, &mut buffer),
            Poll::Pending
        )
    }
}

/// Reads a reply to `ROLE` like the health check of `envoy/snippets/redis-replicated.yaml`.
fn is_primary_with_replica(role: &[u8]) -> bool {
    let text = String::from_utf8_lossy(role);
    let rest = text.split_once("$6\r\nmaster\r\n");
    rest.is_some_and(|(_, rest)| rest.contains("*3\r\n$"))
}

fn no_connection(address: &str, error: &io::Error) -> DefiniteFailure {
    DefiniteFailure::Refused(format!("cannot connect to {address}: {error}"))
}

fn late(address: &str) -> DefiniteFailure {
    DefiniteFailure::Refused(format!("timeout connecting to {address}"))
}

/// Whether a connection may be reused after `reply`. An error about the server's state, except an unknown script, may
/// mean that a failover replaced this server.
pub(crate) fn is_good(reply: &Reply) -> bool {
    let Ok(replies) = reply else { return false };
    replies.strip_prefix(b"-").is_none_or(is_noscript)
}
