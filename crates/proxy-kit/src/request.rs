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
        let read = || Headers::from_bytes(imports::request_headers().unwrap_or_default());
        self.headers.get_or_init(read)
    }

    /// A host call for this one header, unless all headers were read. Envoy's map of headers gives the first of several
    /// values, and a client must not choose which one counts; its property gives all of them. No pseudo-header comes twice.
    fn header(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        if self.headers.get().is_some() {
            return self.headers().get(name);
        }
        let value = if name.starts_with(':') {
            let value = hostcalls::get_map_value_bytes(MapType::HttpRequestHeaders, name);
            value.ok().flatten()
        } else {
            imports::request_header(name)
        };
        value.map(Cow::Owned)
    }

    fn peer_address(&self) -> Vec<u8> {
        let address = hostcalls::get_property(vec!["source", "address"]);
        address.ok().flatten().unwrap_or_default()
    }

    fn now_ms(&self) -> u64 {
        host::now_ms()
    }

    fn route_name(&self) -> Option<Vec<u8>> {
        // Its place in Envoy's older attributes, and the one that documents name now.
        let at = |path| hostcalls::get_property(path).ok().flatten();
        at(vec!["route_name"]).or_else(|| at(vec!["xds", "route_name"]))
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

/// Calls of the host that the SDK has only with a copy of every name and value, or of every part of a path, and that panic
/// there where there is nothing.
#[cfg(target_arch = "wasm32")]
#[allow(unsafe_code)] // Imported functions: there is no safe way to call an import.
mod imports {
    /// The ABI's "no error".
    const OK: u32 = 0;
    /// The ABI's number of the request's headers.
    const REQUEST_HEADERS: u32 = 0;
    /// The path of the property that has the request's headers; a header's name follows.
    const HEADERS: &[u8] = b"request\0headers\0";
    /// What a path may have to need no memory of its own. Names of headers are shorter.
    const PATH_LEN_MAX: usize = 96;

    #[link(wasm_import_module = "env")]
    unsafe extern "C" {
        /// Allocates memory by the module's own `malloc`, and writes where it is and how much.
        fn proxy_get_header_map_pairs(map: u32, data: *mut *mut u8, size: *mut usize) -> u32;
        /// Likewise.
        fn proxy_get_property(
            path: *const u8,
            path_size: usize,
            data: *mut *mut u8,
            size: *mut usize,
        ) -> u32;
    }

    pub(super) fn request_headers() -> Option<Vec<u8>> {
        let (mut data, mut size) = (std::ptr::null_mut(), 0);
        // SAFETY: both pointers are to live, aligned words, which is all that the function writes.
        let status =
            unsafe { proxy_get_header_map_pairs(REQUEST_HEADERS, &raw mut data, &raw mut size) };
        // SAFETY: the function has just written both.
        unsafe { taken(status, data, size) }
    }

    pub(super) fn request_header(name: &str) -> Option<Vec<u8>> {
        let mut path = [0; PATH_LEN_MAX];
        let (fixed, rest) = path.split_at_mut(HEADERS.len());
        fixed.copy_from_slice(HEADERS);
        let Some(place) = rest.get_mut(..name.len()) else {
            let path = vec!["request", "headers", name];
            return proxy_wasm::hostcalls::get_property(path).ok().flatten();
        };
        place.copy_from_slice(name.as_bytes());
        let path_len = HEADERS.len() + name.len();
        let (mut data, mut size) = (std::ptr::null_mut(), 0);
        // SAFETY: the path has as many bytes, which are only read; both other pointers are to live, aligned words, which is all
        // that the function writes.
        let status =
            unsafe { proxy_get_property(path.as_ptr(), path_len, &raw mut data, &raw mut size) };
        // SAFETY: the function has just written both.
        unsafe { taken(status, data, size) }
    }

    /// What the host has given, if it has given anything. It allocates nothing for nothing.
    ///
    /// # Safety
    /// The host must have written both `data` and `size`, or neither.
    unsafe fn taken(status: u32, data: *mut u8, size: usize) -> Option<Vec<u8>> {
        if status != OK {
            return None;
        }
        if data.is_null() {
            return Some(Vec::new());
        }
        // SAFETY: the SDK's `malloc` gave the memory: that of a vector of bytes with this capacity, all
        // written by the host. Nobody else has it.
        Some(unsafe { Vec::from_raw_parts(data, size, size) })
    }
}

#[cfg(not(target_arch = "wasm32"))]
mod imports {
    pub(super) fn request_headers() -> Option<Vec<u8>> {
        None
    }

    pub(super) fn request_header(_: &str) -> Option<Vec<u8>> {
        None
    }
}
