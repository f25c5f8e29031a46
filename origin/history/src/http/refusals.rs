//! Why routes of browse history refuse.

use weir_origin_core::http::Refusal;

pub(super) const HISTORY_OFF: Refusal = Refusal::not_found(
    "history_off",
    "No history",
    "This origin has no browse history",
);

pub(super) const HISTORY_UNAVAILABLE: Refusal = Refusal::unavailable(
    "history_unavailable",
    "The list cannot be read or changed at the moment",
);

pub(super) const INVALID_PRODUCT: Refusal = Refusal::invalid(
    "invalid_product",
    "Invalid product",
    "A product may not be like that",
);

pub(super) const INVALID_OWNER_QUERY: Refusal = Refusal::invalid(
    "invalid_query",
    "Invalid query",
    "The query cannot be read, or asks for what cannot be",
);

pub(super) const INVALID_SKU: Refusal =
    Refusal::invalid("invalid_sku", "Invalid SKU", "This is no SKU");

pub(super) const INVALID_SWITCHES: Refusal = Refusal::invalid(
    "invalid_switches",
    "Invalid switches",
    "Switches may not be like that",
);

pub(super) const INVALID_VISITOR: Refusal = Refusal::invalid(
    "invalid_visitor",
    "Invalid visitor",
    "This is no visitor's name",
);

pub(super) const TOO_MANY_DELETIONS: Refusal = Refusal::conflict(
    "too_many_deletions",
    "Too many",
    "The list has as many deletions as it can hold",
);

pub(super) const UNKNOWN_PRODUCT: Refusal = Refusal::not_found(
    "unknown_product",
    "Unknown product",
    "There is no such product",
);
