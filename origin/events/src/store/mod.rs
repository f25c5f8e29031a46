//! The SQL tables of events: types, events, group positions, retries and dead letters.
//!
//! | module | does |
//! |---|---|
//! | `types` | event types |
//! | `events` | events in bulk, each once; the history of a customer or visitor |
//! | `counts` | the number of events by hour and type |
//! | `groups` | positions of groups, and whether they are paused |
//! | `retries` | events in retry |
//! | `dead` | dead letters |
//! | `archives` | steps of the archive |
//! | `pulls` | cursors of collectors |
//! | `compensations` | pending recomputations |
//! | `funnels` | times of events by type, in the order of customers |
//! | `segments` | segments, their members and the progress of their evaluation |

mod archives;
mod compensations;
mod counts;
mod dead;
mod events;
mod funnels;
mod groups;
mod pulls;
mod retries;
mod segments;
mod types;

use weir_origin_core::sql::Database;

pub use archives::{ArchiveCut, ArchiveStore};
pub use compensations::{Compensation, CompensationStore};
pub use counts::{CountStore, TREND_TYPES_MAX, Trend, TrendFilter, TypeTrend};
pub use dead::{DeadFilter, DeadLetter, DeadLetterStore};
pub use events::{
    CourseFilter, CourseOwner, EventCursor, NewEvent, StoreBatch, StoreCounts, TypeSummary,
};
pub use funnels::{EventTimes, FunnelStore};
pub use groups::Control;
pub use pulls::{PullState, PullStore};
pub use retries::{NewRetry, Retry, RetryCounts, RetryStore, SettledRetry, Settlement};
pub use segments::{
    CustomerRange, Member, MemberChanges, Progress, SegmentPut, SegmentStore, StoredSegment,
};
pub use types::{StoredType, TypeStore};

/// The group that writes events to this store.
pub const STORE_GROUP: &str = "store";

/// Maximum stored length of a message, in characters.
const MESSAGE_LEN_MAX: usize = 500;

/// Events in SQL. Cloning is cheap.
///
/// Times are milliseconds since the Unix epoch. A call fails only if SQL is unreachable or returns an error.
#[derive(Clone, Debug)]
pub struct EventStore {
    db: Database,
}

impl EventStore {
    /// Creates the store on a database.
    pub fn new(db: Database) -> Self {
        Self { db }
    }

    /// The archive's steps.
    pub fn archives(&self) -> ArchiveStore<'_> {
        ArchiveStore(self)
    }

    /// The number of events by hour and type.
    pub fn counts(&self) -> CountStore<'_> {
        CountStore(self)
    }

    /// Dead letters: events refused on arrival, or given up by a group.
    pub fn letters(&self) -> DeadLetterStore<'_> {
        DeadLetterStore(self)
    }

    /// Pending recomputations of groups.
    pub fn replays(&self) -> CompensationStore<'_> {
        CompensationStore(self)
    }

    /// Cursors of the collectors that pull events.
    pub fn pulls(&self) -> PullStore<'_> {
        PullStore(self)
    }

    /// Events in retry, and events waiting behind them.
    pub fn retry_queue(&self) -> RetryStore<'_> {
        RetryStore(self)
    }

    /// Times of events, for funnels.
    pub fn funnels(&self) -> FunnelStore<'_> {
        FunnelStore(self)
    }

    /// Segments and their members.
    pub fn segments(&self) -> SegmentStore<'_> {
        SegmentStore(self)
    }

    /// The registered event types.
    pub fn registry(&self) -> TypeStore<'_> {
        TypeStore(self)
    }
}

/// Result of a group's step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The step was stored with all its effects.
    Taken,
    /// The stored position differs: an operator moved the group. Nothing was changed.
    Moved,
}

/// A move of a group, conditional on its position.
#[derive(Clone, Copy, Debug)]
pub struct Move<'a> {
    /// The group.
    pub group: &'a str,
    /// The source.
    pub source: &'a str,
    /// The expected position.
    pub from: u64,
    /// The new position.
    pub to: u64,
    /// The current time, in milliseconds since the Unix epoch.
    pub now_ms: u64,
}

/// Cuts a message to the stored length.
fn cut(message: &str) -> String {
    message.chars().take(MESSAGE_LEN_MAX).collect()
}
