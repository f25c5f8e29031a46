//! The engine's own answers.

use alloc::rc::Rc;
use alloc::string::ToString;
use alloc::vec::Vec;

use weir_engine::answer::retry_after_seconds;
use weir_engine::{Answer, Effects, StreamId};
use weir_link::answer::{Answer as LinkAnswer, Reply};
use weir_link::domain::Domain;
use weir_link::site;

use crate::metrics::AnswerKind;

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
pub(crate) fn unavailable(domain: &Domain, wait_ms: u64) -> Reply<'_> {
    let mut reply = site::unavailable(domain);
    let retry_after = retry_after_seconds(wait_ms).to_string();
    reply.headers.push(("retry-after", retry_after.into()));
    reply
}
