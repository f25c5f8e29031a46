//! The log in local files: [`weir_log`].

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;
use tokio::task::JoinHandle;
use weir_log::{Limits, Log, Reader, Retention};

use super::{
    AppendError, Batch, EventLog, Fill, GroupReader, Lag, LogError, LogFuture, NewRecord, Position,
    ReadOutcome, Record, Source, Target,
};

/// Maximum number of records in a batch, which one transaction stores.
const BATCH: usize = 512;

/// Number of low bits of a position that hold the byte offset in its file. Files rotate long before this size.
const BYTE_BITS: u32 = 32;

/// A log in a folder that only this process uses.
#[derive(Clone, Debug)]
pub struct EmbeddedLog(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    log: Log,
    source: Source,
    limits: Limits,
    retention: Retention,
    /// The position of each group. Records before all of them are released.
    committed: Mutex<BTreeMap<String, weir_log::Position>>,
}

impl EmbeddedLog {
    /// Opens the log in `folder` and creates the folder if it is missing.
    ///
    /// # Errors
    /// If another process uses the folder, or the folder is unusable.
    pub fn open(
        folder: &Path,
        sync: weir_log::Sync,
        limits: Limits,
        retention: Retention,
    ) -> Result<Self, LogError> {
        let log = Log::open(folder, sync, limits)?;
        Ok(Self(Arc::new(Inner {
            source: log.id().into(),
            log,
            limits,
            retention,
            committed: Mutex::default(),
        })))
    }

    fn check(&self, source: &Source) -> Result<(), LogError> {
        match *source == self.0.source {
            true => Ok(()),
            false => Err(LogError::Source(source.clone())),
        }
    }

    /// Stores a group's position and releases records before all groups.
    fn note(&self, group: &str, position: weir_log::Position) {
        let mut committed = self
            .0
            .committed
            .lock()
            // Each change is one step, so a panic elsewhere leaves the map consistent.
            .unwrap_or_else(PoisonError::into_inner);
        committed.insert(group.to_owned(), position);
        if let Some(first) = committed.values().min() {
            self.0.log.release(*first);
        }
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Log) -> Result<T, LogError> + Send + 'static,
    ) -> Result<T, LogError> {
        let log = self.0.log.clone();
        let done = tokio::task::spawn_blocking(move || work(&log));
        done.await.map_err(|_| LogError::Ended)?
    }
}

fn packed(position: weir_log::Position) -> Position {
    (position.file << BYTE_BITS) | position.byte
}

fn unpacked(position: Position) -> weir_log::Position {
    weir_log::Position {
        file: position >> BYTE_BITS,
        byte: position & ((1 << BYTE_BITS) - 1),
    }
}

impl EventLog for EmbeddedLog {
    fn append(
        &self,
        records: Vec<NewRecord>,
        now_ms: u64,
    ) -> LogFuture<'_, Result<(), AppendError>> {
        Box::pin(async move {
            let records = records.iter().map(|record| weir_log::NewRecord {
                partition: record.partition,
                payload: &record.payload,
            });
            let appended = self.0.log.append(records, now_ms).await;
            appended.map(|_| ()).map_err(|error| match error {
                weir_log::AppendError::Full => AppendError::Full,
                weir_log::AppendError::Length => AppendError::Refused,
                weir_log::AppendError::Io => AppendError::Unknown,
            })
        })
    }

    fn reader(&self, group: &str) -> Result<Box<dyn GroupReader>, LogError> {
        // Position 0 until the group's position is loaded.
        self.note(group, weir_log::Position::default());
        Ok(Box::new(EmbeddedReader {
            written: self.0.log.written(),
            log: self.clone(),
            group: group.to_owned(),
            is_assigned: false,
            state: State::Unplaced,
        }))
    }

    fn sources(&self) -> Vec<Source> {
        vec![self.0.source.clone()]
    }

    fn place(&self, source: &Source, target: Target) -> LogFuture<'_, Result<Position, LogError>> {
        let existing = self.check(source);
        Box::pin(async move {
            existing?;
            let place = move |log: &Log| {
                let at = |position| Reader::new(log, position, 1).map(|reader| reader.position());
                Ok(match target {
                    Target::Start => at(weir_log::Position::default())?,
                    Target::End => *log.written().borrow(),
                    Target::Time(time_ms) => log.seek(time_ms)?,
                    Target::Position(position) => record_at(log, unpacked(position))?,
                })
            };
            self.blocking(place).await.map(packed)
        })
    }

    fn count(
        &self,
        source: &Source,
        from: Position,
        to: Position,
    ) -> LogFuture<'_, Result<u64, LogError>> {
        let existing = self.check(source);
        Box::pin(async move {
            existing?;
            self.blocking(move |log| count(log, unpacked(from), unpacked(to)))
                .await
        })
    }

    fn lag(&self, source: &Source, position: Position) -> LogFuture<'_, Result<Lag, LogError>> {
        let existing = self.check(source);
        Box::pin(async move {
            existing?;
            self.blocking(move |log| {
                let from = unpacked(position);
                let first = Reader::new(log, from, 1)?.read()?;
                Ok(Lag {
                    bytes: Some(log.bytes_behind(from)),
                    records: None,
                    oldest_ms: first.records.first().map(|record| record.time_ms),
                })
            })
            .await
        })
    }

    fn fill(&self) -> Fill {
        Fill {
            waiting_bytes: self.0.log.waiting_bytes(),
            waiting_bytes_max: self.0.limits.waiting_len_max,
        }
    }

    fn retain(&self, now_ms: u64) -> Result<(), LogError> {
        Ok(self.0.log.retain(self.0.retention, now_ms)?)
    }
}

/// Finds the start of the first record at or after `from`. A position typed by an operator may be inside a record.
fn record_at(
    log: &Log,
    from: weir_log::Position,
) -> Result<weir_log::Position, weir_log::LogError> {
    let start = weir_log::Position {
        file: from.file,
        byte: 0,
    };
    let mut reader = Reader::new(log, start, BATCH)?;
    loop {
        let batch = reader.read()?;
        let behind = batch.records.iter().find(|record| record.position >= from);
        if let Some(record) = behind {
            return Ok(record.position);
        }
        if batch.records.is_empty() {
            return Ok(batch.next);
        }
    }
}

fn count(log: &Log, from: weir_log::Position, to: weir_log::Position) -> Result<u64, LogError> {
    let mut reader = Reader::new(log, from, BATCH)?;
    let mut count = 0;
    loop {
        let batch = reader.read()?;
        let before = |record: &&weir_log::Record| record.position < to;
        let records = batch.records.iter().filter(before).count();
        count += records as u64;
        if records < batch.records.len() || batch.records.is_empty() {
            return Ok(count);
        }
    }
}

struct EmbeddedReader {
    log: EmbeddedLog,
    group: String,
    written: watch::Receiver<weir_log::Position>,
    is_assigned: bool,
    state: State,
}

enum State {
    /// No start position is set yet.
    Unplaced,
    Idle(Reader),
    /// The running read. It is stored here, so that a cancelled caller loses nothing.
    Reading(JoinHandle<(Reader, Result<weir_log::Batch, weir_log::LogError>)>),
}

impl EmbeddedReader {
    async fn read(&mut self) -> Result<weir_log::Batch, LogError> {
        if let State::Idle(_) = &self.state
            && let State::Idle(mut reader) = std::mem::replace(&mut self.state, State::Unplaced)
        {
            // This read sees all records written from now on, or they wake the next read.
            self.written.mark_unchanged();
            self.state = State::Reading(tokio::task::spawn_blocking(move || {
                let batch = reader.read();
                (reader, batch)
            }));
        }
        let State::Reading(task) = &mut self.state else {
            // Wait for a call of `start_at`.
            return std::future::pending().await;
        };
        let read = task.await;
        self.state = State::Unplaced;
        let (reader, batch) = read.map_err(|_| LogError::Ended)?;
        self.state = State::Idle(reader);
        Ok(batch?)
    }
}

impl GroupReader for EmbeddedReader {
    fn next(&mut self) -> LogFuture<'_, Result<ReadOutcome, LogError>> {
        Box::pin(async move {
            if !self.is_assigned {
                self.is_assigned = true;
                return Ok(ReadOutcome::Assigned(self.log.sources()));
            }
            loop {
                let batch = self.read().await?;
                if batch.records.is_empty() {
                    // The reader owns a handle of the log, so the sender cannot be dropped.
                    let _ = self.written.changed().await;
                    continue;
                }
                let record = |record: weir_log::Record| Record {
                    position: packed(record.position),
                    time_ms: record.time_ms,
                    payload: record.payload,
                };
                return Ok(ReadOutcome::Batch(Batch {
                    source: self.log.0.source.clone(),
                    next: packed(batch.next),
                    records: batch.records.into_iter().map(record).collect(),
                }));
            }
        })
    }

    fn start_at(
        &mut self,
        source: &Source,
        position: Option<Position>,
    ) -> LogFuture<'_, Result<Position, LogError>> {
        let existing = self.log.check(source);
        Box::pin(async move {
            existing?;
            let from = position.map(unpacked).unwrap_or_default();
            let open = move |log: &Log| Ok(Reader::new(log, from, BATCH)?);
            let reader = self.log.blocking(open).await?;
            let at = reader.position();
            self.log.note(&self.group, at);
            self.state = State::Idle(reader);
            Ok(packed(at))
        })
    }

    fn commit(&mut self, _: &Source, position: Position) -> LogFuture<'_, ()> {
        self.log.note(&self.group, unpacked(position));
        Box::pin(std::future::ready(()))
    }
}
