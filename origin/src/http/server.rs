//! Serves connections: how many, for how long, and how they end.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

/// The most connections to one port. Gateways keep few and use them again; beyond it new ones wait
/// in the system's queue.
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

/// The pause after a connection could not be accepted: mostly for want of file handles, which come
/// back when others close.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves `router` on `listener` until `stop`; then accepts no more, and returns when every
/// request that had begun is answered.
pub async fn serve(listener: TcpListener, router: Router, stop: CancellationToken) {
    let connections = GracefulShutdown::new();
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    while let Some(slot) = until(&stop, slots.clone().acquire_owned()).await {
        let Some(accepted) = until(&stop, listener.accept()).await else {
            break;
        };
        match accepted {
            Ok((stream, _)) => start(stream, &router, &connections, slot.ok()),
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
async fn until<T>(stop: &CancellationToken, event: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        () = stop.cancelled() => None,
        event = event => Some(event),
    }
}

fn start(
    stream: TcpStream,
    router: &Router,
    connections: &GracefulShutdown,
    slot: Option<OwnedSemaphorePermit>,
) {
    // Answers are small: waiting to fill a packet would only delay them.
    if let Err(error) = stream.set_nodelay(true) {
        debug!(%error, "no TCP_NODELAY");
    }
    let service = TowerToHyperService::new(router.clone());
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_LIMIT)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEAD_LEN_MAX)
        .serve_connection(TokioIo::new(stream), service);
    let connection = connections.watch(connection);
    tokio::spawn(async move {
        let _slot = slot;
        if let Err(error) = connection.await {
            debug!(%error, "a connection broke");
        }
    });
}
