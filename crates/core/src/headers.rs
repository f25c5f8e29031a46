//! The names of Weir's own headers, each defined here once.

/// Response header: the gateway's one-word answer to a request, see [`crate::verdict::Verdict`].
pub const VERDICT: &str = "x-weir-verdict";

/// Request header from the gateway to the origin: the claim ticket, see [`crate::claim::Ticket`].
pub const CLAIM: &str = "x-weir-claim";

/// Request header from the gateway to the origin: the ticket's signature, `<key id>;<hex>`.
pub const CLAIM_SIGNATURE: &str = "x-weir-claim-signature";

/// Headers that only a gateway may send on: copies that a client sent are removed from every
/// request that passes a gateway.
pub const GATEWAY_ONLY: [&str; 2] = [CLAIM, CLAIM_SIGNATURE];
