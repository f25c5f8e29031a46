//! Explains why Envoy closed a stream to the bridge.

/// Texts in Envoy's messages and their likely causes. Each was observed in Envoy 1.40 by removing one component; an
/// end-to-end test repeats this.
const CAUSES: [(&str, &str); 4] = [
    (
        "immediate_connect_error",
        "its internal listener does not exist: check server_listener_name, and that the listener has internal_listener",
    ),
    (
        "delayed_connect_error",
        "the bridge cannot reach Redis: check the cluster of its tcp_proxy, and Redis",
    ),
    (
        "connection_termination",
        "it is not the bridge, or Redis closes the connection: check that redis-bridge is before the proxy, that the cluster uses its internal listener, and for TLS the names and the CA of Redis' certificate (weir-origin doctor tests that handshake)",
    ),
    (
        "connection_failure",
        "its address is unreachable: it must be the bridge's internal listener",
    ),
];

/// The cause, with the cluster's name. `message` is Envoy's message for the stream, if any.
pub(crate) fn of(cluster: &str, message: Option<&str>) -> String {
    let message = message.unwrap_or_default();
    let existing = CAUSES.iter().find(|(words, _)| message.contains(words));
    match existing {
        Some((_, cause)) => format!("cluster {cluster}: {cause}"),
        None => format!("cluster {cluster}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn envoy_error_text_reveals_the_missing_component() {
        let reset = "upstream connect error or disconnect/reset before headers. reset reason: ";
        for (message, expected) in [
            (
                "remote connection failure{upstream_reset_before_response_started{remote_connection_failure|immediate_connect_error:_Invalid_argument|remote_address:envoy://weir_redis/}}",
                "its internal listener does not exist",
            ),
            (
                "remote connection failure{upstream_reset_before_response_started{remote_connection_failure|delayed_connect_error:_Invalid_argument}}",
                "the bridge cannot reach Redis",
            ),
            (
                "connection termination{upstream_reset_before_response_started{connection_termination}}",
                "not the bridge",
            ),
        ] {
            let cause = of("weir_redis", Some(&format!("{reset}{message}")));
            assert!(cause.starts_with("cluster weir_redis: "), "{cause}");
            assert!(cause.contains(expected), "{cause}");
        }
        assert_eq!(of("c", Some("something new")), "cluster c");
        assert_eq!(of("c", None), "cluster c");
    }
}
