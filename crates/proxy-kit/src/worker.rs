//! One VM: its engine, and the code that applies effects.

use std::collections::VecDeque;
use std::time::Duration;

use proxy_wasm::hostcalls;
use proxy_wasm::types::MapType;
use weir_base::FieldError;
use weir_engine::redis::Reply;
use weir_engine::setup::ConfiguredEngine;
use weir_engine::{
    Answer, BatchId, Effect, Effects, Engine, Event, Fetch, FetchId, Level, Reporting, StreamId,
};

use crate::fetch::{Fetches, read_response};
use crate::host::{now_ms, unique_name};
use crate::link::{Call, Link};
use crate::metrics::HostMetrics;
use crate::reply;
use crate::request::{HostEnd, HostRequest};

/// The tick interval of an engine without ticks: each tick reports counters to the host.
const FLUSH_PERIOD: Duration = Duration::from_secs(1);

/// The state of one VM, shared by its root context and its streams.
pub(crate) struct Worker<E: Engine> {
    root_id: u32,
    engine: Reporting<E>,
    effects: Effects,
    /// The effects being applied, in reused memory.
    applying: Vec<Effect>,
    /// One link per Redis.
    links: Vec<Link>,
    fetches: Fetches,
    wake_queue: u32,
    metrics: HostMetrics,
}

/// One callback and its results.
struct Callback {
    /// The callback's context.
    context: u32,
    is_root: bool,
    /// The effective context of host calls.
    effective: u32,
    /// The decision on the request of this callback's own stream.
    flow: Flow,
    /// A stream for which an effect failed: its remaining effects are skipped.
    undelivered: Option<StreamId>,
    /// Events for the engine after all effects are applied.
    feedback: VecDeque<Feedback>,
}

/// The state of a request after its event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// It waits.
    Waits,
    /// It waits for its body, of at most this many bytes.
    Reads { bytes_max: usize },
    /// It continues. `is_over`: the engine is finished with it.
    GoesOn { is_over: bool },
    /// It was answered: the engine is finished with it.
    Answered,
}

/// The result of an effect.
enum Feedback {
    NotSent(BatchId),
    Deferred(BatchId),
    NotFetched(FetchId),
    Undelivered(StreamId),
}

/// An effect for a stream could not be applied.
struct StreamGone;

impl Callback {
    fn of(context: u32, is_root: bool) -> Self {
        Self {
            context,
            is_root,
            effective: context,
            flow: Flow::Waits,
            undelivered: None,
            feedback: VecDeque::new(),
        }
    }

    /// Makes `context` effective for host calls. Returns `false` if it no longer exists: host calls would then affect
    /// another context.
    fn enter(&mut self, context: u32) -> bool {
        if self.effective == context {
            return true;
        }
        let is_there = hostcalls::set_effective_context(context).is_ok();
        if is_there {
            self.effective = context;
        }
        is_there
    }

    fn enter_stream(&mut self, stream: StreamId) -> Result<(), StreamGone> {
        self.enter(stream).then_some(()).ok_or(StreamGone)
    }
}

impl<E: Engine> Worker<E> {
    /// # Errors
    /// When the host does not create a queue.
    pub(crate) fn new(
        configured: ConfiguredEngine<Reporting<E>>,
        root_id: u32,
    ) -> Result<Self, FieldError> {
        // A shared queue wakes the last VM that registered its name: each VM needs a name of its own.
        let name = format!("weir.wake.{}.{root_id}", unique_name());
        let wake_queue = hostcalls::register_shared_queue(&name).map_err(|status| {
            let problem = format!("the host has no queue to wake this VM: {status:?}");
            FieldError::new("", problem)
        })?;
        let mut worker = Self {
            root_id,
            engine: configured.engine,
            effects: Effects::new(),
            applying: Effects::list(),
            links: configured
                .redis_clusters
                .into_iter()
                .map(Link::new)
                .collect(),
            fetches: Fetches::default(),
            wake_queue,
            metrics: HostMetrics::default(),
        };
        worker.metrics.define(worker.engine.metrics());
        Ok(worker)
    }

    /// The interval between ticks.
    pub(crate) fn tick_period(&self) -> Duration {
        let period = self.engine.tick_ms();
        period.map_or(FLUSH_PERIOD, Duration::from_millis)
    }

    // --- callbacks of streams

    /// Handles the request's headers.
    pub(crate) fn on_request(&mut self, stream: StreamId) -> Flow {
        let request = HostRequest::default();
        let event = Event::Request {
            stream,
            request: &request,
        };
        self.run_stream(event, stream)
    }

    /// Handles the request's body; `None` if it is too long.
    pub(crate) fn on_body(&mut self, stream: StreamId, body: Option<&[u8]>) -> Flow {
        let event = Event::Body {
            stream,
            body,
            now_ms: now_ms(),
        };
        self.run_stream(event, stream)
    }

    /// Handles the response's headers.
    pub(crate) fn on_response(&mut self, stream: StreamId) {
        self.run_stream(Event::Response { stream }, stream);
    }

    /// Handles the stream's end.
    pub(crate) fn on_closed(&mut self, stream: StreamId) {
        let event = Event::Closed {
            stream,
            end: &HostEnd,
        };
        self.run_stream(event, stream);
    }

    // --- callbacks of the root context

    /// Whether a queue-ready callback for `queue` is a wake-up of this VM; removes it from the queue.
    pub(crate) fn take_wakeup(&self, queue: u32) -> bool {
        if queue != self.wake_queue {
            return false;
        }
        // Each wake-up has queued one empty value, and has a callback of its own.
        let _ = hostcalls::dequeue_shared_queue(queue);
        true
    }

    /// Handles a tick or a wake-up. It ends timed-out calls first, one per callback: one call may complete as many
    /// requests as one callback can answer.
    pub(crate) fn turn(&mut self) {
        let now_ms = now_ms();
        let mut links = self.links.iter_mut();
        match links.find_map(|link| link.expired(now_ms)) {
            Some((batch, reply)) => {
                self.wake();
                self.on_reply(batch, reply, now_ms);
            }
            None => self.run_root(Event::Tick { now_ms }),
        }
    }

    /// Closes unneeded streams to the bridge, and reports counts to the host. The root context is effective.
    pub(crate) fn tidy(&mut self) {
        for link in &mut self.links {
            link.close_idle(now_ms());
        }
        self.metrics.flush(self.engine.metrics());
    }

    /// Handles a message of `size` bytes on a stream to the bridge.
    pub(crate) fn on_message(&mut self, token: u32, size: usize) {
        let mut links = self.links.iter_mut();
        let found = links.find_map(|link| {
            let (batch, reply) = link.arrived(token, size)?;
            if reply.is_ok() {
                link.tell_that_it_answers(E::NAME);
            }
            Some((batch, reply))
        });
        if let Some((batch, reply)) = found {
            self.on_reply(batch, reply, now_ms());
        }
    }

    /// Handles a closed stream to the bridge.
    pub(crate) fn on_stream_closed(&mut self, token: u32, status: u32) {
        // Envoy keeps the stream until this call. It fails only if there is no such stream.
        let _ = hostcalls::cancel_grpc_stream(token);
        let mut links = self.links.iter_mut();
        if let Some((batch, reply)) = links.find_map(|link| link.closed(token, status)) {
            self.on_reply(batch, reply, now_ms());
        }
    }

    /// Handles the response to an HTTP request, with its numbers of headers and bytes.
    pub(crate) fn on_http_response(&mut self, token: u32, headers: usize, body: usize) {
        if let Some(fetch) = self.fetches.ended(token) {
            self.run_root(Event::FetchDone {
                fetch,
                response: read_response(headers, body),
                now_ms: now_ms(),
            });
        }
    }

    fn on_reply(&mut self, batch: BatchId, reply: Reply, now_ms: u64) {
        self.run_root(Event::RedisReply {
            batch,
            reply,
            now_ms,
        });
    }

    fn run_root(&mut self, event: Event<'_>) {
        let mut callback = Callback::of(self.root_id, true);
        while let Some((id, fetch)) = self.fetches.take_waiting() {
            self.fetch(id, fetch, &mut callback);
        }
        self.run(event, callback);
    }

    // --- events and effects

    /// Passes an event to the engine and applies its effects. Returns the state of the callback's own request.
    fn run(&mut self, event: Event<'_>, callback: Callback) -> Flow {
        self.engine.handle(event, &mut self.effects);
        self.finish(callback)
    }

    /// The same for an event of a stream.
    fn run_stream(&mut self, event: Event<'_>, stream: StreamId) -> Flow {
        self.engine.inner().handle(event, &mut self.effects);
        self.finish(Callback::of(stream, false))
    }

    fn finish(&mut self, mut callback: Callback) -> Flow {
        self.apply_all(&mut callback);
        while let Some(feedback) = callback.feedback.pop_front() {
            self.engine.handle(feedback.event(), &mut self.effects);
            self.apply_all(&mut callback);
        }
        callback.flow
    }

    fn apply_all(&mut self, callback: &mut Callback) {
        // Most streams end without effects.
        if self.effects.as_slice().is_empty() {
            return;
        }
        let mut applying = std::mem::take(&mut self.applying);
        self.effects.take_into(&mut applying);
        for effect in &applying {
            self.apply(effect, callback);
        }
        applying.clear();
        self.applying = applying;
        self.effects.clear_bytes();
    }

    fn apply(&mut self, effect: &Effect, callback: &mut Callback) {
        match *effect {
            Effect::Respond { stream, .. }
            | Effect::RemoveRequestHeader { stream, .. }
            | Effect::AddRequestHeader { stream, .. }
            | Effect::SetPath { stream, .. }
            | Effect::ReadBody { stream, .. }
            | Effect::Continue { stream, .. }
            | Effect::SetResponseHeader { stream, .. }
            | Effect::AddResponseHeader { stream, .. } => apply_to(stream, effect, callback),
            Effect::Call {
                batch,
                redis,
                ref body,
                timeout_ms,
                now_ms,
                at_once,
            } => {
                let call = Call {
                    batch,
                    body: self.effects.bytes(body),
                    timeout_ms,
                    now_ms,
                };
                let link = self.links.get_mut(usize::from(redis.0));
                if !send(link, self.root_id, &call, at_once, callback) {
                    callback.feedback.push_back(match at_once {
                        true => Feedback::Deferred(batch),
                        false => Feedback::NotSent(batch),
                    });
                }
            }
            Effect::Fetch { id, ref fetch } => self.fetch(id, fetch.clone(), callback),
            Effect::Wake => {
                self.wake();
            }
            Effect::Log(level, ref text) => log::log!(level_of(level), "{}: {text}", E::NAME),
        }
    }

    fn fetch(&mut self, id: FetchId, fetch: Fetch, callback: &mut Callback) {
        if !callback.is_root {
            self.fetches.wait(id, fetch);
            self.wake();
        } else if !(callback.enter(self.root_id) && self.fetches.send(id, &fetch)) {
            callback.feedback.push_back(Feedback::NotFetched(id));
        }
    }

    /// Requests a callback of the root context; returns whether the host accepted.
    pub(crate) fn wake(&self) -> bool {
        // If it fails, the next tick does the work.
        let woken = hostcalls::enqueue_shared_queue(self.wake_queue, None);
        if let Err(status) = woken {
            let name = E::NAME;
            log::warn!("{name}: cannot wake the root context; it waits for its timer: {status:?}");
        }
        woken.is_ok()
    }
}

impl Feedback {
    fn event(self) -> Event<'static> {
        match self {
            Self::NotSent(batch) => Event::NotSent { batch },
            Self::Deferred(batch) => Event::Deferred { batch },
            Self::NotFetched(fetch) => Event::FetchDone {
                fetch,
                response: None,
                now_ms: now_ms(),
            },
            Self::Undelivered(stream) => Event::Undelivered {
                stream,
                now_ms: now_ms(),
            },
        }
    }
}

fn apply_to(stream: StreamId, effect: &Effect, callback: &mut Callback) {
    if callback.undelivered == Some(stream) {
        return;
    }
    if apply_to_stream(stream, effect, callback).is_err() {
        callback.undelivered = Some(stream);
        callback.feedback.push_back(Feedback::Undelivered(stream));
    }
}

fn apply_to_stream(
    stream: StreamId,
    effect: &Effect,
    callback: &mut Callback,
) -> Result<(), StreamGone> {
    callback.enter_stream(stream)?;
    let request = MapType::HttpRequestHeaders;
    let done = match effect {
        Effect::Respond { answer, .. } => return respond(stream, answer, callback),
        Effect::RemoveRequestHeader { name, .. } => hostcalls::remove_map_value(request, name),
        // To set a header, Envoy searches all headers; to add one, it does not.
        Effect::AddRequestHeader { name, value, .. } => {
            hostcalls::add_map_value(request, name, value)
        }
        Effect::SetPath { path, .. } => hostcalls::set_map_value(request, ":path", Some(path)),
        Effect::ReadBody { bytes_max, .. } => {
            callback.flow = Flow::Reads {
                bytes_max: *bytes_max,
            };
            Ok(())
        }
        Effect::Continue { is_over, .. } if stream == callback.context => {
            callback.flow = Flow::GoesOn { is_over: *is_over };
            Ok(())
        }
        Effect::Continue { .. } => hostcalls::resume_http_request(),
        Effect::SetResponseHeader { name, value, .. } => {
            hostcalls::set_map_value(MapType::HttpResponseHeaders, name, Some(value))
        }
        Effect::AddResponseHeader { name, value, .. } => {
            hostcalls::add_map_value(MapType::HttpResponseHeaders, name, value)
        }
        _ => Ok(()),
    };
    done.map_err(|_| StreamGone)
}

fn respond(stream: StreamId, answer: &Answer, callback: &mut Callback) -> Result<(), StreamGone> {
    if !reply::send(answer) {
        return Err(StreamGone);
    }
    if stream == callback.context {
        callback.flow = Flow::Answered;
    }
    Ok(())
}

/// Sends a call and returns whether it was sent. Streams to the bridge belong to the root context, and only its
/// callbacks may open one.
fn send(
    link: Option<&mut Link>,
    root_id: u32,
    call: &Call<'_>,
    at_once: bool,
    callback: &mut Callback,
) -> bool {
    let Some(link) = link else { return false };
    let may_open = callback.is_root && !at_once;
    (may_open || link.is_ready()) && callback.enter(root_id) && link.send(call, may_open)
}

fn level_of(level: Level) -> log::Level {
    match level {
        Level::Debug => log::Level::Debug,
        Level::Info => log::Level::Info,
        Level::Warn => log::Level::Warn,
        Level::Error => log::Level::Error,
    }
}
