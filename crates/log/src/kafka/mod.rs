//! A log on Apache Kafka, or any broker with its protocol: one topic, whose partitions are the log's.
//!
//! - `KafkaLog::append` returns when every record is on all in-sync replicas (`acks=all`). The producer is idempotent:
//!   retries create no duplicates and preserve the order.
//! - A `Reader` reads for one consumer group. The brokers distribute the partitions among the group's readers. The
//!   caller sets the start position of each partition (`Reader::start_at`) and stores positions in one transaction with
//!   its effects. `Reader::commit` also sends positions to the brokers, for their tools and for callers without a
//!   store.
//! - A `Feed` reads a foreign topic, from positions that the caller stores.
//! - `KafkaLog::place` finds the position of a time, `KafkaLog::lag` the lag of a position.
//!
//! No call requires a running broker at startup: the topic is created or checked on first use. Without brokers, an
//! append ends with `AppendError::Unknown` within twice `Times::append_max`, and a reader waits.

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

/// The maximum payload size in bytes: Kafka's message limit minus the overhead.
pub const PAYLOAD_LEN_MAX: usize = 1_000_000;

/// A record to append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewRecord<'a> {
    /// Its partition: records of one partition keep their order.
    pub partition: u16,
    /// The payload, at most [`PAYLOAD_LEN_MAX`] bytes.
    pub payload: &'a [u8],
}

/// A failed Kafka operation.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// An error or a timeout of Kafka.
    #[error("Kafka: {0}")]
    Kafka(#[from] KafkaError),
    /// The topic differs from the settings.
    #[error("Kafka topic \"{topic}\": {what}")]
    Topic {
        /// The topic's name.
        topic: String,
        /// The problem, and what to do.
        what: String,
    },
    /// The partition belongs to another reader, or does not exist.
    #[error("partition {0} is not assigned to this reader")]
    Partition(u16),
    /// The reader has stopped, or has not started yet.
    #[error("no connection to Kafka")]
    Away,
}
