//! Events in, effects out.

use alloc::string::String;
use alloc::sync::Arc;

use weir_base::hash::stable_hash;
use weir_base::shared_data::SharedData;
use weir_engine::{
    Description, Effects, Engine, Event, ItemKind, Metrics, ReportedItem, Request, StreamId,
};
use weir_limit::engine::Limiter;

use crate::engine::NAME;
use crate::engine::admission::Admission;
use crate::engine::collect::{AnsweredRequest, CollectEndpoint, decide};
use crate::engine::config::CheckedConfig;
use crate::engine::metrics::EventCounters;
use crate::engine::observe::Observer;
use crate::engine::request::{Fields, split_path};

/// The event engine of one worker. `D` is the memory that it shares with the other workers.
#[derive(Debug)]
pub struct Events<D> {
    config: CheckedConfig,
    counters: Arc<EventCounters>,
    admission: Admission<D>,
    observer: Option<Observer>,
}

impl<D: SharedData + Clone> Events<D> {
    /// Creates an engine whose limits count in `data`. `unique_name` must never repeat: ids of views derive from it.
    /// `seed` hashes keys; it is equal in all workers and unknown to clients.
    pub fn new(config: CheckedConfig, data: D, unique_name: &str, seed: u64) -> Self {
        let mut metrics = Metrics::new();
        let counters = Arc::new(EventCounters::new(&mut metrics));
        let limiter = Limiter::with_metrics(config.limits.clone(), data, seed, metrics);
        let observer = config.observe.clone().map(|observe| {
            Observer::new(observe, &config, unique_name, seed, Arc::clone(&counters))
        });
        Self {
            admission: Admission::new(limiter, Arc::clone(&counters)),
            observer,
            counters,
            config,
        }
    }

    fn on_request(&mut self, stream: StreamId, request: &dyn Request, effects: &mut Effects) {
        let path = request.header(":path").unwrap_or_default();
        let (path, _) = split_path(&path);
        if let Some(place) = self.place(path) {
            return self.collect(stream, place, request, effects);
        }
        match &mut self.observer {
            Some(observer) => observer.on_request(stream, path, request, effects),
            None => effects.let_go(stream),
        }
    }

    fn place(&self, path: &[u8]) -> Option<CollectEndpoint> {
        let collect = self.config.collect.as_ref()?;
        if path == collect.path.as_bytes() {
            Some(CollectEndpoint::Body)
        } else if path == collect.pixel_path.as_bytes() {
            Some(CollectEndpoint::Pixel)
        } else {
            None
        }
    }

    fn collect(
        &mut self,
        stream: StreamId,
        place: CollectEndpoint,
        request: &dyn Request,
        effects: &mut Effects,
    ) {
        let fields = Fields::from_headers(request.headers());
        match decide(&self.config, place, &fields, request) {
            Ok(admitted) => self.admission.admit(stream, admitted, request, effects),
            Err(AnsweredRequest { outcome, answer }) => {
                self.counters.requests.increment(outcome);
                effects.respond(stream, Arc::new(answer));
            }
        }
    }
}

impl<D: SharedData + Clone> Engine for Events<D> {
    const NAME: &'static str = NAME;

    fn handle(&mut self, event: Event<'_>, effects: &mut Effects) {
        if let Event::Request { stream, request } = event {
            return self.on_request(stream, request, effects);
        }
        if let Some(observer) = &mut self.observer {
            observer.handle(&event, effects);
        }
        self.admission.handle(event, effects);
    }

    fn tick_ms(&self) -> Option<u64> {
        let observer_ms = self.observer.as_ref().and_then(Observer::tick_ms);
        self.admission
            .tick_ms()
            .into_iter()
            .chain(observer_ms)
            .min()
    }

    fn metrics(&mut self) -> &mut Metrics {
        self.admission.metrics()
    }

    fn describe(&self) -> Option<Description> {
        let collect = self.config.collect.as_ref();
        let paths = collect.map(|collect| [&collect.path, &collect.pixel_path]);
        let item = |path: &String| {
            let digest = stable_hash(path.as_bytes());
            ReportedItem::new(ItemKind::Route, path, "events", digest)
        };
        Some(Description {
            key_prefix: self.config.limits.redis.as_ref()?.key_prefix.clone(),
            items: paths.into_iter().flatten().map(item).collect(),
        })
    }
}
