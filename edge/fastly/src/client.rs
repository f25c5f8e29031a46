//! The platform's facts about a request: the client's address and the time.

use std::time::{SystemTime, UNIX_EPOCH};

use fastly::Request;

/// The client's address.
pub(crate) fn address(request: &Request) -> Vec<u8> {
    #[cfg(feature = "conformance")]
    if let Some(address) = request.get_header("x-conformance-client") {
        return address.as_bytes().to_vec();
    }
    let address = request.get_client_ip_addr();
    // A port follows, as on other platforms.
    address.map_or_else(Vec::new, |address| {
        std::net::SocketAddr::new(address, 0)
            .to_string()
            .into_bytes()
    })
}

/// The time, in milliseconds since the Unix epoch.
pub(crate) fn now_ms(request: &Request) -> u64 {
    #[cfg(feature = "conformance")]
    if let Some(now_ms) = request.get_header_str("x-conformance-now-ms") {
        return now_ms.parse().unwrap_or(0);
    }
    let _ = request;
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    since_epoch.map_or(0, |time| {
        u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
    })
}

/// Whether the conformance suite sent this request; its first request already needs links.
pub(crate) fn is_of_suite(request: &Request) -> bool {
    cfg!(feature = "conformance") && request.get_header("x-conformance-now-ms").is_some()
}

/// Whether a header is from the client, and not reserved for the conformance suite.
pub(crate) fn is_clients(name: &str) -> bool {
    !cfg!(feature = "conformance") || !name.starts_with("x-conformance-")
}
