//! The filter's own answers.

use proxy_wasm::hostcalls;
use proxy_wasm::types::{GrpcStatusCode, Status};
use weir_filter_kit::http::{Answer, Prepared, retry_after_seconds};

use crate::config::AnswerConfig;

/// Why a request is answered here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// A limit is reached; it may pass after so many milliseconds.
    Limited { wait_ms: u64 },
    /// Its key is refused always.
    Denied,
    /// Redis does not answer, and a rule wants no request to pass then.
    Unavailable,
}

/// What to wait when nobody knows how long.
const UNAVAILABLE_MS: u64 = 1_000;

impl Refusal {
    const fn status(self) -> u16 {
        match self {
            Self::Limited { .. } => 429,
            Self::Denied => 403,
            Self::Unavailable => 503,
        }
    }

    const fn grpc_status(self) -> GrpcStatusCode {
        match self {
            Self::Limited { .. } => GrpcStatusCode::ResourceExhausted,
            Self::Denied => GrpcStatusCode::PermissionDenied,
            Self::Unavailable => GrpcStatusCode::Unavailable,
        }
    }

    const fn word(self) -> &'static str {
        match self {
            Self::Limited { .. } => "rate_limited",
            Self::Denied => "denied",
            Self::Unavailable => "unavailable",
        }
    }

    const fn message(self) -> &'static str {
        match self {
            Self::Limited { .. } => {
                "too many requests; please try again when Retry-After has passed"
            }
            Self::Denied => "this caller is not served",
            Self::Unavailable => "limits cannot be checked; please try again in a moment",
        }
    }

    fn retry_after(self) -> Option<String> {
        match self {
            Self::Limited { wait_ms } => Some(retry_after_seconds(wait_ms).to_string()),
            Self::Unavailable => Some(retry_after_seconds(UNAVAILABLE_MS).to_string()),
            Self::Denied => None,
        }
    }
}

/// Answers the effective context's stream; `fields` tell of its quota.
pub(crate) fn refuse(
    refusal: Refusal,
    fields: &[(&'static str, String)],
    is_grpc: bool,
    config: Option<&AnswerConfig>,
) -> Result<(), Status> {
    let retry_after = refusal.retry_after();
    let retry_after = retry_after
        .as_deref()
        .map(|seconds| ("retry-after", seconds));
    let fields = fields.iter().map(|(name, value)| (*name, value.as_str()));
    let mut headers: Vec<(&str, &str)> = fields.chain(retry_after).collect();
    if is_grpc {
        let metadata = headers
            .iter()
            .map(|(name, value)| (*name, value.as_bytes()));
        let (status, message) = (refusal.grpc_status(), refusal.message());
        return hostcalls::send_grpc_response(status, Some(message), metadata.collect());
    }
    if let (Some(config), Refusal::Limited { .. }) = (config, refusal) {
        headers.extend([
            ("content-type", config.content_type.as_str()),
            ("cache-control", "no-store"),
        ]);
        return Prepared::new(config.status, &headers, config.body.as_bytes()).send();
    }
    let answer = Answer {
        status: refusal.status(),
        headers,
        error: refusal.word(),
        message: refusal.message(),
        order: None,
    };
    answer.prepare().send()
}
