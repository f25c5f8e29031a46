//! Calls to Redis: gRPC streams to the bridge that stay open, each with one call at a time. A call on an open stream costs
//! Envoy a third less than an HTTP call of its own.

use proxy_wasm::hostcalls;
use proxy_wasm::types::{BufferType, Status};
use weir_engine::BatchId;
use weir_engine::redis::{Reply, UnknownFailure, is_noscript};

use crate::bridge::read_message;
use crate::cause;
use crate::said;
use crate::streams::Streams;

/// The service and the method that the bridge's streams are of. To the bridge they are all one.
const SERVICE: &str = "weir.Redis";
const METHOD: &str = "Call";

/// The status of gRPC that Envoy gives a stream that found no peer.
const UNAVAILABLE: u32 = 14;

/// The way to Redis of one VM. Its streams belong to the root context, which must be effective for all that sends or
/// closes.
#[derive(Debug)]
pub(crate) struct Link {
    cluster: String,
    streams: Streams,
    /// Whether the last stream could be opened.
    can_open: bool,
    /// Whether Redis has ever answered.
    has_answered: bool,
}

/// One call to Redis.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'a> {
    pub(crate) batch: BatchId,
    /// Whole commands.
    pub(crate) body: &'a [u8],
    /// How long it may take, from `now_ms` on.
    pub(crate) timeout_ms: u64,
    pub(crate) now_ms: u64,
}

impl Link {
    /// A link to the cluster named `cluster`, whose endpoint is the bridge's internal listener.
    pub(crate) fn new(cluster: String) -> Self {
        Self {
            cluster,
            streams: Streams::default(),
            can_open: true,
            has_answered: false,
        }
    }

    /// Whether a call can go on a stream that is open already.
    pub(crate) fn is_ready(&self) -> bool {
        self.streams.is_any_resting()
    }

    /// Sends a call. Whether it went: if not, nothing more is heard of it. It may open a stream only from a callback of the
    /// root context: a stream belongs to the context whose callback has opened it.
    pub(crate) fn send(&mut self, call: &Call<'_>, may_open: bool) -> bool {
        let sent = match self.send_on_resting(call.body) {
            None if may_open => {
                let opened = hostcalls::open_grpc_stream(&self.cluster, SERVICE, METHOD, vec![]);
                let opened = self.note_open(opened);
                opened.filter(|&stream| is_sent(stream, call.body))
            }
            sent => sent,
        };
        if let Some(stream) = sent {
            self.streams
                .begin(stream, call.batch, call.timeout_ms, call.now_ms);
        }
        sent.is_some()
    }

    /// Sends on a stream that rests, if there is one that takes it. One that is gone is forgotten with its callback.
    fn send_on_resting(&mut self, body: &[u8]) -> Option<u32> {
        std::iter::from_fn(|| self.streams.take()).find(|&stream| is_sent(stream, body))
    }

    /// A message of `size` bytes has come on a stream, in whose callback this is: which call it answers, if that is
    /// still waited for.
    pub(crate) fn arrived(&mut self, stream: u32, size: usize) -> Option<(BatchId, Reply)> {
        let batch = self.streams.end(stream)?;
        let message = hostcalls::get_buffer(BufferType::GrpcReceiveBuffer, 0, size);
        let reply = read_message(message.ok().flatten().unwrap_or_default());
        match &reply {
            // Perhaps this Redis is no longer the one to ask, after a failover: the next call takes a new connection.
            Ok(replies) if is_error(replies) => self.streams.wear_out(stream),
            Ok(_) => self.streams.rest(stream),
            // The bridge ends the stream.
            Err(_) => {}
        }
        Some((batch, reply))
    }

    /// A stream was closed by the other side with this status, and this is its callback: what its call has come to, if it had one.
    pub(crate) fn closed(&mut self, stream: u32, status: u32) -> Option<(BatchId, Reply)> {
        let batch = self.streams.remove(stream)?;
        Some((
            batch,
            Err(UnknownFailure::LostAt(self.cause(status)).into()),
        ))
    }

    /// Why a stream was closed. Only in its callback does the host know.
    fn cause(&self, status: u32) -> String {
        // Only of this status are the words Envoy's own. Others might be a server's, in whatever bytes.
        let said = match status {
            UNAVAILABLE => hostcalls::get_grpc_status().ok(),
            _ => None,
        };
        cause::of(&self.cluster, said.and_then(|(_, text)| text).as_deref())
    }

    /// Says, once in a process, that Redis has answered `filter`.
    pub(crate) fn tell_that_it_answers(&mut self, filter: &str) {
        // The host is asked once in each VM, and not with each reply.
        let was_told = std::mem::replace(&mut self.has_answered, true);
        let cluster = &self.cluster;
        if !was_told && said::is_new(&format!("{filter}.answers.{cluster}")) {
            log::info!("{filter}: Redis answers through cluster {cluster}");
        }
    }

    /// Says once, until a call goes again, that none can be made.
    fn note_open(&mut self, opened: Result<u32, Status>) -> Option<u32> {
        let was_open = std::mem::replace(&mut self.can_open, opened.is_ok());
        if let Err(status) = opened
            && was_open
        {
            let why = match status {
                Status::ParseFailure => "the cluster does not exist",
                _ => "it has no reachable host",
            };
            log::warn!("cannot call cluster {}: {why}", self.cluster);
        }
        opened.ok()
    }

    /// A call whose time is over at `now_ms`, and what it has come to. There may be more. No stream's callback may be
    /// running.
    pub(crate) fn expired(&mut self, now_ms: u64) -> Option<(BatchId, Reply)> {
        let (stream, batch) = self.streams.expire(now_ms)?;
        // Whatever still comes on it belongs to nobody. The bridge closes it from its side.
        let _ = hostcalls::close_grpc_stream(stream);
        Some((batch, Err(UnknownFailure::Timeout.into())))
    }

    /// Closes streams that are no longer of use at `now_ms`. Where [`Link::expired`] may be called.
    pub(crate) fn close_idle(&mut self, now_ms: u64) {
        for stream in self.streams.idle(now_ms) {
            // It fails only if there is none.
            let _ = hostcalls::close_grpc_stream(stream);
        }
    }
}

fn is_sent(stream: u32, body: &[u8]) -> bool {
    hostcalls::send_grpc_stream_message(stream, Some(body), false).is_ok()
}

/// Whether replies begin with an error that says something of the Redis that has said it, and not just that it does not
/// know a script yet.
fn is_error(replies: &[u8]) -> bool {
    replies
        .strip_prefix(b"-")
        .is_some_and(|error| !is_noscript(error))
}
