//! The platform's word on a request: where the client is, and what time it is.

use std::time::{SystemTime, UNIX_EPOCH};

use fastly::Request;

/// The client's address.
pub(crate) fn address(request: &Request) -> Vec<u8> {
    #[cfg(feature = "conformance")]
    if let Some(address) = request.get_header("x-conformance-client") {
        return address.as_bytes().to_vec();
    }
    let address = request.get_client_ip_addr();
    // A port stands behind it, as elsewhere.
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

/// Whether the conformance suite asks for a vector, whose first request needs links already.
pub(crate) fn is_of_suite(request: &Request) -> bool {
    cfg!(feature = "conformance") && request.get_header("x-conformance-now-ms").is_some()
}

/// Whether a header is the client's: not those that only the conformance suite sends.
pub(crate) fn is_clients(name: &str) -> bool {
    !cfg!(feature = "conformance") || !name.starts_with("x-conformance-")
}
