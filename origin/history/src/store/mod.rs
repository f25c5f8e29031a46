//! Browse history in SQL: removals, progress of folds, products, and a cold store.
//!
//! | module | |
//! |---|---|
//! | `removals` | deletions and clears, and those that Redis may not have |
//! | `marks` | the position in each log where a day's views begin |
//! | `folds` | progress of copying changed lists to the cold store |
//! | `products` | the product table |
//! | `cold` | lists in the cold store |
//! | `switches` | the switches set by operators |

mod cold;
mod folds;
mod marks;
mod products;
mod removals;
mod switches;

use weir_origin_core::clock::Clock;
use weir_origin_core::sql::Database;

pub use folds::{DayPart, FoldStore, PARTS};
pub use marks::MarkStore;
pub use removals::{PendingRemoval, RemovalOutcome, RemovalStore};
pub use switches::SwitchStore;

/// Browse history in SQL. Cloning is cheap.
///
/// Times are milliseconds since the Unix epoch. A call fails only if SQL is unreachable or returns an error.
#[derive(Clone)]
pub struct HistoryStore {
    db: Database,
    clock: Clock,
}

impl std::fmt::Debug for HistoryStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HistoryStore").finish_non_exhaustive()
    }
}

impl HistoryStore {
    /// Creates the store on a database.
    pub fn new(db: Database, clock: Clock) -> Self {
        Self { db, clock }
    }

    /// Removals: deletions and clears.
    pub fn removed(&self) -> RemovalStore<'_> {
        RemovalStore(self)
    }

    /// Progress of folds.
    pub fn folds(&self) -> FoldStore<'_> {
        FoldStore(self)
    }

    /// The position in each log where the views of a day begin.
    pub fn day_starts(&self) -> MarkStore<'_> {
        MarkStore(self)
    }

    /// The switches set by operators.
    pub fn switches(&self) -> SwitchStore<'_> {
        SwitchStore(self)
    }
}
