//! Headers as bytes, answers as JSON.

use std::borrow::Cow;

use proxy_wasm::hostcalls;
use proxy_wasm::types::{MapType, Status};
use serde::Serialize;
use weir_base::headers;

/// The request header `name`: its bytes, whatever they are. `None` if it is not there, or if the
/// host does not give it.
pub fn request_header(name: &str) -> Option<Vec<u8>> {
    hostcalls::get_map_value_bytes(MapType::HttpRequestHeaders, name)
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
        // A host takes no request that has a pseudo-header twice: RFC 9113, section 8.1.1.
        if name.starts_with(':') {
            return Some(Cow::Borrowed(first));
        }
        let mut all = Cow::Borrowed(first);
        for (_, value) in values {
            let all = all.to_mut();
            all.push(b',');
            all.extend_from_slice(value);
        }
        Some(all)
    }

    /// Whether there may be a header whose name `is_one`: where the host has not told, there may be any.
    fn may_have(&self, is_one: impl Fn(&[u8]) -> bool) -> bool {
        self.bytes.is_empty() || self.iter().any(|(name, _)| is_one(name))
    }

    /// Whether the client has sent, or may have sent, what only a gateway may send on.
    pub fn pose_as_gateways(&self) -> bool {
        self.may_have(headers::is_gateway_only)
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

/// Adds the request header `name`, beside any that is there: where none may be, it must be removed before. Envoy looks
/// through all headers to set one, and not to add one.
///
/// # Errors
/// The host's status, when the stream is gone.
pub fn add_request_header(name: &str, value: &str) -> Result<(), Status> {
    hostcalls::add_map_value(MapType::HttpRequestHeaders, name, value)
}

/// Removes every copy of the request header `name`.
///
/// # Errors
/// The host's status, when the stream is gone.
pub fn remove_request_header(name: &str) -> Result<(), Status> {
    hostcalls::remove_map_value(MapType::HttpRequestHeaders, name)
}

/// Removes from the request what only a gateway may send on.
///
/// # Errors
/// The host's status, when the stream is gone.
pub fn remove_gateway_headers() -> Result<(), Status> {
    headers::GATEWAY_ONLY
        .into_iter()
        .try_for_each(remove_request_header)
}

/// Sets the response header `name` in place of all that it was.
///
/// # Errors
/// The host's status, when the stream is gone.
pub fn set_response_header(name: &str, value: &str) -> Result<(), Status> {
    hostcalls::set_map_value(MapType::HttpResponseHeaders, name, Some(value))
}

/// An answer of the gateway's own as the host takes it: put together once, sent as often as it is the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prepared {
    status: u16,
    /// In the form of [`RequestHeaders`].
    headers: Vec<u8>,
    body: Vec<u8>,
}

impl Prepared {
    /// The answer with this status, these headers and this body.
    pub fn new(status: u16, headers: &[(&str, &str)], body: impl Into<Vec<u8>>) -> Self {
        Self {
            status,
            headers: serialize(headers),
            body: body.into(),
        }
    }

    /// Sends it to the client of the effective context's stream.
    ///
    /// # Errors
    /// When the stream cannot be answered (any more).
    pub fn send(&self) -> Result<(), Status> {
        reply::send(self.status, &self.headers, &self.body)
    }
}

/// Headers as the host reads and writes them.
fn serialize(headers: &[(&str, &str)]) -> Vec<u8> {
    let word = |number: usize| u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes();
    let texts = headers
        .iter()
        .map(|(name, value)| name.len() + value.len() + 2);
    let lengths_len = WORD * (1 + 2 * headers.len());
    let mut bytes = Vec::with_capacity(lengths_len + texts.sum::<usize>());
    bytes.extend_from_slice(&word(headers.len()));
    for (name, value) in headers {
        bytes.extend_from_slice(&word(name.len()));
        bytes.extend_from_slice(&word(value.len()));
    }
    for text in headers.iter().flat_map(|(name, value)| [name, value]) {
        bytes.extend_from_slice(text.as_bytes());
        bytes.push(0);
    }
    bytes
}

/// An answer to the host. The SDK has this call only with headers that it serialises each time, and it panics
/// where the host refuses.
#[cfg(target_arch = "wasm32")]
#[allow(unsafe_code)] // An imported function: there is no safe way to call an import.
mod reply {
    use proxy_wasm::types::Status;

    /// The ABI's "no error".
    const OK: u32 = 0;
    /// The ABI's "this is no gRPC".
    const NO_GRPC_STATUS: i32 = -1;

    #[link(wasm_import_module = "env")]
    unsafe extern "C" {
        /// Copies all that it is given before it returns.
        fn proxy_send_local_response(
            status: u32,
            details: *const u8,
            details_size: usize,
            body: *const u8,
            body_size: usize,
            headers: *const u8,
            headers_size: usize,
            grpc_status: i32,
        ) -> u32;
    }

    pub(super) fn send(status: u16, headers: &[u8], body: &[u8]) -> Result<(), Status> {
        // SAFETY: each pointer is to as many bytes as are said; no details are given.
        let sent = unsafe {
            proxy_send_local_response(
                status.into(),
                core::ptr::null(),
                0,
                body.as_ptr(),
                body.len(),
                headers.as_ptr(),
                headers.len(),
                NO_GRPC_STATUS,
            )
        };
        match sent {
            OK => Ok(()),
            _ => Err(Status::InternalFailure),
        }
    }
}

#[cfg(not(target_arch = "wasm32"))]
mod reply {
    use proxy_wasm::types::Status;

    /// Without a host there is nobody to answer.
    pub(super) fn send(_status: u16, _headers: &[u8], _body: &[u8]) -> Result<(), Status> {
        Err(Status::InternalFailure)
    }
}

/// The gateway's own answer, with a JSON body.
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
    /// Puts it together.
    pub fn prepare(self) -> Prepared {
        let body = Body {
            error: self.error,
            message: self.message,
            order: self.order,
        };
        prepare_json(self.status, self.headers, &body)
    }
}

/// The answer with `body` as JSON.
pub fn prepare_json(
    status: u16,
    mut headers: Vec<(&str, &str)>,
    body: &impl Serialize,
) -> Prepared {
    headers.extend([
        ("content-type", "application/json"),
        // An answer holds for one user at one moment: no cache may keep it.
        ("cache-control", "no-store"),
    ]);
    let body = serde_json::to_vec(body).unwrap_or_default();
    Prepared::new(status, &headers, body)
}

/// Milliseconds as the value of `Retry-After`: whole seconds, rounded up, at least 1.
pub fn retry_after_seconds(wait_ms: u64) -> u64 {
    wait_ms.div_ceil(1_000).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_prepared_is_in_the_form_that_is_read() {
        let headers = [("x-weir-verdict", "sold_out"), ("x-empty", "")];
        let Prepared { headers: bytes, .. } = Prepared::new(409, &headers, "{}");
        let read = RequestHeaders { bytes };
        let all: Vec<_> = read.iter().collect();
        assert_eq!(
            all,
            headers.map(|(name, value)| (name.as_bytes(), value.as_bytes()))
        );
    }

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
        let is_none = |name: &[u8]| name == b"x-none";
        assert!(read.may_have(|name| name == b"x-bytes") && !read.may_have(is_none));
        assert!(RequestHeaders::default().may_have(is_none), "nobody knows");
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
        for (wait_ms, seconds) in [(0, 1), (1, 1), (1_000, 1), (1_001, 2), (59_999, 60)] {
            assert_eq!(retry_after_seconds(wait_ms), seconds);
        }
    }
}
