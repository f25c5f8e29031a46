//! Decisions that need nothing but the head of a request, for hosts that can answer before their HTTP stack has read it.

use alloc::sync::Arc;

use crate::answer::Answer;

/// What an engine decides on a request that the rest of the host has not seen.
#[derive(Clone, Debug)]
pub enum EarlyDecision {
    /// It is answered. The engine has counted it, so [`Event::Request`](crate::Event::Request) must not follow.
    Answer(Arc<Answer>),
    /// The request does not concern the engine, which would let it go on unchanged. Nothing was counted.
    NotConcerned,
    /// [`Event::Request`](crate::Event::Request) decides. Nothing was counted.
    Undecided,
}
