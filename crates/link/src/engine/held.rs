//! Holds requests that arrive before the first poll: see [`weir_engine::held`].
//!
//! Otherwise the service behind this filter would answer the first click on a link, probably with a 404. Requests to
//! other services on the same listener also wait, at most one second, and only once.

use alloc::boxed::Box;

use weir_engine::{Effects, Request, StreamId};

use crate::engine::links::{LinkRequest, Links};
use crate::engine::metrics::AnswerKind;
use crate::engine::request::{Fields, Resource};
use crate::engine::visitor::Visitor;

/// Maximum length of a held request's host: the longest DNS name and a port.
const HOST_LEN_MAX: usize = 259;

/// Maximum length of a held request's path, without its query. All links and files of a domain have shorter paths.
const PATH_LEN_MAX: usize = 1_024;

/// A request whose domain is not known yet. Its memory is bounded like that of any waiting request: see [`Visitor`].
#[derive(Debug)]
pub(crate) struct HeldRequest {
    host: Box<[u8]>,
    visitor: Visitor,
}

impl Links {
    /// Starts the wait for domains on the first request.
    pub(crate) fn note_request(&mut self, request: &dyn Request, effects: &mut Effects) {
        // Reading the clock costs a host call.
        if self.held.has_begun() {
            return;
        }
        self.held.begin(request.now_ms());
        self.poller.schedule.poll_soon();
        effects.wake();
    }

    /// Holds a request for the first poll. Returns `false` if that has ended, or if the request cannot belong to a link
    /// domain.
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

    /// Continues at most `room` held requests after the first poll has ended or timed out. Returns how many.
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
        let fields = visitor.fields();
        match fields.resource(&domain) {
            Resource::Link(name) => {
                let purpose = self.purpose_of(&fields);
                let request = LinkRequest::new(stream, name, domain, visitor, purpose);
                self.ask_redis(request, now_ms, effects);
            }
            Resource::File(file) => self.answer_file(stream, file, &domain, &fields, effects),
            Resource::Nothing => self.answer_unknown(stream, &domain, &fields, effects),
        }
    }
}
