//! How far the views of each log are in Redis, noted beside the lists: so a Redis that has lost views is noticed.
//!
//! A mark is moved after the views that it stands for, by whoever knows where it was. If it is missing, or before where it was left,
//! Redis has lost what came since: all of it, or what was changed after its file was written. Of a cluster each node may
//! lose by itself, so there is a mark in each 64th of its slots: a node with a fair share of them has one.
//!
//! What is older than the days that are folded is in the cold store. So it is noted in SQL where a day's views begin in the log.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use weir_history::DAY_MS;

use super::History;
use crate::jobs::fold::FoldError;
use weir_origin_core::redis::CallError;
use weir_origin_core::sql::SqlError;

/// Where a day's views begin in each log, as far as this origin has noted it.
pub(super) type DayStarts = Mutex<BTreeMap<String, (u64, u64)>>;

/// Where to read a log again after Redis has lost all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rebuild {
    /// From this position on.
    Position(u64),
    /// What was appended at this time or later, in milliseconds since the Unix epoch.
    Time(u64),
}

impl History {
    /// Redis has the views of a log between two positions. False: it has lost some that lie before.
    ///
    /// # Errors
    /// When Redis or SQL does not answer. It may be called again.
    pub async fn advance_mark(&self, source: &str, from: u64, to: u64) -> Result<bool, FoldError> {
        self.note_begin(source, from).await?;
        Ok(self.0.hot.advance_mark(source, from, to).await?)
    }

    /// How far the views of a log are in Redis; `None`: nobody knows.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn mark(&self, source: &str) -> Result<Option<u64>, CallError> {
        self.0.hot.mark(source).await
    }

    /// The views of a log are in Redis up to there, as far as they are to be.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn set_mark(&self, source: &str, to: u64) -> Result<(), CallError> {
        self.0.hot.set_mark(source, to).await
    }

    /// From where on a log must be read again so that lists are what they were at `position`.
    ///
    /// # Errors
    /// When SQL does not answer.
    pub async fn rebuild_from(&self, source: &str, position: u64) -> Result<Rebuild, SqlError> {
        let today = self.now_ms() / DAY_MS;
        let store = &self.0.store;
        let first = store.folds().oldest_open_day(today).await?.unwrap_or(today);
        if !store.begins().has_begin(source, first).await? {
            // Nothing was noted then. A day more: what was seen on a day may have been appended on the one before.
            return Ok(Rebuild::Time(first.saturating_sub(1) * DAY_MS));
        }
        let begin = store.begins().begin_since(source, first).await?;
        Ok(Rebuild::Position(
            begin.map_or(position, |begin| begin.min(position)),
        ))
    }

    /// Notes where the views of this day begin: at the first of these positions, or the least.
    async fn note_begin(&self, source: &str, from: u64) -> Result<(), SqlError> {
        let today = self.now_ms() / DAY_MS;
        let known = self.begins().get(source).copied();
        if known.is_some_and(|(day, begin)| day == today && begin <= from) {
            return Ok(());
        }
        self.0
            .store
            .begins()
            .note_begin(source, today, from)
            .await?;
        self.begins().insert(source.to_owned(), (today, from));
        Ok(())
    }

    fn begins(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, (u64, u64)>> {
        // Each change is one step.
        self.0.begins.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
