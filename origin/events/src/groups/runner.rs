//! Reads the log for one group and tracks its position.
//!
//! SQL stores the position. One transaction writes the effects of a batch and moves the position, only if the stored
//! position is the one that this runner expects. If an operator moves the group, the next step fails, and the runner
//! resumes at the new position.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::GroupTimes;
use super::status::{GroupState, Status};
use crate::log::{Batch, EventLog, GroupReader, LogError, ReadOutcome, Source};
use crate::store::{EventStore, Step};
use weir_origin_core::sql::SqlError;

/// Why a step failed.
#[derive(Debug, thiserror::Error)]
pub enum WorkError {
    /// A SQL call failed.
    #[error(transparent)]
    Sql(#[from] SqlError),
    /// The handler's target is unavailable.
    #[error("{0}")]
    Outage(String),
    /// The log cannot be read.
    #[error(transparent)]
    Log(#[from] LogError),
}

/// A group's position after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepResult {
    /// The position in SQL. It is unchanged while the work still collects events.
    To(u64),
    /// The stored position differs: an operator moved the group. Nothing was written.
    Moved,
}

/// Result of the due work that does not come from the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DueRetries {
    /// When the next work is due, in milliseconds since the Unix epoch.
    pub(crate) at_ms: Option<u64>,
    /// The group's position, if this work moved it.
    pub(crate) step: Option<StepResult>,
}

/// What a group does with batches.
pub(crate) trait Work: Send {
    /// The group reads exactly these sources from now on.
    fn keep(&mut self, _sources: &[Source]) {}

    /// Where to resume a source at `position`: there or earlier.
    fn place(
        &mut self,
        _source: &Source,
        position: u64,
    ) -> impl Future<Output = Result<u64, WorkError>> + Send {
        std::future::ready(Ok(position))
    }

    /// The group reads this source from now on, starting at `position`.
    fn begin(
        &mut self,
        source: &Source,
        position: u64,
    ) -> impl Future<Output = Result<(), WorkError>> + Send;

    /// Handles a batch and moves the group on from `from`. After an error the same batch is passed again, unless the
    /// group was moved.
    fn take(
        &mut self,
        batch: &Batch,
        from: u64,
    ) -> impl Future<Output = Result<StepResult, WorkError>> + Send;

    /// Does some of the due work that does not come from the log. The group is at `at`.
    fn do_due(
        &mut self,
        source: &Source,
        at: u64,
    ) -> impl Future<Output = Result<DueRetries, WorkError>> + Send;
}

/// Dependencies of a runner.
pub(crate) struct RunnerDeps {
    pub(crate) group: String,
    pub(crate) log: Arc<dyn EventLog>,
    pub(crate) store: EventStore,
    pub(crate) status: Arc<Status>,
    /// Signals that an operator paused or moved the group, or requested retries.
    pub(crate) changed: Arc<Notify>,
    pub(crate) times: GroupTimes,
    pub(crate) clock: crate::Clock,
}

/// Runs one group.
pub(crate) struct Runner<W> {
    deps: RunnerDeps,
    work: W,
    reader: Box<dyn GroupReader>,
    /// The group's position in each source of this runner.
    positions: BTreeMap<Source, u64>,
    /// Sources whose start position is not determined yet.
    unplaced: Vec<Source>,
    /// The batch that was read but not handled yet.
    batch: Option<Batch>,
    failures: u32,
    /// When to check next whether the group was paused or moved.
    look_at: Instant,
    /// When due work is checked next.
    due_at: Option<Instant>,
}

/// The next action of a runner.
enum RunnerStep {
    Go,
    Wait(Duration),
}

impl StepResult {
    /// The report after a step to `to`.
    pub(crate) fn after_step(step: Step, to: u64) -> Self {
        match step {
            Step::Taken => Self::To(to),
            Step::Moved => Self::Moved,
        }
    }
}

impl<W: Work> Runner<W> {
    /// Creates the group's runner. From now on the log keeps records that the group has not handled.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub(crate) fn new(deps: RunnerDeps, work: W) -> Result<Self, LogError> {
        Ok(Self {
            reader: deps.log.reader(&deps.group)?,
            deps,
            work,
            positions: BTreeMap::new(),
            unplaced: Vec::new(),
            batch: None,
            failures: 0,
            look_at: Instant::now(),
            due_at: None,
        })
    }

    /// Handles events until `stop`. The next process handles interrupted events again.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        loop {
            let turn = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                turn = self.turn() => turn,
            };
            let pause = match turn {
                Ok(RunnerStep::Go) => continue,
                Ok(RunnerStep::Wait(pause)) => pause,
                Err(error) => self.failed(&error),
            };
            let changed = self.deps.changed.clone();
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = changed.notified() => {}
                () = tokio::time::sleep(pause) => {}
            }
            self.look_at = Instant::now();
        }
    }

    async fn turn(&mut self) -> Result<RunnerStep, WorkError> {
        match self.prepare().await {
            Ok(RunnerStep::Go) => {}
            Ok(wait) => return Ok(wait),
            Err(error) => {
                // Another reader may own the source by now; only the log reports that.
                self.listen().await;
                return Err(error);
            }
        }
        if self.batch.is_none() {
            self.do_due().await?;
            self.read().await?;
        }
        if let Some(batch) = self.batch.take() {
            let accepted = self.take(&batch).await;
            if accepted.is_err() {
                self.batch = Some(batch);
            }
            accepted?;
        }
        self.succeeded();
        Ok(RunnerStep::Go)
    }

    /// Applies operator changes and starts new sources.
    async fn prepare(&mut self) -> Result<RunnerStep, WorkError> {
        if Instant::now() >= self.look_at && self.is_paused().await? {
            return Ok(RunnerStep::Wait(self.deps.times.look));
        }
        while let Some(source) = self.unplaced.last().cloned() {
            let store = &self.deps.store;
            let position = store.position(&self.deps.group, &source).await?;
            self.start(&source, position).await?;
            self.unplaced.pop();
        }
        Ok(RunnerStep::Go)
    }

    /// Waits briefly for the log to report the assigned sources.
    async fn listen(&mut self) {
        if self.batch.is_some() {
            return;
        }
        let next = tokio::time::timeout(self.deps.times.look, self.reader.next()).await;
        match next {
            Ok(Ok(ReadOutcome::Assigned(sources))) => self.place_again(sources),
            Ok(Ok(ReadOutcome::Batch(batch))) => self.batch = Some(batch),
            Ok(Err(_)) => self.place_again(self.sources()),
            Err(_) => {}
        }
    }

    /// All sources currently assigned to this reader.
    fn sources(&self) -> Vec<Source> {
        let unplaced = self.unplaced.iter();
        let placed = self
            .positions
            .keys()
            .filter(|source| !self.unplaced.contains(source));
        placed.chain(unplaced).cloned().collect()
    }

    /// Whether an operator has paused the group. Also applies position changes.
    async fn is_paused(&mut self) -> Result<bool, WorkError> {
        let (group, store) = (&self.deps.group, &self.deps.store);
        let is_paused = store.is_paused(group).await?;
        let sources: Vec<Source> = self.positions.keys().cloned().collect();
        for source in sources {
            let existing = self.deps.store.position(&self.deps.group, &source).await?;
            if existing != self.positions.get(&source).copied() {
                self.start(&source, existing).await?;
            }
        }
        self.look_at = Instant::now() + self.deps.times.look;
        if is_paused {
            self.deps.status.set(GroupState::Paused);
        }
        Ok(is_paused)
    }

    /// Resumes a source at its position in SQL.
    async fn start(&mut self, source: &Source, position: Option<u64>) -> Result<(), WorkError> {
        self.batch.take_if(|batch| batch.source == *source);
        let query = match position {
            Some(position) => Some(self.work.place(source, position).await?),
            None => None,
        };
        let at = self.reader.start_at(source, query).await?;
        let (group, store) = (&self.deps.group, &self.deps.store);
        let now_ms = (self.deps.clock)();
        match position {
            None => store.begin(group, source, at, now_ms).await?,
            // The log has deleted the files of this position, or the position was invalid.
            Some(before) if before != at => store.seek(group, source, at, now_ms).await?,
            Some(_) => {}
        }
        self.work.begin(source, at).await?;
        self.positions.insert(source.clone(), at);
        info!(group, %source, at, "consumer group resumed");
        Ok(())
    }

    async fn do_due(&mut self) -> Result<(), WorkError> {
        if self.due_at.is_some_and(|at| Instant::now() < at) {
            return Ok(());
        }
        let mut next_ms: Option<u64> = None;
        let sources: Vec<(Source, u64)> = self.positions.clone().into_iter().collect();
        for (source, at) in sources {
            let due = self.work.do_due(&source, at).await?;
            next_ms = next_ms.into_iter().chain(due.at_ms).min();
            if let Some(step) = due.step {
                self.stepped(&source, at, step).await;
            }
        }
        // Operators can request retries at any time: they notify the runner, or the next check finds them.
        let now_ms = (self.deps.clock)();
        let pause = next_ms.map(|due_ms| Duration::from_millis(due_ms.saturating_sub(now_ms)));
        let pause = pause.unwrap_or(self.deps.times.look);
        self.due_at = Some(Instant::now() + pause.min(self.deps.times.look));
        Ok(())
    }

    /// Reads the next batch; returns early if other work is due.
    async fn read(&mut self) -> Result<(), WorkError> {
        let changed = self.deps.changed.clone();
        let until = self.due_at.map_or(self.look_at, |at| at.min(self.look_at));
        let next = tokio::select! {
            next = self.reader.next() => next,
            () = changed.notified() => {
                self.look_at = Instant::now();
                self.due_at = None;
                return Ok(());
            }
            () = tokio::time::sleep_until(until) => return Ok(()),
        };
        match next {
            Ok(ReadOutcome::Batch(batch)) => self.batch = Some(batch),
            Ok(ReadOutcome::Assigned(sources)) => self.place_again(sources),
            Err(error) => {
                self.place_again(self.sources());
                return Err(error.into());
            }
        }
        Ok(())
    }

    fn place_again(&mut self, sources: Vec<Source>) {
        self.work.keep(&sources);
        self.positions.clear();
        self.unplaced = sources;
        self.due_at = None;
    }

    async fn take(&mut self, batch: &Batch) -> Result<(), WorkError> {
        let Some(from) = self.positions.get(&batch.source).copied() else {
            // Another runner owns the source by now.
            return Ok(());
        };
        let step = self.work.take(batch, from).await?;
        self.stepped(&batch.source, from, step).await;
        // Failed events may be due soon.
        self.due_at = None;
        Ok(())
    }

    /// Applies the result of a step.
    async fn stepped(&mut self, source: &Source, from: u64, step: StepResult) {
        match step {
            StepResult::To(to) if to == from => {}
            StepResult::To(to) => {
                self.positions.insert(source.clone(), to);
                self.reader.commit(source, to).await;
            }
            StepResult::Moved => self.look_at = Instant::now(),
        }
    }

    fn succeeded(&mut self) {
        if self.failures > 0 {
            info!(
                group = self.deps.group,
                failures = self.failures,
                "consumer group works again"
            );
        }
        self.failures = 0;
        self.deps.status.set(GroupState::Running);
    }

    /// Records a failure and returns the time to wait.
    fn failed(&mut self, error: &WorkError) -> Duration {
        if self.failures == 0 {
            warn!(%error, group = self.deps.group, "consumer group failed; retrying");
        }
        self.failures = self.failures.saturating_add(1);
        self.deps.status.outage(error.to_string());
        self.deps.times.outage.pause(self.failures)
    }
}
