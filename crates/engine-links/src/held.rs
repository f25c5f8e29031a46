//! Requests that come before anything is known: they wait for the first poll, for a moment.
//!
//! A worker that has just started does not know its domains yet. If it let requests go on at once, the first click on a link
//! would be answered by whatever stands behind this filter: a 404 of somebody else's. So they wait until Redis has answered
//! once, whatever it says, and at most [`HOLD_MS`] from the first request on: without Redis, other services on the same
//! listener stand still no longer than that, and only once.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;

use weir_engine::{Effects, Request, StreamId};

use crate::links::{LinkRequest, Links};
use crate::metrics::AnswerKind;
use crate::request::{Fields, Resource};
use crate::visitor::Visitor;

/// For how long requests wait for the first poll, from a worker's first request on, in milliseconds. A poll that fails is sent
/// again within it, three times.
const HOLD_MS: u64 = 1_000;

/// The most requests that wait so on one worker. One takes as much as any that waits: see [`Visitor`].
const HELD_MAX: usize = 1_024;

/// The longest host that a request is kept for: the longest name that DNS has, and a port.
const HOST_LEN_MAX: usize = 259;

/// The longest path that is kept, without its query. No link and no file of a domain has a longer one.
const PATH_LEN_MAX: usize = 1_024;

/// Requests of which nobody can say yet whose they are.
#[derive(Debug, Default)]
pub(crate) struct Held {
    /// From when on none waits any more; `None` before the first request.
    until_ms: Option<u64>,
    requests: BTreeMap<StreamId, HeldRequest>,
}

/// What is kept of such a request.
#[derive(Debug)]
struct HeldRequest {
    host: Box<[u8]>,
    visitor: Visitor,
}

impl Held {
    /// The first request of this worker has come.
    fn begin(&mut self, now_ms: u64) {
        self.until_ms = Some(now_ms.saturating_add(HOLD_MS));
    }

    /// Whether a request has ever come.
    pub(crate) fn has_begun(&self) -> bool {
        self.until_ms.is_some()
    }

    pub(crate) fn len(&self) -> usize {
        self.requests.len()
    }

    pub(crate) fn forget(&mut self, stream: StreamId) {
        self.requests.remove(&stream);
    }

    /// Whether it is too late to wait. So it is if the clock was set back.
    fn is_over(&self, now_ms: u64) -> bool {
        self.until_ms
            .is_none_or(|until_ms| now_ms >= until_ms || until_ms - now_ms > HOLD_MS)
    }
}

impl Links {
    /// With the first request this engine becomes one that needs its domains.
    pub(crate) fn note_request(&mut self, request: &dyn Request, effects: &mut Effects) {
        // The clock is not free: hosts ask for it.
        if self.held.has_begun() {
            return;
        }
        self.held.begin(request.now_ms());
        self.poller.schedule.hurry();
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
            && self.held.len() < HELD_MAX;
        if !may_be_ours || !self.awaits_first_poll(request.now_ms()) {
            return false;
        }
        let address = fields.address(self.trusted_hops, request);
        let held = HeldRequest {
            host: fields.host.into(),
            visitor: Visitor::new(fields, &address),
        };
        self.held.requests.insert(stream, held);
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
        if self.held.len() == 0 || self.awaits_first_poll(now_ms) {
            return 0;
        }
        let mut released = 0;
        while released < room
            && let Some((stream, held)) = self.held.requests.pop_first()
        {
            self.release(stream, held, now_ms, effects);
            released += 1;
        }
        if self.held.len() > 0 {
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
        match visitor.fields().resource(&domain.id) {
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
