//! A broker is killed while events are appended and handled.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::task::JoinSet;
use weir_kafkalog::{AppendError, KafkaLog, NewRecord};

use crate::store::Store;
use crate::support::{cluster, in_time, now_ms, read, text, until};

const PARTITIONS: u16 = 6;
const WRITERS: usize = 8;

/// Clients that append batches one after the other until they are told to stop, and try again what was not acknowledged.
#[derive(Clone, Default)]
pub struct Writers {
    pub is_stopped: Arc<AtomicBool>,
    pub acknowledged: Arc<AtomicUsize>,
    /// Ids that were acknowledged at the first try.
    at_once: Arc<Mutex<BTreeSet<String>>>,
    /// Appends that were not.
    pub unknown: Arc<AtomicUsize>,
}

impl Writers {
    pub fn start(&self, log: &KafkaLog, partitions: u16) -> JoinSet<Vec<String>> {
        let mut writers = JoinSet::new();
        for writer in 0..WRITERS {
            writers.spawn(self.clone().write(log.clone(), writer, partitions));
        }
        writers
    }

    async fn write(self, log: KafkaLog, writer: usize, partitions: u16) -> Vec<String> {
        let mut acknowledged = Vec::new();
        for batch in 0.. {
            if self.is_stopped.load(Ordering::Relaxed) {
                break;
            }
            let id = |n: usize| format!("{writer}-{:06}", batch * 5 + n);
            let ids: Vec<String> = (0..5).map(id).collect();
            // Each writer stays with one partition: there its order counts.
            let partition = (writer % usize::from(partitions)) as u16;
            let tries = in_time("an append", self.append(&log, partition, &ids)).await;
            if tries == 1 {
                self.at_once.lock().unwrap().extend(ids.iter().cloned());
            }
            self.acknowledged.fetch_add(ids.len(), Ordering::Relaxed);
            acknowledged.extend(ids);
        }
        acknowledged
    }

    async fn append(&self, log: &KafkaLog, partition: u16, ids: &[String]) -> usize {
        let record = |id: &'_ String| -> Vec<u8> { id.as_bytes().to_vec() };
        let payloads: Vec<Vec<u8>> = ids.iter().map(record).collect();
        let records: Vec<NewRecord<'_>> = payloads
            .iter()
            .map(|payload| NewRecord { partition, payload })
            .collect();
        let mut tries = 1;
        while let Err(error) = log.append(&records, now_ms()).await {
            assert_eq!(error, AppendError::Unknown);
            self.unknown.fetch_add(1, Ordering::Relaxed);
            tries += 1;
        }
        tries
    }

    pub async fn wait_for(&self, acknowledged: usize) {
        let count = || async { self.acknowledged.load(Ordering::Relaxed) >= acknowledged };
        until("acknowledgements", count).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_is_killed_loses_nothing_and_doubles_nothing() {
    let mut cluster = cluster().await;
    let log = cluster.log(&format!("killed?partitions={PARTITIONS}"));
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("db"), "killed", "one").await;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let consumer = tokio::spawn({
        let (store, log) = (store.clone(), log.clone());
        async move {
            store.consume(&log, async { drop(stopped.await) }).await;
        }
    });
    let writers = Writers::default();
    let mut writing = writers.start(&log, PARTITIONS);

    writers.wait_for(500).await;
    cluster.kafka().broker(1).kill();
    // Now, without it: of some partitions it was the leader, of the group perhaps the coordinator.
    let before = writers.acknowledged.load(Ordering::Relaxed);
    writers.wait_for(before + 1_000).await;
    let handled = store.handled().await.len();
    until("effects", || async { store.handled().await.len() > handled + 500 }).await;
    cluster.kafka().start_again().await.unwrap();
    let before = writers.acknowledged.load(Ordering::Relaxed);
    writers.wait_for(before + 500).await;
    writers.is_stopped.store(true, Ordering::Relaxed);

    let mut acknowledged = Vec::new();
    while let Some(ids) = writing.join_next().await {
        acknowledged.push(ids.unwrap());
    }
    let all: BTreeSet<String> = acknowledged.iter().flatten().cloned().collect();
    until("all effects", || async { store.handled().await.is_superset(&all) }).await;
    stop.send(()).unwrap();
    consumer.await.unwrap();
    // Nobody appended what was not acknowledged in the end.
    assert_eq!(store.handled().await, all);
    assert_eq!(store.doubled().await, 0);
    in_the_log_once_and_in_order(&log, &writers, &acknowledged).await;
    eprintln!(
        "{} acknowledged, {} appends were unknown first",
        all.len(),
        writers.unknown.load(Ordering::Relaxed)
    );
}

/// What was acknowledged at the first try is there once, however often the producer had to send it: it is idempotent. And all
/// is there in its writer's order.
async fn in_the_log_once_and_in_order(log: &KafkaLog, writers: &Writers, sent: &[Vec<String>]) {
    let mut count = 0;
    for partition in 0..PARTITIONS {
        count += log.count(partition, 0, u64::MAX).await.unwrap();
    }
    let mut reader = log.reader("check").unwrap();
    let records = read(&mut reader, usize::try_from(count).unwrap()).await;
    let mut times: BTreeMap<&str, u32> = BTreeMap::new();
    let mut firsts: Vec<&str> = Vec::new();
    for (_, record) in &records {
        let id = text(record);
        let times = times.entry(id).or_default();
        *times += 1;
        if *times == 1 {
            firsts.push(id);
        }
    }
    let doubled: Vec<&String> = {
        let at_once = writers.at_once.lock().unwrap().clone();
        let all: Vec<&String> = sent.iter().flatten().collect();
        let is_doubled = |id: &&String| at_once.contains(*id) && times[id.as_str()] != 1;
        all.into_iter().filter(is_doubled).collect()
    };
    assert!(doubled.is_empty(), "{doubled:?}");
    for ids in sent.iter().filter(|ids| !ids.is_empty()) {
        let writer = ids[0].split('-').next().unwrap();
        let of_writer = |id: &&&str| id.split('-').next() == Some(writer);
        let came: Vec<&str> = firsts.iter().filter(of_writer).copied().collect();
        assert_eq!(&came, ids, "writer {writer}");
    }
}
