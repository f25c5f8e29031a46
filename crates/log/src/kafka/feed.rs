//! Reads a topic of somebody else's: all its partitions, from places that the caller keeps. It joins no group and makes no
//! topic, so whoever has the places may be another process the next time.

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

/// How long a reading waits for the first record.
const FIRST: Duration = Duration::from_secs(1);

/// How long it waits for each further one: librdkafka has them, or nobody does.
const FURTHER: Duration = Duration::from_millis(20);

/// Where to go on in each partition.
pub type Places = BTreeMap<u16, u64>;

/// What one reading takes at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeedBounds {
    /// Records.
    pub records_max: usize,
    /// Bytes, unless the first record alone has more.
    pub len_max: usize,
}

/// A record of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedRecord {
    /// In which partition.
    pub partition: u16,
    /// Where.
    pub position: u64,
    /// What it says; nothing if it has no value.
    pub payload: Vec<u8>,
}

/// What was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeedBatch {
    /// Where the reading began, of partitions for which the caller had no place, or one that is gone.
    pub began: Places,
    /// Of one partition in its order.
    pub records: Vec<FeedRecord>,
}

/// A topic that is read. Cloning it is cheap.
#[derive(Clone)]
pub struct Feed(Arc<Mutex<State>>);

impl std::fmt::Debug for Feed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Each change of the state leaves it whole.
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        write!(f, "Feed({:?})", state.settings)
    }
}

struct State {
    settings: Settings,
    consumer: BaseConsumer<Quiet>,
    /// Where the consumer is. Empty: it must be told.
    at: Places,
    /// What was polled, and not given away for its length.
    kept: Option<FeedRecord>,
}

impl Feed {
    /// The topic that the settings name; how many partitions it has, its brokers say. Asks none of them.
    ///
    /// # Errors
    /// When librdkafka refuses the settings.
    pub fn open(settings: Settings) -> Result<Self, LogError> {
        let mut config = settings.client();
        config
            // librdkafka assigns nothing without the name of a group. Nobody ever joins this one.
            .set("group.id", format!("{}.feed", settings.topic))
            .set("enable.auto.commit", "false")
            // A place that is gone is looked for by us, and said.
            .set("auto.offset.reset", "error");
        Ok(Self(Arc::new(Mutex::new(State {
            consumer: config.create_with_context(Quiet)?,
            settings,
            at: Places::new(),
            kept: None,
        }))))
    }

    /// Records from these places on; from the start of partitions that have none. Waits about a second for the first one.
    ///
    /// # Errors
    /// When no broker answers, or there is no such topic. Nothing is lost: read again.
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
        // Nothing new, or nobody there to say so.
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

    /// Goes to these places; tells those that the caller does not know.
    fn place(&mut self, from: &Places) -> Result<Places, LogError> {
        let count = u16::try_from(self.partitions()?).unwrap_or(u16::MAX);
        let (mut began, mut at) = (Places::new(), Places::new());
        let mut list = TopicPartitionList::new();
        for partition in 0..count {
            let (first, end) = ends(&self.consumer, &self.settings, partition)?;
            let known = from.get(&partition).copied();
            // Beyond the end: it is another topic of that name.
            let to = known
                .filter(|to| (first..=end).contains(to))
                .unwrap_or(first);
            if known != Some(to) {
                began.insert(partition, to);
            }
            if let Some(known) = known.filter(|known| *known != to) {
                let topic = &self.settings.topic;
                warn!(
                    topic,
                    partition,
                    known,
                    to,
                    "log position no longer exists; continuing from another one"
                );
            }
            at.insert(partition, to);
            list.add_partition_offset(&self.settings.topic, partition.into(), offset(to))?;
        }
        self.consumer.assign(&list)?;
        (self.at, self.kept) = (at, None);
        Ok(began)
    }

    /// Takes what comes, and tells the last failure.
    fn poll(&mut self, bounds: FeedBounds, records: &mut Vec<FeedRecord>) -> Option<KafkaError> {
        let deadline = Instant::now() + FIRST;
        let (mut len, mut failure) = (0, None);
        while records.len() < bounds.records_max {
            let left = deadline.saturating_duration_since(Instant::now());
            let pause = if records.is_empty() { left } else { FURTHER };
            let polled = match self.kept.take() {
                Some(kept) => Some(Ok(kept)),
                None => self.consumer.poll(pause).map(|one| one.map(|m| record(&m))),
            };
            match polled {
                Some(Ok(record)) => {
                    len += record.payload.len();
                    if len > bounds.len_max && !records.is_empty() {
                        self.kept = Some(record);
                        break;
                    }
                    self.at.insert(record.partition, record.position + 1);
                    records.push(record);
                }
                // One broker's: another one may have something.
                Some(Err(error)) => failure = Some(error),
                None if !records.is_empty() => break,
                None => {}
            }
            if records.is_empty() && left.is_zero() {
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
