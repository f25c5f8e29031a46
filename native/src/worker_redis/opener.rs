//! Opens the connections that Envoy's workers accept for [`worker_redis`](super).

use std::collections::HashMap;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::io::AsyncReadExt;
use tokio::sync::oneshot;
use tokio::task::LocalSet;
use weir_envoy_abi as abi;

/// Connections per worker: the most calls that one worker runs at a time.
const PER_WORKER: usize = 8;

/// The wait before a failed or closed connection is opened again; it doubles with each connection that lived shorter than the
/// longest wait.
const RETRY_MIN: Duration = Duration::from_millis(50);
const RETRY_MAX: Duration = Duration::from_secs(1);

/// Failures before the first connection that are normal, because Envoy starts its listeners after the filters.
const QUIET_FAILURES: u32 = 20;

/// Keeps the connections to one socket open until it is dropped.
#[derive(Debug)]
pub struct Opener {
    _stop: oneshot::Sender<()>,
}

impl Opener {
    /// The opener for the listener at `socket`: a path, or `@` and an abstract name. Configurations share it. Call it on
    /// Envoy's main thread.
    ///
    /// # Errors
    /// The name is invalid, or the system cannot start a thread.
    pub fn of(socket: &str) -> io::Result<Arc<Self>> {
        static OPENERS: Mutex<Option<HashMap<String, Weak<Opener>>>> = Mutex::new(None);
        let mut openers = OPENERS.lock().unwrap_or_else(PoisonError::into_inner);
        let openers = openers.get_or_insert_default();
        if let Some(opener) = openers.get(socket).and_then(Weak::upgrade) {
            return Ok(opener);
        }
        let opener = Arc::new(Self::start(socket, PER_WORKER * abi::worker_count())?);
        openers.insert(socket.to_owned(), Arc::downgrade(&opener));
        Ok(opener)
    }

    fn start(socket: &str, count: usize) -> io::Result<Self> {
        let address = match socket.strip_prefix('@') {
            Some(name) => SocketAddr::from_abstract_name(name)?,
            None => SocketAddr::from_pathname(socket)?,
        };
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_io().enable_time().build()?;
        let (stop, stopped) = oneshot::channel();
        let socket = socket.to_owned();
        let run = move || {
            let local = LocalSet::new();
            for number in 0..count {
                local.spawn_local(keep_open(address.clone(), socket.clone(), number == 0));
            }
            // Ends when the opener is dropped, and closes all connections.
            let _ = local.block_on(&runtime, stopped);
        };
        let thread = std::thread::Builder::new().name("weir-open".into());
        thread.spawn(run)?;
        Ok(Self { _stop: stop })
    }
}

/// Opens a connection again and again. `logs`: whether it logs that the listener is missing.
async fn keep_open(address: SocketAddr, socket: String, logs: bool) {
    let (mut failures, mut retry) = (0, RETRY_MIN);
    loop {
        let opened = Instant::now();
        let closed = match UnixStream::connect_addr(&address) {
            Ok(stream) => hold(stream).await,
            Err(error) => Err(error),
        };
        failures = closed.map_or_else(|_| failures + 1, |()| 0);
        retry = match opened.elapsed() < RETRY_MAX {
            true => (retry * 2).min(RETRY_MAX),
            false => RETRY_MIN,
        };
        if logs && failures == QUIET_FAILURES {
            let text = format!(
                "weir.worker_redis: no listener at {socket}, so the module's own thread sends the calls to Redis: add the listener, or remove worker_socket"
            );
            abi::log(abi::Level::Warn, &text);
        }
        tokio::time::sleep(retry).await;
    }
}

/// Waits until Envoy closes the connection. It sends no bytes.
async fn hold(stream: UnixStream) -> io::Result<()> {
    stream.set_nonblocking(true)?;
    let mut stream = tokio::net::UnixStream::from_std(stream)?;
    let mut byte = [0];
    while stream.read(&mut byte).await.is_ok_and(|count| count > 0) {}
    Ok(())
}
