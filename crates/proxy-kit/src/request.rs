//! The request and the end of a stream, read lazily from the host.

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
    /// One host call, for any number of headers.
    fn headers(&self) -> &Headers {
        let read = || Headers::from_bytes(imports::request_headers().unwrap_or_default());
        self.headers.get_or_init(read)
    }

    /// A host call for this one header, unless all headers were read. Envoy's header map returns only the first of
    /// several values, so a client could choose the effective one; Envoy's property returns all. Pseudo-headers never
    /// repeat.
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
        // The name in Envoy's older attributes, and the documented one.
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

/// Host calls for which the SDK copies every name and value, or every part of a path, and panics on a missing value.
#[cfg(target_arch = "wasm32")]
#[allow(unsafe_code)] // Imported functions: there is no safe way to call an import.
mod imports {
    /// The ABI's "no error".
    const OK: u32 = 0;
    /// The ABI's number of the request header map.
    const REQUEST_HEADERS: u32 = 0;
    /// The prefix of the property path of a request header; the header's name follows.
    const HEADERS: &[u8] = b"request\0headers\0";
    /// The maximum length of a path on the stack. Header names are shorter.
    const PATH_LEN_MAX: usize = 96;

    #[link(wasm_import_module = "env")]
    unsafe extern "C" {
        /// Allocates memory with the module's own `malloc`, and writes its address and size.
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
        // SAFETY: both pointers are to live, aligned words, and the function writes nothing else.
        let status =
            unsafe { proxy_get_header_map_pairs(REQUEST_HEADERS, &raw mut data, &raw mut size) };
        // SAFETY: the function has just written both.
        unsafe { take_buffer(status, data, size) }
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
        // SAFETY: the path has that many bytes, which the function only reads; both other pointers are to live, aligned
        // words, and the function writes nothing else.
        let status =
            unsafe { proxy_get_property(path.as_ptr(), path_len, &raw mut data, &raw mut size) };
        // SAFETY: the function has just written both.
        unsafe { take_buffer(status, data, size) }
    }

    /// Takes the host's data, if any. Allocates nothing for an empty value.
    ///
    /// # Safety
    /// The host must have written both `data` and `size`, or neither.
    unsafe fn take_buffer(status: u32, data: *mut u8, size: usize) -> Option<Vec<u8>> {
        if status != OK {
            return None;
        }
        if data.is_null() {
            return Some(Vec::new());
        }
        // SAFETY: the SDK's `malloc` allocated the memory as a byte vector of this capacity, and the host wrote all of
        // it. No other owner exists.
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
