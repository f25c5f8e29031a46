//! Serves connections: how many, for how long, and how they end.

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

/// The most connections to one port. Gateways keep few and use them again; beyond it a new one takes the place of one that is
/// idle, or waits for one that ends.
const CONNECTIONS_MAX: usize = 1024;

/// How long a connection may wait for a whole request head, idle time before it included.
///
/// A gateway must give up an idle connection earlier than we do (`idle_timeout` of its cluster),
/// or an order may meet a connection that is just being closed.
const HEAD_LIMIT: Duration = Duration::from_secs(75);

/// The most headers of a request: more than a gateway lets pass (100) and the ten that it adds. A request that was refused
/// here would hold a unit that nobody can order.
const HEADERS_MAX: usize = 256;

/// The largest request head, in bytes.
const HEAD_LEN_MAX: usize = 64 * 1024;

/// The pause after cannot accept a connection: mostly for want of file handles, which come
/// back when others close.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves `router` on `listener` until `stop`; then accepts no more, and returns when every
/// request that had begun is answered.
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

/// What comes first: `None` for `stop`.
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
    // Answers are small: waiting to fill a packet would only delay them.
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

/// The open connections of one port. When there are as many as there may be, a new one takes the place of the one that does
/// least: connections that never ask anything must not keep probes out.
#[derive(Debug, Default)]
struct Peers {
    open: Mutex<HashMap<u64, Arc<Peer>>>,
    next: AtomicU64,
}

/// One connection.
#[derive(Debug)]
struct Peer {
    /// How many of its requests are being answered.
    busy: AtomicUsize,
    /// Whether it has ever sent a whole request head.
    has_asked: AtomicBool,
    idle_since: Mutex<Instant>,
    ended: CancellationToken,
}

/// Forgets its connection when that has gone.
struct PeerHandle {
    number: u64,
    peer: Arc<Peer>,
    peers: Arc<Peers>,
}

/// A request that is being answered.
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

    /// Ends the connection that has been idle for longest, of those that never asked anything if there are any. One with a
    /// request under way is left alone.
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

/// What a thread that panicked has left is whole: each change is one step.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
