//! What SQL holds of events: their types, the events, how far groups are, what they try again, and dead letters.
//!
//! | module | does |
//! |---|---|
//! | `types` | the registry of types |
//! | `events` | events, many in a transaction, each once; a customer's course |
//! | `groups` | how far groups are, and whether they run |
//! | `retries` | what a group tries again |
//! | `dead` | dead letters |
//! | `archives` | which ranges of the log are a step of the archive |
//! | `pulls` | how far collectors are that fetch events |
//! | `compensations` | whose state is to be computed anew |

mod archives;
mod compensations;
mod dead;
mod events;
mod groups;
mod pulls;
mod retries;
mod types;

use weir_origin_core::sql::Database;

pub use archives::{ArchiveCut, ArchiveStore};
pub use compensations::{Compensation, CompensationStore};
pub use dead::{DeadFilter, DeadLetter, DeadLetterStore};
pub use events::{CourseFilter, CourseOwner, EventCursor, NewEvent, StoreBatch, StoreCounts};
pub use groups::Control;
pub use pulls::{PullState, PullStore};
pub use retries::{NewRetry, Retry, RetryCounts, RetryStore, SettledRetry, Settlement};
pub use types::{StoredType, TypeStore};

/// Which group takes events into this store.
pub const STORE_GROUP: &str = "store";

/// The longest message that is kept, in characters.
const MESSAGE_LEN_MAX: usize = 500;

/// Events in SQL. Cloning it is cheap.
///
/// Instants are milliseconds since the Unix epoch. A call fails only when SQL does not answer or answers with an
/// error.
#[derive(Clone, Debug)]
pub struct EventStore {
    db: Database,
}

impl EventStore {
    /// The store in this database.
    pub fn new(db: Database) -> Self {
        Self { db }
    }

    /// Which ranges of the log are a step of the archive: noted before its first file is written, so that a repetition writes the
    pub fn archives(&self) -> ArchiveStore<'_> {
        ArchiveStore(self)
    }

    /// Dead letters: what was refused when it came, and what a group has given up.
    pub fn letters(&self) -> DeadLetterStore<'_> {
        DeadLetterStore(self)
    }

    /// Whose state in a group is to be computed anew.
    pub fn replays(&self) -> CompensationStore<'_> {
        CompensationStore(self)
    }

    /// How far collectors are that fetch events from elsewhere.
    pub fn pulls(&self) -> PullStore<'_> {
        PullStore(self)
    }

    /// What a group tries again, and what waits behind it.
    pub fn retry_queue(&self) -> RetryStore<'_> {
        RetryStore(self)
    }

    /// The registry of types.
    pub fn registry(&self) -> TypeStore<'_> {
        TypeStore(self)
    }
}

/// Whether a group's step was noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It was, with all that belongs to it.
    Taken,
    /// The group was elsewhere: somebody has moved it. Nothing was changed.
    Moved,
}

/// Where a group goes on, if it is where it is believed to be.
#[derive(Clone, Copy, Debug)]
pub struct Move<'a> {
    /// Which group.
    pub group: &'a str,
    /// In which source.
    pub source: &'a str,
    /// Where it is.
    pub from: u64,
    /// Where it goes on.
    pub to: u64,
    /// When.
    pub now_ms: u64,
}

/// As much of a message as is kept.
fn cut(message: &str) -> String {
    message.chars().take(MESSAGE_LEN_MAX).collect()
}
