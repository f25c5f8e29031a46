//! The engine's own answers.

use alloc::rc::Rc;
use alloc::string::ToString;
use alloc::vec::Vec;

use serde_json::Value;
use weir_engine::answer::retry_after_seconds;
use weir_engine::{Answer, Effects, StreamId};
use weir_link::answer::{Answer as LinkAnswer, Reply};

use crate::metrics::AnswerKind;

/// For how long a domain's files for apps may be cached.
const FILE_CACHE_CONTROL: &str = "public, max-age=300";

/// Answers a stream's request with `reply`.
pub(crate) fn respond(stream: StreamId, reply: Reply<'_>, effects: &mut Effects) {
    let headers = reply.headers.iter();
    let headers: Vec<_> = headers
        .map(|(name, value)| (*name, value.as_ref()))
        .collect();
    let body = reply.body.into_owned();
    let answer = Answer::new::<&str>(reply.status, &headers, body);
    effects.respond(stream, Rc::new(answer));
}

/// How an answer is counted.
pub(crate) fn kind_of(answer: &LinkAnswer<'_>) -> AnswerKind {
    match answer {
        LinkAnswer::Redirect { .. } => AnswerKind::Redirect,
        LinkAnswer::App { .. } => AnswerKind::App,
        LinkAnswer::Gone(_) => AnswerKind::Gone,
        LinkAnswer::NotAllowed => AnswerKind::NotAllowed,
        LinkAnswer::NotBeforeClick => AnswerKind::NotBeforeClick,
    }
}

/// Neither Redis nor the origin can be asked; the client may try again in `wait_ms`.
pub(crate) fn unavailable(wait_ms: u64) -> Answer {
    let retry_after = retry_after_seconds(wait_ms).to_string();
    let headers = [
        ("retry-after", retry_after.as_str()),
        ("cache-control", "no-store"),
        ("content-type", "text/plain; charset=utf-8"),
    ];
    let body = "This link cannot be looked up right now. Please try again.\n";
    Answer::new(503, &headers, body)
}

/// A file for apps.
pub(crate) fn file(file: &Value) -> Answer {
    let headers = [
        ("content-type", "application/json"),
        ("cache-control", FILE_CACHE_CONTROL),
    ];
    // It was read from JSON.
    let body = serde_json::to_vec(file).unwrap_or_default();
    Answer::new(200, &headers, body)
}
