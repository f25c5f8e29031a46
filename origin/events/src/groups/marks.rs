//! Checkpoints: the position of a group's effects, stored with those effects. If the effects are lost, the checkpoint
//! is lost too, and the group replays the log.

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

/// How often an idle group checks that its checkpoint still exists.
const LOOK: Duration = Duration::from_secs(5);

/// Future of a checkpoint call; the error is a message.
pub type MarkFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, String>> + Send + 'a>>;

/// Stores one checkpoint per source, next to a group's effects.
pub trait Marks: fmt::Debug + Send + Sync {
    /// Moves the checkpoint to `to` if it is at or after `from`. Returns false if it is earlier or missing. Idempotent.
    fn advance<'a>(&'a self, source: &'a str, from: u64, to: u64) -> MarkFuture<'a, bool>;

    /// Reads the checkpoint.
    fn read<'a>(&'a self, source: &'a str) -> MarkFuture<'a, Option<u64>>;

    /// Sets the checkpoint unconditionally.
    fn write<'a>(&'a self, source: &'a str, to: u64) -> MarkFuture<'a, ()>;

    /// Where a group at position `at` must resume after all of its effects were lost.
    fn rebuild<'a>(&'a self, source: &'a str, at: u64) -> MarkFuture<'a, Target>;
}

/// Watches the marks of one group.
pub(super) struct Watch {
    pub(super) group: String,
    pub(super) marks: Arc<dyn Marks>,
    pub(super) log: Arc<dyn EventLog>,
    pub(super) metrics: EventMetrics,
    observed: BTreeMap<Source, CheckedMark>,
}

/// The checkpoint as last read or written.
#[derive(Clone, Copy)]
struct CheckedMark {
    at: Position,
    checked_at: Instant,
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
            observed: BTreeMap::new(),
        }
    }

    /// Forgets all other sources: other readers move their checkpoints.
    pub(super) fn keep(&mut self, sources: &[Source]) {
        self.observed.retain(|source, _| sources.contains(source));
    }

    fn saw(&mut self, source: &Source, at: Position) {
        let looked = Instant::now();
        self.observed.insert(
            source.clone(),
            CheckedMark {
                at,
                checked_at: looked,
            },
        );
    }

    /// Where to resume a source at `position`.
    pub(super) async fn place(
        &mut self,
        source: &Source,
        position: Position,
    ) -> Result<Position, WorkError> {
        let mark = self.marks.read(source).await.map_err(WorkError::Outage)?;
        let observed = self.observed.get(source).map(|observed| observed.at);
        match mark {
            Some(mark) if mark >= position => self.saw(source, mark),
            // The checkpoint is where this reader left it, so an operator skipped the events in between.
            Some(_) if mark == observed => self.put(source, position).await?,
            _ => return self.go_back(source, position, mark).await,
        }
        Ok(position)
    }

    /// Begins a source: at its start if it had no position, or after records that the log has deleted.
    pub(super) async fn begin(&mut self, source: &Source, at: Position) -> Result<(), WorkError> {
        match self.observed.get(source) {
            Some(observed) if observed.at >= at => Ok(()),
            _ => self.put(source, at).await,
        }
    }

    async fn put(&mut self, source: &Source, at: Position) -> Result<(), WorkError> {
        let put = self.marks.write(source, at).await;
        put.map_err(WorkError::Outage)?;
        self.saw(source, at);
        Ok(())
    }

    /// Moves the checkpoint with a step of the group. If effects were lost, returns the position to resume from.
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
            // No effects existed that could be lost.
            self.put(source, to).await?;
        }
        self.saw(source, to);
        Ok(None)
    }

    /// Checks the checkpoint at intervals. If effects of a group at `at` were lost, returns the position to resume
    /// from.
    pub(super) async fn look(
        &mut self,
        source: &Source,
        at: Position,
    ) -> Result<Option<Position>, WorkError> {
        let observed = self.observed.get(source);
        if observed.is_some_and(|observed| observed.checked_at.elapsed() < LOOK) {
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

    /// Finds the position to resume from, logs it, and sets the checkpoint to it.
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
        if matches!(target, Target::Position(requested) if requested < first) {
            error!(group, %source, ?target, to, "the group's derived data is lost, and the log has only a part of its events");
        }
        warn!(group, %source, position, ?mark, to, "the group's derived data is lost; replaying the log");
        self.metrics.lost(group);
        self.put(source, to).await?;
        Ok(to)
    }
}
