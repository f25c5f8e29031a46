//! How a VM sends calls to Redis and wakes its own root context.

use std::cell::RefCell;
use std::time::UNIX_EPOCH;

use proxy_wasm::hostcalls;
use proxy_wasm::types::BufferType;

use crate::config::FieldError;
use crate::redis::{Definite, Reply, Unknown, is_noscript, read_message};
use crate::streams::Streams;

/// What the pump needs of its host. The real one is [`HostLink`].
pub trait Link {
    /// Sends `body`, whole commands, as one call that must be answered within `timeout_ms` from `now_ms` on, and
    /// returns its token, which no other call has until this one has ended. Only from a callback of the root
    /// context, while that is effective: a stream is of the context that has opened it.
    ///
    /// # Errors
    /// When the host refuses the call: nothing more will be heard of it.
    fn send(&self, body: &[u8], timeout_ms: u64, now_ms: u64) -> Result<u32, Definite>;

    /// Whether [`Link::send_at_once`] has a way to send.
    fn is_ready(&self) -> bool;

    /// The same as [`Link::send`], but from any callback, and only on a way that is open already. The root context is
    /// effective afterwards. `None` if nothing was sent: then nothing will be heard of it.
    fn send_at_once(&self, body: &[u8], timeout_ms: u64, now_ms: u64) -> Option<u32>;

    /// Asks for a callback of the root context in the next turn of this worker's event loop.
    fn wake(&self);
}

/// The service and the method that the bridge's streams are of. To the bridge they are all one.
const SERVICE: &str = "weir.Redis";
const METHOD: &str = "Call";

/// The link through Envoy: gRPC streams to the bridge that stay open, each with one call at a time. A call on an
/// open stream costs Envoy a third less than an HTTP call of its own.
#[derive(Debug)]
pub struct HostLink {
    cluster: String,
    root_context_id: u32,
    wake_queue: u32,
    streams: RefCell<Streams>,
}

impl HostLink {
    /// A link to the cluster named `cluster`, whose endpoint is the bridge's internal listener.
    ///
    /// # Errors
    /// When the host gives no queue.
    pub fn new(cluster: &str, root_context_id: u32) -> Result<Self, FieldError> {
        // A shared queue wakes the last VM that registered its name: each VM needs a name of its own.
        let name = format!("weir.wake.{}.{root_context_id}", unique_name());
        let wake_queue = hostcalls::register_shared_queue(&name).map_err(|status| {
            let problem = format!("the host gives no queue to wake this VM with: {status:?}");
            FieldError::new("", problem)
        })?;
        Ok(Self {
            cluster: cluster.into(),
            root_context_id,
            wake_queue,
            streams: RefCell::default(),
        })
    }

    /// Whether a queue-ready callback for `queue` is a wake-up of this link; takes it off the queue.
    pub fn take_wakeup(&self, queue: u32) -> bool {
        if queue != self.wake_queue {
            return false;
        }
        // Each wake-up has put one empty value there, and has a callback of its own.
        let _ = hostcalls::dequeue_shared_queue(queue);
        true
    }

    /// A message of `size` bytes has come on a stream, in whose callback this is: the reply to the call `token`, if
    /// that is still waited for.
    pub fn arrived(&self, token: u32, size: usize) -> Option<Reply> {
        let mut streams = self.streams.borrow_mut();
        if !streams.end(token) {
            return None;
        }
        let message = hostcalls::get_buffer(BufferType::GrpcReceiveBuffer, 0, size);
        let reply = read_message(message.ok().flatten().unwrap_or_default());
        match &reply {
            // Perhaps this Redis is no longer the one to ask, after a failover: the next call takes a new connection.
            Ok(replies) if is_error(replies) => streams.wear_out(token),
            Ok(_) => streams.rest(token),
            // The bridge ends the stream.
            Err(_) => {}
        }
        Some(reply)
    }

    /// A stream was closed by the other side, and this is its callback: what the call `token` has come to, if there
    /// was one.
    pub fn closed(&self, token: u32) -> Option<Reply> {
        // Until then Envoy keeps the stream in its books. It fails only if there is nothing in them.
        let _ = hostcalls::cancel_grpc_stream(token);
        let had_call = self.streams.borrow_mut().remove(token);
        had_call.then(|| Err(Unknown::Lost.into()))
    }

    /// A call whose time is over at `now_ms`, and what it has come to. There may be more: the link has woken the root
    /// context for them, since one callback may not answer all that waits for several calls. The root context
    /// must be effective, and no stream's callback running.
    pub fn expired(&self, now_ms: u64) -> Option<(u32, Reply)> {
        let token = self.streams.borrow_mut().expire(now_ms)?;
        // Whatever still comes on it is of nobody. The bridge closes it from its side.
        let _ = hostcalls::close_grpc_stream(token);
        self.wake();
        Some((token, Err(Unknown::Timeout.into())))
    }

    /// Closes streams that are no longer of use at `now_ms`. Where [`HostLink::expired`] may be called.
    pub fn close_idle(&self, now_ms: u64) {
        let idle = self.streams.borrow_mut().idle(now_ms);
        for stream in idle {
            // It fails only if there is none.
            let _ = hostcalls::close_grpc_stream(stream);
        }
    }

    fn open(&self) -> Option<u32> {
        hostcalls::open_grpc_stream(&self.cluster, SERVICE, METHOD, vec![]).ok()
    }
}

impl Link for HostLink {
    fn send(&self, body: &[u8], timeout_ms: u64, now_ms: u64) -> Result<u32, Definite> {
        let mut streams = self.streams.borrow_mut();
        let token = send_on_resting(&mut streams, body)
            .or_else(|| self.open().filter(|&token| is_sent(token, body)))
            .ok_or(Definite::NotSent)?;
        streams.begin(token, timeout_ms, now_ms);
        Ok(token)
    }

    fn is_ready(&self) -> bool {
        self.streams.borrow().is_any_resting()
    }

    fn send_at_once(&self, body: &[u8], timeout_ms: u64, now_ms: u64) -> Option<u32> {
        // The streams are the root context's.
        hostcalls::set_effective_context(self.root_context_id).ok()?;
        let mut streams = self.streams.borrow_mut();
        let token = send_on_resting(&mut streams, body)?;
        streams.begin(token, timeout_ms, now_ms);
        Some(token)
    }

    fn wake(&self) {
        // If it fails, the next tick does what the wake-up would have done.
        let woken = hostcalls::enqueue_shared_queue(self.wake_queue, None);
        if let Err(status) = woken {
            log::warn!("the root context could not be woken, it waits for its tick: {status:?}");
        }
    }
}

/// Sends on a stream that rests, if there is one that takes it. One that is gone is forgotten with its callback.
fn send_on_resting(streams: &mut Streams, body: &[u8]) -> Option<u32> {
    std::iter::from_fn(|| streams.take()).find(|&token| is_sent(token, body))
}

fn is_sent(token: u32, body: &[u8]) -> bool {
    hostcalls::send_grpc_stream_message(token, Some(body), false).is_ok()
}

/// Whether replies begin with an error that says something of the Redis that has said it, and not just that it does
/// not know a script yet.
fn is_error(replies: &[u8]) -> bool {
    replies
        .strip_prefix(b"-")
        .is_some_and(|error| !is_noscript(error))
}

/// A name that no other VM of this process gets, nor one of another process but by the greatest chance: a counter in shared data, and the clock, in case
/// two VMs were to create the counter at the same moment.
pub fn unique_name() -> String {
    const KEY: &str = "weir.vm_counter";
    const TRIES: usize = 1_000;
    let mut counter = 0_u64;
    for _ in 0..TRIES {
        let (value, cas) = hostcalls::get_shared_data(KEY).unwrap_or_default();
        counter = value
            .and_then(|bytes| bytes.try_into().ok())
            .map_or(0, u64::from_le_bytes)
            .wrapping_add(1);
        if hostcalls::set_shared_data(KEY, Some(&counter.to_le_bytes()), cas).is_ok() {
            break;
        }
    }
    let nanoseconds = hostcalls::get_current_time()
        .ok()
        .and_then(|now| now.duration_since(UNIX_EPOCH).ok())
        .map_or(0, |since| since.as_nanos());
    format!("{counter}.{nanoseconds}")
}
