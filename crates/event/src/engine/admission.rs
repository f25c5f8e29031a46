//! Applies the rate limits, and replaces client headers by gateway metadata.
//!
//! The limits are the rate limiter's engine. It decides at once or after a reply from Redis. Requests that it passes
//! get the metadata headers.

use alloc::borrow::Cow;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem;

use crate::consent::Consent;
use weir_base::headers::{EVENT_KEY, VISITOR};
use weir_base::shared_data::SharedData;
use weir_engine::{Answer, Effect, Effects, Engine, Event, Headers, Metrics, Request, StreamId};
use weir_limit::engine::Limiter;

use crate::engine::collect::AdmittedRequest;
use crate::engine::cors;
use crate::engine::metrics::{EventCounters, Outcome};

/// The rate limits of one worker's requests. `D` is the memory that it shares with the other workers.
#[derive(Debug)]
pub(crate) struct Admission<D> {
    limiter: Limiter<D>,
    counters: Arc<EventCounters>,
    /// Requests without a decision yet.
    waiting: BTreeMap<StreamId, AdmittedRequest>,
    /// Passed requests whose responses go to a page.
    pages: BTreeMap<StreamId, String>,
    /// A reused buffer.
    scratch: Vec<Effect>,
}

/// A request as the limits see it: with verified identity instead of the client's headers.
struct IdentifiedRequest<'a> {
    request: &'a dyn Request,
    key: &'a str,
    visitor: Option<&'a str>,
}

impl Request for IdentifiedRequest<'_> {
    fn headers(&self) -> &Headers {
        self.request.headers()
    }

    fn header(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        match name {
            EVENT_KEY => Some(Cow::Borrowed(self.key.as_bytes())),
            VISITOR => self
                .visitor
                .map(|visitor| Cow::Borrowed(visitor.as_bytes())),
            name => self.request.header(name),
        }
    }

    fn peer_address(&self) -> Vec<u8> {
        self.request.peer_address()
    }

    fn now_ms(&self) -> u64 {
        self.request.now_ms()
    }
}

impl<D: SharedData + Clone> Admission<D> {
    pub(crate) fn new(limiter: Limiter<D>, counters: Arc<EventCounters>) -> Self {
        Self {
            limiter,
            counters,
            waiting: BTreeMap::new(),
            pages: BTreeMap::new(),
            scratch: Effects::list(),
        }
    }

    /// Decides on a request, now or after a reply from Redis.
    pub(crate) fn admit(
        &mut self,
        stream: StreamId,
        admitted: AdmittedRequest,
        request: &dyn Request,
        effects: &mut Effects,
    ) {
        let (key, visitor) = (admitted.stamps.key.clone(), admitted.visitor.clone());
        let existing = IdentifiedRequest {
            request,
            key: key.as_str(),
            visitor: visitor.as_ref().map(|visitor| visitor.as_str()),
        };
        self.waiting.insert(stream, admitted);
        let event = Event::Request {
            stream,
            request: &existing,
        };
        self.handle(event, effects);
    }

    /// Passes an event to the limiter.
    pub(crate) fn handle(&mut self, event: Event<'_>, effects: &mut Effects) {
        match &event {
            Event::Response { stream } => self.respond_to_page(*stream, effects),
            Event::Closed { stream, .. } | Event::Undelivered { stream, .. } => {
                self.waiting.remove(stream);
                self.pages.remove(stream);
            }
            _ => {}
        }
        self.limiter.handle(event, effects);
        if effects.as_slice().is_empty() {
            return;
        }
        let mut scratch = mem::take(&mut self.scratch);
        effects.take_into(&mut scratch);
        for effect in scratch.drain(..) {
            self.pass_on(effect, effects);
        }
        self.scratch = scratch;
    }

    fn pass_on(&mut self, effect: Effect, effects: &mut Effects) {
        let decided = match &effect {
            Effect::Continue { stream, .. } | Effect::Respond { stream, .. } => {
                self.waiting.remove(stream)
            }
            _ => None,
        };
        match (effect, decided) {
            (Effect::Continue { stream, is_over }, Some(admitted)) => {
                self.go_on(stream, admitted, is_over, effects);
            }
            (Effect::Respond { stream, answer }, Some(admitted)) => {
                self.refuse(stream, &answer, admitted, effects);
            }
            (effect, _) => effects.push(effect),
        }
    }

    fn go_on(
        &mut self,
        stream: StreamId,
        admitted: AdmittedRequest,
        is_over: bool,
        effects: &mut Effects,
    ) {
        self.counters.requests.increment(Outcome::Forwarded);
        if admitted.is_forged {
            self.counters.forged.increment();
        }
        if admitted.stamps.consent != Consent::Full {
            self.counters.anonymous.increment();
        }
        for name in admitted.removed {
            effects.remove_header(stream, name);
        }
        for (name, value) in admitted.stamps.headers() {
            effects.add_header(stream, name, value);
        }
        if let Some(path) = admitted.path {
            effects.set_path(stream, path);
        }
        let has_page = admitted.page.is_some();
        if let Some(page) = admitted.page {
            self.pages.insert(stream, page);
        }
        effects.push(Effect::Continue {
            stream,
            is_over: is_over && !has_page,
        });
    }

    fn refuse(
        &mut self,
        stream: StreamId,
        answer: &Arc<Answer>,
        admitted: AdmittedRequest,
        effects: &mut Effects,
    ) {
        self.counters.requests.increment(Outcome::Limited);
        let answer = match admitted.page {
            Some(page) => Arc::new(cors::for_page(answer, &page)),
            None => Arc::clone(answer),
        };
        effects.respond(stream, answer);
    }

    /// Adds headers for a page to the response of the origin or of the gateway.
    fn respond_to_page(&mut self, stream: StreamId, effects: &mut Effects) {
        let Some(page) = self.pages.remove(&stream) else {
            return;
        };
        for (name, value) in cors::headers(&page) {
            effects.push(Effect::SetResponseHeader {
                stream,
                name,
                value,
            });
        }
    }

    pub(crate) fn tick_ms(&self) -> Option<u64> {
        self.limiter.tick_ms()
    }

    pub(crate) fn metrics(&mut self) -> &mut Metrics {
        self.limiter.metrics()
    }
}
