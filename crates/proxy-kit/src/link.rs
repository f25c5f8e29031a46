//! Calls to Redis on persistent gRPC streams to the bridge, each with one call at a time. A call on an open stream
//! costs Envoy a third less than a separate HTTP call.

use proxy_wasm::hostcalls;
use proxy_wasm::types::{BufferType, Status};
use weir_engine::BatchId;
use weir_engine::redis::{Reply, UnknownFailure, is_noscript};

use crate::bridge::read_message;
use crate::cause;
use crate::logged_once;
use crate::streams::Streams;

/// The gRPC service and method of the streams. The bridge accepts any.
const SERVICE: &str = "weir.Redis";
const METHOD: &str = "Call";

/// The gRPC status that Envoy returns for a stream without a peer.
const UNAVAILABLE: u32 = 14;

/// One VM's connection to Redis. Its streams belong to the root context, which must be effective for every send and
/// close.
#[derive(Debug)]
pub(crate) struct Link {
    cluster: String,
    streams: Streams,
    /// Whether the last attempt to open a stream succeeded.
    can_open: bool,
    /// Whether Redis has ever replied.
    has_answered: bool,
}

/// One call to Redis.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'a> {
    pub(crate) batch: BatchId,
    /// Whole commands.
    pub(crate) body: &'a [u8],
    /// The timeout, from `now_ms` on.
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

    /// Whether an open stream can take a call.
    pub(crate) fn is_ready(&self) -> bool {
        self.streams.is_any_resting()
    }

    /// Sends a call. Returns `false` if it was not sent: then no event follows. Only a callback of the root context may
    /// open a stream, because a stream belongs to the context that opened it.
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

    /// Sends on an idle stream, if one accepts the message. The callback of a closed stream removes it.
    fn send_on_resting(&mut self, body: &[u8]) -> Option<u32> {
        std::iter::from_fn(|| self.streams.take()).find(|&stream| is_sent(stream, body))
    }

    /// Handles a message of `size` bytes in the callback of `stream`. Returns the pending call that it answers, if any.
    pub(crate) fn arrived(&mut self, stream: u32, size: usize) -> Option<(BatchId, Reply)> {
        let batch = self.streams.end(stream)?;
        let message = hostcalls::get_buffer(BufferType::GrpcReceiveBuffer, 0, size);
        let reply = read_message(message.ok().flatten().unwrap_or_default());
        match &reply {
            // After a failover, this Redis may no longer be the primary: the next call takes a new connection.
            Ok(replies) if is_error(replies) => self.streams.wear_out(stream),
            Ok(_) => self.streams.rest(stream),
            // The bridge ends the stream.
            Err(_) => {}
        }
        Some((batch, reply))
    }

    /// Handles the callback of a stream that the peer has closed with this status. Returns the outcome of its call, if
    /// it had one.
    pub(crate) fn closed(&mut self, stream: u32, status: u32) -> Option<(BatchId, Reply)> {
        let batch = self.streams.remove(stream)?;
        Some((
            batch,
            Err(UnknownFailure::LostAt(self.cause(status)).into()),
        ))
    }

    /// Why a stream was closed. The host provides it only in the stream's callback.
    fn cause(&self, status: u32) -> String {
        // Only this status carries Envoy's own message. Others may come from a server, with arbitrary bytes.
        let message = match status {
            UNAVAILABLE => hostcalls::get_grpc_status().ok(),
            _ => None,
        };
        cause::of(&self.cluster, message.and_then(|(_, text)| text).as_deref())
    }

    /// Logs, once per process, that Redis has replied to `filter`.
    pub(crate) fn tell_that_it_answers(&mut self, filter: &str) {
        // Each VM checks the shared data once, not with each reply.
        let was_told = std::mem::replace(&mut self.has_answered, true);
        let cluster = &self.cluster;
        if !was_told && logged_once::is_new(&format!("{filter}.answers.{cluster}")) {
            log::info!("{filter}: Redis answers through cluster {cluster}");
        }
    }

    /// Logs once, until a call succeeds again, that no stream can be opened.
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

    /// A call that has timed out at `now_ms`, and its outcome. There may be more. Must not run within a stream's
    /// callback.
    pub(crate) fn expired(&mut self, now_ms: u64) -> Option<(BatchId, Reply)> {
        let (stream, batch) = self.streams.expire(now_ms)?;
        // Later messages on this stream are dropped. The bridge closes it from its side.
        let _ = hostcalls::close_grpc_stream(stream);
        Some((batch, Err(UnknownFailure::Timeout.into())))
    }

    /// Closes streams that are no longer needed at `now_ms`. The conditions of [`Link::expired`] apply.
    pub(crate) fn close_idle(&mut self, now_ms: u64) {
        for stream in self.streams.idle(now_ms) {
            // It fails only if there is no such stream.
            let _ = hostcalls::close_grpc_stream(stream);
        }
    }
}

fn is_sent(stream: u32, body: &[u8]) -> bool {
    hostcalls::send_grpc_stream_message(stream, Some(body), false).is_ok()
}

/// Whether replies begin with an error of the Redis server, other than an unknown script.
fn is_error(replies: &[u8]) -> bool {
    replies
        .strip_prefix(b"-")
        .is_some_and(|error| !is_noscript(error))
}
