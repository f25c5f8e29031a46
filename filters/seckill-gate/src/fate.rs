//! What becomes of a stream's request.

use std::cell::Cell;
use std::rc::Rc;

use weir_base::breaker::Pass;

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
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
pub type Outcome = Rc<Cell<Option<Fate>>>;

/// Who waits for a decision.
#[derive(Clone, Debug, Default)]
pub struct Asker {
    /// What the stream is told.
    pub outcome: Outcome,
    /// Whether the request goes on whatever is decided.
    pub is_shadow: bool,
}

impl Asker {
    /// Tells the stream.
    pub fn tell(&self, fate: Fate) {
        self.outcome.set(Some(fate));
    }
}
