//! Reads the log for a group.
//!
//! A thread of its own asks librdkafka all the time what is new in the group, so that a caller who works at a batch, or who
//! pauses for an hour, keeps its partitions and gives up those that others get. Records wait in librdkafka, for each
//! partition by itself, until the caller asks.

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

/// The most records of a batch: what one transaction takes.
const BATCH: usize = 512;

/// The most bytes of a batch, about.
const BATCH_LEN: usize = 4 << 20;

/// How long the thread waits for news of the group before it looks whether it shall end.
const POLL: Duration = Duration::from_millis(100);

/// The pause after the brokers did not answer.
const AGAIN: Duration = Duration::from_secs(1);

/// A partition that has just come is not ready to be moved for some moments.
const SEEK_AGAIN: Duration = Duration::from_millis(10);

/// The longest, in milliseconds, that a reader believes what a broker said of the topic.
const METADATA_MAX_MS: &str = "10000";

/// How long the end of a reader waits until its group knows.
const LEAVE: Duration = Duration::from_secs(2);

/// What was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Where.
    pub position: u64,
    /// When it was appended, in milliseconds since the Unix epoch; 0 if nobody knows.
    pub time_ms: u64,
    /// What it says.
    pub payload: Vec<u8>,
}

/// Records of one partition that follow each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Of which partition.
    pub partition: u16,
    /// At least one.
    pub records: Vec<Record>,
    /// Behind the last one.
    pub next: u64,
}

/// What a reader has next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadOutcome {
    /// From now on these partitions are this reader's, and no other ones. Nothing comes of one before
    /// [`Reader::start_at`] was called for it.
    Assigned(Vec<u16>),
    /// Records.
    Batch(Batch),
}

/// Reads for one group. When it is dropped, others get its partitions.
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

    /// What comes next, as soon as there is something. Whoever stops waiting loses nothing. Whoever asks no longer works
    /// at the last batch.
    ///
    /// # Errors
    /// When the brokers refuse. Ask again.
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
        if state.lent.take().is_some() {
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

    /// Goes on with a partition at `position`; where the group has [committed](Reader::commit) if there is none, and at
    /// the start if it never has. Tells where: records that are too old may be gone.
    ///
    /// # Errors
    /// When the partition is not this reader's any more, or no broker answers.
    pub async fn start_at(
        &mut self,
        partition: u16,
        position: Option<u64>,
    ) -> Result<u64, LogError> {
        let shared = self.shared.clone();
        blocking(move || start_at(&shared, partition, position)).await
    }

    /// Tells the brokers that the group has handled what lies before `position`. Returns before they know.
    pub fn commit(&mut self, partition: u16, position: u64) {
        let mut state = self.shared.lock();
        if !state.partitions.contains_key(&partition) && state.lent != Some(partition) {
            // It is another reader's, who knows better.
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
    /// Leaves the group, so that others need not wait until it is missed.
    fn drop(&mut self) {
        let deadline = Instant::now() + LEAVE;
        let mut state = self.shared.lock();
        state.is_stopped = true;
        self.shared.returned.notify_all();
        while !state.has_ended {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.shared.returned.wait_timeout(state, left);
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
        // A broker that does not know a new topic yet says that it is missing: ask again soon, not in five minutes.
        .set("topic.metadata.refresh.interval.ms", METADATA_MAX_MS)
        // Partitions that stay where they are go on while others move.
        .set("partition.assignment.strategy", "cooperative-sticky")
        .set("session.timeout.ms", session_ms.to_string())
        .set("heartbeat.interval.ms", (session_ms / 4).to_string())
        // For each partition: fifty may wait.
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

/// Joins the group, as soon as the topic is there. `false`: it shall end before that.
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

/// Each partition has a queue of its own before it is read, so no record comes here. If one does, it would be missed: then all
/// are read from where the caller says.
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

/// Most of what librdkafka tells here it mends itself.
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

/// The next batch of the next partition that has one.
fn read(state: &mut State) -> Option<Result<Batch, LogError>> {
    let last = state.last;
    let behind = |partition: u16| last.is_some_and(|last| partition <= last);
    // First those behind the last one, then those before.
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
            state.lent = Some(partition);
            state.last = Some(partition);
            return Some(Ok(batch));
        }
        if let Some(failure) = failure {
            return Some(Err(failure.into()));
        }
    }
    None
}

/// What waits in a queue, up to a batch. Moves `next` behind it.
fn take(queue: &PartitionQueue<Rebalances>, next: &mut u64) -> (Vec<Record>, Option<KafkaError>) {
    let (mut records, mut len) = (Vec::new(), 0);
    while records.len() < BATCH && len < BATCH_LEN {
        match queue.poll(Duration::ZERO) {
            None => break,
            Some(Err(error)) => return (records, Some(error)),
            Some(Ok(message)) => {
                let record = record(&message);
                // Of before the reader was moved.
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
        // A record without one is empty: whoever reads it says what it makes of that.
        payload: message.payload().unwrap_or_default().to_vec(),
    }
}

fn start_at(shared: &Arc<ReaderShared>, partition: u16, to: Option<u64>) -> Result<u64, LogError> {
    let state = shared.lock();
    let consumer = state.consumer.clone().ok_or(LogError::Away)?;
    // What this reader has committed the brokers may not know yet.
    let to = to.or_else(|| state.handled.get(&partition).copied());
    drop(state);
    let to = match to {
        Some(to) => Some(to),
        None => committed(&consumer, &shared.settings, partition)?,
    };
    let (first, end) = ends(&*consumer, &shared.settings, partition)?;
    // Beyond the end: it is another topic of that name. What was handled of it is handled again rather than never.
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

/// Where the group has committed.
fn committed(
    consumer: &GroupConsumer,
    settings: &Settings,
    partition: u16,
) -> Result<Option<u64>, LogError> {
    let asked = list(settings, partition, Offset::Invalid)?;
    let told = consumer.committed_offsets(asked, settings.times.answer_max)?;
    let told = told.find_partition(&settings.topic, partition.into());
    Ok(told.and_then(|told| match told.offset() {
        Offset::Offset(offset) => Some(position(offset)),
        _ => None,
    }))
}

/// Moves the partition, gives it a queue of its own, and lets it run.
fn place(
    shared: &Arc<ReaderShared>,
    consumer: &Arc<GroupConsumer>,
    partition: u16,
    at: u64,
) -> Result<(), LogError> {
    let settings = &shared.settings;
    let one = list(settings, partition, offset(at))?;
    let not_ours = || LogError::Partition(partition);
    // Its queue, if it has one, goes before another one comes: the two would be one to librdkafka.
    let mut state = shared.lock();
    *state.partitions.get_mut(&partition).ok_or_else(not_ours)? = PartitionProgress::Unknown;
    drop(state);
    consumer.pause(&one)?;
    // When this works, librdkafka reads the partition and will not turn its queue elsewhere. What it had read already
    // is void.
    seek(consumer, settings, partition, at)?;
    let queue = consumer.split_partition_queue(&settings.topic, partition.into());
    let mut queue = queue.ok_or_else(not_ours)?;
    let theirs = shared.clone();
    queue.set_nonempty_callback(move || theirs.news.notify_one());
    let mut state = shared.lock();
    let place = state.partitions.get_mut(&partition).ok_or_else(not_ours)?;
    *place = PartitionProgress::Reading { queue, next: at };
    // Before anybody can take it away.
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
