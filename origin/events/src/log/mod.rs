//! The event log, as its writers and readers see it.
//!
//! [`EmbeddedLog`] stores it in local files; `KafkaHome` (feature `kafka`) stores it on brokers. On Kafka, an origin's
//! [sources](Source) change over time. A reader therefore reports which sources it was
//! [assigned](ReadOutcome::Assigned), and receives a start position for each.

mod embedded;
#[cfg(feature = "kafka")]
mod kafka;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

pub use embedded::EmbeddedLog;
#[cfg(feature = "kafka")]
pub use kafka::KafkaHome;

/// A boxed future of a log call.
pub type LogFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// One ordered sequence of records: the log of an origin, or a partition of a topic.
pub type Source = Arc<str>;

/// A position in a source: of a record, or after the last one.
pub type Position = u64;

/// A record to append.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewRecord {
    /// The ordering key: records of one partition keep their order.
    pub partition: u16,
    /// The encoded record.
    pub payload: Vec<u8>,
}

/// A record that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its position.
    pub position: Position,
    /// Append time, in milliseconds since the Unix epoch.
    pub time_ms: u64,
    /// The encoded record.
    pub payload: Vec<u8>,
}

/// Consecutive records of one source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The source.
    pub source: Source,
    /// The records; at least one.
    pub records: Vec<Record>,
    /// The position after the last record.
    pub next: Position,
}

/// What a read returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadOutcome {
    /// The reader owns exactly these sources from now on. It reads none of them until [`GroupReader::start_at`] is
    /// called for it.
    Assigned(Vec<Source>),
    /// Records.
    Batch(Batch),
}

/// Target of a seek.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The first record that still exists.
    Start,
    /// After the last record.
    End,
    /// The first record appended at or after this time, in milliseconds since the Unix epoch.
    Time(u64),
    /// This position if it exists, otherwise the next one.
    Position(Position),
}

/// Lag of a group. Some logs count bytes, others count records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lag {
    /// Bytes that are not handled yet, if the log counts them.
    pub bytes: Option<u64>,
    /// Records that are not handled yet, if the log counts them.
    pub records: Option<u64>,
    /// Append time of the oldest unhandled record, in milliseconds since the Unix epoch; `None` if all are handled.
    pub oldest_ms: Option<u64>,
}

impl Lag {
    /// Adds the lag of another source.
    pub fn add(&mut self, other: Self) {
        let sum =
            |a: Option<u64>, b: Option<u64>| a.into_iter().chain(b).reduce(u64::saturating_add);
        self.bytes = sum(self.bytes, other.bytes);
        self.records = sum(self.records, other.records);
        self.oldest_ms = self.oldest_ms.into_iter().chain(other.oldest_ms).min();
    }
}

/// Fill level of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fill {
    /// Bytes that at least one group has not handled.
    pub waiting_bytes: u64,
    /// The log refuses appends at this many bytes.
    pub waiting_bytes_max: u64,
}

impl Fill {
    /// Whether the log refuses appends now.
    pub fn is_full(self) -> bool {
        self.waiting_bytes >= self.waiting_bytes_max
    }
}

/// Why records were not appended, or may not have been. A resend is safe, because events have ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// Groups are too far behind. Nothing was appended.
    #[error("event log full: a consumer group is too far behind")]
    Full,
    /// The records may or may not have been appended.
    #[error("outcome unknown: the event log did not confirm it")]
    Unknown,
    /// This log can never accept the records. Nothing was appended.
    #[error("the event log refused it")]
    Refused,
}

/// A log could not be read.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The files cannot be read.
    #[error(transparent)]
    Files(#[from] weir_log::LogError),
    /// A Kafka call failed.
    #[cfg(feature = "kafka")]
    #[error(transparent)]
    Kafka(#[from] weir_log::kafka::LogError),
    /// A read task ended early.
    #[error("reading the event log was interrupted")]
    Ended,
    /// The partition's broker returned this error.
    #[error("{0}")]
    Broker(String),
    /// The source does not exist, or belongs to another origin.
    #[error("this origin has no source \"{0}\"")]
    Source(Source),
}

/// A durable log.
pub trait EventLog: fmt::Debug + Send + Sync {
    /// Appends records in one call and returns once they are durable. All or none are appended, unless the result is
    /// unknown.
    fn append(
        &self,
        records: Vec<NewRecord>,
        now_ms: u64,
    ) -> LogFuture<'_, Result<(), AppendError>>;

    /// Creates a reader for `group`. Records that this group has not [committed](GroupReader::commit) stay in the log.
    ///
    /// # Errors
    /// If the log cannot be read.
    fn reader(&self, group: &str) -> Result<Box<dyn GroupReader>, LogError>;

    /// The sources that this origin can query.
    fn sources(&self) -> Vec<Source>;

    /// Finds the position of `target` in `source`.
    fn place(&self, source: &Source, target: Target) -> LogFuture<'_, Result<Position, LogError>>;

    /// Counts the records between two positions.
    fn count(
        &self,
        source: &Source,
        from: Position,
        to: Position,
    ) -> LogFuture<'_, Result<u64, LogError>>;

    /// Lag of a group at `position`.
    fn lag(&self, source: &Source, position: Position) -> LogFuture<'_, Result<Lag, LogError>>;

    /// Fill level of the log.
    fn fill(&self) -> Fill;

    /// Deletes handled records that exceed the retention time or size.
    ///
    /// # Errors
    /// If files cannot be deleted.
    fn retain(&self, now_ms: u64) -> Result<(), LogError>;
}

/// Reads a log for one group.
pub trait GroupReader: Send {
    /// Waits for the next batch or assignment. Cancelling the call loses nothing.
    fn next(&mut self) -> LogFuture<'_, Result<ReadOutcome, LogError>>;

    /// Starts `source` at `position`, or at its start if the group has no position yet.
    fn start_at(
        &mut self,
        source: &Source,
        position: Option<Position>,
    ) -> LogFuture<'_, Result<Position, LogError>>;

    /// Reports that the group has handled and stored everything before `position`.
    fn commit(&mut self, source: &Source, position: Position) -> LogFuture<'_, ()>;
}
