//! The request and the end of a stream, read from the host as far as the engine asks.

use std::borrow::Cow;
use std::cell::OnceCell;

use proxy_wasm::hostcalls;
use proxy_wasm::types::MapType;
use weir_engine::{Headers, Request, StreamEnd};

use crate::host;

/// The request of the effective context's stream.
#[derive(Debug, Default)]
pub struct HostRequest {
    headers: OnceCell<Headers>,
}

impl Request for HostRequest {
    /// One host call, however many headers are looked at.
    fn headers(&self) -> &Headers {
        let read = || Headers::from_bytes(pairs::request_headers().unwrap_or_default());
        self.headers.get_or_init(read)
    }

    /// A host call for this one pseudo-header, unless all headers were read. For any other name all are: asked for one, Envoy
    /// gives the first of several values, and a client must not choose which one counts.
    fn header(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        if self.headers.get().is_some() || !name.starts_with(':') {
            return self.headers().get(name);
        }
        let value = hostcalls::get_map_value_bytes(MapType::HttpRequestHeaders, name);
        value.ok().flatten().map(Cow::Owned)
    }

    fn peer_address(&self) -> Vec<u8> {
        let address = hostcalls::get_property(vec!["source", "address"]);
        address.ok().flatten().unwrap_or_default()
    }

    fn now_ms(&self) -> u64 {
        host::now_ms()
    }
}

/// The end of the effective context's stream.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HostEnd;

impl StreamEnd for HostEnd {
    fn response_status(&self) -> Option<u16> {
        let status = hostcalls::get_property(vec!["response", "code"]).ok()??;
        let status = u64::from_le_bytes(status.try_into().ok()?);
        u16::try_from(status).ok().filter(|&status| status != 0)
    }

    fn now_ms(&self) -> u64 {
        host::now_ms()
    }
}

/// The request's headers from the host. The SDK has this call only with a copy of every name and value, and it panics
/// where there are none.
#[cfg(target_arch = "wasm32")]
#[allow(unsafe_code)] // An imported function: there is no safe way to call an import.
mod pairs {
    /// The ABI's "no error".
    const OK: u32 = 0;
    /// The ABI's number of the request's headers.
    const REQUEST_HEADERS: u32 = 0;

    #[link(wasm_import_module = "env")]
    unsafe extern "C" {
        /// Allocates memory by the module's own `malloc`, and writes where it is and how much.
        fn proxy_get_header_map_pairs(map: u32, data: *mut *mut u8, size: *mut usize) -> u32;
    }

    pub(super) fn request_headers() -> Option<Vec<u8>> {
        let (mut data, mut size) = (std::ptr::null_mut(), 0);
        // SAFETY: both pointers are to live, aligned words, which is all that the function writes.
        let status =
            unsafe { proxy_get_header_map_pairs(REQUEST_HEADERS, &raw mut data, &raw mut size) };
        if status != OK || data.is_null() {
            return None;
        }
        // SAFETY: the SDK's `malloc` gave the memory: that of a vector of bytes with this capacity, all
        // written by the host. Nobody else has it.
        Some(unsafe { Vec::from_raw_parts(data, size, size) })
    }
}

#[cfg(not(target_arch = "wasm32"))]
mod pairs {
    pub(super) fn request_headers() -> Option<Vec<u8>> {
        None
    }
}
