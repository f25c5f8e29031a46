//! The engine's own answers.

use alloc::sync::Arc;
use alloc::vec::Vec;

use weir_engine::{Answer, Effects, StreamId};
use weir_link::answer::{Answer as LinkAnswer, Reply};

use crate::metrics::AnswerKind;

/// Answers a stream's request with `reply`.
pub(crate) fn respond(stream: StreamId, kind: AnswerKind, reply: Reply<'_>, effects: &mut Effects) {
    let headers = reply.headers.iter();
    let headers: Vec<_> = headers
        .map(|(name, value)| (*name, value.as_ref()))
        .collect();
    let body = reply.body.into_owned();
    let answer = Answer::new::<&str>(reply.status, &headers, body);
    effects.respond(stream, Arc::new(answer.because(kind.details())));
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
