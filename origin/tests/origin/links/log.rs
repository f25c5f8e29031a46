//! The log of new links: each entry reaches the cold store once, whichever process dies.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use weir_origin::links::log::{AppendError, LinkLog, LogError, LogLimits, Sync, drain};
use weir_origin::links::metrics::LinkMetrics;
use weir_origin::links::store::{Entry, LinkStore};
use weir_origin::metrics::Metrics;

use super::{id, new_link};

/// Small limits, so that a test goes through many files.
const LIMITS: LogLimits = LogLimits {
    file_len: 1_000,
    waiting_len_max: 1 << 20,
};

/// Time limit of a wait: other tests run at the same time.
const LIMIT: Duration = Duration::from_secs(60);

async fn store(dir: &Path) -> LinkStore {
    let url = format!("sqlite://{}/weir.db", dir.display());
    LinkStore::new(weir_origin::origin::open_database(&url).await.unwrap())
}

/// Opens the log once the thread of its predecessor has ended.
fn open(dir: &Path, limits: LogLimits) -> LinkLog {
    let deadline = Instant::now() + LIMIT;
    loop {
        match LinkLog::open(&dir.join("log"), Sync::Os, limits) {
            Ok(log) => return log,
            Err(LogError::Taken(_)) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(error) => panic!("{error}"),
        }
    }
}

fn made_entry(n: u64) -> Entry {
    Entry::Made(new_link(&format!("s/code-{n}"), n))
}

fn drain(log: &LinkLog, store: &LinkStore) -> (CancellationToken, JoinHandle<()>) {
    let stop = CancellationToken::new();
    let metrics = LinkMetrics::register(&Metrics::default());
    let run = drain::run(log.clone(), store.clone(), metrics, stop.clone());
    (stop, tokio::spawn(run))
}

async fn drained(log: &LinkLog, store: &LinkStore) {
    let (stop, task) = drain(log, store);
    tokio::time::timeout(LIMIT, log.drained()).await.unwrap();
    stop.cancel();
    task.await.unwrap();
}

async fn count(store: &LinkStore) -> usize {
    store.list(None, None, 9_999).await.unwrap().len()
}

fn log_files(dir: &Path) -> Vec<String> {
    let files = std::fs::read_dir(dir.join("log")).unwrap();
    let mut names: Vec<String> = files
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".log") || name.ends_with(".damaged"))
        .collect();
    names.sort();
    names
}

#[tokio::test]
async fn log_entries_reach_the_store_and_drained_files_are_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path()).await;
    let log = open(dir.path(), LIMITS);
    let (stop, task) = drain(&log, &store);
    for n in 0..100 {
        log.append(&[made_entry(2 * n), made_entry(2 * n + 1)])
            .await
            .unwrap();
    }
    tokio::time::timeout(LIMIT, log.drained()).await.unwrap();
    assert_eq!(count(&store).await, 200);
    assert_eq!(log.waiting_bytes(), 0);
    stop.cancel();
    task.await.unwrap();
    assert!(
        log_files(dir.path()).len() <= 2,
        "{:?}",
        log_files(dir.path())
    );
}

#[tokio::test]
async fn next_process_resumes_the_log_at_the_store_position() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path()).await;
    for round in 0..4 {
        let log = open(dir.path(), LIMITS);
        for n in 0..10 {
            log.append(&[made_entry(100 * round + n)]).await.unwrap();
        }
        if round % 2 == 1 {
            drained(&log, &store).await;
        }
        // The other entries are not drained, as after `kill -9` right after the acknowledgement.
    }
    assert_eq!(count(&store).await, 40);
}

#[tokio::test]
async fn torn_entries_are_skipped_and_others_read() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path()).await;
    let log = open(dir.path(), LogLimits::default());
    log.append(&[made_entry(1), made_entry(2)]).await.unwrap();
    drop(log);
    let [file] = log_files(dir.path()).try_into().unwrap();
    let path = dir.path().join("log").join(&file);
    let whole = std::fs::read(&path).unwrap();
    let mut end = OpenOptions::new().append(true).open(&path).unwrap();
    end.write_all(&whole[..whole.len() / 2 - 3]).unwrap();
    let log = open(dir.path(), LogLimits::default());
    log.append(&[made_entry(3)]).await.unwrap();
    drained(&log, &store).await;
    assert_eq!(count(&store).await, 3);
    // Invalid entries are kept for inspection.
    let damaged = file.replace(".log", ".damaged");
    assert!(log_files(dir.path()).contains(&damaged));
}

#[tokio::test]
async fn emptied_log_directory_restarts_and_loses_no_new_entry() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path()).await;
    for _ in 0..3 {
        let log = open(dir.path(), LIMITS);
        log.append(&[made_entry(1)]).await.unwrap();
        drained(&log, &store).await;
    }
    for file in log_files(dir.path()) {
        std::fs::remove_file(dir.path().join("log").join(file)).unwrap();
    }
    let log = open(dir.path(), LIMITS);
    log.append(&[made_entry(2)]).await.unwrap();
    drained(&log, &store).await;
    assert!(store.link(&id("s/code-2")).await.unwrap().is_some());
}

#[tokio::test]
async fn log_directory_is_exclusive_and_keeps_its_id() {
    let dir = tempfile::tempdir().unwrap();
    let first = open(dir.path(), LIMITS);
    let name = first.id().to_owned();
    let second = LinkLog::open(&dir.path().join("log"), Sync::Os, LIMITS);
    assert!(matches!(second, Err(LogError::Taken(_))), "{second:?}");
    drop(first);
    assert_eq!(open(dir.path(), LIMITS).id(), name);
    std::fs::write(dir.path().join("log/id"), "x").unwrap();
    let path = dir.path().join("log");
    let renamed = std::iter::repeat_with(|| LinkLog::open(&path, Sync::Disk, LIMITS).unwrap_err())
        .find(|error| !matches!(error, LogError::Taken(_)))
        .unwrap();
    assert!(matches!(renamed, LogError::Id(_)), "{renamed}");
}

#[tokio::test]
async fn log_with_disk_sync_writes_the_same_entries() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path()).await;
    let log = LinkLog::open(&dir.path().join("log"), Sync::Disk, LIMITS).unwrap();
    let one = |n| {
        let log = log.clone();
        async move { log.append(&[made_entry(n)]).await.unwrap() }
    };
    let tasks: Vec<_> = (0..50).map(|n| tokio::spawn(one(n))).collect();
    for task in tasks {
        task.await.unwrap();
    }
    drained(&log, &store).await;
    assert_eq!(count(&store).await, 50);
}

#[tokio::test]
async fn undrained_log_fills_and_refuses_entries() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path()).await;
    let limits = LogLimits {
        waiting_len_max: 2_000,
        ..LIMITS
    };
    let log = open(dir.path(), limits);
    let mut written = 0;
    let refused = loop {
        match log.append(&[made_entry(written)]).await {
            Ok(_) => written += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(refused, AppendError::Full);
    drained(&log, &store).await;
    log.append(&[made_entry(written)]).await.unwrap();
    assert_eq!(count(&store).await as u64, written);
}
