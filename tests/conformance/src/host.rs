//! Hosts run engines.

use anyhow::Result;

use crate::text::escape;
use crate::vector::{Changes, Headers, OriginAnswer, Outcome, Vector, difference};

/// A host of engines.
pub trait Host {
    /// Its name.
    fn name(&self) -> &'static str;

    /// Whether the host grants claims. A host that is not a gateway forwards a request with a valid token to one, and
    /// signs nothing.
    fn claims(&self) -> bool {
        true
    }

    /// The reason why the host cannot replay a vector, if any.
    fn cannot(&self, vector: &Vector) -> Option<&'static str>;

    /// Replays vectors independently, and returns the results in their order.
    ///
    /// # Errors
    /// The host itself fails.
    fn replay(&mut self, vectors: &[Vector]) -> Result<Vec<Result<Replay>>>;
}

/// The result of a vector on one host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replay {
    /// The outcome of each step.
    pub outcomes: Vec<Outcome>,
    /// The changes in Redis.
    pub effect: Changes,
}

impl Replay {
    /// The result that a vector expects.
    pub fn expected(vector: &Vector) -> Self {
        Self {
            outcomes: vector
                .steps
                .iter()
                .map(|step| step.expect.clone())
                .collect(),
            effect: vector.effect.clone(),
        }
    }
}

/// Response headers that HTTP or the host's server adds, independent of engines.
const OF_HTTP: [&str; 6] = [
    ":status",
    "connection",
    "content-length",
    "date",
    "server",
    "transfer-encoding",
];

/// Request headers that a host adds to each forwarded request.
const OF_HOST: [&str; 6] = [
    ":scheme",
    "content-length",
    "x-envoy-external-address",
    "x-envoy-internal",
    "x-forwarded-proto",
    "x-request-id",
];

/// The outcome of an answered request, without the headers that engines do not control.
pub fn answered(status: u16, mut headers: Headers, body: &[u8]) -> Outcome {
    headers.retain(|(name, _)| !OF_HTTP.contains(&name.as_str()));
    Outcome::Answered {
        status,
        headers,
        body: escape(body),
    }
}

/// The outcome of a forwarded request: the headers that the client sent and the origin received, and those that the
/// origin sent and the client received.
pub fn went_on(
    sent: &Headers,
    mut headers: Headers,
    origin: &OriginAnswer,
    mut actual: Headers,
) -> Outcome {
    let is_sent = |name: &str| sent.iter().any(|(existing, _)| existing == name);
    headers.retain(|(name, _)| !OF_HOST.contains(&name.as_str()) || is_sent(name));
    actual.retain(|(name, _)| !OF_HTTP.contains(&name.as_str()));
    let (added, removed) = difference(sent, &headers);
    let (response, _) = difference(&origin.headers, &actual);
    Outcome::WentOn {
        added,
        removed,
        response,
    }
}

/// An answer to a gRPC client: status and message are in the headers.
pub fn answered_in_grpc(grpc_status: u32, mut headers: Headers, message: &[u8]) -> Outcome {
    headers.retain(|(name, _)| name != "content-type");
    headers.extend([
        ("content-type".to_owned(), "application/grpc".to_owned()),
        ("grpc-status".to_owned(), grpc_status.to_string()),
        ("grpc-message".to_owned(), escape(message)),
    ]);
    answered(200, headers, b"")
}

impl Outcome {
    /// The outcome as seen by a client that used this method: HTTP omits the body of an answer to `HEAD`.
    pub fn to_method(mut self, method: &str) -> Self {
        if let Self::Answered { body, .. } = &mut self
            && method == "HEAD"
        {
            body.clear();
        }
        self
    }
}
