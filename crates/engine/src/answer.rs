//! The gateway's own answers.

use alloc::borrow::Cow;
use alloc::format;
use alloc::vec::Vec;
use core::fmt;

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};
use weir_base::problem;

use crate::headers::Headers;

/// A prepared answer, which can be sent many times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status. For gRPC clients it is always 200.
    pub status: u16,
    /// The headers.
    pub headers: Headers,
    /// The body; for gRPC clients, the message.
    pub body: Vec<u8>,
    /// The gRPC status, if the client speaks gRPC.
    pub grpc_status: Option<u8>,
    /// The reason for access logs, not for clients: `weir`, or one word with the prefix `weir_`. In Envoy it is
    /// `%RESPONSE_CODE_DETAILS%`.
    pub details: Cow<'static, str>,
}

/// The details of an answer without a special reason.
const OURS: &str = "weir";

/// The content of a refusal. Its body is a problem (RFC 9457), see [`weir_base::problem`].
#[derive(Clone, Copy, Debug)]
pub struct Refusal<'a> {
    /// The HTTP status.
    pub status: u16,
    /// An error code for programs.
    pub error: &'a str,
    /// One sentence for people.
    pub message: &'a str,
    /// The user's existing order.
    pub order: Option<&'a str>,
}

impl Serialize for Refusal<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let members = 4 + usize::from(self.order.is_some());
        let mut problem = serializer.serialize_struct("Refusal", members)?;
        problem.serialize_field("type", &ProblemType(self.error))?;
        problem.serialize_field("status", &self.status)?;
        problem.serialize_field("error", self.error)?;
        problem.serialize_field("message", self.message)?;
        if let Some(order) = self.order {
            problem.serialize_field("order", order)?;
        }
        problem.end()
    }
}

/// The `type` of the problem with this code.
struct ProblemType<'a>(&'a str);

impl Serialize for ProblemType<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Display for ProblemType<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(problem::TYPE_PREFIX)?;
        f.write_str(self.0)
    }
}

impl Answer {
    /// An answer with this status, these headers and this body.
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
            details: Cow::Borrowed(OURS),
        }
    }

    /// An answer with `body` as JSON.
    pub fn json(status: u16, headers: Vec<(&str, &str)>, body: &impl Serialize) -> Self {
        Self::of_type("application/json", status, headers, body)
    }

    /// An answer that refuses a request.
    pub fn refusal(headers: Vec<(&str, &str)>, refusal: &Refusal<'_>) -> Self {
        Self::refusal_with(headers, refusal, refusal)
    }

    /// An answer that refuses a request. `body` contains the fields of `refusal` and more.
    pub fn refusal_with(
        headers: Vec<(&str, &str)>,
        refusal: &Refusal<'_>,
        body: &impl Serialize,
    ) -> Self {
        let answer = Self::of_type(problem::MEDIA_TYPE, refusal.status, headers, body);
        answer.because(format!("{OURS}_{}", refusal.error))
    }

    /// Sets the [details](Answer::details).
    #[must_use]
    pub fn because(mut self, details: impl Into<Cow<'static, str>>) -> Self {
        self.details = details.into();
        self
    }

    fn of_type<'a>(
        media_type: &'a str,
        status: u16,
        mut headers: Vec<(&'a str, &'a str)>,
        body: &impl Serialize,
    ) -> Self {
        headers.extend([
            ("content-type", media_type),
            // An answer is valid for one user at one moment, so no cache may store it.
            ("cache-control", "no-store"),
        ]);
        let body = serde_json::to_vec(body).unwrap_or_default();
        Self::new(status, &headers, body)
    }

    /// An answer to a gRPC client: a gRPC status and a message.
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
    fn retry_after_is_rounded_up_to_whole_seconds() {
        for (wait_ms, seconds) in [(0, 1), (1, 1), (1_000, 1), (1_001, 2), (59_999, 60)] {
            assert_eq!(retry_after_seconds(wait_ms), seconds);
        }
    }

    #[test]
    fn grpc_client_gets_grpc_status_in_a_200_response() {
        let answer = Answer::grpc(14, "later", &[("retry-after", "1")]);
        assert_eq!((answer.status, answer.grpc_status), (200, Some(14)));
        assert_eq!(answer.body, b"later");
        assert_eq!(Answer::new(200, &[("a", "b")], "").grpc_status, None);
    }

    #[test]
    fn refusal_is_uncacheable_problem_json() {
        let mut refusal = Refusal {
            status: 409,
            error: "sold_out",
            message: "none left",
            order: None,
        };
        let answer = Answer::refusal(alloc::vec![("x-weir-verdict", "sold_out")], &refusal);
        assert_eq!(answer.status, 409);
        assert_eq!(answer.details, "weir_sold_out");
        assert_eq!(Answer::new(200, &[("a", "b")], "").details, "weir");
        assert_eq!(
            core::str::from_utf8(&answer.body).unwrap(),
            r#"{"type":"urn:weir:problem:sold_out","status":409,"error":"sold_out","message":"none left"}"#
        );
        refusal.order = Some("a;1");
        let with_order = Answer::refusal(Vec::new(), &refusal);
        assert!(with_order.body.ends_with(br#","order":"a;1"}"#));
        let of = |name| answer.headers.get(name).map(|value| value.into_owned());
        assert_eq!(
            of("content-type").as_deref(),
            Some(&b"application/problem+json"[..])
        );
        assert_eq!(of("cache-control").as_deref(), Some(&b"no-store"[..]));
        assert_eq!(of("x-weir-verdict").as_deref(), Some(&b"sold_out"[..]));
    }
}
