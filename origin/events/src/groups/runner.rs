//! Reads for one group, and knows where it goes on.
//!
//! The position is in SQL, and moves in one transaction with what was written of the batch, only from where this runner
//! believes it to be. Whoever moves it by hand makes the next step fail; then the runner reads again from where it is now.

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

/// What was to be done was not.
#[derive(Debug, thiserror::Error)]
pub enum WorkError {
    /// SQL does not answer.
    #[error(transparent)]
    Sql(#[from] SqlError),
    /// What handles events is away.
    #[error("{0}")]
    Outage(String),
    /// The log cannot be read.
    #[error(transparent)]
    Log(#[from] LogError),
}

/// Where a group is after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepResult {
    /// SQL says that it is here. Where it was, if its work has more to gather first.
    To(u64),
    /// It was elsewhere: somebody has moved it. Nothing was noted.
    Moved,
}

/// What is due beside the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DueRetries {
    /// When something is due next, in milliseconds since the Unix epoch.
    pub(crate) at_ms: Option<u64>,
    /// Where the group is now, if that was part of it.
    pub(crate) step: Option<StepResult>,
}

/// What a group does with a batch.
pub(crate) trait Work: Send {
    /// These sources are the group's, and no other ones.
    fn keep(&mut self, _sources: &[Source]) {}

    /// Where to go on with a source that is at `position`: there, or before.
    fn place(
        &mut self,
        _source: &Source,
        position: u64,
    ) -> impl Future<Output = Result<u64, WorkError>> + Send {
        std::future::ready(Ok(position))
    }

    /// This source is the group's from now on, from `position`.
    fn begin(
        &mut self,
        source: &Source,
        position: u64,
    ) -> impl Future<Output = Result<(), WorkError>> + Send;

    /// Handles a batch, and moves the group on from `from`. After an error the same batch comes again, unless the group
    /// was moved.
    fn take(
        &mut self,
        batch: &Batch,
        from: u64,
    ) -> impl Future<Output = Result<StepResult, WorkError>> + Send;

    /// Does what is due beside the log, a part of it at once. The group is at `at`.
    fn do_due(
        &mut self,
        source: &Source,
        at: u64,
    ) -> impl Future<Output = Result<DueRetries, WorkError>> + Send;
}

/// What a runner needs beside its work.
pub(crate) struct RunnerDeps {
    /// The group's name.
    pub(crate) group: String,
    pub(crate) log: Arc<dyn EventLog>,
    pub(crate) store: EventStore,
    pub(crate) status: Arc<Status>,
    /// Somebody has paused or moved the group.
    pub(crate) changed: Arc<Notify>,
    pub(crate) times: GroupTimes,
    pub(crate) clock: crate::Clock,
}

/// Runs one group.
pub(crate) struct Runner<W> {
    deps: RunnerDeps,
    work: W,
    reader: Box<dyn GroupReader>,
    /// Where the group is in each source that this runner has.
    positions: BTreeMap<Source, u64>,
    /// Sources of which it is not known yet where to go on.
    unplaced: Vec<Source>,
    /// What was read and not handled yet.
    batch: Option<Batch>,
    failures: u32,
    /// When to look next whether the group was paused or moved.
    look_at: Instant,
    /// When something is due beside the log.
    due_at: Option<Instant>,
}

/// What a runner does next.
enum RunnerStep {
    Go,
    Wait(Duration),
}

impl StepResult {
    /// After a step to `to`.
    pub(crate) fn after_step(step: Step, to: u64) -> Self {
        match step {
            Step::Taken => Self::To(to),
            Step::Moved => Self::Moved,
        }
    }
}

impl<W: Work> Runner<W> {
    /// The group's runner. From now on the log keeps what the group has not handled.
    ///
    /// # Errors
    /// When the log cannot be read.
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

    /// Handles events until `stop`. What is being handled then is handled again by the next process.
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
                // It may be that a source is another reader's meanwhile: only the log says so.
                self.listen().await;
                return Err(error);
            }
        }
        if self.batch.is_none() {
            self.do_due().await?;
            self.read().await?;
        }
        if let Some(batch) = self.batch.take() {
            let taken = self.take(&batch).await;
            if taken.is_err() {
                self.batch = Some(batch);
            }
            taken?;
        }
        self.succeeded();
        Ok(RunnerStep::Go)
    }

    /// Follows what operators say, and begins with sources that are new.
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

    /// Waits a moment for the log to say whose its sources are.
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

    /// All sources that are this reader's, as far as it knows.
    fn sources(&self) -> Vec<Source> {
        let unplaced = self.unplaced.iter();
        let placed = self
            .positions
            .keys()
            .filter(|source| !self.unplaced.contains(source));
        placed.chain(unplaced).cloned().collect()
    }

    /// Whether an operator has paused the group; follows if one has moved it.
    async fn is_paused(&mut self) -> Result<bool, WorkError> {
        let (group, store) = (&self.deps.group, &self.deps.store);
        let is_paused = store.is_paused(group).await?;
        let sources: Vec<Source> = self.positions.keys().cloned().collect();
        for source in sources {
            let known = self.deps.store.position(&self.deps.group, &source).await?;
            if known != self.positions.get(&source).copied() {
                self.start(&source, known).await?;
            }
        }
        self.look_at = Instant::now() + self.deps.times.look;
        if is_paused {
            self.deps.status.set(GroupState::Paused);
        }
        Ok(is_paused)
    }

    /// Goes on with a source where SQL says.
    async fn start(&mut self, source: &Source, position: Option<u64>) -> Result<(), WorkError> {
        self.batch.take_if(|batch| batch.source == *source);
        let sought = match position {
            Some(position) => Some(self.work.place(source, position).await?),
            None => None,
        };
        let at = self.reader.start_at(source, sought).await?;
        let (group, store) = (&self.deps.group, &self.deps.store);
        let now_ms = (self.deps.clock)();
        match position {
            None => store.begin(group, source, at, now_ms).await?,
            // The place is gone, with the files that it was in; or it was not fit.
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
        // Somebody may ask for something to be tried at any time: they say so, or it waits for the next look.
        let now_ms = (self.deps.clock)();
        let pause = next_ms.map(|due_ms| Duration::from_millis(due_ms.saturating_sub(now_ms)));
        let pause = pause.unwrap_or(self.deps.times.look);
        self.due_at = Some(Instant::now() + pause.min(self.deps.times.look));
        Ok(())
    }

    /// Reads on; gives up when there is something else to do.
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
            // It is another runner's meanwhile.
            return Ok(());
        };
        let step = self.work.take(batch, from).await?;
        self.stepped(&batch.source, from, step).await;
        // What failed is due soon.
        self.due_at = None;
        Ok(())
    }

    /// Follows a step of the work.
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

    /// How long to wait.
    fn failed(&mut self, error: &WorkError) -> Duration {
        if self.failures == 0 {
            warn!(%error, group = self.deps.group, "consumer group failed; retrying");
        }
        self.failures = self.failures.saturating_add(1);
        self.deps.status.outage(error.to_string());
        self.deps.times.outage.pause(self.failures)
    }
}
