//! The cluster that all tests share in turn, and helpers.

use std::collections::BTreeSet;
use std::future::Future;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::{Mutex, MutexGuard};
use weir_log::kafka::{KafkaLog, NewRecord, ReadOutcome, Reader, Record, Settings, Times};
use weir_stack::kafka::KafkaCluster;
use weir_stack::report::SilentReporter;
use weir_stack::{DataDir, tools, workspace};

/// The timeout of a hanging test.
pub const HANGS: Duration = Duration::from_secs(90);

/// Timeouts short enough for tests.
pub const TIMES: Times = Times {
    append_max: Duration::from_secs(8),
    answer_max: Duration::from_secs(4),
    session: Duration::from_secs(3),
    hand_over_max: Duration::from_secs(10),
};

/// Exclusive access to the cluster.
pub struct Cluster(MutexGuard<'static, Option<(KafkaCluster, DataDir)>>);

/// The cluster, with all its brokers.
pub async fn cluster() -> Cluster {
    static CLUSTER: Mutex<Option<(KafkaCluster, DataDir)>> = Mutex::const_new(None);
    let mut held = CLUSTER.lock().await;
    match held.as_mut() {
        Some((cluster, _)) => cluster.start_again().await.unwrap(),
        None => *held = Some(start().await),
    }
    Cluster(held)
}

async fn start() -> (KafkaCluster, DataDir) {
    // A fixed folder: a static is never dropped, so each run deletes the previous one's files.
    let dir = workspace::out_dir().join("run/kafkalog");
    let dir = DataDir::open(Some(dir)).unwrap();
    clear(&dir.path);
    let tool = tools::Kafka::find_or_get(&mut SilentReporter).unwrap();
    let cluster = KafkaCluster::start(&tool, &dir.path).await.unwrap();
    (cluster, dir)
}

fn clear(dir: &Path) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => std::fs::remove_dir_all(path).unwrap(),
            false if path.ends_with("lock") => {}
            false => std::fs::remove_file(path).unwrap(),
        }
    }
}

impl Cluster {
    pub fn kafka(&mut self) -> &mut KafkaCluster {
        &mut self.0.as_mut().unwrap().0
    }

    /// Settings of a topic that no other test uses.
    pub fn settings(&mut self, topic_and_query: &str) -> Settings {
        settings(&self.kafka().servers(), topic_and_query)
    }

    pub fn log(&mut self, topic_and_query: &str) -> KafkaLog {
        KafkaLog::open(self.settings(topic_and_query)).unwrap()
    }
}

pub fn settings(servers: &str, topic_and_query: &str) -> Settings {
    let url = format!("kafka://{servers}/{topic_and_query}");
    let mut settings = Settings::from_url(&url).unwrap();
    settings.times = TIMES;
    settings
}

pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(since.as_millis()).unwrap()
}

/// Fails if `wait` takes too long.
pub async fn in_time<T>(subject: &str, wait: impl Future<Output = T>) -> T {
    let waited = tokio::time::timeout(HANGS, wait).await;
    waited.unwrap_or_else(|_| panic!("it hangs: {subject}"))
}

/// Waits until a condition is true.
pub async fn until<F: Future<Output = bool>>(subject: &str, is_so: impl Fn() -> F) {
    let wait = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    in_time(subject, wait).await;
}

/// Appends records, which must succeed.
pub async fn append(log: &KafkaLog, partition: u16, payloads: &[&str], now_ms: u64) {
    let records: Vec<NewRecord<'_>> = payloads
        .iter()
        .map(|payload| NewRecord {
            partition,
            payload: payload.as_bytes(),
        })
        .collect();
    in_time("an append", log.append(&records, now_ms))
        .await
        .unwrap();
}

/// Reads `count` records of all partitions, from the group's committed positions; returns them with their partitions.
pub async fn read(reader: &mut Reader, count: usize) -> Vec<(u16, Record)> {
    let mut all = Vec::new();
    let wait = async {
        while all.len() < count {
            match reader.next().await {
                Ok(ReadOutcome::Assigned(partitions)) => place_all(reader, &partitions).await,
                Ok(ReadOutcome::Batch(batch)) => {
                    let partition = batch.partition;
                    all.extend(batch.records.into_iter().map(|record| (partition, record)));
                    reader.commit(partition, batch.next);
                }
                // A restarted broker does not know its topics at once: the loop tries again.
                Err(error) if error.to_string().contains("UnknownTopicOrPartition") => {}
                Err(error) => panic!("{error}"),
            }
        }
    };
    in_time("records", wait).await;
    all
}

pub async fn place_all(reader: &mut Reader, partitions: &[u16]) {
    for partition in partitions {
        reader.start_at(*partition, None).await.unwrap();
    }
}

pub fn text(record: &Record) -> &str {
    std::str::from_utf8(&record.payload).unwrap()
}

pub fn texts(records: &[(u16, Record)]) -> BTreeSet<&str> {
    records.iter().map(|(_, record)| text(record)).collect()
}
