//! The gateway's own answers.

use alloc::vec::Vec;

use serde::Serialize;

use crate::headers::Headers;

/// An answer, put together once and sent as often as it is the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status. To a gRPC client it is always 200.
    pub status: u16,
    /// The headers.
    pub headers: Headers,
    /// The body; to a gRPC client, the message.
    pub body: Vec<u8>,
    /// The gRPC status, if the client speaks gRPC.
    pub grpc_status: Option<u8>,
}

/// What a refusal says in its JSON body.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Refusal<'a> {
    /// One word, for programs.
    pub error: &'a str,
    /// One sentence, for people.
    pub message: &'a str,
    /// The order that the user has already.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<&'a str>,
}

impl Answer {
    /// The answer with this status, these headers and this body.
    pub fn new<V: AsRef<[u8]>>(
        status: u16,
        headers: &[(&str, V)],
        body: impl Into<Vec<u8>>,
    ) -> Self {
        Self {
            status,
            headers: Headers::new(headers),
            body: body.into(),
            grpc_status: None,
        }
    }

    /// The answer with `body` as JSON.
    pub fn json(status: u16, mut headers: Vec<(&str, &str)>, body: &impl Serialize) -> Self {
        headers.extend([
            ("content-type", "application/json"),
            // An answer holds for one user at one moment: no cache may keep it.
            ("cache-control", "no-store"),
        ]);
        let body = serde_json::to_vec(body).unwrap_or_default();
        Self::new(status, &headers, body)
    }

    /// The answer to a gRPC client: a status of gRPC, and a message.
    pub fn grpc(grpc_status: u8, message: &str, metadata: &[(&str, &str)]) -> Self {
        Self {
            grpc_status: Some(grpc_status),
            ..Self::new(200, metadata, message)
        }
    }
}

/// Milliseconds as the value of `Retry-After`: whole seconds, rounded up, at least 1.
pub fn retry_after_seconds(wait_ms: u64) -> u64 {
    wait_ms.div_ceil(1_000).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_as_long_as_told_is_always_long_enough() {
        for (wait_ms, seconds) in [(0, 1), (1, 1), (1_000, 1), (1_001, 2), (59_999, 60)] {
            assert_eq!(retry_after_seconds(wait_ms), seconds);
        }
    }

    #[test]
    fn a_grpc_client_gets_its_status_in_a_200() {
        let answer = Answer::grpc(14, "later", &[("retry-after", "1")]);
        assert_eq!((answer.status, answer.grpc_status), (200, Some(14)));
        assert_eq!(answer.body, b"later");
        assert_eq!(Answer::new(200, &[("a", "b")], "").grpc_status, None);
    }

    #[test]
    fn a_json_answer_is_not_for_caches() {
        let refusal = Refusal {
            error: "sold_out",
            message: "none left",
            order: None,
        };
        let answer = Answer::json(409, alloc::vec![("x-weir-verdict", "sold_out")], &refusal);
        assert_eq!(
            answer.body,
            br#"{"error":"sold_out","message":"none left"}"#
        );
        let of = |name| answer.headers.get(name).map(|value| value.into_owned());
        assert_eq!(of("cache-control").as_deref(), Some(&b"no-store"[..]));
        assert_eq!(of("x-weir-verdict").as_deref(), Some(&b"sold_out"[..]));
    }
}
