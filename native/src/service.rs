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

/// How often the main thread is called to tell Envoy what was counted.
const TELL_PERIOD: Duration = Duration::from_secs(1);

/// For how long an engine host works on when its configuration is dropped: what it gives back to Redis should arrive. And then until
/// its calls have ended, as what they bring may have to be given back, too; but no longer than the second.
const LINGER: Duration = Duration::from_secs(2);
const LINGER_MAX: Duration = Duration::from_secs(60);

/// One call to Redis.
#[derive(Debug)]
pub struct Call {
    /// The engine's whose call it is.
    pub generation: u32,
    /// Its number.
    pub batch: BatchId,
    /// Which Redis is asked, by its place.
    pub redis: usize,
    /// Whole commands.
    pub body: Vec<u8>,
    /// How long it may take.
    pub timeout_ms: u64,
}

/// What the thread is to do.
#[derive(Debug)]
pub enum Order {
    /// Sends a call, and gives the engine host its reply.
    Call(Call),
    /// Runs the engine, as no stream waits whose worker could.
    Work,
    /// Looks when the next tick is due: earlier than it was.
    Hurry,
    /// Ends, soon.
    Stop,
}

/// Orders of a thread that does not run yet.
pub fn orders() -> (UnboundedSender<Order>, UnboundedReceiver<Order>) {
    unbounded_channel()
}

/// Starts the thread of an engine host.
///
/// # Errors
/// When the system gives no thread, or nothing to wait with.
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
        // Names that are being looked up are not waited for.
        runtime.shutdown_background();
    };
    let thread = std::thread::Builder::new().name("weir".into());
    thread.spawn(run).map(drop)
}

async fn serve(engine_host: Arc<EngineHost>, mut orders: UnboundedReceiver<Order>, redis: &[Plan]) {
    let clients: Vec<Rc<Client>> = redis.iter().map(Client::new).map(Rc::new).collect();
    let mut calls = JoinSet::new();
    let mut last_tick = Instant::now();
    let mut told = last_tick;
    let mut end = None;
    loop {
        let due = last_tick + Duration::from_millis(engine_host.tick_ms());
        let due = due.min(told + TELL_PERIOD);
        let is_to_come = |end: &Instant| *end > Instant::now();
        let until = end.filter(is_to_come).map_or(due, |end| end.min(due));
        tokio::select! {
            // Orders first: Redis should have its next call before anybody looks for replies.
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
            clients.iter().for_each(|client| client.close_idle());
        }
        if now >= told + TELL_PERIOD {
            told = now;
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

/// What `future` comes to, unless the deadline is over before.
pub(crate) async fn with_deadline<F: Future>(deadline: Instant, future: F) -> Option<F::Output> {
    timeout_at(deadline, future).await.ok()
}
