//! Requests that wait for the first poll of the catalogue, see [`weir_engine::held`].
//!
//! A gate without a catalogue can answer only 503, and the first buyers of each new worker would get that answer. A
//! pending request keeps the headers that decisions read, if they are short. Without Redis it gets the same 503 later.

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

/// The maximum header size of a pending request in bytes. Larger ones are decided at once.
const HEADERS_LEN_MAX: usize = 8 * 1_024;

/// The headers that decisions read, in addition to the user header and those that only gateways send.
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

/// One worker's requests that wait for its first poll.
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

    /// Makes a request wait for the first poll, unless the wait has ended. Returns whether it waits.
    pub(crate) fn hold(&mut self, stream: StreamId, request: &dyn Request, sales: &Sales) -> bool {
        // Reading the clock is a host call, so it is avoided.
        let has_room = sales.catalogue.is_none() && !self.held.is_full();
        if !has_room || !self.await_poll(sales, request.now_ms()) {
            return false;
        }
        let Some(headers) = self.kept_headers(request.headers()) else {
            return false;
        };
        let retained = PlainRequest {
            headers,
            peer_address: request.peer_address(),
            now_ms: 0,
        };
        self.held.insert(stream, retained);
        true
    }

    /// Whether the first poll has no reply yet and the timeout has not passed.
    pub(crate) fn await_poll(&self, sales: &Sales, now_ms: u64) -> bool {
        sales.catalogue.is_none() && !sales.poller.has_answered() && !self.held.is_over(now_ms)
    }

    /// The headers to keep; `None` if they are too long.
    fn kept_headers(&self, headers: &Headers) -> Option<Headers> {
        let is_read = |name: &[u8]| {
            name == self.config.user_header.as_bytes()
                || READ.iter().any(|read| name == read.as_bytes())
                || self.config.sku_routes.iter().any(|route| route.reads(name))
        };
        let retained: Vec<(&[u8], &[u8])> = headers
            .iter()
            .filter_map(|(name, value)| match is_gateway_only(name) {
                // Only its presence matters.
                true => Some((name, &b""[..])),
                false => is_read(name).then_some((name, value)),
            })
            .collect();
        let length: usize = retained
            .iter()
            .map(|(name, value)| name.len() + value.len())
            .sum();
        (length <= HEADERS_LEN_MAX).then(|| Headers::new(&retained))
    }
}
