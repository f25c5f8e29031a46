//! Serves HTTP connections: connection limit, timeouts, shutdown.

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::PeerAddress;

/// Maximum number of connections per port. Gateways reuse a few connections. Beyond the limit, a new connection
/// replaces an idle one, or waits until one ends.
const CONNECTIONS_MAX: usize = 1024;

/// Timeout for a complete request head, including idle time before it.
///
/// A gateway must close idle connections earlier (`idle_timeout` of its cluster), or an order may meet a connection
/// that the origin is closing.
const HEAD_LIMIT: Duration = Duration::from_secs(75);

/// Maximum number of request headers: more than a gateway forwards (100) plus the ten that it adds. If the origin
/// refused such an order here, its unit would stay reserved but could not be ordered.
const HEADERS_MAX: usize = 256;

/// The largest request head, in bytes.
const HEAD_LEN_MAX: usize = 64 * 1024;

/// Pause after a failed `accept`. The usual cause is a lack of file handles, which recovers when other connections
/// close.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves `router` on `listener` until `stop`. Then stops accepting, and returns when all running requests are
/// answered.
pub async fn serve(listener: TcpListener, router: Router, stop: CancellationToken) {
    let connections = GracefulShutdown::new();
    let peers = Arc::new(Peers::default());
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    while let Some(accepted) = until_stopped(&stop, listener.accept()).await {
        match accepted {
            Ok((stream, address)) => {
                if slots.available_permits() == 0 {
                    peers.end_idlest();
                }
                let Some(slot) = until_stopped(&stop, slots.clone().acquire_owned()).await else {
                    break;
                };
                let peer = peers.add();
                let address = PeerAddress(address.ip());
                start(stream, address, &router, &connections, peer, slot.ok());
            }
            Err(error) => {
                warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    connections.shutdown().await;
}

/// Waits for `event`; `None` if `stop` comes first.
async fn until_stopped<T>(stop: &CancellationToken, event: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        () = stop.cancelled() => None,
        event = event => Some(event),
    }
}

fn start(
    stream: TcpStream,
    address: PeerAddress,
    router: &Router,
    connections: &GracefulShutdown,
    peer: PeerHandle,
    slot: Option<OwnedSemaphorePermit>,
) {
    // Answers are small; Nagle's algorithm would only delay them.
    if let Err(error) = stream.set_nodelay(true) {
        debug!(%error, "no TCP_NODELAY");
    }
    let service = TowerToHyperService::new(router.clone());
    let ended = peer.peer.ended.clone();
    let served = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(address);
        let busy = Busy::begin(&peer.peer);
        let answer = service.call(request);
        async move {
            let answer = answer.await;
            drop(busy);
            answer
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_LIMIT)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEAD_LEN_MAX)
        .serve_connection(TokioIo::new(stream), served);
    let connection = connections.watch(connection);
    tokio::spawn(async move {
        let _slot = slot;
        if let Some(Err(error)) = until_stopped(&ended, connection).await {
            debug!(%error, "connection failed");
        }
    });
}

/// The open connections of one port. At the limit, a new connection replaces the least active one, so that idle
/// connections cannot block health probes.
#[derive(Debug, Default)]
struct Peers {
    open: Mutex<HashMap<u64, Arc<Peer>>>,
    next: AtomicU64,
}

/// One connection.
#[derive(Debug)]
struct Peer {
    /// Number of its running requests.
    busy: AtomicUsize,
    /// Whether it has ever sent a complete request head.
    has_asked: AtomicBool,
    idle_since: Mutex<Instant>,
    ended: CancellationToken,
}

/// Removes its connection from the list when dropped.
struct PeerHandle {
    number: u64,
    peer: Arc<Peer>,
    peers: Arc<Peers>,
}

/// A running request.
struct Busy(Arc<Peer>);

impl Peers {
    fn add(self: &Arc<Self>) -> PeerHandle {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let peer = Arc::new(Peer {
            busy: AtomicUsize::new(0),
            has_asked: AtomicBool::new(false),
            idle_since: Mutex::new(Instant::now()),
            ended: CancellationToken::new(),
        });
        locked(&self.open).insert(number, peer.clone());
        PeerHandle {
            number,
            peer,
            peers: self.clone(),
        }
    }

    /// Closes the connection that has been idle longest, preferring connections that never sent a request. Connections
    /// with a running request stay.
    fn end_idlest(&self) {
        let open = locked(&self.open);
        let idle = open
            .values()
            .filter(|peer| peer.busy.load(Ordering::Acquire) == 0);
        let idlest = idle.min_by_key(|peer| {
            let has_asked = peer.has_asked.load(Ordering::Acquire);
            (has_asked, *locked(&peer.idle_since))
        });
        if let Some(peer) = idlest {
            peer.ended.cancel();
        }
    }
}

impl Drop for PeerHandle {
    fn drop(&mut self) {
        locked(&self.peers.open).remove(&self.number);
    }
}

impl Busy {
    fn begin(peer: &Arc<Peer>) -> Self {
        peer.busy.fetch_add(1, Ordering::AcqRel);
        peer.has_asked.store(true, Ordering::Release);
        Self(peer.clone())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        *locked(&self.0.idle_since) = Instant::now();
        self.0.busy.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Ignores poisoning: each change is one step, so a panic leaves a consistent value.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
