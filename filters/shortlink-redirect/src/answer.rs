//! The filter's own answers.

use proxy_wasm::types::Status;
use serde_json::Value;
use weir_filter_kit::http::{Prepared, retry_after_seconds};
use weir_link::answer::{Answer, Reply};

use crate::NAME;
use crate::metrics::AnswerKind;

/// For how long a domain's files for apps may be remembered, in seconds.
const FILE_MAX_AGE: &str = "public, max-age=300";

/// Sends `reply` to the client of the effective context's stream.
pub(crate) fn send(reply: Reply<'_>) {
    let headers = reply.headers.iter();
    let headers: Vec<_> = headers
        .map(|(name, value)| (*name, value.as_ref()))
        .collect();
    send_raw(reply.status, &headers, reply.body.as_bytes());
}

pub(crate) fn send_raw(status: u16, headers: &[(&str, &str)], body: &[u8]) {
    log_unsent(Prepared::new(status, headers, body).send());
}

/// What an answer counts as.
pub(crate) fn kind_of(answer: &Answer<'_>) -> AnswerKind {
    match answer {
        Answer::Redirect { .. } => AnswerKind::Redirect,
        Answer::App { .. } => AnswerKind::App,
        Answer::Gone(_) => AnswerKind::Gone,
        Answer::NotAllowed => AnswerKind::NotAllowed,
    }
}

/// Nobody can say where the link leads; the client may ask again in `wait_ms`.
pub(crate) fn send_unavailable(wait_ms: u64) {
    let retry_after = retry_after_seconds(wait_ms).to_string();
    let headers = [
        ("retry-after", retry_after.as_str()),
        ("cache-control", "no-store"),
        ("content-type", "text/plain; charset=utf-8"),
    ];
    send_raw(
        503,
        &headers,
        b"This link cannot be looked up right now. Please try again.\n",
    );
}

/// A file for apps. Returns whether there is one.
pub(crate) fn send_file(file: Option<&Value>) -> bool {
    let Some(file) = file else { return false };
    let body = serde_json::to_vec(file).unwrap_or_default();
    let headers = [
        ("content-type", "application/json"),
        ("cache-control", FILE_MAX_AGE),
    ];
    send_raw(200, &headers, &body);
    true
}

pub(crate) fn log_unsent(sent: Result<(), Status>) {
    if let Err(status) = sent {
        log::debug!("{NAME}: the stream has gone: {status:?}");
    }
}
