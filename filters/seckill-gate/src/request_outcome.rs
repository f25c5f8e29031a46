//! What becomes of a stream's request.

use std::cell::Cell;
use std::rc::Rc;

use weir_base::breaker::Pass;

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestOutcome {
    /// The gate has answered it.
    Answered,
    /// It went on to the origin with a claim.
    Passed(
        /// For the outcome at the origin.
        Pass,
    ),
    /// It went on to the origin whatever was decided: its sale is in shadow.
    Shadowed,
}

/// Where a stream reads what became of its request; `None` while that is not known.
pub type OutcomeCell = Rc<Cell<Option<RequestOutcome>>>;

/// Who waits for a decision.
#[derive(Clone, Debug, Default)]
pub struct Asker {
    /// What the stream is told.
    pub outcome: OutcomeCell,
    /// Whether the request goes on whatever is decided.
    pub is_shadow: bool,
}

impl Asker {
    /// Tells the stream.
    pub fn tell(&self, outcome: RequestOutcome) {
        self.outcome.set(Some(outcome));
    }
}
