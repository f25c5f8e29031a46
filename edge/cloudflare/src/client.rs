//! The platform's facts about a request: the client's address and the time.

use worker::{Date, Request};

/// Cloudflare sets this header on every request, and overwrites the client's.
const CLIENT_HEADER: &str = "cf-connecting-ip";

/// The header with the client's address.
pub(crate) fn client_header() -> &'static str {
    match cfg!(feature = "conformance") {
        true => "x-conformance-client",
        false => CLIENT_HEADER,
    }
}

/// The time, in milliseconds since the Unix epoch.
pub(crate) fn now_ms(request: &Request) -> u64 {
    #[cfg(feature = "conformance")]
    if let Ok(Some(now_ms)) = request.headers().get("x-conformance-now-ms") {
        return now_ms.parse().unwrap_or(0);
    }
    let _ = request;
    Date::now().as_millis()
}

/// Whether a header is from the client: not added by Cloudflare, and not reserved for the conformance suite.
pub(crate) fn is_clients(name: &str) -> bool {
    let is_conformances = cfg!(feature = "conformance")
        && name.starts_with("x-conformance-")
        && name != client_header();
    !is_conformances
}

/// Converts header text of JavaScript, one character per byte, to bytes. Any other character becomes 0xFF, so that it
/// never equals another user's name.
pub(crate) fn bytes(text: &str) -> Vec<u8> {
    text.chars()
        .map(|char| u8::try_from(char).unwrap_or(u8::MAX))
        .collect()
}

/// The inverse of [`bytes()`].
pub(crate) fn text(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}
