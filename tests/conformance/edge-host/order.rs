//! Orders, and what has come of them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What is to be done.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Order {
    /// A new instance.
    Start(Start),
    /// A request.
    Ask(Ask),
}

/// A new instance.
#[derive(Deserialize)]
pub(crate) struct Start {
    /// Its environment.
    pub(crate) env: BTreeMap<String, String>,
    /// What it finds at `/weir`.
    pub(crate) folder: Option<PathBuf>,
}

/// A request.
#[derive(Deserialize)]
pub(crate) struct Ask {
    /// The time.
    pub(crate) now_ms: u64,
    pub(crate) method: String,
    /// With its query.
    pub(crate) path: String,
    pub(crate) host: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
    /// What the origin answers, by path and query: status and body. Anything else: nobody answers.
    pub(crate) feeds: BTreeMap<String, (u16, String)>,
    /// What the gateway answers; `None`: nobody does.
    pub(crate) gateway: Option<Message>,
}

/// A response.
#[derive(Clone, Default, Deserialize, Serialize)]
pub(crate) struct Message {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

/// What has come of a request.
#[derive(Serialize)]
pub(crate) struct Done {
    /// What the client got.
    pub(crate) got: Message,
    /// What the gateway saw, if anything.
    pub(crate) seen: Option<ReceivedRequest>,
    /// What the origin was asked for.
    pub(crate) asked: Vec<String>,
    /// How long it took, in microseconds.
    pub(crate) took_us: u64,
}

/// A request that was sent.
#[derive(Clone, Default, Serialize)]
pub(crate) struct ReceivedRequest {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

/// Bytes as text.
pub(crate) fn text(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}

/// And back. A character that is no byte is a mistake of the test's, and becomes a question mark.
pub(crate) fn bytes(text: &str) -> Vec<u8> {
    text.chars()
        .map(|char| u8::try_from(char).unwrap_or(b'?'))
        .collect()
}

/// Headers as text.
pub(crate) fn headers(map: &hyper::HeaderMap) -> Vec<(String, String)> {
    map.iter()
        .map(|(name, value)| (name.as_str().to_owned(), text(value.as_bytes())))
        .collect()
}
