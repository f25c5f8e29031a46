//! Hosts: what runs engines.

use anyhow::Result;

use crate::text::escape;
use crate::vector::{Changes, Headers, OriginAnswer, Outcome, Vector, difference};

/// What runs engines, each in its own way.
pub trait Host {
    /// Its name.
    fn name(&self) -> &'static str;

    /// Whether it claims. What is no gateway sends a request with a good token on to one, and signs nothing.
    fn claims(&self) -> bool {
        true
    }

    /// Why it cannot do what a vector asks for, if so.
    fn cannot(&self, vector: &Vector) -> Option<&'static str>;

    /// The results of vectors, each by itself, in their order.
    ///
    /// # Errors
    /// When the host itself does not run.
    fn replay(&mut self, vectors: &[Vector]) -> Result<Vec<Result<Replay>>>;
}

/// The outcome of a vector on one host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replay {
    /// Of each step.
    pub outcomes: Vec<Outcome>,
    /// In Redis.
    pub effect: Changes,
}

impl Replay {
    /// What a vector expects.
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

/// What HTTP itself, or the host's own server, puts on an answer: no engine has a say in it.
const OF_HTTP: [&str; 6] = [
    ":status",
    "connection",
    "content-length",
    "date",
    "server",
    "transfer-encoding",
];

/// What a host adds to each request that goes on.
const OF_HOST: [&str; 6] = [
    ":scheme",
    "content-length",
    "x-envoy-external-address",
    "x-envoy-internal",
    "x-forwarded-proto",
    "x-request-id",
];

/// An answer, by what an engine has a say in.
pub fn answered(status: u16, mut headers: Headers, body: &[u8]) -> Outcome {
    headers.retain(|(name, _)| !OF_HTTP.contains(&name.as_str()));
    Outcome::Answered {
        status,
        headers,
        body: escape(body),
    }
}

/// The outcome of a request that went on: what the client sent and the origin saw, what the origin sent and the client
/// got.
pub fn went_on(
    sent: &Headers,
    mut seen: Headers,
    origin: &OriginAnswer,
    mut got: Headers,
) -> Outcome {
    let is_sent = |name: &str| sent.iter().any(|(known, _)| known == name);
    seen.retain(|(name, _)| !OF_HOST.contains(&name.as_str()) || is_sent(name));
    got.retain(|(name, _)| !OF_HTTP.contains(&name.as_str()));
    let (added, removed) = difference(sent, &seen);
    let (response, _) = difference(&origin.headers, &got);
    Outcome::WentOn {
        added,
        removed,
        response,
    }
}

/// An answer to a client that speaks gRPC: its status stands in the headers, and so does the text.
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
    /// What a client gets of it that has asked with this method: HTTP leaves out the body of an answer to `HEAD`.
    pub fn to_method(mut self, method: &str) -> Self {
        if let Self::Answered { body, .. } = &mut self
            && method == "HEAD"
        {
            body.clear();
        }
        self
    }
}
