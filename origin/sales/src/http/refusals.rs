//! Refusals of the routes of sales.

use axum::http::StatusCode;

use weir_origin_core::access::tenancy::UNKNOWN_SALE;
use weir_origin_core::http::Refusal;

pub(super) const BARRED: Refusal = Refusal::new(
    StatusCode::FORBIDDEN,
    "barred",
    "Barred",
    "The user is blocked or has no reservation",
);

pub(super) const BLOCKED: Refusal = Refusal::new(
    StatusCode::FORBIDDEN,
    "blocked",
    "Blocked",
    "The user is blocked in this sale",
);

pub(super) const CATALOGUE_FULL: Refusal = Refusal::conflict(
    "catalogue_full",
    "Not changed",
    "Gateways already have the maximum number of running sales",
);

pub(super) const CHANGE_UNDER_WAY: Refusal = Refusal::conflict(
    "change_under_way",
    "Not changed",
    "Another stock change of the sale is in progress",
);

pub(super) const OTHER_SITE: Refusal = Refusal::conflict(
    "other_site",
    "Another site does this",
    "With two sites, one of them loads a sale and changes its stock: ask an origin of that site",
);

pub(super) const CLAIM_INVALID: Refusal = Refusal::new(
    StatusCode::FORBIDDEN,
    "claim_invalid",
    "Invalid claim",
    "The claim is not signed by a known gateway",
);

pub(super) const CLAIM_MISSING: Refusal = Refusal::new(
    StatusCode::UNAUTHORIZED,
    "claim_missing",
    "No claim",
    "The request has no claim: it did not come through a gateway",
);

pub(super) const CLAIM_RELEASED: Refusal = Refusal::conflict(
    "claim_released",
    "Claim released",
    "The claim has expired and its units are released; order again",
);

pub(super) const COOLING_DOWN: Refusal = Refusal::new(
    StatusCode::TOO_MANY_REQUESTS,
    "cooling_down",
    "Please wait",
    "The user did not pay an order in time and has to wait",
);

pub(super) const DRAW_OPEN: Refusal = Refusal::conflict(
    "draw_open",
    "Too early",
    "Reservations are still open, so the list of the draw is not final",
);

pub(super) const DUPLICATE_SALE: Refusal =
    Refusal::conflict("duplicate_sale", "Duplicate", "A sale with this id exists");

pub(super) const EVENT_REUSED: Refusal = Refusal::invalid(
    "event_reused",
    "Not new",
    "The payment has another event with this name",
);

pub(super) const GROUP_CAP: Refusal = Refusal::conflict(
    "group_cap",
    "Cap reached",
    "The order would exceed the limit per user of the sale's group",
);

pub(super) const IDEMPOTENCY_KEY_REUSED: Refusal = Refusal::invalid(
    "idempotency_key_reused",
    "Key used before",
    "The Idempotency-Key was used for a different request",
);

pub(super) const INVALID_IDEMPOTENCY_KEY: Refusal = Refusal::new(
    StatusCode::BAD_REQUEST,
    "invalid_idempotency_key",
    "Invalid key",
    "The Idempotency-Key is invalid",
);

pub(super) const INVALID_ORDERS: Refusal = Refusal::invalid(
    "invalid_orders",
    "Wrong number",
    "The list has too few or too many orders",
);

pub(super) const INVALID_PAYLOAD: Refusal = Refusal::invalid(
    "invalid_payload",
    "Invalid payload",
    "The order's body does not match the sale's payload_schema; `errors` lists all mistakes",
);

pub(super) const INVALID_REASON: Refusal = Refusal::invalid(
    "invalid_reason",
    "No reason",
    "The reason or the operator is missing, or too long",
);

pub(super) const INVALID_REFERENCE: Refusal =
    Refusal::invalid("invalid_reference", "Too long", "The reference is too long");

pub(super) const INVALID_SALE: Refusal = Refusal::invalid(
    "invalid_sale",
    "Invalid sale",
    "The sale is invalid; `errors` lists all mistakes",
);

pub(super) const INVALID_STOCK_CHANGE: Refusal = Refusal::invalid(
    "invalid_stock_change",
    "Invalid change",
    "The stock change is invalid",
);

pub(super) const INVALID_USER: Refusal =
    Refusal::invalid("invalid_user", "Invalid user", "The user id is invalid");

pub(super) const NOT_PUBLISHED: Refusal = Refusal::unavailable(
    "not_published",
    "The change is stored, but not yet published to gateways",
);

pub(super) const NOT_WARMED: Refusal =
    Refusal::conflict("not_warmed", "Not warmed", "The sale was never warmed");

pub(super) const NO_CATALOGUE: Refusal =
    Refusal::unavailable("no_catalogue", "No catalogue has been published yet");

pub(super) const NO_DRAW: Refusal = Refusal::not_found(
    "no_draw",
    "No draw",
    "There is no such sale, or it has no draw",
);

pub(super) const NO_REFUND_DUE: Refusal = Refusal::conflict(
    "no_refund_due",
    "Not possible",
    "No refund is due for this payment",
);

pub(super) const NO_RESERVATION: Refusal = Refusal::conflict(
    "no_reservation",
    "Not possible",
    "The sale needs no reservation",
);

pub(super) const ORDER_CANCELLED: Refusal =
    Refusal::conflict("order_cancelled", "Not possible", "The order was cancelled");

pub(super) const ORDER_EXPIRED: Refusal = Refusal::conflict(
    "order_expired",
    "Not possible",
    "The time to pay has passed",
);

pub(super) const ORDER_NOT_PAID: Refusal = Refusal::conflict(
    "order_not_paid",
    "Not possible",
    "The order is not paid, or has ended",
);

pub(super) const ORDER_PAID: Refusal =
    Refusal::conflict("order_paid", "Not possible", "The order is paid");

pub(super) const ORDER_SETTLING: Refusal = Refusal::unavailable(
    "order_settling",
    "The order's payment is not in Redis yet; try again",
);

pub(super) const PAYMENTS_NOT_CONFIGURED: Refusal = Refusal::new(
    StatusCode::NOT_IMPLEMENTED,
    "payments_not_configured",
    "No payments",
    "This origin has no payment provider: WEIR_PAYMENT_SECRET is not set",
);

pub(super) const REDIS_NOT_EMPTY: Refusal = Refusal::conflict(
    "redis_not_empty",
    "Not warmed",
    "Redis has stock of another sale with this id",
);

pub(super) const RESERVATION_CLOSED: Refusal = Refusal::conflict(
    "reservation_closed",
    "Not possible",
    "Reservations have ended",
);

pub(super) const RESERVATION_NOT_OPEN: Refusal = Refusal::conflict(
    "reservation_not_open",
    "Too early",
    "Reservations have not started yet",
);

pub(super) const SALE_ARCHIVED: Refusal =
    Refusal::conflict("sale_archived", "Archived", "The sale is archived");

pub(super) const SALE_DRAWING: Refusal = Refusal::conflict(
    "sale_drawing",
    "Not changed",
    "Reservations for the draw have opened: they and the draw cannot change",
);

pub(super) const SALE_ENDED: Refusal =
    Refusal::conflict("sale_ended", "Not changed", "The sale has ended");

pub(super) const CLAIMS_OPEN: Refusal = Refusal::conflict(
    "claims_open",
    "Not yet",
    "The sale has open claims: try again in half a minute",
);

pub(super) const SALE_NOT_PAUSED: Refusal = Refusal::conflict(
    "sale_not_paused",
    "Nothing to decide",
    "the sale has no lost orders, or another operator has already decided",
);

pub(super) const SALE_STARTED: Refusal =
    Refusal::conflict("sale_started", "Not changed", "The sale has started");

pub(super) const SALE_WARMED: Refusal =
    Refusal::conflict("sale_warmed", "Not changed", "The sale is warm");

pub(super) const SIGNATURE_INVALID: Refusal = Refusal::new(
    StatusCode::FORBIDDEN,
    "signature_invalid",
    "Invalid signature",
    "The signature is not the payment provider's",
);

pub(super) const SIGNATURE_MISSING: Refusal = Refusal::new(
    StatusCode::UNAUTHORIZED,
    "signature_missing",
    "No signature",
    "The callback has no signature of the payment provider",
);

pub(super) const SOLD_OUT: Refusal =
    Refusal::conflict("sold_out", "Sold out", "There are no units left");

pub(super) const STOCK_LOST: Refusal = Refusal::conflict(
    "stock_lost",
    "Not warmed",
    "Redis has lost this sale's stock; the origin is rebuilding it",
);

pub(super) const TIMESTAMP_OUT_OF_WINDOW: Refusal = Refusal::new(
    StatusCode::FORBIDDEN,
    "timestamp_out_of_window",
    "Too old",
    "The callback was signed too long ago, or in the future",
);

pub(super) const TOO_MANY_UNITS: Refusal = Refusal::conflict(
    "too_many_units",
    "Not changed",
    "The sale would exceed the maximum number of units",
);

pub(super) const UNKNOWN_RESERVATION: Refusal = Refusal::not_found(
    "unknown_reservation",
    "No reservation",
    "The user has no reservation for this sale",
);

pub(super) const UNPAID_HOLDS: Refusal = Refusal::new(
    StatusCode::FORBIDDEN,
    "unpaid_holds",
    "Too many unpaid orders",
    "The user did not pay several orders in time",
);

pub(super) const USER_CAP: Refusal = Refusal::conflict(
    "user_cap",
    "Cap reached",
    "The user has reached the limit per user",
);

/// SQL does not have the sale of an order.
pub(super) const SALE_GONE: Refusal =
    Refusal::conflict("unknown_sale", "Unknown sale", UNKNOWN_SALE.description);

/// A concurrent request of the user has cancelled the reservation.
pub(super) const RESERVATION_GONE: Refusal = Refusal::conflict(
    "unknown_reservation",
    "No reservation",
    UNKNOWN_RESERVATION.description,
);

/// Refusal for a verdict of a sale in dry run, by its label.
const fn verdict(code: &'static str, status: StatusCode, description: &'static str) -> Refusal {
    Refusal::new(status, code, "Refused", description)
}

/// All verdicts that are refusals. A test compares them with the verdicts.
pub(super) const VERDICTS: &[Refusal] = &[
    verdict(
        "unknown_sale",
        StatusCode::NOT_FOUND,
        "There is no such sale",
    ),
    verdict(
        "invalid_user",
        StatusCode::UNAUTHORIZED,
        "The user id is invalid",
    ),
    verdict(
        "not_started",
        StatusCode::FORBIDDEN,
        "The sale has not started yet",
    ),
    verdict("ended", StatusCode::GONE, "The sale is over"),
    verdict("closed", StatusCode::FORBIDDEN, "The sale is closed"),
    verdict(
        "draining",
        StatusCode::FORBIDDEN,
        "The sale accepts no new buyers",
    ),
    verdict(
        "static_page",
        StatusCode::SERVICE_UNAVAILABLE,
        "The sale shows only its static page",
    ),
    verdict(
        "paused",
        StatusCode::SERVICE_UNAVAILABLE,
        "SQL has lost orders of the sale, and no operator has decided yet",
    ),
    verdict("sold_out", StatusCode::CONFLICT, "There are no units left"),
    verdict(
        "invalid_token",
        StatusCode::FORBIDDEN,
        "The order token is missing or invalid",
    ),
    verdict(
        "token_too_young",
        StatusCode::FORBIDDEN,
        "The order token is not valid yet",
    ),
    verdict(
        "challenge_required",
        StatusCode::FORBIDDEN,
        "The sale requires a solved challenge",
    ),
    verdict(
        "invalid_idempotency_key",
        StatusCode::BAD_REQUEST,
        "The Idempotency-Key is invalid",
    ),
    verdict(
        "invalid_quantity",
        StatusCode::BAD_REQUEST,
        "The header x-weir-quantity is not an integer of at least 1",
    ),
    verdict(
        "in_progress",
        StatusCode::CONFLICT,
        "Another request of this buyer is in progress",
    ),
    verdict(
        "rate_limited",
        StatusCode::TOO_MANY_REQUESTS,
        "Too many requests",
    ),
    verdict(
        "blocked",
        StatusCode::FORBIDDEN,
        "The user is blocked in this sale",
    ),
    verdict(
        "not_reserved",
        StatusCode::FORBIDDEN,
        "The user has no reservation",
    ),
    verdict(
        "cap_reached",
        StatusCode::CONFLICT,
        "The user has reached the limit per user",
    ),
    verdict(
        "sku_in_sale",
        StatusCode::CONFLICT,
        "The ordered SKU is part of a sale",
    ),
    verdict(
        "too_few",
        StatusCode::CONFLICT,
        "Fewer units are left than requested",
    ),
    verdict(
        "all_reserved",
        StatusCode::CONFLICT,
        "All units are reserved; one may become free",
    ),
    verdict(
        "overloaded",
        StatusCode::SERVICE_UNAVAILABLE,
        "Too many requests are waiting; nothing was done",
    ),
    verdict(
        "unavailable",
        StatusCode::SERVICE_UNAVAILABLE,
        "Redis or the origin did not answer",
    ),
    verdict(
        "misconfigured",
        StatusCode::SERVICE_UNAVAILABLE,
        "The gateway's claim key is not known to the origin",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use weir_sale::verdict::Verdict;

    #[test]
    fn listed_refusals_match_the_verdicts() {
        let verdicts = Verdict::ALL.into_iter();
        let verdicts = verdicts.filter_map(|one| Some((one.label(), one.status()?)));
        let mut verdicts: Vec<(&str, u16)> =
            verdicts.filter(|(_, status)| *status >= 400).collect();
        let listed = VERDICTS.iter();
        let mut listed: Vec<(&str, u16)> = listed
            .map(|refusal| (refusal.code, refusal.status.as_u16()))
            .collect();
        verdicts.sort_unstable();
        listed.sort_unstable();
        assert_eq!(listed, verdicts);
    }
}
