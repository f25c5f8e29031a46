//! Headers as bytes, answers as JSON.

use std::borrow::Cow;

use proxy_wasm::hostcalls;
use proxy_wasm::types::{MapType, Status};
use serde::Serialize;

/// The request header `name`: its bytes, whatever they are. `None` if it is not there, or if the
/// host does not give it.
pub fn request_header(name: &str) -> Option<Vec<u8>> {
    hostcalls::get_map_value_bytes(MapType::HttpRequestHeaders, name)
        .ok()
        .flatten()
}

/// The response header `name`: as [`request_header`].
pub fn response_header(name: &str) -> Option<Vec<u8>> {
    hostcalls::get_map_value_bytes(MapType::HttpResponseHeaders, name)
        .ok()
        .flatten()
}

/// All request headers, fetched at once: one host call, however many are looked at.
#[derive(Clone, Debug, Default)]
pub struct RequestHeaders {
    /// As the host gives them: how many, the lengths of each name and value, and then these, each
    /// with a NUL behind it. All numbers are of 32 bits, little-endian.
    bytes: Vec<u8>,
}

impl RequestHeaders {
    /// Those of the effective context's stream; none if the host does not give them.
    pub fn read() -> Self {
        Self {
            bytes: pairs::request_headers().unwrap_or_default(),
        }
    }

    /// The value of the header `name`, in lower case. Several of one name are one with commas between, as
    /// [`request_header`] gives them.
    pub fn get(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        let mut values = self.iter().filter(|(known, _)| *known == name.as_bytes());
        let (_, first) = values.next()?;
        let mut all = Cow::Borrowed(first);
        for (_, value) in values {
            let all = all.to_mut();
            all.push(b',');
            all.extend_from_slice(value);
        }
        Some(all)
    }

    /// Whether there may be a header `name`: where the host has not told, there may be any.
    pub fn may_have(&self, name: &str) -> bool {
        self.bytes.is_empty() || self.iter().any(|(known, _)| known == name.as_bytes())
    }

    /// Each name, in lower case, with its value, in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let (count, rest) = self.bytes.split_first_chunk().unwrap_or((&[0; WORD], &[]));
        let count = u32::from_le_bytes(*count) as usize;
        let lengths_len = count.saturating_mul(2 * WORD).min(rest.len());
        let (lengths, mut texts) = rest.split_at_checked(lengths_len).unwrap_or_default();
        let lengths = lengths.as_chunks::<WORD>().0;
        let mut text = move |length: &[u8; WORD]| {
            let length = u32::from_le_bytes(*length) as usize;
            let (text, behind) = texts.split_at_checked(length)?;
            texts = behind.get(1..)?;
            Some(text)
        };
        lengths
            .as_chunks::<2>()
            .0
            .iter()
            .map_while(move |[name, value]| {
                let name = text(name)?;
                Some((name, text(value)?))
            })
    }
}

/// The bytes of a number.
const WORD: usize = 4;

/// The request's headers from the host. The SDK has this call only with a copy of every name and value, and it
/// panics where there are none.
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

/// Sets the request header `name` in place of all that it was.
///
/// # Errors
/// The host's status, when the stream is gone.
pub fn set_request_header(name: &str, value: &str) -> Result<(), Status> {
    hostcalls::set_map_value(MapType::HttpRequestHeaders, name, Some(value))
}

/// Removes every copy of the request header `name`.
///
/// # Errors
/// The host's status, when the stream is gone.
pub fn remove_request_header(name: &str) -> Result<(), Status> {
    hostcalls::remove_map_value(MapType::HttpRequestHeaders, name)
}

/// Sets the response header `name` in place of all that it was.
///
/// # Errors
/// The host's status, when the stream is gone.
pub fn set_response_header(name: &str, value: &str) -> Result<(), Status> {
    hostcalls::set_map_value(MapType::HttpResponseHeaders, name, Some(value))
}

/// The gateway's own answer.
#[derive(Clone, Debug)]
pub struct Answer<'a> {
    /// The HTTP status.
    pub status: u16,
    /// Headers beside `content-type` and `cache-control`.
    pub headers: Vec<(&'a str, &'a str)>,
    /// The JSON body's `error`.
    pub error: &'a str,
    /// The JSON body's `message`.
    pub message: &'a str,
    /// The JSON body's `order`: the order that the user has already.
    pub order: Option<&'a str>,
}

#[derive(Serialize)]
struct Body<'a> {
    error: &'a str,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    order: Option<&'a str>,
}

impl Answer<'_> {
    /// Sends it to the client of the effective context's stream.
    ///
    /// # Errors
    /// The host's status, when the stream cannot be answered (any more).
    pub fn send(mut self) -> Result<(), Status> {
        self.headers.extend([
            ("content-type", "application/json"),
            // An answer holds for one user at one moment: no cache may keep it.
            ("cache-control", "no-store"),
        ]);
        let body = serde_json::to_vec(&Body {
            error: self.error,
            message: self.message,
            order: self.order,
        })
        .unwrap_or_default();
        hostcalls::send_http_response(u32::from(self.status), self.headers, Some(&body))
    }
}

/// Milliseconds as the value of `Retry-After`: whole seconds, rounded up, at least 1.
pub fn retry_after_seconds(wait_ms: u64) -> String {
    wait_ms.div_ceil(1_000).max(1).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn serialized(headers: &[(&str, &[u8])]) -> Vec<u8> {
        let mut bytes = (headers.len() as u32).to_le_bytes().to_vec();
        for (name, value) in headers {
            bytes.extend((name.len() as u32).to_le_bytes());
            bytes.extend((value.len() as u32).to_le_bytes());
        }
        for (name, value) in headers {
            bytes.extend([name.as_bytes(), b"\0", value, b"\0"].concat());
        }
        bytes
    }

    #[test]
    fn headers_are_read_as_the_host_writes_them() {
        let headers: [(&str, &[u8]); 4] = [
            (":path", b"/a"),
            ("x-empty", b""),
            ("x-bytes", b"\xff\0"),
            ("x-bytes", b"again"),
        ];
        let bytes = serialized(&headers);
        let read = RequestHeaders { bytes };
        let all: Vec<_> = read.iter().collect();
        assert_eq!(all, headers.map(|(name, value)| (name.as_bytes(), value)));
        let of = |name| read.get(name).map(Cow::into_owned);
        assert_eq!(of(":path").as_deref(), Some(&b"/a"[..]));
        assert_eq!(of("x-bytes").as_deref(), Some(&b"\xff\0,again"[..]));
        assert_eq!(of("x-empty").as_deref(), Some(&b""[..]));
        assert_eq!(of("x-none"), None);
        assert!(read.may_have("x-bytes") && !read.may_have("x-none"));
        assert!(RequestHeaders::default().may_have("x-none"), "nobody knows");
    }

    #[test]
    fn what_is_cut_off_is_not_there() {
        let whole = serialized(&[("a", b"1"), ("b", b"2")]);
        for length in 0..whole.len() {
            let bytes = whole.get(..length).unwrap().to_vec();
            assert!(RequestHeaders { bytes }.iter().count() < 2);
        }
        let bytes = u32::MAX.to_le_bytes().to_vec();
        assert_eq!(RequestHeaders { bytes }.iter().count(), 0);
    }

    #[test]
    fn waiting_as_long_as_told_is_always_long_enough() {
        for (wait_ms, seconds) in [
            (0, "1"),
            (1, "1"),
            (1_000, "1"),
            (1_001, "2"),
            (59_999, "60"),
        ] {
            assert_eq!(retry_after_seconds(wait_ms), seconds);
        }
    }
}
