//! A stream's filter in Envoy.

use core::cell::Cell;
use std::borrow::Cow;

use crate::api::{Api, Buffer, HeaderPair, Raw, api};

/// The ABI's header map types.
const REQUEST_HEADERS: u32 = 0;
const RESPONSE_HEADERS: u32 = 2;

/// The ABI's body types.
const RECEIVED_REQUEST_BODY: u32 = 0;
const BUFFERED_REQUEST_BODY: u32 = 1;

/// The ABI's attribute IDs.
const RESPONSE_CODE: u32 = 15;
const SOURCE_ADDRESS: u32 = 24;

/// The most response headers that are passed without a heap allocation.
const HEADERS_FEW: usize = 16;

/// A stream's filter in Envoy, during a hook on the stream's thread.
#[derive(Debug)]
pub struct Filter<'h> {
    raw: Raw,
    /// Whether the request was answered or continued.
    is_done: &'h Cell<bool>,
}

/// A local reply to a request.
#[derive(Clone, Copy, Debug)]
pub struct Response<'a> {
    /// The status code.
    pub status: u16,
    /// The headers.
    pub headers: &'a [(&'a [u8], &'a [u8])],
    /// The body.
    pub body: &'a [u8],
    /// The response code details for access logs, one word.
    pub details: &'a str,
}

impl<'h> Filter<'h> {
    /// # Safety
    /// `raw` must be the filter that Envoy passed to the running hook, and must outlive `self`.
    pub(crate) unsafe fn new(raw: Raw, is_done: &'h Cell<bool>) -> Self {
        Self { raw, is_done }
    }

    /// All headers of the request.
    pub fn request_headers(&self) -> Vec<(&[u8], &[u8])> {
        let Some(api) = api() else { return Vec::new() };
        // SAFETY: the filter is alive during its hook.
        let count = unsafe { (api.get_headers_size)(self.raw, REQUEST_HEADERS) };
        let empty = HeaderPair {
            name: Buffer::EMPTY,
            value: Buffer::EMPTY,
        };
        let mut pairs = vec![empty; count];
        // SAFETY: the vector has room for `count` headers.
        let input = unsafe { (api.get_headers)(self.raw, REQUEST_HEADERS, pairs.as_mut_ptr()) };
        if !input {
            return Vec::new();
        }
        // SAFETY: Envoy's buffers stay valid until a header changes, which needs `&mut self`, or until the hook
        // returns.
        let bytes = |pair: &HeaderPair| unsafe { (pair.name.bytes(), pair.value.bytes()) };
        pairs.iter().map(bytes).collect()
    }

    /// A request header by its lower-case name. Repeated headers are joined with commas.
    pub fn request_header(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        let api = api()?;
        let (first, count) = self.value(api, name, 0)?;
        let mut all = Cow::Borrowed(first);
        // Envoy rejects requests with repeated pseudo-headers.
        if !name.starts_with(':') {
            for index in 1..count {
                let (next, _) = self.value(api, name, index)?;
                let all = all.to_mut();
                all.push(b',');
                all.extend_from_slice(next);
            }
        }
        Some(all)
    }

    /// The value at `index`, and the number of values.
    fn value(&self, api: &Api, name: &str, index: usize) -> Option<(&[u8], usize)> {
        let (mut value, mut count) = (Buffer::EMPTY, 0);
        let name = Buffer::from_bytes(name.as_bytes());
        let (to, size) = (&raw mut value, &raw mut count);
        // SAFETY: both pointers refer to live, aligned values; Envoy only reads the name.
        let is_there =
            unsafe { (api.get_header)(self.raw, REQUEST_HEADERS, name, to, index, size) };
        // SAFETY: as for `request_headers`.
        is_there.then(|| (unsafe { value.bytes() }, count))
    }

    /// The peer's `address:port`; empty if unknown.
    pub fn peer_address(&self) -> Vec<u8> {
        let mut text = Buffer::EMPTY;
        let Some(api) = api() else { return Vec::new() };
        // SAFETY: the pointer refers to a live, aligned value, and the bytes are copied immediately.
        unsafe {
            match (api.get_attribute_text)(self.raw, SOURCE_ADDRESS, &raw mut text) {
                true => text.bytes().to_vec(),
                false => Vec::new(),
            }
        }
    }

    /// The response status sent to the client, if any.
    pub fn response_status(&self) -> Option<u16> {
        let mut status = 0;
        // SAFETY: the pointer refers to a live, aligned number.
        let is_known =
            unsafe { (api()?.get_attribute_number)(self.raw, RESPONSE_CODE, &raw mut status) };
        let status = u16::try_from(status).ok()?;
        (is_known && status != 0).then_some(status)
    }

    /// Removes all values of a request header. Returns whether Envoy did.
    pub fn remove_request_header(&mut self, name: &str) -> bool {
        self.change(|api| api.set_header, REQUEST_HEADERS, name, Buffer::EMPTY)
    }

    /// Adds a request header and keeps existing ones of that name. Returns whether Envoy did.
    pub fn add_request_header(&mut self, name: &str, value: &str) -> bool {
        let value = Buffer::from_bytes(value.as_bytes());
        self.change(|api| api.add_header, REQUEST_HEADERS, name, value)
    }

    /// Sets a request header and replaces existing ones of that name. Returns whether Envoy did.
    pub fn set_request_header(&mut self, name: &str, value: &str) -> bool {
        let value = Buffer::from_bytes(value.as_bytes());
        self.change(|api| api.set_header, REQUEST_HEADERS, name, value)
    }

    /// Sets a response header before it is sent. Returns whether Envoy did.
    pub fn set_response_header(&mut self, name: &str, value: &str) -> bool {
        let value = Buffer::from_bytes(value.as_bytes());
        self.change(|api| api.set_header, RESPONSE_HEADERS, name, value)
    }

    /// Adds a response header before it is sent and keeps existing ones of that name. Returns whether Envoy did.
    pub fn add_response_header(&mut self, name: &str, value: &str) -> bool {
        let value = Buffer::from_bytes(value.as_bytes());
        self.change(|api| api.add_header, RESPONSE_HEADERS, name, value)
    }

    fn change(
        &mut self,
        function: impl Fn(&Api) -> unsafe extern "C" fn(Raw, u32, Buffer, Buffer) -> bool,
        map: u32,
        name: &str,
        value: Buffer,
    ) -> bool {
        let name = Buffer::from_bytes(name.as_bytes());
        // SAFETY: the filter is valid during its hook; Envoy copies name and value.
        api().is_some_and(|api| unsafe { function(api)(self.raw, map, name, value) })
    }

    /// The number of request body bytes received so far.
    pub fn body_size(&self) -> usize {
        let size = |body| {
            // SAFETY: the filter is alive during its hook.
            api().map_or(0, |api| unsafe { (api.get_body_size)(self.raw, body) })
        };
        match self.received_is_buffered() {
            true => size(RECEIVED_REQUEST_BODY),
            false => size(BUFFERED_REQUEST_BODY) + size(RECEIVED_REQUEST_BODY),
        }
    }

    /// The request body bytes received so far.
    pub fn body(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(self.body_size());
        if !self.received_is_buffered() {
            self.append_body(BUFFERED_REQUEST_BODY, &mut body);
        }
        self.append_body(RECEIVED_REQUEST_BODY, &mut body);
        body
    }

    /// Whether the received body is the one that an earlier filter buffered, instead of a new part.
    fn received_is_buffered(&self) -> bool {
        // SAFETY: the filter is alive during its hook.
        api().is_some_and(|api| unsafe { (api.received_is_buffered)(self.raw) })
    }

    fn append_body(&self, which: u32, body: &mut Vec<u8>) {
        let Some(api) = api() else { return };
        // SAFETY: the filter is alive during its hook.
        let count = unsafe { (api.get_body_chunks_size)(self.raw, which) };
        let mut chunks = vec![Buffer::EMPTY; count];
        // SAFETY: the vector has room for `count` chunks. All are copied before they change.
        unsafe {
            if count > 0 && (api.get_body_chunks)(self.raw, which, chunks.as_mut_ptr()) {
                for chunk in chunks {
                    body.extend_from_slice(chunk.bytes());
                }
            }
        }
    }

    /// Returns a scheduler that calls this stream's thread from any thread. `None` if Envoy returns none.
    pub fn scheduler(&self) -> Option<StreamScheduler> {
        // SAFETY: the filter is alive during its hook.
        let raw = unsafe { (api()?.scheduler_new)(self.raw) };
        (!raw.is_null()).then_some(StreamScheduler { raw })
    }

    /// Sends a local reply and ends the request. Hooks of this stream may run before this returns. Returns `false` if
    /// the request was already answered or continued.
    pub fn respond(self, response: &Response<'_>) -> bool {
        let Some(api) = api().filter(|_| !self.is_done.replace(true)) else {
            return false;
        };
        let pair = |(name, value): &(&[u8], &[u8])| HeaderPair {
            name: Buffer::from_bytes(name),
            value: Buffer::from_bytes(value),
        };
        let send = |headers: &[HeaderPair]| {
            let (start, count) = (headers.as_ptr(), headers.len());
            let (body, details) = (
                Buffer::from_bytes(response.body),
                Buffer::from_bytes(response.details.as_bytes()),
            );
            // SAFETY: all pointers refer to live memory of the given lengths. Envoy copies the bytes.
            unsafe {
                (api.send_response)(
                    self.raw,
                    response.status.into(),
                    start,
                    count,
                    body,
                    details,
                );
            }
        };
        let mut few = [HeaderPair {
            name: Buffer::EMPTY,
            value: Buffer::EMPTY,
        }; HEADERS_FEW];
        match few.get_mut(..response.headers.len()) {
            Some(few) => {
                for (to, header) in few.iter_mut().zip(response.headers) {
                    *to = pair(header);
                }
                send(few);
            }
            None => send(&response.headers.iter().map(pair).collect::<Vec<_>>()),
        }
        true
    }

    /// Continues a request that an earlier hook stopped. Returns the same as [`Filter::respond`].
    pub fn go_on(self) -> bool {
        let Some(api) = api().filter(|_| !self.is_done.replace(true)) else {
            return false;
        };
        // SAFETY: the filter is alive during its hook.
        unsafe { (api.continue_decoding)(self.raw) }
        true
    }
}

/// Schedules [`Module::called`](crate::Module::called) on a stream's thread, from any thread. The call is dropped if
/// the stream is gone. Drop it with the stream, before Envoy's workers end.
#[derive(Debug)]
pub struct StreamScheduler {
    raw: Raw,
}

// SAFETY: Envoy's schedulers are made for use from other threads. `commit` only posts to a locked queue.
unsafe impl Send for StreamScheduler {}
// SAFETY: as above: `commit` does not modify the scheduler itself.
unsafe impl Sync for StreamScheduler {}

impl StreamScheduler {
    /// Schedules the call.
    pub fn call(&self) {
        if let Some(api) = api() {
            // SAFETY: Envoy created it, and only `drop` deletes it.
            unsafe { (api.scheduler_commit)(self.raw, 0) }
        }
    }
}

impl Drop for StreamScheduler {
    fn drop(&mut self) {
        if let Some(api) = api() {
            // SAFETY: as above, and the pointer is not used again.
            unsafe { (api.scheduler_delete)(self.raw) }
        }
    }
}
