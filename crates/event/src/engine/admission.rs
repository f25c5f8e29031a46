//! The limits, and what goes on: stamps in place of what clients sent.
//!
//! The limits are an engine of their own, the rate limiter's. It decides at once or when Redis has answered; what it lets go
//! on is stamped on the way.

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

/// The requests of one worker that the limits decide on. `D` is the memory that it shares with the others.
#[derive(Debug)]
pub(crate) struct Admission<D> {
    limiter: Limiter<D>,
    counters: Arc<EventCounters>,
    /// The limiter has not decided on these.
    waiting: BTreeMap<StreamId, AdmittedRequest>,
    /// These went on; a page is to get their responses.
    pages: BTreeMap<StreamId, String>,
    /// Memory that is used again.
    scratch: Vec<Effect>,
}

/// A request as the limits see it: with what is known of it in the place of what it says.
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

    /// Decides on a request, now or when Redis has answered.
    pub(crate) fn admit(
        &mut self,
        stream: StreamId,
        admitted: AdmittedRequest,
        request: &dyn Request,
        effects: &mut Effects,
    ) {
        let (key, visitor) = (admitted.stamps.key.clone(), admitted.visitor.clone());
        let known = IdentifiedRequest {
            request,
            key: key.as_str(),
            visitor: visitor.as_ref().map(|visitor| visitor.as_str()),
        };
        self.waiting.insert(stream, admitted);
        let event = Event::Request {
            stream,
            request: &known,
        };
        self.handle(event, effects);
    }

    /// Gives the limiter an event.
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

    /// The origin's answer, or the gateway's own error, is about to go to a page.
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
