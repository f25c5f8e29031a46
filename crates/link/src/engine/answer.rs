//! Responses of the engine.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::answer::{Answer as LinkAnswer, InactiveReason, Reply, answer, ended};
use crate::cache::CachedLink;
use crate::record::Link;
use weir_engine::{Answer, Effects, StreamId};

use crate::engine::metrics::AnswerKind;
use crate::engine::request::Fields;

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

/// The kind of response for metrics.
pub(crate) fn kind_of(answer: &LinkAnswer<'_>) -> AnswerKind {
    match answer {
        LinkAnswer::Redirect { .. } => AnswerKind::Redirect,
        LinkAnswer::App { .. } => AnswerKind::App,
        LinkAnswer::Preview(_) => AnswerKind::Preview,
        LinkAnswer::Guarded(_) => AnswerKind::Guarded,
        LinkAnswer::Gone(_) | LinkAnswer::Ended { .. } => AnswerKind::Gone,
        LinkAnswer::NotAllowed => AnswerKind::NotAllowed,
        LinkAnswer::NotBeforeClick => AnswerKind::NotBeforeClick,
    }
}

/// Decides the response to a request for a cached link.
pub(crate) fn answer_of<'a>(
    link: &'a CachedLink,
    fields: &Fields<'_>,
    now_ms: u64,
) -> LinkAnswer<'a> {
    let left_ms = match link.has_ended {
        true => Some(0),
        false => link.dies_at_ms.checked_sub(now_ms),
    };
    let left_ms = left_ms.filter(|_| link.dies_at_ms != u64::MAX);
    answer_to(&link.link, link.is_used_up, left_ms, fields, now_ms)
}

/// Decides the response to a request for a link.
pub(crate) fn answer_to<'a>(
    link: &'a Link,
    is_used_up: bool,
    left_ms: Option<u64>,
    fields: &Fields<'_>,
    now_ms: u64,
) -> LinkAnswer<'a> {
    match is_used_up {
        true => ended(link, InactiveReason::UsedUp),
        false => answer(link, &fields.visit(left_ms, now_ms)),
    }
}
