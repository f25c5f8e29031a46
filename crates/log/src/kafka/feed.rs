//! Reads a foreign topic: all its partitions, from positions that the caller stores. It joins no group and creates no
//! topic, so another process can continue from the same positions.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Message};
use rdkafka::topic_partition_list::TopicPartitionList;
use tracing::warn;

use crate::kafka::client::Quiet;
use crate::kafka::log::blocking;
use crate::kafka::offsets::{ends, offset, position};
use crate::kafka::{LogError, Settings};

/// How long a read waits for the first record.
const FIRST: Duration = Duration::from_secs(1);

/// How long it waits for each further one, which librdkafka has usually buffered.
const FURTHER: Duration = Duration::from_millis(20);

/// The next position of each partition.
pub type Places = BTreeMap<u16, u64>;

/// The limits of one read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeedBounds {
    /// Records.
    pub records_max: usize,
    /// Bytes, unless the first record alone is longer.
    pub len_max: usize,
}

/// A record of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedRecord {
    /// Its partition.
    pub partition: u16,
    /// Its position.
    pub position: u64,
    /// Its payload; empty if it has no value.
    pub payload: Vec<u8>,
}

/// The result of a read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeedBatch {
    /// The start positions of partitions whose position was missing or no longer exists.
    pub began: Places,
    /// The records, in order within each partition.
    pub records: Vec<FeedRecord>,
}

/// A reader of a topic. Cloning it is cheap.
#[derive(Clone)]
pub struct Feed(Arc<Mutex<State>>);

impl std::fmt::Debug for Feed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Each change leaves the state consistent.
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        write!(f, "Feed({:?})", state.settings)
    }
}

struct State {
    settings: Settings,
    consumer: BaseConsumer<Quiet>,
    /// The consumer's positions. Empty: unset.
    at: Places,
    /// A polled record that did not fit into the last batch.
    retained: Option<FeedRecord>,
}

impl Feed {
    /// Reads the topic in the settings; the brokers report its number of partitions. It makes no request.
    ///
    /// # Errors
    /// When librdkafka rejects the settings.
    pub fn open(settings: Settings) -> Result<Self, LogError> {
        let mut config = settings.client();
        config
            // librdkafka requires a group name to assign partitions. No client joins this group.
            .set("group.id", format!("{}.feed", settings.topic))
            .set("enable.auto.commit", "false")
            // This module detects and reports missing positions.
            .set("auto.offset.reset", "error");
        Ok(Self(Arc::new(Mutex::new(State {
            consumer: config.create_with_context(Quiet)?,
            settings,
            at: Places::new(),
            retained: None,
        }))))
    }

    /// Reads records from these positions, or from the start of partitions without one. Waits about a second for the
    /// first one.
    ///
    /// # Errors
    /// When no broker answers, or the topic does not exist. No record is lost: read again.
    pub async fn read(&self, from: &Places, bounds: FeedBounds) -> Result<FeedBatch, LogError> {
        let (state, from) = (self.0.clone(), from.clone());
        blocking(move || {
            let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
            let read = state.read(&from, bounds);
            if read.is_err() {
                state.at.clear();
            }
            read
        })
        .await
    }
}

impl State {
    fn read(&mut self, from: &Places, bounds: FeedBounds) -> Result<FeedBatch, LogError> {
        let mut fed = FeedBatch::default();
        if self.at.is_empty() || self.at != *from {
            fed.began = self.place(from)?;
        }
        let failure = self.poll(bounds, &mut fed.records);
        if !fed.records.is_empty() {
            return Ok(fed);
        }
        if let Some(error) = failure {
            return Err(error.into());
        }
        // No new records, or no broker answers.
        if self.partitions()? != self.at.len() {
            self.at.clear();
        }
        Ok(fed)
    }

    fn partitions(&self) -> Result<usize, LogError> {
        let (topic, limit) = (&self.settings.topic, self.settings.times.answer_max);
        let metadata = self.consumer.fetch_metadata(Some(topic), limit)?;
        let of_topic = metadata.topics().iter().find(|one| one.name() == topic);
        match of_topic.map_or(0, |topic| topic.partitions().len()) {
            0 => Err(LogError::Topic {
                topic: topic.clone(),
                what: "no broker knows the position".to_owned(),
            }),
            count => Ok(count),
        }
    }

    /// Moves to these positions; returns start positions for partitions that the caller did not list.
    fn place(&mut self, from: &Places) -> Result<Places, LogError> {
        let count = u16::try_from(self.partitions()?).unwrap_or(u16::MAX);
        let (mut began, mut at) = (Places::new(), Places::new());
        let mut list = TopicPartitionList::new();
        for partition in 0..count {
            let (first, end) = ends(&self.consumer, &self.settings, partition)?;
            let existing = from.get(&partition).copied();
            // A position beyond the end: the topic was recreated.
            let to = existing
                .filter(|to| (first..=end).contains(to))
                .unwrap_or(first);
            if existing != Some(to) {
                began.insert(partition, to);
            }
            if let Some(existing) = existing.filter(|existing| *existing != to) {
                let topic = &self.settings.topic;
                warn!(
                    topic,
                    partition,
                    existing,
                    to,
                    "log position no longer exists; continuing from another one"
                );
            }
            at.insert(partition, to);
            list.add_partition_offset(&self.settings.topic, partition.into(), offset(to))?;
        }
        self.consumer.assign(&list)?;
        (self.at, self.retained) = (at, None);
        Ok(began)
    }

    /// Polls records, and returns the last failure.
    fn poll(&mut self, bounds: FeedBounds, records: &mut Vec<FeedRecord>) -> Option<KafkaError> {
        let deadline = Instant::now() + FIRST;
        let (mut len, mut failure) = (0, None);
        while records.len() < bounds.records_max {
            let remaining = deadline.saturating_duration_since(Instant::now());
            let pause = if records.is_empty() {
                remaining
            } else {
                FURTHER
            };
            let polled = match self.retained.take() {
                Some(retained) => Some(Ok(retained)),
                None => self.consumer.poll(pause).map(|one| one.map(|m| record(&m))),
            };
            match polled {
                Some(Ok(record)) => {
                    len += record.payload.len();
                    if len > bounds.len_max && !records.is_empty() {
                        self.retained = Some(record);
                        break;
                    }
                    self.at.insert(record.partition, record.position + 1);
                    records.push(record);
                }
                // An error of one broker: others may have records.
                Some(Err(error)) => failure = Some(error),
                None if !records.is_empty() => break,
                None => {}
            }
            if records.is_empty() && remaining.is_zero() {
                break;
            }
        }
        failure
    }
}

fn record(message: &BorrowedMessage<'_>) -> FeedRecord {
    FeedRecord {
        partition: u16::try_from(message.partition()).unwrap_or(u16::MAX),
        position: position(message.offset()),
        payload: message.payload().unwrap_or_default().to_vec(),
    }
}
