//! A log on Apache Kafka, or any broker of its protocol: one topic, whose partitions are the log's.
//!
//! - `KafkaLog::append` returns when every record is on all replicas that are in sync (`acks=all`). The producer is
//!   idempotent: what it sends again is there once, in its order.
//! - A `Reader` reads for one group. The brokers share the partitions among all readers of a group. Where each partition
//!   goes on is told by the caller (`Reader::start_at`), who keeps it where its effects are, in one transaction with
//!   them; `Reader::commit` tells the brokers, too, for their tools and for callers who keep nothing.
//! - A `Feed` reads somebody else's topic, from places that the caller keeps.
//! - `KafkaLog::place` finds the position of a time, `KafkaLog::lag` how far a position is behind.
//!
//! Nothing here needs a broker to be there: the topic is made, or looked at, when it is first needed. Without brokers an
//! append ends with `AppendError::Unknown` within `Times::append_max`, and a reader waits.

mod append;
mod assignment;
mod client;
mod feed;
mod log;
mod offsets;
mod read;
mod settings;
mod topic;

pub use append::AppendError;
pub use feed::{Feed, FeedBatch, FeedBounds, FeedRecord, Places};
pub use log::KafkaLog;
pub use offsets::{Lag, Target};
pub use read::{Batch, ReadOutcome, Reader, Record};
pub use settings::{Settings, SettingsError, Times};

use rdkafka::error::KafkaError;

/// The most bytes of one record: Kafka's own limit of a message, less what stands around it.
pub const PAYLOAD_LEN_MAX: usize = 1_000_000;

/// What is appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewRecord<'a> {
    /// Whose order counts: records of one partition keep it.
    pub partition: u16,
    /// What it says, at most [`PAYLOAD_LEN_MAX`] bytes.
    pub payload: &'a [u8],
}

/// Kafka did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// It said why, or did not answer.
    #[error("Kafka: {0}")]
    Kafka(#[from] KafkaError),
    /// The topic is not as the settings say.
    #[error("Kafka topic \"{topic}\": {what}")]
    Topic {
        /// Which.
        topic: String,
        /// What is wrong, and what to do.
        what: String,
    },
    /// The partition is another reader's, or there is none.
    #[error("partition {0} is not assigned to this reader")]
    Partition(u16),
    /// The reader does not run, or does not run yet.
    #[error("no connection to Kafka")]
    Away,
}
