//! Marks: how far a group's effects are, noted where they are. What loses effects loses the mark with them, and the group goes
//! back by itself.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tracing::{error, warn};

use super::runner::WorkError;
use crate::log::{EventLog, Position, Source, Target};
use crate::metrics::EventMetrics;

/// How often it is looked whether a mark is still there while nothing comes.
const LOOK: Duration = Duration::from_secs(5);

/// What a mark does not answer at once; or why it does not.
pub type MarkFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, String>> + Send + 'a>>;

/// A mark for each source, kept where a group's effects are.
pub trait Marks: fmt::Debug + Send + Sync {
    /// Moves the mark, if it is at `from` or behind it; false: it is before, or gone. Twice does the same as once.
    fn advance<'a>(&'a self, source: &'a str, from: u64, to: u64) -> MarkFuture<'a, bool>;

    /// Where the mark is.
    fn read<'a>(&'a self, source: &'a str) -> MarkFuture<'a, Option<u64>>;

    /// Puts the mark there, wherever it was.
    fn write<'a>(&'a self, source: &'a str, to: u64) -> MarkFuture<'a, ()>;

    /// Where a group that is at `at` must go on after all of its effects were lost.
    fn rebuild<'a>(&'a self, source: &'a str, at: u64) -> MarkFuture<'a, Target>;
}

/// Watches the marks of one group.
pub(super) struct Watch {
    pub(super) group: String,
    pub(super) marks: Arc<dyn Marks>,
    pub(super) log: Arc<dyn EventLog>,
    pub(super) metrics: EventMetrics,
    seen: BTreeMap<Source, CheckedMark>,
}

/// What is known of a mark.
#[derive(Clone, Copy)]
struct CheckedMark {
    at: Position,
    looked: Instant,
}

impl Watch {
    pub(super) fn new(
        group: String,
        marks: Arc<dyn Marks>,
        log: Arc<dyn EventLog>,
        metrics: EventMetrics,
    ) -> Self {
        Self {
            group,
            marks,
            log,
            metrics,
            seen: BTreeMap::new(),
        }
    }

    /// Others move the marks of other sources.
    pub(super) fn keep(&mut self, sources: &[Source]) {
        self.seen.retain(|source, _| sources.contains(source));
    }

    fn saw(&mut self, source: &Source, at: Position) {
        let looked = Instant::now();
        self.seen.insert(source.clone(), CheckedMark { at, looked });
    }

    /// Where to go on with a source that is at `position`.
    pub(super) async fn place(
        &mut self,
        source: &Source,
        position: Position,
    ) -> Result<Position, WorkError> {
        let mark = self.marks.read(source).await.map_err(WorkError::Outage)?;
        let seen = self.seen.get(source).map(|seen| seen.at);
        match mark {
            Some(mark) if mark >= position => self.saw(source, mark),
            // It is where we have left it, so an operator has skipped what lies between.
            Some(_) if mark == seen => self.put(source, position).await?,
            _ => return self.go_back(source, position, mark).await,
        }
        Ok(position)
    }

    /// A source begins: at its start if it never had a place, or behind what the log has no more.
    pub(super) async fn begin(&mut self, source: &Source, at: Position) -> Result<(), WorkError> {
        match self.seen.get(source) {
            Some(seen) if seen.at >= at => Ok(()),
            _ => self.put(source, at).await,
        }
    }

    async fn put(&mut self, source: &Source, at: Position) -> Result<(), WorkError> {
        let put = self.marks.write(source, at).await;
        put.map_err(WorkError::Outage)?;
        self.saw(source, at);
        Ok(())
    }

    /// Moves the mark with a step of the group. Tells where the group must go on instead if effects were lost.
    pub(super) async fn advance(
        &mut self,
        source: &Source,
        from: Position,
        to: Position,
    ) -> Result<Option<Position>, WorkError> {
        let moved = self.marks.advance(source, from, to).await;
        if !moved.map_err(WorkError::Outage)? {
            let mark = self.marks.read(source).await.map_err(WorkError::Outage)?;
            let back = self.go_back(source, from, mark).await?;
            if back < from {
                return Ok(Some(back));
            }
            // There was nothing to lose.
            self.put(source, to).await?;
        }
        self.saw(source, to);
        Ok(None)
    }

    /// Looks now and then. Tells where the group, which is at `at`, must go on if effects were lost.
    pub(super) async fn look(
        &mut self,
        source: &Source,
        at: Position,
    ) -> Result<Option<Position>, WorkError> {
        let seen = self.seen.get(source);
        if seen.is_some_and(|seen| seen.looked.elapsed() < LOOK) {
            return Ok(None);
        }
        let mark = self.marks.read(source).await.map_err(WorkError::Outage)?;
        if let Some(mark) = mark.filter(|mark| *mark >= at) {
            self.saw(source, mark);
            return Ok(None);
        }
        let back = self.go_back(source, at, mark).await?;
        Ok((back < at).then_some(back))
    }

    /// Finds where to go on, says so, and leaves the mark there.
    async fn go_back(
        &mut self,
        source: &Source,
        position: Position,
        mark: Option<Position>,
    ) -> Result<Position, WorkError> {
        let target = match mark {
            Some(mark) => Target::Position(mark),
            None => {
                let rebuild = self.marks.rebuild(source, position).await;
                rebuild.map_err(WorkError::Outage)?
            }
        };
        let to = self.log.place(source, target).await?.min(position);
        let group = &self.group;
        let first = self.log.place(source, Target::Start).await?;
        if matches!(target, Target::Position(wanted) if wanted < first) {
            error!(group, %source, ?target, to, "the group's derived data is lost, and the log has only a part of its events");
        }
        warn!(group, %source, position, ?mark, to, "the group's derived data is lost; replaying the log");
        self.metrics.lost(group);
        self.put(source, to).await?;
        Ok(to)
    }
}
