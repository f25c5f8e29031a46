//! Looks up positions, times and lags, independent of a group.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::Message;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use crate::kafka::client::Quiet;
use crate::kafka::{LogError, Settings};

/// A target of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The first remaining record.
    Start,
    /// After the last record.
    End,
    /// The first record that was appended at this time or later, in milliseconds since the Unix epoch.
    Time(u64),
    /// This position, or the nearest existing one.
    Position(u64),
}

/// The lag of a position.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lag {
    /// The number of records after it.
    pub records: u64,
    /// When the first of them was appended, in milliseconds since the Unix epoch; `None` without records.
    pub oldest_ms: Option<u64>,
}

/// How long lookups for lags are cached: each partition and group requests them.
const FRESH: Duration = Duration::from_secs(1);

/// A client without a group. All its methods block.
pub(crate) struct OffsetClient {
    settings: Settings,
    /// Reads one record of one partition at a time.
    consumer: Mutex<BaseConsumer<Quiet>>,
    cached: Mutex<OffsetCache>,
}

/// The first position of each partition, and the one after its last record.
type Ends = BTreeMap<u16, (u64, u64)>;

/// Recent results.
#[derive(Default)]
struct OffsetCache {
    /// The ends, and when they were read.
    ends: Option<(Instant, Ends)>,
    /// For each partition, the append time of the record at a group's position. There are few groups, so few entries.
    times: BTreeMap<u16, BTreeMap<u64, u64>>,
}

/// The maximum number of cached positions per partition; with more groups, some lookups repeat.
const TIMES_MAX: usize = 16;

impl OffsetClient {
    pub(crate) fn new(settings: &Settings) -> Result<Self, KafkaError> {
        // librdkafka requires a group name to assign partitions. No client joins this group.
        let group = format!("{}.look", settings.topic);
        let mut config = settings.client();
        config
            .set("group.id", group)
            .set("enable.auto.commit", "false")
            .set("auto.offset.reset", "earliest");
        Ok(Self {
            consumer: Mutex::new(config.create_with_context(Quiet)?),
            cached: Mutex::default(),
            settings: settings.clone(),
        })
    }

    pub(crate) fn place(&self, partition: u16, target: Target) -> Result<u64, LogError> {
        let consumer = self.lock();
        let (first, end) = ends(&*consumer, &self.settings, partition)?;
        match target {
            Target::Start => Ok(first),
            Target::End => Ok(end),
            Target::Position(position) => Ok(position.clamp(first, end)),
            Target::Time(time_ms) => {
                let found = at_time(&consumer, &self.settings, partition, time_ms)?;
                Ok(found.unwrap_or(end))
            }
        }
    }

    /// The number of records between two positions.
    pub(crate) fn count(&self, partition: u16, from: u64, to: u64) -> Result<u64, LogError> {
        let (first, end) = ends(&*self.lock(), &self.settings, partition)?;
        Ok(to.min(end).saturating_sub(from.max(first)))
    }

    pub(crate) fn lag(&self, partition: u16, position: u64) -> Result<Lag, LogError> {
        let consumer = self.lock();
        let mut existing = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        let (first, end) = self.ends_lately(&consumer, &mut existing, partition)?;
        let from = position.max(first);
        if from >= end {
            return Ok(Lag::default());
        }
        let times = existing.times.entry(partition).or_default();
        if times.len() >= TIMES_MAX {
            times.clear();
        }
        if !times.contains_key(&from)
            && let Some(time_ms) = time_of(&consumer, &self.settings, partition, from)?
        {
            times.insert(from, time_ms);
        }
        Ok(Lag {
            records: end - from,
            oldest_ms: times.get(&from).copied(),
        })
    }

    /// The ends of a partition, cached for [`FRESH`]. One lookup reads all partitions.
    fn ends_lately(
        &self,
        consumer: &BaseConsumer<Quiet>,
        cache: &mut OffsetCache,
        partition: u16,
    ) -> Result<(u64, u64), LogError> {
        let is_fresh = |(since, _): &&(Instant, _)| since.elapsed() < FRESH;
        if cache.ends.as_ref().filter(is_fresh).is_none() {
            let firsts = all_at(consumer, &self.settings, Offset::Beginning)?;
            let ends = all_at(consumer, &self.settings, Offset::End)?;
            let both = |(partition, first)| Some((partition, (first, *ends.get(&partition)?)));
            let ends = firsts.into_iter().filter_map(both).collect();
            cache.ends = Some((Instant::now(), ends));
        }
        let ends = cache
            .ends
            .as_ref()
            .and_then(|(_, ends)| ends.get(&partition));
        ends.copied().ok_or(LogError::Partition(partition))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BaseConsumer<Quiet>> {
        // Each use assigns its own partitions.
        self.consumer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The first position of a partition, and the one after its last record.
pub(crate) fn ends<C, T>(
    consumer: &T,
    settings: &Settings,
    partition: u16,
) -> Result<(u64, u64), LogError>
where
    C: rdkafka::consumer::ConsumerContext,
    T: Consumer<C>,
{
    let limit = settings.times.answer_max;
    let (first, end) = consumer.fetch_watermarks(&settings.topic, partition.into(), limit)?;
    Ok((position(first), position(end)))
}

/// Kafka's offsets start at 0.
pub(crate) fn position(offset: i64) -> u64 {
    u64::try_from(offset).unwrap_or(0)
}

/// A position as librdkafka's offset.
pub(crate) fn offset(position: u64) -> Offset {
    Offset::Offset(i64::try_from(position).unwrap_or(i64::MAX))
}

/// A list of one partition with a position.
pub(crate) fn list(
    settings: &Settings,
    partition: u16,
    at: Offset,
) -> Result<TopicPartitionList, KafkaError> {
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(&settings.topic, partition.into(), at)?;
    Ok(list)
}

/// The first or the last position of every partition.
fn all_at(
    consumer: &BaseConsumer<Quiet>,
    settings: &Settings,
    end: Offset,
) -> Result<BTreeMap<u16, u64>, LogError> {
    let mut requested = TopicPartitionList::new();
    for partition in 0..settings.partitions {
        requested.add_partition_offset(&settings.topic, partition.into(), end)?;
    }
    let reply = consumer.offsets_for_times(requested, settings.times.answer_max)?;
    let mut places = BTreeMap::new();
    for one in reply.elements() {
        one.error()?;
        if let (Ok(partition), Offset::Offset(offset)) = (one.partition().try_into(), one.offset())
        {
            places.insert(partition, position(offset));
        }
    }
    Ok(places)
}

/// The first position at a time; `None` if all records are older.
fn at_time(
    consumer: &BaseConsumer<Quiet>,
    settings: &Settings,
    partition: u16,
    time_ms: u64,
) -> Result<Option<u64>, LogError> {
    let requested = list(settings, partition, offset(time_ms))?;
    let found = consumer.offsets_for_times(requested, settings.times.answer_max)?;
    let found = found.find_partition(&settings.topic, partition.into());
    let found = found.ok_or(LogError::Partition(partition))?;
    found.error()?;
    Ok(match found.offset() {
        Offset::Offset(offset) => Some(position(offset)),
        _ => None,
    })
}

/// When the record at a position was appended.
fn time_of(
    consumer: &BaseConsumer<Quiet>,
    settings: &Settings,
    partition: u16,
    at: u64,
) -> Result<Option<u64>, LogError> {
    consumer.assign(&list(settings, partition, offset(at))?)?;
    let deadline = Instant::now() + settings.times.answer_max;
    let read = loop {
        let remaining = deadline.saturating_duration_since(Instant::now());
        if remaining.is_zero() {
            break Err(LogError::Away);
        }
        // An error of one broker: another one may answer.
        if let Some(Ok(record)) = consumer.poll(remaining) {
            break Ok(record.timestamp().to_millis().map(position));
        }
    };
    consumer.unassign()?;
    read
}
