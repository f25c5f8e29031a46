//! Checkpoints: the position of each log up to which Redis has the views, stored next to the lists. They detect a Redis
//! that lost views.
//!
//! A reader moves the checkpoint after it has written the views. If the checkpoint is missing or behind the reader's
//! last position, Redis has lost views: all of them, or those since its last snapshot. Each node of a cluster can lose
//! data independently. Each 64th of the slots therefore has a checkpoint, so a node with a fair share of slots has at
//! least one.
//!
//! The cold store has the views of all folded days. SQL therefore stores the log position at which each day begins.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use weir_history::DAY_MS;

use super::History;
use crate::jobs::fold::FoldError;
use weir_origin_core::redis::CallError;
use weir_origin_core::sql::SqlError;

/// The day and its start position in each log, as recorded by this origin.
pub(super) type DayStarts = Mutex<BTreeMap<String, (u64, u64)>>;

/// Where to resume a log after Redis has lost all views.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rebuild {
    /// At this position.
    Position(u64),
    /// At the first record appended at or after this time, in milliseconds since the Unix epoch.
    Time(u64),
}

impl History {
    /// Records that Redis has the views of a log between two positions. Returns false if Redis has lost earlier ones.
    ///
    /// # Errors
    /// If Redis or SQL is unavailable. The call may be repeated.
    pub async fn advance_mark(&self, source: &str, from: u64, to: u64) -> Result<bool, FoldError> {
        self.note_begin(source, from).await?;
        Ok(self.0.hot.advance_mark(source, from, to).await?)
    }

    /// The position up to which Redis has the views of a log; `None`: unknown.
    ///
    /// # Errors
    /// If Redis is unavailable.
    pub async fn mark(&self, source: &str) -> Result<Option<u64>, CallError> {
        self.0.hot.mark(source).await
    }

    /// Sets the position up to which Redis has the views of a log.
    ///
    /// # Errors
    /// If Redis is unavailable.
    pub async fn set_mark(&self, source: &str, to: u64) -> Result<(), CallError> {
        self.0.hot.set_mark(source, to).await
    }

    /// Where to resume a log in order to restore the lists as of `position`.
    ///
    /// # Errors
    /// If a SQL call fails.
    pub async fn rebuild_from(&self, source: &str, position: u64) -> Result<Rebuild, SqlError> {
        let today = self.now_ms() / DAY_MS;
        let store = &self.0.store;
        let first = store.folds().oldest_open_day(today).await?.unwrap_or(today);
        if !store.day_starts().has_begin(source, first).await? {
            // No start was recorded. Go back one more day: a view of one day may have been appended on the day before.
            return Ok(Rebuild::Time(first.saturating_sub(1) * DAY_MS));
        }
        let begin = store.day_starts().begin_since(source, first).await?;
        Ok(Rebuild::Position(
            begin.map_or(position, |begin| begin.min(position)),
        ))
    }

    /// Records where the views of this day begin: at the smallest of these positions.
    async fn note_begin(&self, source: &str, from: u64) -> Result<(), SqlError> {
        let today = self.now_ms() / DAY_MS;
        let existing = self.day_starts().get(source).copied();
        if existing.is_some_and(|(day, begin)| day == today && begin <= from) {
            return Ok(());
        }
        self.0
            .store
            .day_starts()
            .note_begin(source, today, from)
            .await?;
        self.day_starts().insert(source.to_owned(), (today, from));
        Ok(())
    }

    fn day_starts(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, (u64, u64)>> {
        // Each change is one step.
        self.0
            .day_starts
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
