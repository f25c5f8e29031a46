//! The names of Weir's own headers, each defined here once.

/// Response header: the gateway's one-word answer to a request, a `Verdict` of `weir-sale`. On a request
/// that goes on it is a request header, which Envoy's route puts into the response.
pub const VERDICT: &str = "x-weir-verdict";

/// Request header from the gateway to the origin: the claim ticket, a `Ticket` of `weir-sale`.
pub const CLAIM: &str = "x-weir-claim";

/// Request header from the gateway to the origin: the ticket's signature, `<key id>;<hex>`.
pub const CLAIM_SIGNATURE: &str = "x-weir-claim-signature";

/// Request header from a client to the gateway: the order token that the checkout route gave.
pub const ORDER_TOKEN: &str = "x-weir-order-token";

/// Request header from a client to the gateway's checkout: the solution of the challenge that the sale sets, see `challenge` of
/// `weir-sale`.
pub const SOLUTION: &str = "x-weir-solution";

/// Request header from a client to the gateway's checkout: what a captcha has given its page.
pub const CAPTCHA: &str = "x-weir-captcha";

/// Request header from a client: which attempt to buy this is. Trying again with the same key never buys twice; see
/// `IdempotencyKey` of `weir-sale`.
pub const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// Request header from a client to the gateway: how many units it wants to buy, 1 without it, at most as many as one user may
/// have.
pub const QUANTITY: &str = "x-weir-quantity";

/// Request header from a client to the origin, on a request to buy: the click that led to it, a `ClickTag` of `weir-link`.
pub const CLICK: &str = "x-weir-click";

/// Request header from a payment provider to the origin: when it signed its callback, in seconds since the Unix epoch.
pub const PAYMENT_TIMESTAMP: &str = "x-weir-payment-timestamp";

/// Request header from a payment provider to the origin: the signature of `<timestamp>.<body>`, `<key id>;<hex>`.
pub const PAYMENT_SIGNATURE: &str = "x-weir-payment-signature";

/// Request header from the gateway to the origin: what the gateway would have answered, a `Verdict` of `weir-sale`, on a
/// request for a sale in shadow that goes on without a claim.
pub const SHADOW: &str = "x-weir-shadow";

/// Request header from the gateway to the origin: who the user is, on requests that carry no
/// claim: `v1;<issued_at_ms>;<user>`.
pub const USER: &str = "x-weir-user";

/// Request header from the gateway to the origin: the signature of [`USER`], `<key id>;<hex>`.
pub const USER_SIGNATURE: &str = "x-weir-user-signature";

/// Response header from the origin to the gateway: what it knows of a short link that it was asked for;
/// see [`LINK_UNKNOWN`].
pub const LINK: &str = "x-weir-link";

/// The value of [`LINK`] that says that there is no such link: gateways remember it for a while.
pub const LINK_UNKNOWN: &str = "unknown";

/// Request header from a client to the gateway: the write key of events.
pub const WRITE_KEY: &str = "x-weir-write-key";

/// Request header from a client to the gateway: whose events these are, for sampling and limits. The events say it, too, but
/// the gateway reads no body.
pub const VISITOR: &str = "x-weir-visitor";

/// Request header: what the person has agreed to, a `Consent` of `weir-event`. A client says it to the gateway, and the
/// gateway, in its place, what counts to the origin.
pub const CONSENT: &str = "x-weir-consent";

/// Request header from the gateway to the origin: the name of the write key.
pub const EVENT_KEY: &str = "x-weir-event-key";

/// Request header from the gateway to the origin: the kind of the write key, a `Kind` of `weir-event`.
pub const EVENT_KIND: &str = "x-weir-event-kind";

/// Request header from the gateway to the origin: when the events came, in milliseconds since the Unix epoch.
pub const RECEIVED_MS: &str = "x-weir-received-ms";

/// Request header from the gateway to the origin: the network that the events came from, a `Network` of `weir-event`.
pub const EVENT_ADDRESS: &str = "x-weir-address";

/// Header of a client that keeps no cookies: its pass of a waiting room, a `Pass` of `weir-room`. Gateways send it with their answers.
pub const ROOM: &str = "x-weir-room";

/// Request header from an edge to a gateway or to the origin: that the edge sends this request, a `Stamp` of `weir-feed`.
pub const EDGE: &str = "x-weir-edge";

/// Request header from an edge: the signature of [`EDGE`], `<key id>;<hex>`.
pub const EDGE_SIGNATURE: &str = "x-weir-edge-signature";

/// Headers that only a gateway may send on: copies that a client sent are removed from every
/// request that passes a gateway.
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
    // Of nearly every name this is all that is looked at.
    name.starts_with(b"x-weir-") && GATEWAY_ONLY.iter().any(|only| name == only.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_gateways_send_is_told_from_what_clients_may() {
        for name in GATEWAY_ONLY {
            assert!(is_gateway_only(name.as_bytes()), "{name}");
        }
        for name in [ORDER_TOKEN, IDEMPOTENCY_KEY, "x-weir-", "x-weir-claims", ""] {
            assert!(!is_gateway_only(name.as_bytes()), "{name}");
        }
    }
}
