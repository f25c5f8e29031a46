//! Browse history in SQL: what was removed, how far folds are, what is known of products, and a cold store.
//!
//! | module | |
//! |---|---|
//! | `removals` | deletions and clearings, and those that Redis may not have followed |
//! | `marks` | where a day's views begin in each log |
//! | `folds` | how far the lists that changed on a day are copied |
//! | `products` | the table of products |
//! | `cold` | lists on disk |
//! | `switches` | what operators have switched |

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

/// Browse history in SQL. Cloning it is cheap.
///
/// Instants are milliseconds since the Unix epoch. A call fails only when SQL does not answer or answers with an error.
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
    /// The store in this database.
    pub fn new(db: Database, clock: Clock) -> Self {
        Self { db, clock }
    }

    /// Deletions and clearings. They are here first, and then in Redis; what Redis may not have followed is noted in the same
    pub fn removed(&self) -> RemovalStore<'_> {
        RemovalStore(self)
    }

    /// How far the lists that changed on a day are copied to the cold store. A day has parts, so that several origins may work on
    pub fn folds(&self) -> FoldStore<'_> {
        FoldStore(self)
    }

    /// Where the views of a day begin in each log.
    pub fn begins(&self) -> MarkStore<'_> {
        MarkStore(self)
    }

    /// What operators have switched.
    pub fn switches(&self) -> SwitchStore<'_> {
        SwitchStore(self)
    }
}
