//! Readers of one group: they join, leave, and are killed.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::sync::mpsc;
use weir_log::kafka::{KafkaLog, ReadOutcome};

use super::killed::Writers;
use super::store::Store;
use super::support::{append, cluster, in_time, now_ms, place_all, settings, text, until};

/// The environment variables of a consumer process: servers, file and name.
const CONSUMER: [&str; 3] = [
    "WEIR_KAFKA_SERVERS",
    "WEIR_KAFKA_DATABASE",
    "WEIR_KAFKA_NAME",
];

const TOPIC: &str = "rebalanced?partitions=12";

#[tokio::test(flavor = "multi_thread")]
async fn rebalancing_consumers_lose_and_duplicate_nothing() {
    // The consumer process runs the same test.
    if let Ok(values) = CONSUMER
        .map(std::env::var)
        .into_iter()
        .collect::<Result<Vec<_>, _>>()
    {
        return consume(&values[0], Path::new(&values[1]), &values[2]).await;
    }
    let mut cluster = cluster().await;
    let servers = cluster.kafka().servers();
    let log = cluster.log(TOPIC);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("db");
    let store = Store::open(&file, "rebalanced", "first").await;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let consumer = tokio::spawn({
        let (store, log) = (store.clone(), log.clone());
        async move { store.consume(&log, async { drop(stopped.await) }).await }
    });
    let (writers, mut writing) = Writers::start(&log, 12);
    // There are always new records.
    let has_handled = async |name: &str, more: i64| {
        let before = store.handled_by(name).await;
        let has = || async {
            writers.allow(4);
            store.handled_by(name).await >= before + more
        };
        until(&format!("work of {name}"), has).await;
    };

    has_handled("first", 100).await;
    let mut second = start(&servers, &file, "second");
    has_handled("second", 100).await;
    has_handled("first", 100).await;
    // The consumer leaves.
    drop(second.stdin.take());
    let has_left = async { tokio::task::spawn_blocking(move || second.wait()).await };
    assert!(
        in_time("the end", has_left)
            .await
            .unwrap()
            .unwrap()
            .success()
    );
    let left_at = store.handled_by("second").await;
    has_handled("first", 200).await;
    let mut third = start(&servers, &file, "third");
    has_handled("third", 100).await;
    third.kill().unwrap();
    third.wait().unwrap();
    has_handled("first", 200).await;
    writers.stop();

    let mut all = BTreeSet::new();
    while let Some(ids) = writing.join_next().await {
        all.extend(ids.unwrap());
    }
    until("all effects", || async {
        store.handled().await.is_superset(&all)
    })
    .await;
    stop.send(()).unwrap();
    consumer.await.unwrap();
    assert_eq!(store.handled().await, all);
    assert_eq!(store.doubled().await, 0);
    assert_eq!(store.handled_by("second").await, left_at);
}

/// Starts this test as the consumer `name`. It ends when its standard input closes.
fn start(servers: &str, file: &Path, name: &str) -> Child {
    let values = [servers, file.to_str().unwrap(), name];
    let (_executable, module) = module_path!().split_once("::").unwrap();
    let test = format!("{module}::rebalancing_consumers_lose_and_duplicate_nothing");
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &test, "--nocapture"])
        .envs(CONSUMER.into_iter().zip(values))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

async fn consume(servers: &str, file: &Path, name: &str) {
    let log = KafkaLog::open(settings(servers, TOPIC)).unwrap();
    let store = Store::open(file, "rebalanced", name).await;
    let end_of_input = tokio::task::spawn_blocking(|| {
        std::io::stdin().read_to_end(&mut Vec::new()).ok();
    });
    store
        .consume(&log, async { drop(end_of_input.await) })
        .await;
}

/// Without a store: a reader that loses a partition may finish its batch, and the next owner starts after it.
#[tokio::test(flavor = "multi_thread")]
async fn partition_in_processing_is_revoked_after_its_batch() {
    let mut cluster = cluster().await;
    let log = cluster.log("handed-over?partitions=4");
    for n in 0..200 {
        append(&log, n % 4, &[&format!("{n}")], now_ms()).await;
    }
    let (handled, mut reply) = mpsc::unbounded_channel();
    let slow = |name: &'static str| {
        let (log, handled) = (log.clone(), handled.clone());
        tokio::spawn(async move {
            let mut reader = log.reader("handed-over").unwrap();
            loop {
                match reader.next().await.unwrap() {
                    ReadOutcome::Assigned(partitions) => place_all(&mut reader, &partitions).await,
                    ReadOutcome::Batch(batch) => {
                        // Handles the batch.
                        tokio::time::sleep(Duration::from_millis(500)).await;
                        for record in &batch.records {
                            handled.send((name, text(record).to_owned())).unwrap();
                        }
                        reader.commit(batch.partition, batch.next);
                    }
                }
            }
        })
    };
    let one = slow("one");
    let first = in_time("a batch", reply.recv()).await.unwrap();
    let two = slow("two");
    let mut all = vec![first];
    // Records arrive during the rebalance.
    let mut n = 200;
    while !(all.len() == n && all.iter().any(|(name, _)| *name == "two")) {
        if all.len() == n {
            append(&log, (n % 4) as u16, &[&format!("{n}")], now_ms()).await;
            n += 1;
        }
        all.push(in_time("a record", reply.recv()).await.unwrap());
    }
    let ids: BTreeSet<&str> = all.iter().map(|(_, id)| id.as_str()).collect();
    assert_eq!((ids.len(), all.len()), (n, n), "each once");
    one.abort();
    two.abort();
}
