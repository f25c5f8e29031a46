//! How a VM sends calls to Redis and wakes its own root context.

use std::time::{Duration, UNIX_EPOCH};

use proxy_wasm::hostcalls;

use crate::config::ConfigError;
use crate::redis::Definite;

/// What the pump needs of its host. The real one is [`HostLink`].
pub trait Link {
    /// Sends `body`, whole commands, as one call that must be answered within `timeout_ms`, and
    /// returns its token. Only from a callback of the root context: the SDK ties a call to the
    /// context that is active, and drops the reply if that context has gone.
    ///
    /// # Errors
    /// When the host refuses the call: no callback will come.
    fn send(&self, body: &[u8], timeout_ms: u64) -> Result<u32, Definite>;

    /// Asks for a callback of the root context in the next turn of this worker's event loop.
    fn wake(&self);
}

/// The link through Envoy.
#[derive(Clone, Debug)]
pub struct HostLink {
    cluster: String,
    wake_queue: u32,
}

impl HostLink {
    /// A link to the cluster named `cluster`, whose endpoint is the bridge's internal listener.
    ///
    /// # Errors
    /// When the host gives no queue.
    pub fn new(cluster: &str, root_context_id: u32) -> Result<Self, ConfigError> {
        // A shared queue wakes the last VM that registered its name: each VM needs a name of its own.
        let name = format!("weir.wake.{}.{root_context_id}", unique_name());
        let wake_queue = hostcalls::register_shared_queue(&name).map_err(|status| {
            let problem = format!("the host gives no queue to wake this VM with: {status:?}");
            ConfigError::new("", problem)
        })?;
        Ok(Self {
            cluster: cluster.into(),
            wake_queue,
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
}

impl Link for HostLink {
    fn send(&self, body: &[u8], timeout_ms: u64) -> Result<u32, Definite> {
        let headers = vec![
            (":method", "POST"),
            (":path", "/"),
            (":authority", self.cluster.as_str()),
        ];
        // To Envoy a timeout of 0 is none at all.
        let timeout = Duration::from_millis(timeout_ms.max(1));
        hostcalls::dispatch_http_call(&self.cluster, headers, Some(body), vec![], timeout)
            .map_err(|_| Definite::NotSent)
    }

    fn wake(&self) {
        // If it fails, the next tick does what the wake-up would have done.
        let woken = hostcalls::enqueue_shared_queue(self.wake_queue, None);
        if let Err(status) = woken {
            log::warn!("the root context could not be woken, it waits for its tick: {status:?}");
        }
    }
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
