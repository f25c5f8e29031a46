//! The platform's word on a request: where the client is, and what time it is.

use worker::{Date, Request};

/// Cloudflare sets it on every request, whatever the client has sent.
const CLIENT_HEADER: &str = "cf-connecting-ip";

/// The header in which the client's address is.
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

/// Whether a header is the client's: not those that Cloudflare adds, nor those that only the conformance suite sends.
pub(crate) fn is_clients(name: &str) -> bool {
    let is_conformances = cfg!(feature = "conformance")
        && name.starts_with("x-conformance-")
        && name != client_header();
    !is_conformances
}

/// Text of one character a byte, as JavaScript has headers, as bytes. What was none before workerd read it stays none: it must
/// not become somebody's name.
pub(crate) fn bytes(text: &str) -> Vec<u8> {
    text.chars()
        .map(|char| u8::try_from(char).unwrap_or(u8::MAX))
        .collect()
}

/// And back.
pub(crate) fn text(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}
