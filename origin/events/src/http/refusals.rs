//! Reasons for refusals by the event routes.

use axum::http::StatusCode;

use weir_origin_core::http::Refusal;

pub(super) const CONTENT_TYPE: Refusal = Refusal::new(
    StatusCode::UNSUPPORTED_MEDIA_TYPE,
    "content_type",
    "Unsupported media type",
    "The route does not accept this content type",
);

pub(super) const EVENTS_FULL: Refusal =
    Refusal::unavailable("events_full", "The event log is full");

pub(super) const EVENTS_LOG: Refusal =
    Refusal::unavailable("events_log", "The event log is temporarily not readable");

pub(super) const EVENTS_OFF: Refusal =
    Refusal::not_found("events_off", "No events", "Events are not enabled");

pub(super) const EVENTS_REFUSED: Refusal = Refusal::unavailable(
    "events_refused",
    "The log refused the events; nothing was stored",
);

pub(super) const EVENTS_UNKNOWN: Refusal = Refusal::unavailable(
    "events_unknown",
    "The outcome is unknown; send the events again, they count once",
);

pub(super) const EVENT_REJECTED: Refusal = Refusal::invalid(
    "event_rejected",
    "Event rejected",
    "The event's type is not registered",
);

pub(super) const EVENT_UNREADABLE: Refusal =
    Refusal::unavailable("event_unreadable", "A stored event cannot be read");

pub(super) const INVALID_IF_MATCH: Refusal = Refusal::new(
    StatusCode::BAD_REQUEST,
    "invalid_if_match",
    "Invalid If-Match",
    "If-Match is not a version in quotes",
);

pub(super) const INVALID_SEEK: Refusal = Refusal::invalid(
    "invalid_seek",
    "Invalid seek",
    "A consumer group cannot seek there",
);

pub(super) const INVALID_SEGMENT: Refusal = Refusal::invalid(
    "invalid_segment",
    "Invalid segment",
    "The segment is invalid",
);

pub(super) const INVALID_TYPE: Refusal =
    Refusal::invalid("invalid_type", "Invalid type", "The event type is invalid");

pub(super) const INVALID_USER: Refusal = Refusal::new(
    StatusCode::BAD_REQUEST,
    "invalid_user",
    "Invalid user",
    "The user id is invalid",
);

pub(super) const NOT_BY_A_GATEWAY: Refusal = Refusal::new(
    StatusCode::FORBIDDEN,
    "not_by_a_gateway",
    "Not from a gateway",
    "The event does not come from a known gateway",
);

pub(super) const NOT_RESENDABLE: Refusal = Refusal::invalid(
    "not_resendable",
    "Cannot be sent again",
    "The dead letter cannot be sent again unchanged",
);

pub(super) const SEGMENT_BEING_DELETED: Refusal = Refusal::unavailable(
    "segment_being_deleted",
    "A deleted segment with this name still has members",
);

pub(super) const SEGMENT_UNREADABLE: Refusal =
    Refusal::unavailable("segment_unreadable", "A stored segment cannot be read");

pub(super) const TOO_MANY_SEGMENTS: Refusal = Refusal::conflict(
    "too_many_segments",
    "Too many segments",
    "The maximum number of segments is reached",
);

pub(super) const TOO_MANY_TYPES: Refusal = Refusal::conflict(
    "too_many_types",
    "Too many types",
    "The maximum number of event types is reached",
);

pub(super) const TYPES_BUSY: Refusal = Refusal::unavailable(
    "types_busy",
    "The types are being changed concurrently; try again",
);

pub(super) const UNKNOWN_DEAD_LETTER: Refusal = Refusal::not_found(
    "unknown_dead_letter",
    "Unknown dead letter",
    "There is no such dead letter",
);

pub(super) const UNKNOWN_GROUP: Refusal =
    Refusal::not_found("unknown_group", "Unknown group", "There is no such group");

pub(super) const UNKNOWN_SEGMENT: Refusal = Refusal::not_found(
    "unknown_segment",
    "Unknown segment",
    "There is no such segment",
);

pub(super) const UNKNOWN_TYPE: Refusal = Refusal::not_found(
    "unknown_type",
    "Unknown type",
    "There is no such event type",
);

pub(super) const UNKNOWN_WINDOW: Refusal = Refusal::not_found(
    "unknown_window",
    "Unknown window",
    "There is no such window",
);

pub(super) const VERSION_CONFLICT: Refusal = Refusal::new(
    StatusCode::PRECONDITION_FAILED,
    "version_conflict",
    "Version conflict",
    "The object has changed: read it again",
);
