//! The log on Kafka: [`weir_log::kafka`]. Each partition of the topic is a source. Any origin can query a source, and
//! one at a time reads it.

use std::collections::BTreeMap;
use std::fmt;

use weir_log::kafka::{KafkaLog, Reader, Settings};

use super::{
    AppendError, Batch, EventLog, Fill, GroupReader, Lag, LogError, LogFuture, NewRecord, Position,
    ReadOutcome, Record, Source, Target,
};

/// A log on Kafka. Its brokers may be unreachable.
#[derive(Clone)]
pub struct KafkaHome {
    log: KafkaLog,
    sources: Sources,
}

impl fmt::Debug for KafkaHome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.log.fmt(f)
    }
}

/// The partitions and their source names: `<topic>/<partition>`.
#[derive(Clone)]
struct Sources {
    all: Vec<Source>,
    partitions: BTreeMap<Source, u16>,
}

impl Sources {
    fn new(settings: &Settings) -> Self {
        let name = |partition| Source::from(format!("{}/{partition}", settings.topic()));
        let all: Vec<Source> = (0..settings.partitions()).map(name).collect();
        Self {
            partitions: all.iter().cloned().zip(0..).collect(),
            all,
        }
    }

    fn partition(&self, source: &Source) -> Result<u16, LogError> {
        let partition = self.partitions.get(source).copied();
        partition.ok_or_else(|| LogError::Source(source.clone()))
    }

    fn source(&self, partition: u16) -> Result<Source, LogError> {
        let source = self.all.get(usize::from(partition)).cloned();
        source.ok_or(LogError::Kafka(weir_log::kafka::LogError::Partition(
            partition,
        )))
    }
}

impl KafkaHome {
    /// Creates the log without contacting a broker.
    ///
    /// # Errors
    /// If the settings are invalid.
    pub fn open(settings: Settings) -> Result<Self, LogError> {
        Ok(Self {
            sources: Sources::new(&settings),
            log: KafkaLog::open(settings)?,
        })
    }

    /// Number of partitions.
    pub fn partitions(&self) -> u16 {
        self.log.settings().partitions()
    }
}

impl From<Target> for weir_log::kafka::Target {
    fn from(target: Target) -> Self {
        match target {
            Target::Start => Self::Start,
            Target::End => Self::End,
            Target::Time(time_ms) => Self::Time(time_ms),
            Target::Position(position) => Self::Position(position),
        }
    }
}

impl From<weir_log::kafka::AppendError> for AppendError {
    fn from(error: weir_log::kafka::AppendError) -> Self {
        match error {
            weir_log::kafka::AppendError::Full => Self::Full,
            weir_log::kafka::AppendError::Unknown => Self::Unknown,
            weir_log::kafka::AppendError::Refused => Self::Refused,
        }
    }
}

impl EventLog for KafkaHome {
    fn append(
        &self,
        records: Vec<NewRecord>,
        now_ms: u64,
    ) -> LogFuture<'_, Result<(), AppendError>> {
        Box::pin(async move {
            let records: Vec<weir_log::kafka::NewRecord<'_>> = records
                .iter()
                .map(|record| weir_log::kafka::NewRecord {
                    partition: record.partition,
                    payload: &record.payload,
                })
                .collect();
            Ok(self.log.append(&records, now_ms).await?)
        })
    }

    fn reader(&self, group: &str) -> Result<Box<dyn GroupReader>, LogError> {
        Ok(Box::new(KafkaReader {
            reader: self.log.reader(group)?,
            sources: self.sources.clone(),
        }))
    }

    fn sources(&self) -> Vec<Source> {
        self.sources.all.clone()
    }

    fn place(&self, source: &Source, target: Target) -> LogFuture<'_, Result<Position, LogError>> {
        let partition = self.sources.partition(source);
        Box::pin(async move { Ok(self.log.place(partition?, target.into()).await?) })
    }

    fn count(
        &self,
        source: &Source,
        from: Position,
        to: Position,
    ) -> LogFuture<'_, Result<u64, LogError>> {
        let partition = self.sources.partition(source);
        Box::pin(async move { Ok(self.log.count(partition?, from, to).await?) })
    }

    fn lag(&self, source: &Source, position: Position) -> LogFuture<'_, Result<Lag, LogError>> {
        let partition = self.sources.partition(source);
        Box::pin(async move {
            let lag = self.log.lag(partition?, position).await?;
            Ok(Lag {
                records: Some(lag.records),
                bytes: None,
                oldest_ms: lag.oldest_ms,
            })
        })
    }

    /// The amount that waits for Kafka's acknowledgement. Records that groups have not handled do not count: the
    /// brokers store them.
    fn fill(&self) -> Fill {
        let settings = self.log.settings();
        Fill {
            waiting_bytes: self.log.waiting_len() as u64,
            waiting_bytes_max: settings.waiting_len_max as u64,
        }
    }

    /// Does nothing: the topic has its own retention.
    fn retain(&self, _: u64) -> Result<(), LogError> {
        Ok(())
    }
}

struct KafkaReader {
    reader: Reader,
    sources: Sources,
}

impl GroupReader for KafkaReader {
    fn next(&mut self) -> LogFuture<'_, Result<ReadOutcome, LogError>> {
        Box::pin(async move {
            Ok(match self.reader.next().await? {
                weir_log::kafka::ReadOutcome::Assigned(partitions) => {
                    let source = |partition| self.sources.source(partition);
                    let sources: Result<_, _> = partitions.into_iter().map(source).collect();
                    ReadOutcome::Assigned(sources?)
                }
                weir_log::kafka::ReadOutcome::Batch(batch) => ReadOutcome::Batch(Batch {
                    source: self.sources.source(batch.partition)?,
                    records: batch.records.into_iter().map(record).collect(),
                    next: batch.next,
                }),
            })
        })
    }

    fn start_at(
        &mut self,
        source: &Source,
        position: Option<Position>,
    ) -> LogFuture<'_, Result<Position, LogError>> {
        let partition = self.sources.partition(source);
        // Ignore the position committed to Kafka: only SQL has the position of the group's effects.
        let position = position.unwrap_or(0);
        Box::pin(async move {
            match self.reader.start_at(partition?, Some(position)).await {
                // A rebalance came first. The reader delivers nothing of this source, and the next assignment omits it.
                // An error would be retried endlessly.
                Err(weir_log::kafka::LogError::Partition(_)) => Ok(position),
                result => Ok(result?),
            }
        })
    }

    fn commit(&mut self, source: &Source, position: Position) -> LogFuture<'_, ()> {
        if let Ok(partition) = self.sources.partition(source) {
            self.reader.commit(partition, position);
        }
        Box::pin(std::future::ready(()))
    }
}

fn record(record: weir_log::kafka::Record) -> Record {
    Record {
        position: record.position,
        time_ms: record.time_ms,
        payload: record.payload,
    }
}
