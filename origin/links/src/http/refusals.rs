//! Reasons for refusals by the link routes.

use axum::http::StatusCode;

use weir_origin_core::http::Refusal;

pub(super) const LINKS_OFF: Refusal =
    Refusal::not_found("links_off", "No links", "This origin has no links");

pub(super) const UNKNOWN_LINK: Refusal =
    Refusal::not_found("unknown_link", "Unknown link", "There is no such link");

pub(super) const UNKNOWN_DOMAIN: Refusal = Refusal::not_found(
    "unknown_domain",
    "Unknown domain",
    "There is no such link domain",
);

pub(super) const UNKNOWN_CLICK: Refusal = Refusal::not_found(
    "unknown_click",
    "Unknown click",
    "There is no such click, or its link no longer exists",
);

pub(super) const UNKNOWN_REPORT: Refusal = Refusal::not_found(
    "unknown_report",
    "Unknown report",
    "There is no such report, or it has ended or was revoked",
);

pub(super) const UNKNOWN_TEMPLATE: Refusal = Refusal::not_found(
    "unknown_template",
    "Unknown template",
    "There is no such UTM template",
);

pub(super) const TOO_MANY_ITEMS: Refusal = Refusal::conflict(
    "too_many_items",
    "Too many",
    "There are 200 of them already: delete some",
);

pub(super) const TOO_MANY_READS: Refusal = Refusal::new(
    StatusCode::TOO_MANY_REQUESTS,
    "too_many_reads",
    "Too many reads",
    "Shared reports are read too often: try again in a minute",
);

pub(super) const INVALID_REPORT: Refusal =
    Refusal::invalid("invalid_report", "Invalid report", "The report is invalid");

pub(super) const INVALID_TEMPLATE: Refusal = Refusal::invalid(
    "invalid_template",
    "Invalid template",
    "The UTM template is invalid",
);

pub(super) const CONVERSIONS_OFF: Refusal = Refusal::not_found(
    "conversions_off",
    "No conversions",
    "Click ids are not enabled",
);

pub(super) const CODE_TAKEN: Refusal = Refusal::conflict(
    "code_taken",
    "Code taken",
    "A link has or recently had this code",
);

pub(super) const IDEMPOTENCY_UNDER_WAY: Refusal = Refusal::conflict(
    "idempotency_under_way",
    "In progress",
    "A request with this Idempotency-Key is in progress",
);

pub(super) const DOMAIN_HAS_LINKS: Refusal = Refusal::conflict(
    "domain_has_links",
    "The domain has links",
    "A domain with links cannot be deleted",
);

pub(super) const INVALID_LINK: Refusal =
    Refusal::invalid("invalid_link", "Invalid link", "The link is invalid");

pub(super) const INVALID_DOMAIN: Refusal = Refusal::invalid(
    "invalid_domain",
    "Invalid domain",
    "The link domain is invalid",
);

pub(super) const INVALID_PICTURE: Refusal = Refusal::invalid(
    "invalid_picture",
    "No such picture",
    "The picture is not a PNG of up to 256 KiB and 1,024 pixels a side",
);

pub(super) const IDEMPOTENCY_MISMATCH: Refusal = Refusal::invalid(
    "idempotency_mismatch",
    "Key used before",
    "The Idempotency-Key was used with a different body",
);

pub(super) const INVALID_IF_MATCH: Refusal = Refusal::new(
    StatusCode::BAD_REQUEST,
    "invalid_if_match",
    "Invalid If-Match",
    "If-Match is not a version in quotes",
);

pub(super) const INVALID_IDEMPOTENCY_KEY: Refusal = Refusal::new(
    StatusCode::BAD_REQUEST,
    "invalid_idempotency_key",
    "Invalid Idempotency-Key",
    "The Idempotency-Key is invalid",
);

pub(super) const VERSION_CONFLICT: Refusal = Refusal::new(
    StatusCode::PRECONDITION_FAILED,
    "version_conflict",
    "Version conflict",
    "The object has changed: read it again",
);

pub(super) const NO_SUCH_PLACE: Refusal = Refusal::new(
    StatusCode::GONE,
    "no_such_place",
    "No such position",
    "The feed has no such position: start again",
);

pub(super) const LINK_BUSY: Refusal =
    Refusal::unavailable("link_busy", "The link is being changed; try again");

pub(super) const LOG_UNAVAILABLE: Refusal =
    Refusal::unavailable("log_unavailable", "The link could not be stored on disk");

pub(super) const NO_NUMBERS: Refusal =
    Refusal::unavailable("no_numbers", "No free code found; try again");

pub(super) const DOMAINS_BUSY: Refusal =
    Refusal::unavailable("domains_busy", "Another domain change is in progress");

/// The domain of a new link does not exist.
pub(super) const NO_SUCH_DOMAIN: Refusal =
    Refusal::invalid("unknown_domain", "Invalid link", UNKNOWN_DOMAIN.description);

/// A target that is refused, with the codes of [`weir_link::target::TargetError`].
const fn target(code: &'static str, description: &'static str) -> Refusal {
    Refusal::invalid(code, "Invalid link", description)
}

pub(super) const TARGETS: &[Refusal] = &[
    target("target_backslash", "The target has a backslash"),
    target(
        "target_control_character",
        "The target has a control character",
    ),
    target("target_denied_host", "The domain denies this host"),
    target("target_homograph", "The target's host imitates another one"),
    target("target_not_url", "The target is not a URL"),
    target("target_own_domain", "The target is a short link domain"),
    target("target_private", "The target is in a private network"),
    target("target_scheme", "The target's scheme is not allowed"),
    target("target_too_long", "The target is too long"),
    target("target_userinfo", "The target contains a user or password"),
];
