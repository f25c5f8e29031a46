//! Comparison of addresses.

/// `host:port` in canonical form, for comparison.
pub(crate) fn same_spelling(address: &str) -> String {
    let address = address.to_ascii_lowercase();
    match address.rsplit_once(':') {
        Some((host, port)) if is_loopback(host) => format!("127.0.0.1:{port}"),
        _ => address,
    }
}

/// Whether the host is this machine.
pub(crate) fn is_loopback(host: &str) -> bool {
    host == "localhost" || host == "::1" || host == "[::1]" || host.starts_with("127.")
}
