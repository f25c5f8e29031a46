//! Orders and their results.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// An order.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Order {
    /// Start a new instance.
    Start(Start),
    /// Send a request.
    Ask(Ask),
}

/// A new instance.
#[derive(Deserialize)]
pub(crate) struct Start {
    /// The environment variables.
    pub(crate) env: BTreeMap<String, String>,
    /// The folder mounted at `/weir`.
    pub(crate) folder: Option<PathBuf>,
}

/// A request.
#[derive(Deserialize)]
pub(crate) struct Ask {
    /// The time, in milliseconds since the Unix epoch.
    pub(crate) now_ms: u64,
    pub(crate) method: String,
    /// The path with its query.
    pub(crate) path: String,
    pub(crate) host: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
    /// The origin's answers, by path and query: status and body. Other requests get no answer.
    pub(crate) feeds: BTreeMap<String, (u16, String)>,
    /// The gateway's answer; `None` for no answer.
    pub(crate) gateway: Option<Message>,
}

/// A response.
#[derive(Clone, Default, Deserialize, Serialize)]
pub(crate) struct Message {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

/// The result of a request.
#[derive(Serialize)]
pub(crate) struct Done {
    /// The response that the client received.
    pub(crate) got: Message,
    /// The request that the gateway received, if any.
    pub(crate) seen: Option<ReceivedRequest>,
    /// The feeds requested from the origin.
    pub(crate) asked: Vec<String>,
    /// The duration, in microseconds.
    pub(crate) took_us: u64,
}

/// A sent request.
#[derive(Clone, Default, Serialize)]
pub(crate) struct ReceivedRequest {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

/// Encodes bytes as text.
pub(crate) fn text(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}

/// Decodes text into bytes. A character beyond a byte is an error in the test, and becomes a question mark.
pub(crate) fn bytes(text: &str) -> Vec<u8> {
    text.chars()
        .map(|char| u8::try_from(char).unwrap_or(b'?'))
        .collect()
}

/// Encodes headers as text.
pub(crate) fn headers(map: &hyper::HeaderMap) -> Vec<(String, String)> {
    map.iter()
        .map(|(name, value)| (name.as_str().to_owned(), text(value.as_bytes())))
        .collect()
}
