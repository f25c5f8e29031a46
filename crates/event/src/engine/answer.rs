//! The gateway's own responses.

use alloc::vec::Vec;

use crate::answer::Answer as EventAnswer;
use crate::limits::BODY_LEN_MAX;
use crate::pixel;
use weir_engine::Answer;
use weir_engine::answer::Refusal;

use crate::engine::metrics::Outcome;

/// Why a request with events is refused here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RefusalReason {
    Unauthorized,
    OriginNotAllowed,
    ServersKeyInPage,
    Method { allowed: &'static str },
    ContentType,
    ContentEncoding,
    LengthRequired,
    TooLong,
    Consent,
    Query,
}

impl RefusalReason {
    const fn status(self) -> u16 {
        match self {
            Self::Consent | Self::Query => 400,
            Self::Unauthorized => 401,
            Self::OriginNotAllowed | Self::ServersKeyInPage => 403,
            Self::Method { .. } => 405,
            Self::LengthRequired => 411,
            Self::TooLong => 413,
            Self::ContentType | Self::ContentEncoding => 415,
        }
    }

    const fn label(self) -> &'static str {
        match self {
            Self::Consent => "bad_consent",
            Self::Query => "bad_query",
            Self::Unauthorized => "unknown_key",
            Self::OriginNotAllowed | Self::ServersKeyInPage => "origin_not_allowed",
            Self::Method { .. } => "method_not_allowed",
            Self::LengthRequired => "length_required",
            Self::TooLong => "too_large",
            Self::ContentType | Self::ContentEncoding => "unsupported_media_type",
        }
    }

    const fn message(self) -> &'static str {
        match self {
            Self::Consent => "consent must be full, anonymous or none",
            Self::Query => "the query has bytes that are not ASCII: percent-encode them",
            Self::Unauthorized => {
                "the write key is missing or unknown: send it in the header x-weir-write-key or as the query parameter key"
            }
            Self::OriginNotAllowed => "this write key does not allow pages of this origin",
            Self::ServersKeyInPage => {
                "a server key came from a page: rotate it, because every visitor of the page can read it"
            }
            Self::Method { .. } => "send events with POST, or as a pixel with GET",
            Self::LengthRequired => "the header content-length is missing",
            Self::TooLong => "the body is longer than 1,048,576 bytes: split it",
            Self::ContentType => "the content-type must be application/json or text/plain",
            Self::ContentEncoding => "the content-encoding must be gzip, zstd or absent",
        }
    }

    /// The outcome in metrics.
    pub(crate) const fn outcome(self) -> Outcome {
        match self {
            Self::Consent | Self::Query => Outcome::Malformed,
            Self::Unauthorized => Outcome::Unauthorized,
            Self::OriginNotAllowed | Self::ServersKeyInPage => Outcome::OriginNotAllowed,
            Self::Method { .. } => Outcome::Method,
            Self::LengthRequired | Self::TooLong => Outcome::Length,
            Self::ContentType | Self::ContentEncoding => Outcome::ContentType,
        }
    }

    pub(crate) fn answer(self) -> Answer {
        let headers = match self {
            Self::Method { allowed } => Vec::from([("allow", allowed)]),
            _ => Vec::new(),
        };
        let refusal = Refusal {
            status: self.status(),
            error: self.label(),
            message: self.message(),
            order: None,
        };
        Answer::refusal(headers, &refusal)
    }
}

// The message of `TooLong` contains this number.
const _: () = assert!(BODY_LEN_MAX == 1_048_576);

/// The response details for events that are dropped here, without consent or outside the sample.
const DROPPED: &str = "weir_events_dropped";

/// The response to events that are dropped here.
pub(crate) fn accepted(answer: &EventAnswer) -> Answer {
    Answer::json(202, Vec::new(), answer).because(DROPPED)
}

/// The response to a tracking pixel whose event is dropped here.
pub(crate) fn gif() -> Answer {
    let headers = [
        ("content-type", pixel::CONTENT_TYPE),
        ("cache-control", "no-store"),
    ];
    Answer::new(200, &headers, pixel::GIF).because(DROPPED)
}
