//! A broker is killed during appends and reads.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use weir_log::kafka::{AppendError, KafkaLog, NewRecord};

use super::store::Store;
use super::support::{cluster, in_time, now_ms, read, text, until};

const PARTITIONS: u16 = 6;
const WRITERS: usize = 8;

/// Clients that append batches of five one after the other, up to a limit, and retry unacknowledged ones.
#[derive(Clone)]
pub struct Writers {
    batches: Arc<Semaphore>,
    acknowledged: Arc<AtomicUsize>,
    /// Ids acknowledged at the first attempt.
    at_once: Arc<Mutex<BTreeSet<String>>>,
    /// The number of other appends.
    unknown: Arc<AtomicUsize>,
}

/// The size of a batch.
const BATCH: usize = 5;

impl Writers {
    /// Starts the writers. Each returns its acknowledged ids.
    pub fn start(log: &KafkaLog, partitions: u16) -> (Self, JoinSet<Vec<String>>) {
        let writers = Self {
            batches: Arc::new(Semaphore::new(0)),
            acknowledged: Arc::default(),
            at_once: Arc::default(),
            unknown: Arc::default(),
        };
        let mut tasks = JoinSet::new();
        for writer in 0..WRITERS {
            tasks.spawn(writers.clone().write(log.clone(), writer, partitions));
        }
        (writers, tasks)
    }

    /// Allows this many more batches.
    pub fn allow(&self, batches: usize) {
        self.batches.add_permits(batches);
    }

    /// Stops the writers.
    pub fn stop(&self) {
        self.batches.close();
    }

    async fn write(self, log: KafkaLog, writer: usize, partitions: u16) -> Vec<String> {
        let mut acknowledged = Vec::new();
        for batch in 0.. {
            let Ok(permit) = self.batches.acquire().await else {
                break;
            };
            permit.forget();
            let id = |n: usize| format!("{writer}-{:06}", batch * BATCH + n);
            let ids: Vec<String> = (0..BATCH).map(id).collect();
            // Each writer uses one partition, so its order is defined.
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
        let records: Vec<NewRecord<'_>> = ids
            .iter()
            .map(|id| NewRecord {
                partition,
                payload: id.as_bytes(),
            })
            .collect();
        let mut tries = 1;
        while let Err(error) = log.append(&records, now_ms()).await {
            assert_eq!(error, AppendError::Unknown);
            self.unknown.fetch_add(1, Ordering::Relaxed);
            tries += 1;
        }
        tries
    }

    /// Waits until this many batches are acknowledged.
    async fn wait_for(&self, batches: usize) {
        let events = batches * BATCH;
        let are = || async { self.acknowledged.load(Ordering::Relaxed) >= events };
        until("acknowledgements", are).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_broker_causes_no_loss_and_no_duplicates() {
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
    let (writers, mut writing) = Writers::start(&log, PARTITIONS);

    writers.allow(200);
    writers.wait_for(100).await;
    cluster.kafka().broker(1).kill();
    // Now without the broker: it was the leader of some partitions, and perhaps the group's coordinator.
    writers.allow(200);
    writers.wait_for(400).await;
    until("effects", || async {
        store.handled().await.len() == 400 * BATCH
    })
    .await;
    writers.allow(200);
    cluster.kafka().start_again().await.unwrap();
    writers.wait_for(600).await;
    writers.stop();

    let mut acknowledged = Vec::new();
    while let Some(ids) = writing.join_next().await {
        acknowledged.push(ids.unwrap());
    }
    let all: BTreeSet<String> = acknowledged.iter().flatten().cloned().collect();
    until("all effects", || async {
        store.handled().await.is_superset(&all)
    })
    .await;
    stop.send(()).unwrap();
    consumer.await.unwrap();
    // No record exists that was not acknowledged in the end.
    assert_eq!(store.handled().await, all);
    assert_eq!(store.doubled().await, 0);
    in_the_log_once_and_in_order(&log, &writers, &acknowledged).await;
    eprintln!(
        "{} acknowledged, {} appends were unknown first",
        all.len(),
        writers.unknown.load(Ordering::Relaxed)
    );
}

/// Records acknowledged at the first attempt exist once, because the producer is idempotent. All records are in their
/// writer's order.
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
        let received: Vec<&str> = firsts.iter().filter(of_writer).copied().collect();
        assert_eq!(&received, ids, "writer {writer}");
    }
}
