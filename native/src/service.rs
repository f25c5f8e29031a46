//! The thread of an engine host: ticks and calls to Redis.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{Instant, sleep_until, timeout_at};
use weir_engine::BatchId;
use weir_engine::redis::DefiniteFailure;

use crate::engine_host::EngineHost;
use crate::filters::guard;
use crate::redis::{Client, Plan};
use crate::worker_redis;

/// Interval of metric reports through the main thread.
const TELL_PERIOD: Duration = Duration::from_secs(1);

/// How long an engine host keeps working after its configuration is dropped, so that it can return units to Redis. It
/// then waits for calls in flight, whose replies may require more returns, at most until the second limit.
const LINGER: Duration = Duration::from_secs(2);
const LINGER_MAX: Duration = Duration::from_secs(60);

/// One call to Redis.
#[derive(Debug)]
pub struct Call {
    /// The number of the engine that made the call.
    pub generation: u32,
    /// The batch ID.
    pub batch: BatchId,
    /// The index of the Redis.
    pub redis: usize,
    /// Complete commands.
    pub body: Vec<u8>,
    /// The timeout, in milliseconds.
    pub timeout_ms: u64,
}

/// An order for the thread.
#[derive(Debug)]
pub enum Order {
    /// Sends a call, and passes its reply to the engine host.
    Call(Call),
    /// Runs the engine, because no waiting stream's worker can.
    Work,
    /// Recomputes the next tick, which is now due earlier.
    Hurry,
    /// Stops after the linger time.
    Stop,
}

/// Creates the order queue of a thread that has not started.
pub fn orders() -> (UnboundedSender<Order>, UnboundedReceiver<Order>) {
    unbounded_channel()
}

/// Starts the thread of an engine host.
///
/// # Errors
/// The system cannot start a thread or create its I/O runtime.
pub fn start(
    engine_host: Arc<EngineHost>,
    orders: UnboundedReceiver<Order>,
    redis: Vec<Plan>,
) -> std::io::Result<()> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_io().enable_time().build()?;
    let run = move || {
        let local = LocalSet::new();
        local.block_on(&runtime, serve(engine_host, orders, &redis));
        // Does not wait for pending DNS lookups.
        runtime.shutdown_background();
    };
    let thread = std::thread::Builder::new().name("weir".into());
    thread.spawn(run).map(drop)
}

async fn serve(engine_host: Arc<EngineHost>, mut orders: UnboundedReceiver<Order>, redis: &[Plan]) {
    let clients: Vec<Rc<Client>> = redis.iter().map(Client::new).map(Rc::new).collect();
    let mut calls = JoinSet::new();
    let mut last_tick = Instant::now();
    let mut reply = last_tick;
    let mut end = None;
    loop {
        let due = last_tick + Duration::from_millis(engine_host.tick_ms());
        let due = due.min(reply + TELL_PERIOD);
        let is_to_come = |end: &Instant| *end > Instant::now();
        let until = end.filter(is_to_come).map_or(due, |end| end.min(due));
        tokio::select! {
            // Orders first: send Redis its next call before reading replies.
            biased;
            order = orders.recv() => match order {
                Some(Order::Call(call)) => {
                    let client = clients.get(call.redis).map(Rc::clone);
                    calls.spawn_local(run_call(Arc::clone(&engine_host), client, call));
                }
                Some(Order::Work) => guard(&engine_host, EngineHost::work),
                Some(Order::Hurry) => {}
                Some(Order::Stop) | None => end = Some(Instant::now() + LINGER),
            },
            Some(_) = calls.join_next() => {}
            () = sleep_until(until) => {}
        }
        let now = Instant::now();
        if now >= last_tick + Duration::from_millis(engine_host.tick_ms()) {
            last_tick = now;
            guard(&engine_host, EngineHost::tick);
            worker_redis::check();
            clients.iter().for_each(|client| client.close_idle());
        }
        if now >= reply + TELL_PERIOD {
            reply = now;
            engine_host.common().call_main();
        }
        let is_idle = calls.is_empty() && orders.is_empty();
        if end.is_some_and(|end| now >= end && (is_idle || now >= end + LINGER_MAX)) {
            return;
        }
    }
}

async fn run_call(engine_host: Arc<EngineHost>, client: Option<Rc<Client>>, call: Call) {
    let deadline = Instant::now() + Duration::from_millis(call.timeout_ms);
    let reply = match client {
        Some(client) => client.call(&call.body, deadline).await,
        None => Err(DefiniteFailure::NotSent.into()),
    };
    guard(&engine_host, |engine_host| {
        engine_host.on_reply(call.generation, call.batch, reply);
    });
}

/// The result of `future`, or `None` after `deadline`.
pub(crate) async fn with_deadline<F: Future>(deadline: Instant, future: F) -> Option<F::Output> {
    timeout_at(deadline, future).await.ok()
}
