//! Requests that come before the catalogue was read: they wait for the first poll, as [`weir_engine::held`] says.
//!
//! A gate that knows of no sale can only answer 503, and the first buyers of each new worker would get that answer.
//! A pending request keeps what decisions read of it, if that is little. Without Redis it gets the same 503, later.

use alloc::sync::Arc;
use alloc::vec::Vec;

use weir_base::accept::ACCEPT;
use weir_base::headers::{
    CAPTCHA, IDEMPOTENCY_KEY, ORDER_TOKEN, QUANTITY, SOLUTION, is_gateway_only,
};
use weir_base::language::ACCEPT_LANGUAGE;
use weir_engine::event::PlainRequest;
use weir_engine::held::HeldRequests;
use weir_engine::{Headers, Request, StreamId};

use crate::engine::config::CheckedConfig;
use crate::engine::sales::Sales;

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

/// Requests of one worker that wait for its first poll.
#[derive(Debug)]
pub(crate) struct PendingRequests {
    config: Arc<CheckedConfig>,
    pub(crate) held: HeldRequests<PlainRequest>,
}

impl PendingRequests {
    pub(crate) fn new(config: Arc<CheckedConfig>) -> Self {
        let held = HeldRequests::default();
        Self { config, held }
    }

    /// Lets a request wait for the first poll, unless that has ended. Whether it waits.
    pub(crate) fn hold(&mut self, stream: StreamId, request: &dyn Request, sales: &Sales) -> bool {
        // The clock is not free: hosts ask for it.
        let has_room = sales.catalogue.is_none() && !self.held.is_full();
        if !has_room || !self.await_poll(sales, request.now_ms()) {
            return false;
        }
        let Some(headers) = self.kept_headers(request.headers()) else {
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

    /// Whether Redis has not yet said whether there is a catalogue, and there is time left for it.
    pub(crate) fn await_poll(&self, sales: &Sales, now_ms: u64) -> bool {
        sales.catalogue.is_none() && !sales.poller.has_answered() && !self.held.is_over(now_ms)
    }

    /// What is kept of a request's headers, if it is not too much.
    fn kept_headers(&self, headers: &Headers) -> Option<Headers> {
        let is_read = |name: &[u8]| {
            name == self.config.user_header.as_bytes()
                || READ.iter().any(|read| name == read.as_bytes())
                || self.config.sku_routes.iter().any(|route| route.reads(name))
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
}
