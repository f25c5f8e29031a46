//! The names of Weir's own headers.

/// Response header: the gateway's verdict in one word, a `Verdict` of `weir-sale`. On a forwarded request it is a
/// request header, which Envoy's route copies into the response.
pub const VERDICT: &str = "x-weir-verdict";

/// Request header from the gateway to the origin: the claim ticket, a `Ticket` of `weir-sale`.
pub const CLAIM: &str = "x-weir-claim";

/// Request header from the gateway to the origin: the ticket's signature, `<key id>;<hex>`.
pub const CLAIM_SIGNATURE: &str = "x-weir-claim-signature";

/// Request header from a client to the gateway: the order token from the checkout route.
pub const ORDER_TOKEN: &str = "x-weir-order-token";

/// Request header from a client to the gateway's checkout: the solution of the sale's challenge, see `challenge` of
/// `weir-sale`.
pub const SOLUTION: &str = "x-weir-solution";

/// Request header from a client to the gateway's checkout: the CAPTCHA provider's response token.
pub const CAPTCHA: &str = "x-weir-captcha";

/// Request header from a client: identifies the purchase attempt. Retries with the same key never buy twice; see
/// `IdempotencyKey` of `weir-sale`.
pub const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// Request header from a client to the gateway: the number of units to buy. Default: 1. Maximum: the limit per user.
pub const QUANTITY: &str = "x-weir-quantity";

/// Request header from a client to the origin, on a request to buy: the click that led to it, a `ClickTag` of `weir-link`.
pub const CLICK: &str = "x-weir-click";

/// Request header from a payment provider to the origin: when it signed its callback, in seconds since the Unix epoch.
pub const PAYMENT_TIMESTAMP: &str = "x-weir-payment-timestamp";

/// Request header from a payment provider to the origin: the signature of `<timestamp>.<body>`, `<key id>;<hex>`.
pub const PAYMENT_SIGNATURE: &str = "x-weir-payment-signature";

/// Request header from the gateway to the origin, in dry-run mode (`shadow`): the verdict that the gateway would have
/// returned. It is a `Verdict` of `weir-sale`, on requests without a claim.
pub const SHADOW: &str = "x-weir-shadow";

/// Request header from the gateway to the origin: the user of a request without a claim, `v1;<issued_at_ms>;<user>`.
pub const USER: &str = "x-weir-user";

/// Request header from the gateway to the origin: the signature of [`USER`], `<key id>;<hex>`.
pub const USER_SIGNATURE: &str = "x-weir-user-signature";

/// Response header from the origin to the gateway: the result of a link lookup; see [`LINK_UNKNOWN`].
pub const LINK: &str = "x-weir-link";

/// The value of [`LINK`] for a link that does not exist: gateways cache it.
pub const LINK_UNKNOWN: &str = "unknown";

/// Request header from a client to the gateway: the write key of events.
pub const WRITE_KEY: &str = "x-weir-write-key";

/// Request header from a client to the gateway: the visitor whose events these are, for sampling and limits. The events
/// contain it, too, but the gateway does not read bodies.
pub const VISITOR: &str = "x-weir-visitor";

/// Request header: the visitor's consent, a `Consent` of `weir-event`. The gateway replaces the client's value by the
/// effective one.
pub const CONSENT: &str = "x-weir-consent";

/// Request header from the gateway to the origin: the name of the write key.
pub const EVENT_KEY: &str = "x-weir-event-key";

/// Request header from the gateway to the origin: the kind of the write key, a `Kind` of `weir-event`.
pub const EVENT_KIND: &str = "x-weir-event-kind";

/// Request header from the gateway to the origin: when the gateway received the events, in milliseconds since the Unix
/// epoch.
pub const RECEIVED_MS: &str = "x-weir-received-ms";

/// Request header from the gateway to the origin: the client's network, a `Network` of `weir-event`.
pub const EVENT_ADDRESS: &str = "x-weir-address";

/// Header of a client without cookies: its queue token, a `Pass` of `weir-room`. Gateways return it with their answers.
pub const ROOM: &str = "x-weir-room";

/// Request header from an edge to a gateway or to the origin: the edge's stamp, see [`stamp`](crate::stamp).
pub const EDGE: &str = "x-weir-edge";

/// Request header from an edge: the signature of [`EDGE`], `<key id>;<hex>`.
pub const EDGE_SIGNATURE: &str = "x-weir-edge-signature";

/// Headers that only gateways may send. Gateways remove clients' copies from every request.
pub const GATEWAY_ONLY: [&str; 8] = [
    CLAIM,
    CLAIM_SIGNATURE,
    EDGE,
    EDGE_SIGNATURE,
    SHADOW,
    USER,
    USER_SIGNATURE,
    VERDICT,
];

/// Whether `name`, in lower case, is one of [`GATEWAY_ONLY`].
pub fn is_gateway_only(name: &[u8]) -> bool {
    // The prefix test alone decides for nearly every name.
    name.starts_with(b"x-weir-") && GATEWAY_ONLY.iter().any(|only| name == only.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gateway_only_headers_differ_from_client_headers() {
        for name in GATEWAY_ONLY {
            assert!(is_gateway_only(name.as_bytes()), "{name}");
        }
        for name in [ORDER_TOKEN, IDEMPOTENCY_KEY, "x-weir-", "x-weir-claims", ""] {
            assert!(!is_gateway_only(name.as_bytes()), "{name}");
        }
    }
}
