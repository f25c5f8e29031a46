//! The request and the end of a stream, read from Envoy on demand.

use std::borrow::Cow;
use std::cell::OnceCell;

use weir_engine::{Headers, Request, StreamEnd};
use weir_envoy_abi::Filter;

use crate::shared::now_ms;

/// The request of a stream, during its hook.
#[derive(Debug)]
pub struct HookRequest<'h> {
    filter: &'h Filter<'h>,
    headers: OnceCell<Headers>,
}

impl<'h> HookRequest<'h> {
    /// The request of `filter`.
    pub fn new(filter: &'h Filter<'h>) -> Self {
        let headers = OnceCell::new();
        Self { filter, headers }
    }
}

impl Request for HookRequest<'_> {
    fn headers(&self) -> &Headers {
        let read = || Headers::new(&self.filter.request_headers());
        self.headers.get_or_init(read)
    }

    fn header(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        match self.headers.get() {
            Some(headers) => headers.get(name),
            None => self.filter.request_header(name),
        }
    }

    fn peer_address(&self) -> Vec<u8> {
        self.filter.peer_address()
    }

    fn now_ms(&self) -> u64 {
        now_ms()
    }
}

/// The end of a stream, during its hook.
#[derive(Debug)]
pub struct HookEnd<'h> {
    filter: &'h Filter<'h>,
}

impl<'h> HookEnd<'h> {
    /// The end of the stream of `filter`.
    pub fn new(filter: &'h Filter<'h>) -> Self {
        Self { filter }
    }
}

impl StreamEnd for HookEnd<'_> {
    fn response_status(&self) -> Option<u16> {
        self.filter.response_status()
    }

    fn now_ms(&self) -> u64 {
        now_ms()
    }
}
