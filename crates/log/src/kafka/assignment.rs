//! A reader's partitions and its position in each.
//!
//! librdkafka reports changes on the reader's own thread ([`Rebalances`]), also while the caller handles a batch. This
//! module stores them, and the caller receives them with its next request. A new partition is paused until the caller
//! sets its start position.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::base_consumer::PartitionQueue;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::RDKafkaRespErr;
use tokio::sync::Notify;
use tracing::{debug, error};

use crate::kafka::offsets::offset;
use crate::kafka::{Settings, client};

pub(crate) type GroupConsumer = BaseConsumer<Rebalances>;

/// State shared by a reader, its thread and librdkafka.
pub(crate) struct ReaderShared {
    pub(crate) settings: Settings,
    /// The group's name on the brokers.
    pub(crate) group: String,
    state: Mutex<State>,
    /// The caller has finished its batch, or the reader ends.
    pub(crate) returned: Condvar,
    /// There may be news for the caller.
    pub(crate) news: Notify,
}

#[derive(Default)]
pub(crate) struct State {
    /// Present while the consumer runs.
    pub(crate) consumer: Option<Arc<GroupConsumer>>,
    pub(crate) partitions: BTreeMap<u16, PartitionProgress>,
    /// The caller has not received the current partitions yet.
    pub(crate) is_changed: bool,
    /// The caller's committed position in each partition.
    pub(crate) handled: BTreeMap<u16, u64>,
    /// The partition of the caller's current batch.
    pub(crate) current: Option<u16>,
    /// The partition of the last read; the next read starts after it.
    pub(crate) last: Option<u16>,
    /// The failure to report to the caller.
    pub(crate) failure: Option<KafkaError>,
    pub(crate) is_stopped: bool,
    pub(crate) has_ended: bool,
}

/// A reader's progress in a partition.
pub(crate) enum PartitionProgress {
    /// The caller has not set the start position.
    Unknown,
    /// The reader takes records from this queue.
    Reading {
        queue: PartitionQueue<Rebalances>,
        /// The position of the next record.
        next: u64,
    },
}

impl ReaderShared {
    pub(crate) fn new(settings: &Settings, group: &str) -> Self {
        Self {
            group: format!("{}.{group}", settings.topic),
            settings: settings.clone(),
            state: Mutex::default(),
            returned: Condvar::new(),
            news: Notify::new(),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // Each change is a single step, so a panic elsewhere leaves the state consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn fail(&self, error: KafkaError) {
        self.lock().failure = Some(error);
        self.news.notify_one();
    }

    fn add_partitions(&self, partitions: &[u16]) {
        let mut state = self.lock();
        for partition in partitions {
            state
                .partitions
                .insert(*partition, PartitionProgress::Unknown);
        }
        state.is_changed = true;
        drop(state);
        self.news.notify_one();
    }

    /// Removes revoked partitions. First waits until the caller has finished its batch of one of them, so that the next
    /// owner does not repeat it. Returns the committed positions of these partitions.
    fn revoked(&self, partitions: &[u16], is_late: bool) -> Vec<(u16, u64)> {
        let deadline = Instant::now() + self.settings.times.hand_over_max;
        let mut state = self.lock();
        for partition in partitions {
            // No more batches of it.
            state.partitions.remove(partition);
        }
        state.is_changed = true;
        self.news.notify_one();
        let is_lent = |state: &State| {
            state
                .current
                .is_some_and(|transfer| partitions.contains(&transfer))
        };
        while !is_late && !state.is_stopped && is_lent(&state) {
            let remaining = deadline.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                break;
            }
            let waited = self.returned.wait_timeout(state, remaining);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let handled = |partition: &u16| Some((*partition, state.handled.remove(partition)?));
        partitions.iter().filter_map(handled).collect()
    }
}

/// Receives partition assignments and revocations from librdkafka.
pub(crate) struct Rebalances(pub(crate) Arc<ReaderShared>);

impl ClientContext for Rebalances {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, line: &str) {
        client::log(level, facility, line);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        client::error(&error, reason);
    }
}

impl ConsumerContext for Rebalances {
    fn rebalance(
        &self,
        consumer: &BaseConsumer<Self>,
        err: RDKafkaRespErr,
        list: &mut TopicPartitionList,
    ) {
        let partitions = numbers(list);
        let done = match err {
            RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS => {
                debug!(group = self.0.group, ?partitions, "partitions assigned");
                assign(consumer, list).inspect(|()| self.0.add_partitions(&partitions))
            }
            RDKafkaRespErr::RD_KAFKA_RESP_ERR__REVOKE_PARTITIONS => {
                debug!(group = self.0.group, ?partitions, "partitions revoked");
                let is_late = consumer.assignment_lost();
                let handled = self.0.revoked(&partitions, is_late);
                if !is_late {
                    commit(&self.0, consumer, &handled);
                }
                consumer.incremental_unassign(list)
            }
            _ => Err(KafkaError::Rebalance(err.into())),
        };
        if let Err(error) = done {
            error!(%error, group = self.0.group, "rebalance failed");
            self.0.fail(error);
        }
    }

    fn commit_callback(&self, result: KafkaResult<()>, _: &TopicPartitionList) {
        if let Err(error) = result {
            // The caller's own position is authoritative; the next commit includes this one.
            debug!(%error, group = self.0.group, "commit failed");
        }
    }
}

/// Assigns the partitions without reading: the caller sets the start position. An explicit position prevents a request
/// to the brokers.
fn assign(consumer: &GroupConsumer, list: &mut TopicPartitionList) -> KafkaResult<()> {
    list.set_all_offsets(Offset::Offset(0))?;
    consumer.incremental_assign(list)?;
    consumer.pause(list)
}

/// Repeats the commits and waits for the brokers: they rejected commits during the rebalance, and the next reader
/// starts at the committed position.
fn commit(shared: &ReaderShared, consumer: &GroupConsumer, handled: &[(u16, u64)]) {
    let mut list = TopicPartitionList::new();
    for (partition, position) in handled {
        let (topic, number) = (&shared.settings.topic, i32::from(*partition));
        // The partition and the position come from Kafka, so they are valid.
        list.add_partition_offset(topic, number, offset(*position))
            .ok();
    }
    if list.count() == 0 {
        return;
    }
    if let Err(error) = consumer.commit(&list, CommitMode::Sync) {
        debug!(%error, group = shared.group, "final commit failed");
    }
}

fn numbers(list: &TopicPartitionList) -> Vec<u16> {
    let number = |partition: i32| u16::try_from(partition).ok();
    let elements = list.elements();
    let numbers = elements
        .iter()
        .filter_map(|element| number(element.partition()));
    numbers.collect()
}
