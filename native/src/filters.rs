//! The [`abi::Module`] implementation: handlers of Envoy's hooks.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Once, OnceLock, PoisonError};

use tokio::sync::mpsc::UnboundedSender;
use weir_base::{FieldError, problem};
use weir_engine::answer::Refusal;
use weir_engine::setup::started;
use weir_engine::{Answer, Effect, StreamId};
use weir_envoy_abi::{
    self as abi, BodyStatus, ConfigHost, Connection, FetchedResponse, Filter, HeadersStatus,
    Module, Response,
};

use weir_registry::engines::{AnyEngine, make};
use weir_registry::{self as registry, FILTERS};

use crate::engine_host::{CallCounts, Common, EngineHost, RequestEffects};
use crate::fast_path::counts::FastPathCounts;
use crate::fast_path::{self, FastConnection, FastPath};
use crate::fetches::{Fetches, read};
use crate::metrics::HostMetrics;
use crate::redis::Plan;
use crate::request::{HookEnd, HookRequest};
use crate::service::{self, Order, orders};
use crate::settings::split;
use crate::shared::ProcessHost;
use crate::slot::{ClosedSlot, Slot};
use crate::worker_redis::opener::Opener;
use crate::worker_redis::{self, WorkerConnection, WorkerRedis};

/// The answer after a panic.
const PANIC_REFUSAL: Refusal<'static> = Refusal {
    status: 503,
    error: "unavailable",
    message: "the gateway could not handle this request",
    order: None,
};

/// All filters of this library.
#[derive(Debug)]
pub struct Filters;

/// One filter's configuration.
pub struct Config {
    common: Arc<Common>,
    engine_hosts: Vec<Arc<EngineHost>>,
    /// Stops the engine hosts' threads.
    services: Vec<UnboundedSender<Order>>,
    /// Keep the workers' own connections to Redis open.
    openers: Vec<Arc<Opener>>,
    metrics: HostMetrics,
}

/// The configuration of a network filter.
pub enum NetworkFilter {
    /// `weir.fast_path`.
    FastPath(Arc<FastPath>),
    /// `weir.worker_redis`.
    WorkerRedis(WorkerRedis),
}

impl NetworkFilter {
    fn new(name: &[u8], json: &[u8]) -> Result<Self, FieldError> {
        match str::from_utf8(name) {
            Ok(fast_path::NAME) => Ok(Self::FastPath(Arc::new(FastPath::new(json)?))),
            Ok(worker_redis::NAME) => Ok(Self::WorkerRedis(WorkerRedis::new(json)?)),
            _ => {
                let problem = format!(
                    "unknown network filter \"{}\"; the filters are {}, {}",
                    String::from_utf8_lossy(name),
                    fast_path::NAME,
                    worker_redis::NAME
                );
                Err(FieldError::new("filter_name", problem))
            }
        }
    }
}

/// One connection of a network filter.
pub enum NetworkState {
    /// Of `weir.fast_path`.
    Fast(FastConnection),
    /// Of `weir.worker_redis`.
    Worker(Rc<WorkerConnection>),
}

/// One stream.
pub struct Stream {
    engine_host: Arc<EngineHost>,
    /// The stream's ID at the engine host, set when its request arrives.
    id: Cell<StreamId>,
    phase: Cell<Phase>,
    /// The slot, from the first wait to the end of the stream.
    slot: RefCell<Option<Arc<Slot>>>,
}

/// The state of a request in the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The engine has not received the request, or has finished with it, and the request continued.
    Apart,
    /// The request waits.
    Waits,
    /// The request waits for its body of at most this many bytes.
    Reads { bytes_max: usize },
    /// The request continued, and the engine needs its response and its end.
    Open,
    /// The engine answered the request.
    Answered,
}

/// [`PANIC_REFUSAL`] as a serialized body, so that answering a panic allocates nothing.
const PANIC_BODY: &[u8] = br#"{"type":"urn:weir:problem:unavailable","status":503,"error":"unavailable","message":"the gateway could not handle this request"}"#;

/// The answer for requests that wait when the engine panics.
fn answer_to_panic() -> &'static Arc<Answer> {
    static ANSWER: OnceLock<Arc<Answer>> = OnceLock::new();
    ANSWER.get_or_init(|| {
        let headers = vec![("retry-after", "1")];
        Arc::new(Answer::refusal(headers, &PANIC_REFUSAL))
    })
}

/// Runs `act`, which may run the engine. After a panic, the engine host recovers and answers all waiting requests.
pub fn guard(engine_host: &EngineHost, act: impl FnOnce(&EngineHost)) {
    let result = catch_unwind(AssertUnwindSafe(|| act(engine_host)));
    if let Err(panic) = result {
        // Dropping the panic payload could panic again.
        std::mem::forget(panic);
        recover(engine_host);
    }
}

fn recover(engine_host: &EngineHost) {
    engine_host.common().panics.fetch_add(1, Ordering::Relaxed);
    // If recovery panics too, the engine host stays unchanged.
    catch_unwind(AssertUnwindSafe(|| engine_host.recover(answer_to_panic())))
        .map_err(std::mem::forget)
        .ok();
}

/// Installs a hook that logs the location of panics to Envoy's log.
fn log_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        std::panic::set_hook(Box::new(|info| {
            abi::log(abi::Level::Error, &format!("weir: panicked: {info}"));
        }));
    });
}

/// The registered filter of this name.
fn named(name: &[u8]) -> Result<&'static registry::Filter, FieldError> {
    let found = std::str::from_utf8(name).ok();
    found
        .and_then(registry::Filter::of_envoy_name)
        .ok_or_else(|| {
            let names: Vec<&str> = FILTERS.iter().map(|filter| filter.envoy_name).collect();
            let problem = format!(
                "unknown filter \"{}\"; the filters are {}",
                String::from_utf8_lossy(name),
                names.join(", ")
            );
            FieldError::new("filter_name", problem)
        })
}

impl Config {
    fn new(host: &ConfigHost<'_>, name: &[u8], json: &[u8]) -> Result<Self, FieldError> {
        let filter = named(name)?;
        let (settings, json) = split(json)?;
        let first = make(filter, &json, &ProcessHost, true)?;
        // Creates all plans first, so that `--mode validate` reports the same errors.
        let plan = |(index, redis)| Plan::new(&format!("native.redis[{index}]"), redis);
        let redis = settings.of_each(&first.redis_clusters)?;
        let worker_sockets: Vec<Option<String>> = redis
            .iter()
            .map(|(_, redis)| redis.worker_socket.clone())
            .collect();
        let redis = redis.into_iter().map(plan);
        let redis: Vec<Plan> = redis.collect::<Result<_, _>>()?;
        let mut engine = first.engine;
        let metrics = HostMetrics::define(host, filter, engine.metrics());
        let common = Arc::new(Common {
            filter,
            json,
            fetches: Fetches::default(),
            main: Mutex::new(host.scheduler()),
            panics: AtomicU64::new(0),
            has_answered: AtomicBool::new(false),
            fast_path: FastPathCounts::default(),
            worker_sockets,
            calls: CallCounts::default(),
        });
        let mut config = Self {
            common,
            engine_hosts: Vec::new(),
            services: Vec::new(),
            openers: Vec::new(),
            metrics,
        };
        let is_validating = abi::is_validating();
        if !is_validating {
            let at: Vec<String> = redis.iter().map(Plan::addresses).collect();
            abi::log(
                abi::Level::Info,
                &started(engine.name(), &at, "at", &first.rules),
            );
        }
        config.add(engine, redis.clone(), is_validating)?;
        for _ in 1..settings.engines {
            let created = make(filter, &config.common.json, &ProcessHost, true)?;
            config.add(created.engine, redis.clone(), is_validating)?;
        }
        if !is_validating {
            config.open_worker_connections()?;
            if let Some(name) = &settings.name {
                fast_path::register(name, &config.engine_hosts);
            }
        }
        Ok(config)
    }

    fn add(
        &mut self,
        engine: Box<dyn AnyEngine>,
        redis: Vec<Plan>,
        is_validating: bool,
    ) -> Result<(), FieldError> {
        let (service, received) = orders();
        let common = Arc::clone(&self.common);
        let engine_host = EngineHost::new(self.engine_hosts.len(), common, engine, service.clone());
        self.engine_hosts.push(Arc::clone(&engine_host));
        self.services.push(service);
        if !is_validating {
            let started = service::start(engine_host, received, redis);
            let refuse = |error| {
                FieldError::new("native.engines", format!("cannot start a thread: {error}"))
            };
            started.map_err(refuse)?;
        }
        Ok(())
    }

    fn open_worker_connections(&mut self) -> Result<(), FieldError> {
        for socket in self.common.worker_sockets.iter().flatten() {
            let opener = Opener::of(socket).map_err(|error| {
                let problem = format!("cannot open connections to {socket}: {error}");
                FieldError::new("native.redis.worker_socket", problem)
            })?;
            self.openers.push(opener);
        }
        Ok(())
    }

    fn engine_host(&self) -> Option<&Arc<EngineHost>> {
        self.engine_hosts
            .get(worker_index() % self.engine_hosts.len().max(1))
    }

    fn stop(&self) {
        let main = &self.common.main;
        // Threads that call the main thread hold the lock, so none does after this.
        *main.lock().unwrap_or_else(PoisonError::into_inner) = None;
        for service in &self.services {
            let _ = service.send(Order::Stop);
        }
    }
}

/// This thread's index among the threads that have had streams, by first stream.
pub fn worker_index() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static INDEX: usize = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    INDEX.with(|index| *index)
}

impl Drop for Config {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Module for Filters {
    type Config = Config;
    type Stream = Stream;

    const ANSWER_TO_PANIC: Response<'static> = Response {
        status: PANIC_REFUSAL.status,
        headers: &[
            (b"retry-after", b"1"),
            (b"content-type", problem::MEDIA_TYPE.as_bytes()),
            (b"cache-control", b"no-store"),
        ],
        body: PANIC_BODY,
        details: "weir_panic",
    };

    fn configure(host: &ConfigHost<'_>, name: &[u8], config: &[u8]) -> Option<Config> {
        log_panics();
        let created = Config::new(host, name, config);
        let refused = |error: &FieldError| {
            let name = String::from_utf8_lossy(name);
            abi::log(
                abi::Level::Error,
                &format!("{name}: configuration refused: {error}"),
            );
        };
        created.inspect_err(refused).ok()
    }

    fn dropped(config: &Config) {
        config.stop();
    }

    fn scheduled(config: &Config, host: &ConfigHost<'_>) {
        for of in config.common.fetches.send(host) {
            if let Some(engine_host) = config.engine_hosts.get(of.engine_host()) {
                guard(engine_host, |engine_host| engine_host.on_fetched(of, None));
            }
        }
        for engine_host in &config.engine_hosts {
            guard(engine_host, |engine_host| {
                config.metrics.publish(host, &engine_host.collect());
            });
        }
        let panics = config.common.panics.swap(0, Ordering::Relaxed);
        config.metrics.publish_panics(host, panics);
        let fast_path = config.common.fast_path.collect();
        config.metrics.publish_fast_path(host, &fast_path);
        config.metrics.publish_calls(host, &config.common.calls);
    }

    fn fetched(config: &Config, id: u64, response: Option<FetchedResponse<'_>>) {
        let of = config.common.fetches.ended(id);
        let engine_host = of.and_then(|of| Some((of, config.engine_hosts.get(of.engine_host())?)));
        if let Some((of, engine_host)) = engine_host {
            let response = response.and_then(read);
            guard(engine_host, |engine_host| {
                engine_host.on_fetched(of, response)
            });
        }
    }

    fn stream(config: &Arc<Config>) -> Option<Stream> {
        Some(Stream {
            engine_host: Arc::clone(config.engine_host()?),
            id: Cell::new(0),
            phase: Cell::new(Phase::Apart),
            slot: RefCell::new(None),
        })
    }

    fn request_headers(stream: &Stream, filter: Filter<'_>, is_last: bool) -> HeadersStatus {
        let (id, own) = {
            let request = HookRequest::new(&filter);
            stream
                .engine_host
                .on_request(&request, || Slot::new(filter.scheduler()))
        };
        stream.id.set(id);
        stream.phase.set(Phase::Waits);
        let filter = stream.follow(filter, own);
        match (stream.phase.get(), filter) {
            (Phase::Reads { .. }, Some(filter)) if is_last => {
                match stream.deliver(filter, Some(&[])) {
                    BodyStatus::Continue => HeadersStatus::Continue,
                    BodyStatus::Keep => HeadersStatus::StopAll,
                }
            }
            (Phase::Reads { .. }, _) => HeadersStatus::StopHead,
            (Phase::Apart | Phase::Open, _) => HeadersStatus::Continue,
            (Phase::Waits | Phase::Answered, _) => HeadersStatus::StopAll,
        }
    }

    fn request_body(stream: &Stream, filter: Filter<'_>, is_last: bool) -> BodyStatus {
        match stream.phase.get() {
            Phase::Reads { bytes_max } if filter.body_size() > bytes_max => {
                stream.deliver(filter, None)
            }
            Phase::Reads { .. } if is_last => {
                let body = filter.body();
                stream.deliver(filter, Some(&body))
            }
            phase => phase.of_body(),
        }
    }

    fn request_trailers(stream: &Stream, filter: Filter<'_>) -> bool {
        let status = match stream.phase.get() {
            Phase::Reads { .. } => {
                let body = filter.body();
                stream.deliver(filter, Some(&body))
            }
            phase => phase.of_body(),
        };
        status == BodyStatus::Continue
    }

    fn response_headers(stream: &Stream, mut filter: Filter<'_>) {
        // A response that no engine changes takes no lock.
        let sees = stream
            .engine_host
            .common()
            .filter
            .responses_module
            .is_some();
        if !sees || stream.phase.get() != Phase::Open {
            return;
        }
        for effect in stream.engine_host.on_response(stream.id.get()) {
            // Envoy refuses only if there are no headers, and then there is no response to change.
            match effect {
                Effect::SetResponseHeader { name, value, .. } => {
                    filter.set_response_header(name, &value);
                }
                Effect::AddResponseHeader { name, value, .. } => {
                    filter.add_response_header(name, &value);
                }
                _ => {}
            }
        }
    }

    fn called(stream: &Stream, filter: Filter<'_>) {
        let slot = stream.slot.borrow().clone();
        let Some(slot) = slot else { return };
        if slot.take_ring() {
            stream.engine_host.work();
        }
        let effects = slot.take();
        if effects.is_empty() {
            return;
        }
        let own = RequestEffects {
            effects,
            slot: Some(slot),
        };
        let before = stream.phase.get();
        let filter = stream.follow(filter, own);
        let goes_on = matches!(stream.phase.get(), Phase::Apart | Phase::Open);
        if let (true, Some(filter)) = (goes_on && before != stream.phase.get(), filter) {
            filter.go_on();
        }
    }

    fn completed(stream: &Stream, filter: Filter<'_>) {
        let end = HookEnd::new(&filter);
        stream.close(Some(&end));
    }

    fn stream_destroyed(stream: &Stream) {
        stream.close(None);
    }

    type NetworkConfig = NetworkFilter;
    type NetworkState = NetworkState;

    fn configure_network(name: &[u8], config: &[u8]) -> Option<NetworkFilter> {
        log_panics();
        let refused = |error: &FieldError| {
            let name = String::from_utf8_lossy(name);
            let text = format!("{name}: configuration refused: {error}");
            abi::log(abi::Level::Error, &text);
        };
        NetworkFilter::new(name, config).inspect_err(refused).ok()
    }

    fn connected(config: &Arc<NetworkFilter>, connection: Connection<'_>) -> NetworkState {
        match &**config {
            NetworkFilter::FastPath(config) => {
                NetworkState::Fast(FastConnection::new(config, &connection))
            }
            NetworkFilter::WorkerRedis(config) => {
                NetworkState::Worker(WorkerConnection::new(config, &connection))
            }
        }
    }

    fn received(
        state: &NetworkState,
        mut connection: Connection<'_>,
        is_last: bool,
    ) -> abi::ReadStatus {
        match state {
            NetworkState::Fast(state) => state.received(connection, is_last),
            NetworkState::Worker(state) => {
                state.received(&mut connection);
                abi::ReadStatus::Stop
            }
        }
    }

    fn sent(state: &NetworkState, connection: Connection<'_>) {
        match state {
            NetworkState::Fast(state) => state.sent(&connection),
            NetworkState::Worker(state) => state.sent(connection),
        }
    }

    fn congested(state: &NetworkState) {
        if let NetworkState::Fast(state) = state {
            state.congested();
        }
    }

    fn disconnected(state: &NetworkState) {
        if let NetworkState::Worker(state) = state {
            state.disconnected();
        }
    }

    fn connection_called(state: &NetworkState, _connection: Connection<'_>) {
        if let NetworkState::Worker(state) = state {
            state.called();
        }
    }

    fn connection_panicked(state: &NetworkState) {
        match state {
            NetworkState::Fast(state) => state.panicked(),
            NetworkState::Worker(state) => state.disconnected(),
        }
    }

    fn drain_started() {
        fast_path::drain();
    }

    fn panicked(config: Option<&Config>, stream: Option<&Stream>) {
        match (config, stream) {
            (_, Some(stream)) => {
                stream.phase.set(Phase::Answered);
                recover(&stream.engine_host);
            }
            (Some(config), None) => {
                config.common.panics.fetch_add(1, Ordering::Relaxed);
            }
            (None, None) => {}
        }
    }
}

impl Phase {
    /// The status for a body part that the engine did not request: the same as for the previous part.
    fn of_body(self) -> BodyStatus {
        match self {
            Self::Apart | Self::Open => BodyStatus::Continue,
            Self::Waits | Self::Reads { .. } | Self::Answered => BodyStatus::Keep,
        }
    }
}

impl Stream {
    /// Applies the effects for the stream's own request. Returns the filter unless the request was answered.
    fn follow<'f>(&self, mut filter: Filter<'f>, own: RequestEffects) -> Option<Filter<'f>> {
        if let Some(slot) = own.slot {
            self.slot.replace(Some(slot));
        }
        for effect in own.effects {
            match effect {
                Effect::Respond { answer, .. } => {
                    // Set before the answer, because hooks may run while Envoy sends it.
                    self.phase.set(Phase::Answered);
                    respond(filter, &answer);
                    return None;
                }
                Effect::Continue { is_over, .. } => self.phase.set(match is_over {
                    true => Phase::Apart,
                    false => Phase::Open,
                }),
                Effect::ReadBody { bytes_max, .. } => self.phase.set(Phase::Reads { bytes_max }),
                effect => change(&mut filter, effect),
            }
        }
        Some(filter)
    }

    /// Passes the requested body to the engine.
    fn deliver(&self, filter: Filter<'_>, body: Option<&[u8]>) -> BodyStatus {
        let slot = self.slot.borrow().clone();
        let wait = || Slot::new(filter.scheduler());
        let own = self.engine_host.on_body(self.id.get(), body, slot, wait);
        self.phase.set(Phase::Waits);
        self.follow(filter, own);
        self.phase.get().of_body()
    }

    /// Handles the end of the stream.
    fn close(&self, end: Option<&HookEnd<'_>>) {
        let remaining = self
            .slot
            .take()
            .map_or_else(ClosedSlot::default, |slot| slot.close());
        let phase = self.phase.replace(Phase::Apart);
        let is_open = matches!(phase, Phase::Waits | Phase::Reads { .. } | Phase::Open);
        if is_open || remaining.undelivered {
            let end = end.map(|end| end as &dyn weir_engine::StreamEnd);
            let id = self.id.get();
            self.engine_host.on_closed(id, remaining.undelivered, end);
        }
        if remaining.is_rung {
            self.engine_host.work();
        }
    }
}

/// Changes a request's headers.
fn change(filter: &mut Filter<'_>, effect: Effect) {
    // Envoy refuses only if there are no headers, and then there is no request to change.
    match effect {
        Effect::RemoveRequestHeader { name, .. } => filter.remove_request_header(&name),
        Effect::AddRequestHeader { name, value, .. } => filter.add_request_header(name, &value),
        Effect::SetPath { path, .. } => filter.set_request_header(":path", &path),
        _ => true,
    };
}

/// Answers a request.
fn respond(filter: Filter<'_>, answer: &Answer) {
    let mut headers: Vec<(&[u8], &[u8])> = answer.headers.iter().collect();
    // Envoy's own gRPC replies carry the status in a header, and the body as their message.
    let grpc_status = answer.grpc_status.map(|status| status.to_string());
    if let Some(status) = &grpc_status {
        headers.push((b"grpc-status", status.as_bytes()));
    }
    filter.respond(&Response {
        status: answer.status,
        headers: &headers,
        body: &answer.body,
        details: &answer.details,
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_and_panicking_requests_get_the_same_answer() {
        let waiting = answer_to_panic();
        let own = Filters::ANSWER_TO_PANIC;
        assert_eq!((waiting.status, &*waiting.body), (own.status, own.body));
        let headers: Vec<(&[u8], &[u8])> = waiting.headers.iter().collect();
        assert_eq!(headers, own.headers);
    }

    #[test]
    fn unknown_filter_error_lists_all_filter_names() {
        assert_eq!(named(b"weir.fitment"), Ok(&registry::FITMENT));
        let error = named(b"weir.nothing").unwrap_err().to_string();
        assert!(error.starts_with("filter_name: "), "{error}");
        assert!(
            error.contains("weir.seckill_gate, weir.ratelimit"),
            "{error}"
        );
    }

    #[test]
    fn refusal_names_the_field() {
        let error = |filter: &registry::Filter, json: &str| {
            let created = make(filter, json.as_bytes(), &ProcessHost, true);
            created
                .err()
                .map(|error| error.to_string())
                .unwrap_or_default()
        };
        assert!(error(&registry::FITMENT, r#"{"nothing":1}"#).contains("nothing"));
        let limits = r#"{"rules":[{"name":"r","limit":{"rate":0}}]}"#;
        assert!(error(&registry::LIMITER, limits).starts_with("rules[0]"));
        for filter in FILTERS {
            let error = error(filter, r#"{"no_such_field":1}"#);
            assert!(error.contains("no_such_field"), "{}: {error}", filter.name);
        }
    }
}
