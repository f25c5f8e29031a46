//! Reads the log for a group.
//!
//! A separate thread polls librdkafka all the time. So a caller that handles a batch, or pauses for an hour, keeps its
//! partitions and releases revoked ones. librdkafka queues records per partition until the caller requests them.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::consumer::base_consumer::PartitionQueue;
use rdkafka::consumer::{CommitMode, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Message};
use rdkafka::topic_partition_list::Offset;
use tracing::{debug, info, warn};

use crate::kafka::assignment::{GroupConsumer, PartitionProgress, ReaderShared, Rebalances, State};
use crate::kafka::log::blocking;
use crate::kafka::offsets::{ends, list, offset, position};
use crate::kafka::{LogError, Settings, topic};

/// The maximum number of records in a batch, for one transaction.
const BATCH: usize = 512;

/// The approximate maximum of bytes in a batch.
const BATCH_LEN: usize = 4 << 20;

/// How long the thread polls before it checks whether it must end.
const POLL: Duration = Duration::from_millis(100);

/// The pause after a broker failure.
const AGAIN: Duration = Duration::from_secs(1);

/// The pause between attempts to seek: a new partition is not ready at once.
const SEEK_AGAIN: Duration = Duration::from_millis(10);

/// How long a reader caches the topic's metadata, in milliseconds.
const METADATA_MAX_MS: &str = "10000";

/// How long a reader waits at its end until its group has registered it.
const LEAVE: Duration = Duration::from_secs(2);

/// A record of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its position.
    pub position: u64,
    /// When it was appended, in milliseconds since the Unix epoch; 0 if unknown.
    pub time_ms: u64,
    /// Its payload.
    pub payload: Vec<u8>,
}

/// Consecutive records of one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The partition.
    pub partition: u16,
    /// The records: at least one.
    pub records: Vec<Record>,
    /// The position after the last record.
    pub next: u64,
}

/// The next event of a reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadOutcome {
    /// The reader now owns exactly these partitions. It returns records of one only after [`Reader::start_at`] for it.
    Assigned(Vec<u16>),
    /// Records.
    Batch(Batch),
}

/// Reads for one group. After a drop, other readers get its partitions.
pub struct Reader {
    shared: Arc<ReaderShared>,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Reader({})", self.shared.group)
    }
}

impl Reader {
    pub(crate) fn start(settings: &Settings, group: &str) -> Result<Self, LogError> {
        let shared = Arc::new(ReaderShared::new(settings, group));
        let consumer = consumer(&shared)?;
        let thread = std::thread::Builder::new().name("kafka-group".into());
        let theirs = shared.clone();
        let spawned = thread.spawn(move || run(&theirs, consumer));
        spawned.map_err(|_| LogError::Away)?;
        Ok(Self { shared })
    }

    /// Waits for the next event. It is cancel-safe. A call means that the caller has finished the last batch.
    ///
    /// # Errors
    /// When the brokers report an error. Call it again.
    pub async fn next(&mut self) -> Result<ReadOutcome, LogError> {
        loop {
            let news = self.shared.news.notified();
            if let Some(next) = self.look() {
                return next;
            }
            news.await;
        }
    }

    fn look(&self) -> Option<Result<ReadOutcome, LogError>> {
        let mut state = self.shared.lock();
        if state.current.take().is_some() {
            self.shared.returned.notify_all();
        }
        if let Some(error) = state.failure.take() {
            return Some(Err(error.into()));
        }
        if state.is_changed {
            state.is_changed = false;
            for place in state.partitions.values_mut() {
                *place = PartitionProgress::Unknown;
            }
            let all = state.partitions.keys().copied().collect();
            return Some(Ok(ReadOutcome::Assigned(all)));
        }
        read(&mut state).map(|read| read.map(ReadOutcome::Batch))
    }

    /// Starts a partition at `position`. Without one, it starts where the group has [committed](Reader::commit), or
    /// else at the first record. Returns the actual position: older records may be deleted.
    ///
    /// # Errors
    /// When the partition no longer belongs to this reader, or no broker answers.
    pub async fn start_at(
        &mut self,
        partition: u16,
        position: Option<u64>,
    ) -> Result<u64, LogError> {
        let shared = self.shared.clone();
        blocking(move || start_at(&shared, partition, position)).await
    }

    /// Commits `position`: the group has handled all records before it. Returns without waiting for the brokers.
    pub fn commit(&mut self, partition: u16, position: u64) {
        let mut state = self.shared.lock();
        if !state.partitions.contains_key(&partition) && state.current != Some(partition) {
            // Another reader owns it and has a newer position.
            return;
        }
        state.handled.insert(partition, position);
        let Some(consumer) = state.consumer.clone() else {
            return;
        };
        drop(state);
        let commit = list(&self.shared.settings, partition, offset(position))
            .and_then(|list| consumer.commit(&list, CommitMode::Async));
        if let Err(error) = commit {
            warn!(%error, group = self.shared.group, "Kafka refused a commit");
        }
    }
}

impl Drop for Reader {
    /// Leaves the group, so that others need not wait for the session timeout.
    fn drop(&mut self) {
        let deadline = Instant::now() + LEAVE;
        let mut state = self.shared.lock();
        state.is_stopped = true;
        self.shared.returned.notify_all();
        while !state.has_ended {
            let remaining = deadline.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                return;
            }
            let waited = self.shared.returned.wait_timeout(state, remaining);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

fn consumer(shared: &Arc<ReaderShared>) -> Result<GroupConsumer, KafkaError> {
    let session_ms = shared.settings.times.session.as_millis();
    shared
        .settings
        .client()
        .set("group.id", &shared.group)
        .set("enable.auto.commit", "false")
        .set("enable.auto.offset.store", "false")
        .set("auto.offset.reset", "earliest")
        // A broker without the metadata of a new topic reports it as missing: retry soon, not after five minutes.
        .set("topic.metadata.refresh.interval.ms", METADATA_MAX_MS)
        // Partitions that do not move continue during a rebalance.
        .set("partition.assignment.strategy", "cooperative-sticky")
        .set("session.timeout.ms", session_ms.to_string())
        .set("heartbeat.interval.ms", (session_ms / 4).to_string())
        // Per partition, and there may be fifty.
        .set("queued.max.messages.kbytes", "1024")
        .set("queued.min.messages", "1000")
        .set("fetch.queue.backoff.ms", "20")
        .create_with_context(Rebalances(shared.clone()))
}

/// The reader's thread.
fn run(shared: &ReaderShared, consumer: GroupConsumer) {
    let consumer = Arc::new(consumer);
    if subscribed(shared, &consumer) {
        shared.lock().consumer = Some(consumer.clone());
        while !shared.lock().is_stopped {
            match consumer.poll(POLL) {
                Some(Err(error)) => handle_error(shared, error),
                Some(Ok(message)) => astray(shared, &message),
                None => {}
            }
        }
    }
    let mut state = shared.lock();
    state.consumer = None;
    let queues = std::mem::take(&mut state.partitions);
    drop(state);
    drop(queues);
    // Leaves the group.
    drop(consumer);
    shared.lock().has_ended = true;
    shared.returned.notify_all();
}

/// Joins the group when the topic exists. Returns `false` if the reader must end before that.
fn subscribed(shared: &ReaderShared, consumer: &GroupConsumer) -> bool {
    let mut is_said = false;
    while !shared.lock().is_stopped {
        let subscribed = topic::make(&shared.settings)
            .and_then(|()| Ok(consumer.subscribe(&[&shared.settings.topic])?));
        let Err(error) = subscribed else { return true };
        if !std::mem::replace(&mut is_said, true) {
            warn!(%error, group = shared.group, "cannot join the consumer group; retrying");
        }
        let state = shared.lock();
        if !state.is_stopped {
            drop(shared.returned.wait_timeout(state, AGAIN));
        }
    }
    false
}

/// Handles a record outside the partition queues. It does not occur, because each partition gets a queue before it is
/// read. The record would be missing from its queue, so the caller must restart its partitions.
fn astray(shared: &ReaderShared, message: &BorrowedMessage<'_>) {
    let partition = u16::try_from(message.partition()).unwrap_or(u16::MAX);
    let mut state = shared.lock();
    let next = match state.partitions.get(&partition) {
        Some(PartitionProgress::Reading { next, .. }) => *next,
        _ => return,
    };
    if position(message.offset()) >= next {
        warn!(
            group = shared.group,
            partition, next, "record lost between reads; reading again"
        );
        state.is_changed = true;
        shared.news.notify_one();
    }
}

/// Handles an error. librdkafka recovers from most of them.
fn handle_error(shared: &ReaderShared, error: KafkaError) {
    let is_for_caller = matches!(
        error.rdkafka_error_code(),
        Some(
            RDKafkaErrorCode::Fatal
                | RDKafkaErrorCode::GroupAuthorizationFailed
                | RDKafkaErrorCode::TopicAuthorizationFailed
                | RDKafkaErrorCode::UnknownTopicOrPartition
        )
    ) || matches!(error, KafkaError::MessageConsumptionFatal(_));
    if is_for_caller {
        shared.fail(error);
    } else {
        debug!(%error, group = shared.group, "librdkafka");
    }
}

/// Reads a batch from the next partition that has records.
fn read(state: &mut State) -> Option<Result<Batch, LogError>> {
    let last = state.last;
    let behind = |partition: u16| last.is_some_and(|last| partition <= last);
    // First the partitions after the last one read, then those before it.
    let mut turns: Vec<u16> = state.partitions.keys().copied().collect();
    turns.sort_by_key(|partition| behind(*partition));
    for partition in turns {
        let Some(PartitionProgress::Reading { queue, next }) = state.partitions.get_mut(&partition)
        else {
            continue;
        };
        let (records, failure) = take(queue, next);
        if !records.is_empty() {
            let batch = Batch {
                partition,
                next: *next,
                records,
            };
            state.failure = state.failure.take().or(failure);
            state.current = Some(partition);
            state.last = Some(partition);
            return Some(Ok(batch));
        }
        if let Some(failure) = failure {
            return Some(Err(failure.into()));
        }
    }
    None
}

/// Takes up to a batch from a queue, and moves `next` after it.
fn take(queue: &PartitionQueue<Rebalances>, next: &mut u64) -> (Vec<Record>, Option<KafkaError>) {
    let (mut records, mut len) = (Vec::new(), 0);
    while records.len() < BATCH && len < BATCH_LEN {
        match queue.poll(Duration::ZERO) {
            None => break,
            Some(Err(error)) => return (records, Some(error)),
            Some(Ok(message)) => {
                let record = record(&message);
                // A record from before a seek.
                if record.position < *next {
                    continue;
                }
                *next = record.position + 1;
                len += record.payload.len();
                records.push(record);
            }
        }
    }
    (records, None)
}

fn record(message: &BorrowedMessage<'_>) -> Record {
    Record {
        position: position(message.offset()),
        time_ms: message.timestamp().to_millis().map_or(0, position),
        // A record without a payload is empty; the caller interprets it.
        payload: message.payload().unwrap_or_default().to_vec(),
    }
}

fn start_at(shared: &Arc<ReaderShared>, partition: u16, to: Option<u64>) -> Result<u64, LogError> {
    let state = shared.lock();
    let consumer = state.consumer.clone().ok_or(LogError::Away)?;
    // The brokers may not have this reader's last commit yet.
    let to = to.or_else(|| state.handled.get(&partition).copied());
    drop(state);
    let to = match to {
        Some(to) => Some(to),
        None => committed(&consumer, &shared.settings, partition)?,
    };
    let (first, end) = ends(&*consumer, &shared.settings, partition)?;
    // A position beyond the end: the topic was recreated. Handling records twice is better than skipping them.
    let at = to.filter(|to| *to <= end).unwrap_or(first).max(first);
    if let Some(to) = to.filter(|to| *to != at) {
        warn!(
            group = shared.group,
            partition, to, at, "log position no longer exists; continuing from another one"
        );
    }
    place(shared, &consumer, partition, at)?;
    info!(group = shared.group, partition, at, "reading partition");
    Ok(at)
}

/// The group's committed position.
fn committed(
    consumer: &GroupConsumer,
    settings: &Settings,
    partition: u16,
) -> Result<Option<u64>, LogError> {
    let requested = list(settings, partition, Offset::Invalid)?;
    let reply = consumer.committed_offsets(requested, settings.times.answer_max)?;
    let reply = reply.find_partition(&settings.topic, partition.into());
    Ok(reply.and_then(|reply| match reply.offset() {
        Offset::Offset(offset) => Some(position(offset)),
        _ => None,
    }))
}

/// Seeks the partition, gives it a separate queue, and resumes it.
fn place(
    shared: &Arc<ReaderShared>,
    consumer: &Arc<GroupConsumer>,
    partition: u16,
    at: u64,
) -> Result<(), LogError> {
    let settings = &shared.settings;
    let one = list(settings, partition, offset(at))?;
    let not_ours = || LogError::Partition(partition);
    // Drops the old queue before it creates a new one: librdkafka would treat the two as one.
    let mut state = shared.lock();
    *state.partitions.get_mut(&partition).ok_or_else(not_ours)? = PartitionProgress::Unknown;
    drop(state);
    consumer.pause(&one)?;
    // After a successful seek, librdkafka reads the partition and does not redirect its queue. Records that it had read
    // before are invalid.
    seek(consumer, settings, partition, at)?;
    let queue = consumer.split_partition_queue(&settings.topic, partition.into());
    let mut queue = queue.ok_or_else(not_ours)?;
    let theirs = shared.clone();
    queue.set_nonempty_callback(move || theirs.news.notify_one());
    let mut state = shared.lock();
    let place = state.partitions.get_mut(&partition).ok_or_else(not_ours)?;
    *place = PartitionProgress::Reading { queue, next: at };
    // Before another thread can revoke it.
    consumer.resume(&one)?;
    drop(state);
    shared.news.notify_one();
    Ok(())
}

fn seek(
    consumer: &GroupConsumer,
    settings: &Settings,
    partition: u16,
    at: u64,
) -> Result<(), LogError> {
    let limit = settings.times.answer_max;
    let deadline = Instant::now() + limit;
    loop {
        let moved = consumer.seek_partitions(list(settings, partition, offset(at))?, limit)?;
        let moved = moved.find_partition(&settings.topic, partition.into());
        let moved = moved.ok_or(LogError::Partition(partition))?;
        match moved.error() {
            Ok(()) => return Ok(()),
            Err(error) if Instant::now() >= deadline => return Err(error.into()),
            Err(_) => std::thread::sleep(SEEK_AGAIN),
        }
    }
}
