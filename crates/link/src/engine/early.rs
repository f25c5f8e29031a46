//! Answers from the cache, for hosts that decide before their HTTP stack.

use weir_engine::{EarlyDecision, Effect, Effects, Request};

use crate::engine::links::Links;
use crate::engine::request::{Fields, Resource};

/// Effects of an early decision belong to no stream.
const NO_STREAM: u32 = 0;

impl Links {
    /// See [`weir_engine::Engine::decide_early`]. A link that must be revalidated or has a password stays undecided.
    pub(crate) fn early_decision(&mut self, request: &dyn Request) -> EarlyDecision {
        if !self.held.has_begun() {
            return EarlyDecision::Undecided;
        }
        let fields = Fields::from_headers(request.headers());
        let fields = fields.with_country(request.headers(), self.country_header.as_deref());
        let Some(domain) = self.sites.find(fields.host) else {
            return match self.poller.schedule.has_reached() {
                true => EarlyDecision::NotConcerned,
                false => EarlyDecision::Undecided,
            };
        };
        let resource = fields.resource(&domain);
        if let Resource::Link(name) = resource
            && !self.memory.answers(&name, request.now_ms())
        {
            return EarlyDecision::Undecided;
        }
        // Clicks of earlier answers are counted first, as for every event.
        self.count_used();
        let mut effects = Effects::new();
        self.answer_resource(NO_STREAM, domain, resource, fields, request, &mut effects);
        let mut answered = Effects::list();
        effects.take_into(&mut answered);
        match answered.pop() {
            Some(Effect::Respond { answer, .. }) if answered.is_empty() => {
                EarlyDecision::Answer(answer)
            }
            _ => EarlyDecision::Undecided,
        }
    }
}
