//! Requests that come before anything is known: they wait for the first poll, as [`weir_engine::held`] says.
//!
//! If they went on at once, the first click on a link would be answered by whatever stands behind this filter: a 404 of
//! somebody else's. Other services on the same listener wait with them, for a second at most and only once.

use alloc::boxed::Box;

use weir_engine::{Effects, Request, StreamId};

use crate::engine::links::{LinkRequest, Links};
use crate::engine::metrics::AnswerKind;
use crate::engine::request::{Fields, Resource};
use crate::engine::visitor::Visitor;

/// The longest host that a request is kept for: the longest name that DNS has, and a port.
const HOST_LEN_MAX: usize = 259;

/// The longest path that is kept, without its query. No link and no file of a domain has a longer one.
const PATH_LEN_MAX: usize = 1_024;

/// What is kept of a request of which nobody can say yet whose it is. It takes as much as any that waits: see [`Visitor`].
#[derive(Debug)]
pub(crate) struct HeldRequest {
    host: Box<[u8]>,
    visitor: Visitor,
}

impl Links {
    /// With the first request this engine becomes one that needs its domains.
    pub(crate) fn note_request(&mut self, request: &dyn Request, effects: &mut Effects) {
        // The clock is not free: hosts ask for it.
        if self.held.has_begun() {
            return;
        }
        self.held.begin(request.now_ms());
        self.poller.schedule.poll_soon();
        effects.wake();
    }

    /// Lets a request wait for the first poll, unless that has ended, or the request is no domain's for sure. Whether it waits.
    pub(crate) fn hold(
        &mut self,
        stream: StreamId,
        fields: &Fields<'_>,
        request: &dyn Request,
    ) -> bool {
        let may_be_ours = fields.host.len() <= HOST_LEN_MAX
            && fields.split_path().0.len() <= PATH_LEN_MAX
            && !self.held.is_full();
        if !may_be_ours || !self.awaits_first_poll(request.now_ms()) {
            return false;
        }
        let address = fields.address(self.trusted_hops, request);
        let held = HeldRequest {
            host: fields.host.into(),
            visitor: Visitor::new(fields, &address),
        };
        self.held.insert(stream, held);
        true
    }

    fn awaits_first_poll(&self, now_ms: u64) -> bool {
        !self.poller.schedule.has_reached() && !self.held.is_over(now_ms)
    }

    /// The first poll has ended, or took too long: what waited for it goes its way, at most `room` requests. Says how many.
    pub(crate) fn release_held(
        &mut self,
        room: usize,
        now_ms: u64,
        effects: &mut Effects,
    ) -> usize {
        if self.held.is_empty() || self.awaits_first_poll(now_ms) {
            return 0;
        }
        let mut released = 0;
        while released < room
            && let Some((stream, held)) = self.held.pop_first()
        {
            self.release(stream, held, now_ms, effects);
            released += 1;
        }
        if !self.held.is_empty() {
            effects.wake();
        }
        released
    }

    fn release(&mut self, stream: StreamId, held: HeldRequest, now_ms: u64, effects: &mut Effects) {
        let HeldRequest { host, visitor } = held;
        let Some(domain) = self.sites.find(&host) else {
            self.counters.answers.increment(AnswerKind::Passed);
            return effects.let_go(stream);
        };
        match visitor.fields().resource(&domain) {
            Resource::Link(name) => {
                let purpose = self.purpose_of(&visitor.fields());
                let request = LinkRequest::new(stream, name, domain, visitor, purpose);
                self.ask_redis(request, now_ms, effects);
            }
            Resource::File(file) => self.answer_file(stream, file, &domain, effects),
            Resource::Nothing => self.answer_unknown(stream, &domain, effects),
        }
    }
}
