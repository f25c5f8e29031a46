//! Which partitions a reader has, and how far it is in each.
//!
//! librdkafka says so on the reader's own thread ([`Rebalances`]), also while the caller works at a batch. It is written here,
//! and the caller hears of it when it asks for more. A partition that is given is paused until the caller has said where it
//! goes on.

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

/// What a reader, its thread and librdkafka know of each other.
pub(crate) struct ReaderShared {
    pub(crate) settings: Settings,
    /// The group's name, as brokers know it.
    pub(crate) group: String,
    state: Mutex<State>,
    /// The caller no longer works at what it was given, or the reader ends.
    pub(crate) returned: Condvar,
    /// There may be something for the caller.
    pub(crate) news: Notify,
}

#[derive(Default)]
pub(crate) struct State {
    /// While there is one.
    pub(crate) consumer: Option<Arc<GroupConsumer>>,
    pub(crate) partitions: BTreeMap<u16, PartitionProgress>,
    /// The caller has not heard yet which partitions there are.
    pub(crate) is_changed: bool,
    /// What the caller has committed of each.
    pub(crate) handled: BTreeMap<u16, u64>,
    /// Of which partition the caller has the last batch.
    pub(crate) lent: Option<u16>,
    /// The partition that was read last: the next one is the next one's turn.
    pub(crate) last: Option<u16>,
    /// What the caller must hear.
    pub(crate) failure: Option<KafkaError>,
    pub(crate) is_stopped: bool,
    pub(crate) has_ended: bool,
}

/// How far a reader is in a partition.
pub(crate) enum PartitionProgress {
    /// The caller has not said where to go on.
    Unknown,
    /// Records come from this queue.
    Reading {
        queue: PartitionQueue<Rebalances>,
        /// The next record's place.
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
        // Each change is one step, so a panic elsewhere leaves it whole.
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

    /// Takes partitions away. A batch that the caller has of one of them may be finished first, so that nobody else begins
    /// with what this one has nearly done. Tells what the caller has committed of them.
    fn taken(&self, partitions: &[u16], is_late: bool) -> Vec<(u16, u64)> {
        let deadline = Instant::now() + self.settings.times.hand_over_max;
        let mut state = self.lock();
        for partition in partitions {
            // Nothing more of it.
            state.partitions.remove(partition);
        }
        state.is_changed = true;
        self.news.notify_one();
        let is_lent = |state: &State| state.lent.is_some_and(|lent| partitions.contains(&lent));
        while !is_late && !state.is_stopped && is_lent(&state) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.returned.wait_timeout(state, left);
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
        what: RDKafkaRespErr,
        list: &mut TopicPartitionList,
    ) {
        let partitions = numbers(list);
        let done = match what {
            RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS => {
                debug!(group = self.0.group, ?partitions, "partitions assigned");
                assign(consumer, list).inspect(|()| self.0.add_partitions(&partitions))
            }
            RDKafkaRespErr::RD_KAFKA_RESP_ERR__REVOKE_PARTITIONS => {
                debug!(group = self.0.group, ?partitions, "partitions revoked");
                let is_late = consumer.assignment_lost();
                let handled = self.0.taken(&partitions, is_late);
                if !is_late {
                    commit(&self.0, consumer, &handled);
                }
                consumer.incremental_unassign(list)
            }
            _ => Err(KafkaError::Rebalance(what.into())),
        };
        if let Err(error) = done {
            error!(%error, group = self.0.group, "rebalance failed");
            self.0.fail(error);
        }
    }

    fn commit_callback(&self, result: KafkaResult<()>, _: &TopicPartitionList) {
        if let Err(error) = result {
            // The caller's own note counts; the next commit says the same and more.
            debug!(%error, group = self.0.group, "commit failed");
        }
    }
}

/// Takes them, and reads nothing: the caller says where to begin. A place is named so that librdkafka asks nobody for it.
fn assign(consumer: &GroupConsumer, list: &mut TopicPartitionList) -> KafkaResult<()> {
    list.set_all_offsets(Offset::Offset(0))?;
    consumer.incremental_assign(list)?;
    consumer.pause(list)
}

/// Says once more how far the caller is, and waits until the brokers know: what was said while a rebalance was under way they
/// have refused, and the next reader begins where they say.
fn commit(shared: &ReaderShared, consumer: &GroupConsumer, handled: &[(u16, u64)]) {
    let mut list = TopicPartitionList::new();
    for (partition, position) in handled {
        let (topic, number) = (&shared.settings.topic, i32::from(*partition));
        // A partition has a number, and a place is one that Kafka gave.
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
