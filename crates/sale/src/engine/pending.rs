//! Requests that come before the catalogue was read: they wait for the first poll, as [`weir_engine::held`] says.
//!
//! A gate that knows of no sale can only answer 503, and the first buyers of each new worker would get that answer.
//! A pending request keeps what decisions read of it, if that is little. Without Redis it gets the same 503, later.

use alloc::string::String;
use alloc::vec::Vec;

use weir_base::headers::{
    CAPTCHA, IDEMPOTENCY_KEY, ORDER_TOKEN, QUANTITY, SOLUTION, is_gateway_only,
};
use weir_base::language::ACCEPT_LANGUAGE;
use weir_engine::event::PlainRequest;
use weir_engine::held::Held;
use weir_engine::{Headers, Request, StreamId};

/// The most bytes of headers that a request is kept for. With more it is decided at once.
const HEADERS_LEN_MAX: usize = 8 * 1_024;

/// The headers that decisions read, beside the user's and those that only gateways send.
const READ: [&str; 8] = [
    ":method",
    ":path",
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
    requests: Held<PlainRequest>,
    user_header: String,
}

impl PendingRequests {
    pub(crate) fn new(user_header: &str) -> Self {
        Self {
            requests: Held::default(),
            user_header: user_header.into(),
        }
    }

    /// Whether a request has ever come.
    pub(crate) fn has_begun(&self) -> bool {
        self.requests.has_begun()
    }

    /// Notes a request. Whether it is the worker's first: from now on the worker needs to know its sales.
    pub(crate) fn begin(&mut self, request: &dyn Request) -> bool {
        // The clock is not free: hosts ask for it.
        let is_first = !self.requests.has_begun();
        if is_first {
            self.requests.begin(request.now_ms());
        }
        is_first
    }

    pub(crate) fn len(&self) -> usize {
        self.requests.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Whether it is too late to wait for the first poll.
    pub(crate) fn is_over(&self, now_ms: u64) -> bool {
        self.requests.is_over(now_ms)
    }

    /// Lets a request wait, if there is room and time left. Whether it waits.
    pub(crate) fn hold(&mut self, stream: StreamId, request: &dyn Request) -> bool {
        if self.requests.is_full() || self.requests.is_over(request.now_ms()) {
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
        self.requests.insert(stream, kept);
        true
    }

    /// The stream has ended.
    pub(crate) fn forget(&mut self, stream: StreamId) {
        self.requests.forget(stream);
    }

    /// Takes the request that came first, to be decided as of `now_ms`.
    pub(crate) fn pop_first(&mut self, now_ms: u64) -> Option<(StreamId, PlainRequest)> {
        let (stream, kept) = self.requests.pop_first()?;
        Some((stream, PlainRequest { now_ms, ..kept }))
    }

    /// What is kept of a request's headers, if it is not too much.
    fn kept_headers(&self, headers: &Headers) -> Option<Headers> {
        let is_read = |name: &[u8]| {
            name == self.user_header.as_bytes() || READ.iter().any(|read| name == read.as_bytes())
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
