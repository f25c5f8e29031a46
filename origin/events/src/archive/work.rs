//! Collects events until a file is due, then writes the files.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use tokio::time::Instant;
use tracing::error;

use super::table::{Archived, file};
use super::{ARCHIVE_GROUP, Archive, ArchiveError};
use crate::Clock;
use crate::groups::runner::{DueRetries, StepResult, Work, WorkError};
use crate::log::{Batch, Position, Source};
use crate::metrics::EventMetrics;
use crate::model::dead_letter;
use crate::store::{ArchiveCut, EventStore, Move, Step};
use weir_origin_core::clock::date;

const HOUR_MS: u64 = 3_600_000;

/// Archives events.
pub(crate) struct ArchiveWork {
    pub(crate) archive: Archive,
    pub(crate) store: EventStore,
    pub(crate) metrics: EventMetrics,
    pub(crate) clock: Clock,
    held: BTreeMap<Source, PendingFile>,
}

/// Events that were read from a source but not written yet.
struct PendingFile {
    /// The group's position in SQL.
    from: Position,
    /// The position after the last event that was read.
    next: Position,
    /// Where SQL requires the step to end.
    cut: Option<ArchiveCut>,
    events: Vec<Archived>,
    /// Approximate size of the events, in bytes.
    len: usize,
    /// When the first pending event was added.
    since: Instant,
}

impl PendingFile {
    /// Adds the new events of a batch. A batch comes again after a failure.
    fn add(&mut self, batch: &Batch) {
        if self.events.is_empty() {
            self.since = Instant::now();
        }
        let source = &batch.source;
        let events = dead_letter::events_of(&batch.records, |record, other| {
            // The group `store` stores it as a dead letter.
            if let Err(problem) = other {
                error!(%problem, %source, position = record.position, "record is not an event");
            }
        });
        for (record, envelope) in events {
            if record.position >= self.next {
                self.len += record.payload.len();
                let (position, envelope) = (record.position, *envelope);
                self.events.push(Archived { position, envelope });
            }
        }
        self.next = self.next.max(batch.next);
    }

    /// Where a step ends now, if one is due.
    fn end(&self, is_full: bool, every: Duration) -> Option<Position> {
        match self.cut {
            Some(cut) if cut.at <= self.next => return Some(cut.at),
            // A stored step is written exactly as stored, once all of it was read.
            Some(cut) if cut.is_noted => return None,
            Some(_) | None => {}
        }
        let is_due = is_full || self.since.elapsed() >= every;
        (is_due && self.next > self.from).then_some(self.next)
    }

    /// Drops events before `to`.
    fn leave(&mut self, to: Position) {
        self.events.retain(|event| event.position >= to);
        self.from = to;
        let len = |event: &Archived| event.envelope.attributes.len() + 64;
        self.len = self.events.iter().map(len).sum();
        self.since = Instant::now();
    }
}

impl ArchiveWork {
    pub(crate) fn new(
        archive: Archive,
        store: EventStore,
        metrics: EventMetrics,
        clock: Clock,
    ) -> Self {
        Self {
            archive,
            store,
            metrics,
            clock,
            held: BTreeMap::new(),
        }
    }

    fn is_full(&self) -> bool {
        let len: usize = self.held.values().map(|held| held.len).sum();
        len >= self.archive.bytes_max
    }

    /// Writes the due files of a source and returns the group's new position.
    async fn write_due(&mut self, source: &Source) -> Result<StepResult, WorkError> {
        loop {
            let is_full = self.is_full();
            let Some(held) = self.held.get(source) else {
                return Ok(StepResult::Moved);
            };
            let Some(end) = held.end(is_full, self.archive.every) else {
                return Ok(StepResult::To(held.from));
            };
            if self.write_step(source, end).await? == Step::Moved {
                return Ok(StepResult::Moved);
            }
        }
    }

    /// Writes the files of a step, then moves the group past it.
    async fn write_step(&mut self, source: &Source, end: Position) -> Result<Step, WorkError> {
        let now_ms = (self.clock)();
        let Some(held) = self.held.get_mut(source) else {
            return Ok(Step::Moved);
        };
        let recorded = self
            .store
            .archives()
            .note_archive(source, held.from, end, now_ms)
            .await?;
        if recorded != end {
            // Another process has begun this step and may have written some of its files.
            held.cut = Some(ArchiveCut {
                at: recorded,
                is_noted: true,
            });
            return Ok(Step::Taken);
        }
        let files = files(source, held, end);
        let count: usize = files.values().map(Vec::len).sum();
        for (path, events) in files {
            let source = source.clone();
            let created = tokio::task::spawn_blocking(move || file(&source, &events)).await;
            let created = created.map_err(|error| WorkError::Outage(error.to_string()))?;
            let bytes = created.map_err(ArchiveError::from).map_err(outage)?;
            let put = self.archive.folder.put(&path, bytes).await;
            put.map_err(outage)?;
        }
        let to = Move {
            group: ARCHIVE_GROUP,
            source,
            from: held.from,
            to: end,
            now_ms,
        };
        let step = self.store.step(to).await?;
        if step == Step::Taken {
            held.leave(end);
            held.cut = self.store.archives().archive_cut(source, end).await?;
            self.metrics.handled(ARCHIVE_GROUP, count as u64);
        }
        Ok(step)
    }
}

fn outage(error: ArchiveError) -> WorkError {
    WorkError::Outage(error.to_string())
}

/// The folder of events of a type that were received on a day, counted from the Unix epoch.
pub(super) fn day_folder(event_type: &str, day: u64) -> String {
    let (year, month, day) = date(day);
    format!("type={event_type}/day={year:04}-{month:02}-{day:02}")
}

/// The files of a step by path, one for each type and hour. An event that was sent twice is included once.
fn files(source: &str, held: &PendingFile, end: Position) -> BTreeMap<String, Vec<Archived>> {
    let mut files: BTreeMap<String, Vec<Archived>> = BTreeMap::new();
    let mut existing = HashSet::new();
    // Kafka source names contain slashes.
    let source = source.replace('/', ".");
    for event in held.events.iter().filter(|event| event.position < end) {
        let envelope = &event.envelope;
        if !existing.insert((envelope.id.as_str(), envelope.fingerprint)) {
            continue;
        }
        let hours = envelope.received_ms / HOUR_MS;
        let path = format!(
            "{}/hour={:02}/{source}-{:016x}-{end:016x}.parquet",
            day_folder(envelope.event_type.as_str(), hours / 24),
            hours % 24,
            held.from,
        );
        files.entry(path).or_default().push(event.clone());
    }
    files
}

impl Work for ArchiveWork {
    fn keep(&mut self, sources: &[Source]) {
        self.held.retain(|source, _| sources.contains(source));
    }

    /// A step is always written whole. A seek into a step therefore resumes at the step's start.
    async fn place(&mut self, source: &Source, position: Position) -> Result<Position, WorkError> {
        let first = self
            .store
            .archives()
            .archive_first(source, position)
            .await?;
        Ok(first.unwrap_or(position))
    }

    async fn begin(&mut self, source: &Source, position: Position) -> Result<(), WorkError> {
        let held = PendingFile {
            from: position,
            next: position,
            cut: self.store.archives().archive_cut(source, position).await?,
            events: Vec::new(),
            len: 0,
            since: Instant::now(),
        };
        self.held.insert(source.clone(), held);
        Ok(())
    }

    async fn take(&mut self, batch: &Batch, _: Position) -> Result<StepResult, WorkError> {
        if let Some(held) = self.held.get_mut(&batch.source) {
            held.add(batch);
        }
        self.write_due(&batch.source).await
    }

    async fn do_due(&mut self, source: &Source, _: Position) -> Result<DueRetries, WorkError> {
        let step = Some(self.write_due(source).await?);
        Ok(DueRetries { at_ms: None, step })
    }
}
