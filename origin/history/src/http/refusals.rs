//! Reasons for refusals by the history routes.

use weir_origin_core::http::Refusal;

pub(super) const HISTORY_OFF: Refusal = Refusal::not_found(
    "history_off",
    "No history",
    "This origin has no browse history",
);

pub(super) const HISTORY_UNAVAILABLE: Refusal = Refusal::unavailable(
    "history_unavailable",
    "The list is temporarily not available",
);

pub(super) const INVALID_PRODUCT: Refusal = Refusal::invalid(
    "invalid_product",
    "Invalid product",
    "The product is invalid",
);

pub(super) const INVALID_OWNER_QUERY: Refusal = Refusal::invalid(
    "invalid_query",
    "Invalid query",
    "The query string is invalid",
);

pub(super) const INVALID_SKU: Refusal =
    Refusal::invalid("invalid_sku", "Invalid SKU", "The SKU is invalid");

pub(super) const INVALID_SWITCHES: Refusal = Refusal::invalid(
    "invalid_switches",
    "Invalid switches",
    "The switches are invalid",
);

pub(super) const INVALID_VISITOR: Refusal = Refusal::invalid(
    "invalid_visitor",
    "Invalid visitor",
    "The visitor id is invalid",
);

pub(super) const TOO_MANY_DELETIONS: Refusal = Refusal::conflict(
    "too_many_deletions",
    "Too many",
    "The list has the maximum number of deletions",
);

pub(super) const UNKNOWN_PRODUCT: Refusal = Refusal::not_found(
    "unknown_product",
    "Unknown product",
    "There is no such product",
);
