//! The log of events, as those see it who append to it and who read it.
//!
//! [`EmbeddedLog`] keeps it in files of this machine, `KafkaHome` (feature `kafka`) on brokers: there an origin has some of
//! a log's [sources](Source) today and others tomorrow, so a reader says which it was [assigned](ReadOutcome::Assigned), and is
//! told for each where to begin.

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

/// What takes its time.
pub type LogFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// One sequence of records, whose positions follow each other: the log of an origin, or a partition of a topic.
pub type Source = Arc<str>;

/// A place in a source: a record's, or behind the last one.
pub type Position = u64;

/// What is appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewRecord {
    /// Whose order counts: records of one partition keep it.
    pub partition: u16,
    /// What it says.
    pub payload: Vec<u8>,
}

/// What was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Where.
    pub position: Position,
    /// When it was appended, in milliseconds since the Unix epoch.
    pub time_ms: u64,
    /// What it says.
    pub payload: Vec<u8>,
}

/// Records of one source that follow each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Of which source.
    pub source: Source,
    /// At least one.
    pub records: Vec<Record>,
    /// Behind the last one.
    pub next: Position,
}

/// What a reader has next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadOutcome {
    /// From now on these sources are this reader's, and no other ones. Nothing of them comes before
    /// [`GroupReader::start_at`] was called for each.
    Assigned(Vec<Source>),
    /// Records.
    Batch(Batch),
}

/// Where to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The first record that is still there.
    Start,
    /// Behind the last one.
    End,
    /// The first record that was appended at this time or later, in milliseconds since the Unix epoch.
    Time(u64),
    /// Here, if there is such a place; else the next one that there is.
    Position(Position),
}

/// How far a group is behind. Which of its sizes a log knows is its own affair: one counts bytes, another records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lag {
    /// Bytes that were not handled yet, if the log knows.
    pub bytes: Option<u64>,
    /// Records that were not handled yet, if the log knows.
    pub records: Option<u64>,
    /// When the oldest of them was appended, in milliseconds since the Unix epoch; none if there are none.
    pub oldest_ms: Option<u64>,
}

impl Lag {
    /// Adds that of another source.
    pub fn add(&mut self, other: Self) {
        let sum =
            |a: Option<u64>, b: Option<u64>| a.into_iter().chain(b).reduce(u64::saturating_add);
        self.bytes = sum(self.bytes, other.bytes);
        self.records = sum(self.records, other.records);
        self.oldest_ms = self.oldest_ms.into_iter().chain(other.oldest_ms).min();
    }
}

/// How full a log is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fill {
    /// Bytes that not every group has handled.
    pub waiting_bytes: u64,
    /// With so many it takes no more.
    pub waiting_bytes_max: u64,
}

impl Fill {
    /// Whether it takes nothing now.
    pub fn is_full(self) -> bool {
        self.waiting_bytes >= self.waiting_bytes_max
    }
}

/// Why records were not appended, or may not have been. Whoever sends them again does no harm: events have ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// Groups are too far behind. Nothing was appended.
    #[error("event log full: a consumer group is too far behind")]
    Full,
    /// Nobody knows whether they were appended.
    #[error("outcome unknown: the event log did not confirm it")]
    Unknown,
    /// They are not fit for this log, and never will be. Nothing was appended.
    #[error("the event log refused it")]
    Refused,
}

/// A log could not be read.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// Its files could not be.
    #[error(transparent)]
    Files(#[from] weir_log::LogError),
    /// Kafka does not do what it is asked.
    #[cfg(feature = "kafka")]
    #[error(transparent)]
    Kafka(#[from] weir_log::kafka::LogError),
    /// A task that read it has ended early.
    #[error("reading the event log was interrupted")]
    Ended,
    /// The broker that has it says so.
    #[error("{0}")]
    Broker(String),
    /// There is no such source, or it is another origin's.
    #[error("this origin has no source \"{0}\"")]
    Source(Source),
}

/// A durable log.
pub trait EventLog: fmt::Debug + Send + Sync {
    /// Appends records, all or none as far as is known; returns once they are durable.
    fn append(
        &self,
        records: Vec<NewRecord>,
        now_ms: u64,
    ) -> LogFuture<'_, Result<(), AppendError>>;

    /// A reader for `group`. What this group has not [committed](GroupReader::commit) stays in the log.
    ///
    /// # Errors
    /// When it cannot be read.
    fn reader(&self, group: &str) -> Result<Box<dyn GroupReader>, LogError>;

    /// The sources that this origin may ask about.
    fn sources(&self) -> Vec<Source>;

    /// The place of `target` in `source`.
    fn place(&self, source: &Source, target: Target) -> LogFuture<'_, Result<Position, LogError>>;

    /// How many records lie between two places.
    fn count(
        &self,
        source: &Source,
        from: Position,
        to: Position,
    ) -> LogFuture<'_, Result<u64, LogError>>;

    /// How far a group is behind that is at `position`.
    fn lag(&self, source: &Source, position: Position) -> LogFuture<'_, Result<Lag, LogError>>;

    /// How full it is.
    fn fill(&self) -> Fill;

    /// Deletes what all groups have handled, and what is too old or too much to be kept for replays.
    ///
    /// # Errors
    /// When it cannot.
    fn retain(&self, now_ms: u64) -> Result<(), LogError>;
}

/// Reads a log for one group.
pub trait GroupReader: Send {
    /// What comes next, as soon as there is something. Whoever stops waiting loses nothing.
    fn next(&mut self) -> LogFuture<'_, Result<ReadOutcome, LogError>>;

    /// Goes on with `source` at `position`; at its start if the group has none yet.
    fn start_at(
        &mut self,
        source: &Source,
        position: Option<Position>,
    ) -> LogFuture<'_, Result<Position, LogError>>;

    /// Says that the group has handled what lies before `position`, and has noted so itself.
    fn commit(&mut self, source: &Source, position: Position) -> LogFuture<'_, ()>;
}
