//! The root context of an HTTP filter.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use proxy_wasm::hostcalls;
use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::ContextType;
use weir_base::FieldError;
use weir_base::hash::stable_hash;
use weir_engine::setup::{ConfiguredEngine, started};
use weir_engine::{Engine, Reporting};

use crate::filter::Filter;
use crate::host::{NO_CONFIGURATION, configuration};
use crate::logged_once;
use crate::shared::ProxyHost;
use crate::stream::Stream;
use crate::worker::Worker;

/// The root context.
pub struct Root<F: Filter> {
    id: u32,
    /// Set after a valid configuration.
    worker: Option<Rc<RefCell<Worker<F::Engine>>>>,
    /// The current tick interval: none before the first stream.
    tick: Option<Duration>,
    /// Whether there has been a stream: a VM ticks only once it serves. The VM of Envoy's main thread has no streams
    /// and cannot reach internal listeners, so each of its polls would count as a failed connection.
    is_serving: Cell<bool>,
}

impl<F: Filter> Root<F> {
    /// The root context `id` without a configuration.
    pub fn new(id: u32) -> Self {
        Self {
            id,
            worker: None,
            tick: None,
            is_serving: Cell::new(false),
        }
    }

    /// Runs `act` on the worker. The effective context may change until the callback's end.
    fn with_worker(&mut self, act: impl FnOnce(&mut Worker<F::Engine>)) {
        if let Some(worker) = &self.worker {
            act(&mut worker.borrow_mut());
            self.adjust_tick();
        }
    }

    fn make_effective(&self) {
        // The callback's own context always exists.
        let _ = hostcalls::set_effective_context(self.id);
    }

    fn adjust_tick(&mut self) {
        let Some(worker) = self.worker.as_ref().filter(|_| self.is_serving.get()) else {
            return;
        };
        let period = worker.borrow().tick_period();
        if self.tick.replace(period) == Some(period) {
            return;
        }
        self.make_effective();
        if let Err(status) = hostcalls::set_tick_period(period) {
            let name = F::Engine::NAME;
            log::error!(
                "{name}: the host has no timer, so the filter cannot read from Redis: {status:?}"
            );
        }
    }

    fn configure(&self) -> Result<Worker<F::Engine>, FieldError> {
        let json = configuration()?;
        let configured = F::configure(&json)?;
        log_start::<F>(&json, &configured);
        let reporting = Reporting::wrap(configured, &json, &ProxyHost);
        Worker::new(reporting, self.id)
    }
}

/// Logs the start, once per process and configuration.
fn log_start<F: Filter>(json: &[u8], configured: &ConfiguredEngine<F::Engine>) {
    let name = F::Engine::NAME;
    if !logged_once::is_new(&format!("{name}.configured.{}", stable_hash(json))) {
        return;
    }
    if json == NO_CONFIGURATION {
        log::warn!("{name}: `configuration` is missing: the filter does nothing");
    }
    let clusters = &configured.redis_clusters;
    let line = started(name, clusters, "through cluster", &configured.rules);
    log::info!("{line}");
}

impl<F: Filter> Context for Root<F> {
    fn on_http_call_response(&mut self, token: u32, headers: usize, body: usize, _trailers: usize) {
        self.with_worker(|worker| worker.on_http_response(token, headers, body));
    }

    fn on_grpc_stream_message(&mut self, token: u32, size: usize) {
        self.with_worker(|worker| worker.on_message(token, size));
    }

    fn on_grpc_stream_close(&mut self, token: u32, status: u32) {
        self.with_worker(|worker| worker.on_stream_closed(token, status));
    }
}

impl<F: Filter> RootContext for Root<F> {
    fn on_configure(&mut self, _plugin_configuration_size: usize) -> bool {
        let worker = self.configure().inspect_err(|error| {
            log::error!("{}: configuration refused: {error}", F::Engine::NAME);
        });
        let Ok(worker) = worker else { return false };
        self.worker = Some(Rc::new(RefCell::new(worker)));
        true
    }

    fn on_tick(&mut self) {
        // Handles lost wake-ups and deadlines.
        self.with_worker(Worker::turn);
        self.make_effective();
        self.with_worker(Worker::tidy);
    }

    fn on_queue_ready(&mut self, queue: u32) {
        self.with_worker(|worker| {
            if worker.take_wakeup(queue) {
                worker.turn();
            }
        });
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }

    fn create_http_context(&self, id: u32) -> Option<Box<dyn HttpContext>> {
        let worker = self.worker.as_ref()?;
        // The wake-up starts the ticks. If the host rejects it, the next stream tries again.
        if !self.is_serving.get() {
            self.is_serving.set(worker.borrow().wake());
        }
        Some(Box::new(Stream::new(id, Rc::clone(worker))))
    }
}
