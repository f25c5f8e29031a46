//! Why routes of links refuse.

use axum::http::StatusCode;

use weir_origin_core::http::Refusal;

pub(super) const LINKS_OFF: Refusal =
    Refusal::not_found("links_off", "No links", "This origin has no links");

pub(super) const UNKNOWN_LINK: Refusal =
    Refusal::not_found("unknown_link", "Unknown link", "There is no such link");

pub(super) const UNKNOWN_DOMAIN: Refusal = Refusal::not_found(
    "unknown_domain",
    "Unknown domain",
    "There is no such domain of links",
);

pub(super) const UNKNOWN_CLICK: Refusal = Refusal::not_found(
    "unknown_click",
    "Unknown click",
    "There is no such click, or its link leads nowhere now",
);

pub(super) const CONVERSIONS_OFF: Refusal = Refusal::not_found(
    "conversions_off",
    "No conversions",
    "Nothing names clicks here",
);

pub(super) const CODE_TAKEN: Refusal = Refusal::conflict(
    "code_taken",
    "Code taken",
    "There is, or was lately, a link of this code",
);

pub(super) const IDEMPOTENCY_UNDER_WAY: Refusal = Refusal::conflict(
    "idempotency_under_way",
    "Under way",
    "A request with this Idempotency-Key is under way",
);

pub(super) const DOMAIN_HAS_LINKS: Refusal = Refusal::conflict(
    "domain_has_links",
    "The domain has links",
    "A domain with links stays",
);

pub(super) const INVALID_LINK: Refusal = Refusal::invalid(
    "invalid_link",
    "Invalid link",
    "A link may not be like that",
);

pub(super) const INVALID_DOMAIN: Refusal = Refusal::invalid(
    "invalid_domain",
    "Invalid domain",
    "A domain of links may not be like that",
);

pub(super) const INVALID_PICTURE: Refusal = Refusal::invalid(
    "invalid_picture",
    "No such picture",
    "The picture is no PNG of up to 256 KiB and 1,024 pixels a side",
);

pub(super) const IDEMPOTENCY_MISMATCH: Refusal = Refusal::invalid(
    "idempotency_mismatch",
    "Key used before",
    "The Idempotency-Key came with another body before",
);

pub(super) const INVALID_IF_MATCH: Refusal = Refusal::new(
    StatusCode::BAD_REQUEST,
    "invalid_if_match",
    "Invalid If-Match",
    "If-Match is no version in quotes",
);

pub(super) const INVALID_IDEMPOTENCY_KEY: Refusal = Refusal::new(
    StatusCode::BAD_REQUEST,
    "invalid_idempotency_key",
    "Invalid Idempotency-Key",
    "The Idempotency-Key is none",
);

pub(super) const VERSION_CONFLICT: Refusal = Refusal::new(
    StatusCode::PRECONDITION_FAILED,
    "version_conflict",
    "Changed meanwhile",
    "It was changed meanwhile: read it again",
);

pub(super) const NO_SUCH_PLACE: Refusal = Refusal::new(
    StatusCode::GONE,
    "no_such_place",
    "No such place",
    "The feed has no such place: begin anew",
);

pub(super) const LINK_BUSY: Refusal =
    Refusal::unavailable("link_busy", "The link is being changed; try again");

pub(super) const LOG_UNAVAILABLE: Refusal =
    Refusal::unavailable("log_unavailable", "The link could not be kept on disk");

pub(super) const NO_NUMBERS: Refusal =
    Refusal::unavailable("no_numbers", "No free code was found; try again");

pub(super) const DOMAINS_BUSY: Refusal =
    Refusal::unavailable("domains_busy", "Another change of domains is under way");

/// The domain that a new link names.
pub(super) const NO_SUCH_DOMAIN: Refusal =
    Refusal::invalid("unknown_domain", "Invalid link", UNKNOWN_DOMAIN.meaning);

/// A target that a link may not have: the words of [`weir_link::target::TargetError`].
const fn target(code: &'static str, meaning: &'static str) -> Refusal {
    Refusal::invalid(code, "Invalid link", meaning)
}

pub(super) const TARGETS: &[Refusal] = &[
    target("target_backslash", "The target has a backslash"),
    target(
        "target_control_character",
        "The target has a control character",
    ),
    target("target_denied_host", "The domain denies this host"),
    target(
        "target_homograph",
        "The target's host looks like another one",
    ),
    target("target_not_url", "The target is no URL"),
    target(
        "target_own_domain",
        "The target is one of the domains of links",
    ),
    target(
        "target_private",
        "The target is an address of a private network",
    ),
    target("target_scheme", "The target's scheme is not allowed"),
    target("target_too_long", "The target is too long"),
    target("target_userinfo", "The target has a user or password in it"),
];
