//! Redis connections on a worker's own event loop, so that a call wakes no other thread.
//!
//! A module cannot wait for a socket of its own on a worker. It can be a network filter, though, and give bytes to the filter
//! behind it. So a listener on a Unix socket has the filters `weir.worker_redis` and `tcp_proxy`, whose cluster is Redis. The
//! module connects to this listener itself ([`opener`]), only to make each worker accept some connections. A call is injected
//! into one of them, and its reply passes the write hook. No byte of a call passes the Unix socket, and bytes from it are
//! dropped: a local process that connects to it reaches no Redis.
//!
//! As on the module's own thread, a connection serves one call at a time, and is closed after any failure. Calls without an
//! idle connection on their thread use the module's thread, for example calls of ticks on idle workers and calls to Redis Cluster.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use serde::Deserialize;
use weir_base::FieldError;
use weir_base::resp::{Direction, Framer, encode_command};
use weir_engine::BatchId;
use weir_engine::config::parse;
use weir_engine::redis::{Failure, Reply, UnknownFailure};
use weir_envoy_abi::{Connection, ConnectionHandle, ConnectionScheduler};

use crate::engine_host::EngineHost;
use crate::filters::guard;
use crate::redis::{count, is_good, login};
use crate::service::Call;
use crate::settings::Secret;

pub mod opener;

/// The name of the filter in Envoy's configuration.
pub const NAME: &str = "weir.worker_redis";

/// The wait for the answer to a probe; it doubles with each probe.
const PROBE_WAIT_MIN: Duration = Duration::from_millis(25);
const PROBE_WAIT_MAX: Duration = Duration::from_secs(2);

/// The longest reply to a login and a probe, in bytes.
const PROBE_BYTES_MAX: usize = 4 * 1024;

/// The filter's configuration, as written.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    /// The socket of the listener, as in `native.redis[].worker_socket`.
    socket: String,
    /// The user for logging in: Redis' default user unless set.
    username: Option<String>,
    /// The password. Without it, connections do not log in.
    password: Option<Secret>,
}

/// One configuration.
#[derive(Debug)]
pub struct WorkerRedis {
    socket: Arc<str>,
    login: Option<Arc<[u8]>>,
}

impl WorkerRedis {
    /// # Errors
    /// Names the field that is wrong.
    pub fn new(json: &[u8]) -> Result<Self, FieldError> {
        let settings: Settings = parse(json)?;
        let login = login(
            "password",
            settings.username.as_deref(),
            settings.password.as_ref(),
        )?;
        Ok(Self {
            socket: settings.socket.into(),
            login,
        })
    }
}

/// A connection of one worker.
pub struct WorkerConnection {
    socket: Arc<str>,
    login: Option<Arc<[u8]>>,
    handle: ConnectionHandle,
    phase: RefCell<Phase>,
    watch: Arc<Watch>,
}

/// The state of a connection.
enum Phase {
    /// `tcp_proxy` drops bytes until it is connected, so probes are sent until one is answered, at growing intervals.
    Probing { count: u32, received: Vec<u8> },
    /// No call is running.
    Idle,
    /// A call is running.
    Busy(Box<RunningCall>),
    /// The connection is closed or must not be used again.
    Closed,
}

/// A call whose reply is incomplete.
struct RunningCall {
    engine_host: Arc<EngineHost>,
    generation: u32,
    batch: BatchId,
    deadline: Instant,
    framer: Framer,
    /// The replies that are missing.
    missing: usize,
    replies: Vec<u8>,
}

impl RunningCall {
    fn end(self, reply: Reply) {
        guard(&self.engine_host, |engine_host| {
            engine_host.on_reply(self.generation, self.batch, reply);
        });
    }
}

/// What received bytes mean.
enum Arrival {
    /// More bytes follow.
    Incomplete,
    /// The call is complete.
    Complete(Box<RunningCall>),
    /// The bytes are no reply.
    Garbled,
}

impl WorkerConnection {
    /// A new connection of this worker.
    pub fn new(config: &WorkerRedis, connection: &Connection<'_>) -> Rc<Self> {
        let made = Rc::new(Self {
            socket: Arc::clone(&config.socket),
            login: config.login.clone(),
            handle: connection.handle(),
            phase: RefCell::new(Phase::Probing {
                count: 0,
                received: Vec::new(),
            }),
            watch: Watch::new(connection.scheduler()),
        });
        CONNECTIONS.with_borrow_mut(|all| all.push(Rc::clone(&made)));
        made
    }

    fn is_idle(&self) -> bool {
        matches!(*self.phase.borrow(), Phase::Idle)
    }

    /// Bytes from the client: only this module connects, and it sends none.
    pub fn received(&self, connection: &mut Connection<'_>) {
        let count = connection.with_received(<[u8]>::len);
        connection.take(count);
    }

    /// Bytes from Redis, which must not reach the client.
    pub fn sent(&self, mut connection: Connection<'_>) {
        let (count, arrival) = connection.with_sent(|bytes| (bytes.len(), self.read(bytes)));
        connection.take_sent(count);
        match arrival {
            Arrival::Incomplete => {}
            Arrival::Complete(mut call) => {
                let reply = Ok(std::mem::take(&mut call.replies));
                if !is_good(&reply) {
                    self.close();
                }
                call.end(reply);
            }
            Arrival::Garbled => self.fail(UnknownFailure::Garbled),
        }
    }

    fn read(&self, bytes: &[u8]) -> Arrival {
        let mut phase = self.phase.borrow_mut();
        match &mut *phase {
            Phase::Probing { count, received } => {
                received.extend_from_slice(bytes);
                let text = count.to_string();
                let answer = format!("${}\r\n{text}\r\n", text.len());
                if received.ends_with(answer.as_bytes()) {
                    *phase = Phase::Idle;
                    self.watch.set(None);
                } else if received.len() > PROBE_BYTES_MAX {
                    return Arrival::Garbled;
                }
                Arrival::Incomplete
            }
            Phase::Busy(call) => {
                let Ok(progress) = call.framer.advance(bytes, call.missing) else {
                    return Arrival::Garbled;
                };
                call.missing -= progress.frames;
                call.replies.extend_from_slice(bytes);
                // More bytes than replies belong to no call.
                if progress.used < bytes.len() {
                    return Arrival::Garbled;
                }
                if call.missing > 0 || !call.framer.is_between_frames() {
                    return Arrival::Incomplete;
                }
                self.watch.set(None);
                match std::mem::replace(&mut *phase, Phase::Idle) {
                    Phase::Busy(call) => Arrival::Complete(call),
                    _ => Arrival::Incomplete,
                }
            }
            Phase::Idle => Arrival::Garbled,
            Phase::Closed => Arrival::Incomplete,
        }
    }

    /// The module's thread found that this connection needs attention.
    pub fn called(&self) {
        let probe = match &mut *self.phase.borrow_mut() {
            // Another thread may have found the connection due at the same time.
            Phase::Probing { .. } if !self.watch.is_due() => return,
            Phase::Probing { count, received } => {
                *count += 1;
                received.clear();
                Some(*count)
            }
            Phase::Busy(call) if Instant::now() >= call.deadline => None,
            _ => return,
        };
        match probe {
            Some(count) => self.probe(count),
            None => self.fail(UnknownFailure::Timeout),
        }
    }

    fn probe(&self, count: u32) {
        let wait = PROBE_WAIT_MIN.saturating_mul(1 << count.min(10));
        self.watch
            .set(Some(Instant::now() + wait.min(PROBE_WAIT_MAX)));
        let mut commands = Vec::new();
        if let Some(login) = &self.login {
            commands.extend_from_slice(login);
        }
        encode_command(
            &mut commands,
            [b"PING".as_slice(), count.to_string().as_bytes()],
        );
        self.handle.inject(&commands);
    }

    /// Ends the running call, and closes the connection.
    fn fail(&self, failure: UnknownFailure) {
        let phase = self.close();
        if let Phase::Busy(call) = phase {
            call.end(Err(Failure::Unknown(failure)));
        }
    }

    /// Closes the connection, and returns its last phase.
    fn close(&self) -> Phase {
        let phase = self.phase.replace(Phase::Closed);
        self.watch.end();
        self.handle.close();
        phase
    }

    /// The connection was closed.
    pub fn disconnected(&self) {
        CONNECTIONS
            .with_borrow_mut(|all| all.retain(|other| !std::ptr::eq(&raw const **other, self)));
        self.watch.end();
        if let Phase::Busy(call) = self.phase.replace(Phase::Closed) {
            let failure = UnknownFailure::LostAt(self.socket.to_string());
            call.end(Err(Failure::Unknown(failure)));
        }
    }
}

thread_local! {
    /// This worker's connections.
    static CONNECTIONS: RefCell<Vec<Rc<WorkerConnection>>> = const { RefCell::new(Vec::new()) };
}

/// Sends a call on an idle connection of this thread to the Redis behind `socket`. Returns the call if it was not sent.
///
/// # Errors
/// The call, if this thread has no idle connection.
pub fn send(socket: &str, engine_host: &Arc<EngineHost>, call: Call) -> Result<(), Call> {
    let found = CONNECTIONS.with_borrow(|all| {
        let mut all = all.iter();
        all.find(|it| *it.socket == *socket && it.is_idle())
            .cloned()
    });
    let (Some(connection), Ok(missing)) = (found, count(&call.body)) else {
        return Err(call);
    };
    let timeout = Duration::from_millis(call.timeout_ms);
    let deadline = Instant::now() + timeout;
    connection.watch.set(Some(deadline));
    connection.phase.replace(Phase::Busy(Box::new(RunningCall {
        engine_host: Arc::clone(engine_host),
        generation: call.generation,
        batch: call.batch,
        deadline,
        framer: Framer::new(Direction::Replies),
        missing,
        replies: Vec::new(),
    })));
    if connection.handle.inject(&call.body) {
        return Ok(());
    }
    connection.phase.replace(Phase::Closed);
    Err(call)
}

/// When the module's thread must call a connection's worker. A worker has no timer of its own.
struct Watch {
    /// `None` after the connection's end. While a thread holds the lock and finds `Some`, Envoy's worker still exists.
    scheduler: Mutex<Option<ConnectionScheduler>>,
    /// Milliseconds since [`started`].
    due_ms: AtomicU64,
}

/// The connections of all workers.
static WATCHES: Mutex<Vec<Weak<Watch>>> = Mutex::new(Vec::new());

impl Watch {
    /// A watch that is due at once.
    fn new(scheduler: Option<ConnectionScheduler>) -> Arc<Self> {
        let watch = Arc::new(Self {
            scheduler: Mutex::new(scheduler),
            due_ms: AtomicU64::new(0),
        });
        lock(&WATCHES).push(Arc::downgrade(&watch));
        watch
    }

    /// Sets the time of the next call; `None`: never.
    fn set(&self, due: Option<Instant>) {
        let due_ms = due.map_or(u64::MAX, ms_since_start);
        self.due_ms.store(due_ms, Ordering::Relaxed);
    }

    fn is_due(&self) -> bool {
        self.due_ms.load(Ordering::Relaxed) <= ms_since_start(Instant::now())
    }

    fn end(&self) {
        *lock(&self.scheduler) = None;
    }
}

/// Calls the workers of connections whose probe or deadline is due. Runs at each tick of an engine host.
pub fn check() {
    lock(&WATCHES).retain(|watch| {
        let Some(watch) = watch.upgrade() else {
            return false;
        };
        if watch.is_due()
            && let Some(scheduler) = &*lock(&watch.scheduler)
        {
            scheduler.call();
        }
        true
    });
}

fn ms_since_start(time: Instant) -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let start = *START.get_or_init(Instant::now);
    let since = time.saturating_duration_since(start).as_millis();
    u64::try_from(since).unwrap_or(u64::MAX)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
