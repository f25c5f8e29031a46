//! Requests that come before the catalogue was read: they wait for the first poll, as [`weir_engine::held`] says.
//!
//! A gate that knows of no sale can only answer 503, and so the first buyers of each worker that has just started would hear.
//! Kept of a request is what decisions read of it, if that is little. Without Redis it hears the same 503, later.

use alloc::vec::Vec;

use weir_base::accept::ACCEPT;
use weir_base::headers::{
    CAPTCHA, IDEMPOTENCY_KEY, ORDER_TOKEN, QUANTITY, SOLUTION, is_gateway_only,
};
use weir_base::language::ACCEPT_LANGUAGE;
use weir_base::shared_data::SharedData;
use weir_engine::event::PlainRequest;
use weir_engine::{Effects, Headers, Request, StreamId};

use crate::engine::gate::Gate;

/// The most bytes of headers that a request is kept for. With more it is decided at once.
const HEADERS_LEN_MAX: usize = 8 * 1_024;

/// The headers that decisions read, beside the user's and those that only gateways send.
const READ: [&str; 9] = [
    ":method",
    ":path",
    ACCEPT,
    ACCEPT_LANGUAGE,
    IDEMPOTENCY_KEY,
    QUANTITY,
    ORDER_TOKEN,
    SOLUTION,
    CAPTCHA,
];

impl<D: SharedData + Clone> Gate<D> {
    /// The first request of all makes this worker one that needs to know its sales.
    pub(crate) fn note_request(&mut self, request: &dyn Request, effects: &mut Effects) {
        // The clock is not free: hosts ask for it.
        if self.held.has_begun() {
            return;
        }
        self.held.begin(request.now_ms());
        self.poller.hurry();
        effects.wake();
    }

    /// Lets a request wait for the first poll, unless that has ended. Whether it waits.
    pub(crate) fn hold(&mut self, stream: StreamId, request: &dyn Request) -> bool {
        let has_room = self.catalogue.is_none() && !self.held.is_full();
        if !has_room || !self.awaits_first_poll(request.now_ms()) {
            return false;
        }
        let Some(headers) = self.kept_of(request.headers()) else {
            return false;
        };
        let kept = PlainRequest {
            headers,
            peer_address: request.peer_address(),
            now_ms: 0,
        };
        self.held.insert(stream, kept);
        true
    }

    /// What is kept of a request's headers, if it is not too much.
    fn kept_of(&self, headers: &Headers) -> Option<Headers> {
        let is_read = |name: &[u8]| {
            name == self.config.user_header.as_bytes()
                || READ.iter().any(|read| name == read.as_bytes())
        };
        let kept: Vec<(&[u8], &[u8])> = headers
            .iter()
            .filter_map(|(name, value)| match is_gateway_only(name) {
                // That it is there is all that matters.
                true => Some((name, &b""[..])),
                false => is_read(name).then_some((name, value)),
            })
            .collect();
        let length: usize = kept
            .iter()
            .map(|(name, value)| name.len() + value.len())
            .sum();
        (length <= HEADERS_LEN_MAX).then(|| Headers::new(&kept))
    }

    /// Whether Redis has not yet said whether there is a catalogue, and there is time left for it.
    fn awaits_first_poll(&self, now_ms: u64) -> bool {
        self.catalogue.is_none() && !self.poller.has_answered() && !self.held.is_over(now_ms)
    }

    /// The first poll has ended, or took too long: what waited for it is decided, at most `room` requests.
    pub(crate) fn release_held(&mut self, room: usize, now_ms: u64, effects: &mut Effects) {
        if self.held.is_empty() || self.awaits_first_poll(now_ms) {
            return;
        }
        for _ in 0..room {
            let Some((stream, kept)) = self.held.pop_first() else {
                return;
            };
            self.decide(stream, &PlainRequest { now_ms, ..kept }, effects);
        }
        if !self.held.is_empty() {
            effects.wake();
        }
    }
}
