//! Headers as bytes, answers as JSON.

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
