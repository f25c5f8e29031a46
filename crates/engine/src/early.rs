//! Decisions from the head of a request alone, for hosts that can answer before their HTTP stack parses the request.

use alloc::sync::Arc;

use crate::answer::Answer;

/// An engine's decision on a request before the host's HTTP stack.
#[derive(Clone, Debug)]
pub enum EarlyDecision {
    /// The answer. The engine has counted it, so [`Event::Request`](crate::Event::Request) must not follow.
    Answer(Arc<Answer>),
    /// The engine would let the request continue unchanged. It has counted nothing.
    NotConcerned,
    /// [`Event::Request`](crate::Event::Request) must decide. The engine has counted nothing.
    Undecided,
}
