//! The log's behaviour for writers and readers.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use weir_log::{
    AppendError, Cursor, Limits, Log, LogError, NewRecord, Position, Reader, Retention, Sync,
};

const SMALL: Limits = Limits {
    file_len: 200,
    waiting_len_max: 1 << 20,
};

/// Opens the log after the thread of the previous one has ended.
fn open(dir: &Path) -> Log {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        match Log::open(dir, Sync::Os, SMALL) {
            Ok(log) => return log,
            Err(LogError::Taken(_)) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(2));
            }
            Err(error) => panic!("{error}"),
        }
    }
}

async fn append(log: &Log, text: &str, now_ms: u64) -> Position {
    let record = NewRecord {
        partition: text.len() as u16,
        payload: text.as_bytes(),
    };
    log.append([record], now_ms).await.unwrap()
}

fn read_from(log: &Log, from: Position) -> Vec<String> {
    let mut reader = Reader::new(log, from, 7).unwrap();
    let mut texts = Vec::new();
    loop {
        let batch = reader.read().unwrap();
        if batch.records.is_empty() {
            return texts;
        }
        for record in batch.records {
            assert_eq!(usize::from(record.partition), record.payload.len());
            texts.push(String::from_utf8(record.payload).unwrap());
        }
    }
}

fn all(log: &Log) -> Vec<String> {
    read_from(log, Position::default())
}

fn names(range: std::ops::Range<u32>) -> Vec<String> {
    range.map(|n| format!("record-{n}")).collect()
}

#[tokio::test]
async fn readers_resume_at_any_position_and_are_independent() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    let mut ends = vec![Position::default()];
    for name in names(0..100) {
        ends.push(append(&log, &name, 1).await);
    }
    assert_eq!(all(&log), names(0..100));
    for (n, end) in (0..).zip(ends) {
        assert_eq!(read_from(&log, end), names(n..100));
    }
}

#[tokio::test]
async fn next_process_resumes_and_torn_tail_is_set_aside() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..4 {
        let log = open(dir.path());
        for name in names(10 * round..10 * round + 10) {
            append(&log, &name, 1).await;
        }
        let file = log.written().borrow().file;
        drop(log);
        let last = dir.path().join(format!("{file:016}.log"));
        let mut bytes = std::fs::read(&last).unwrap();
        bytes.extend([200, 0, 0, 128, 1, 2, 3]);
        std::fs::write(&last, bytes).unwrap();
    }
    let log = open(dir.path());
    assert_eq!(all(&log), names(0..40));
    assert_eq!(
        all(&log),
        names(0..40),
        "whoever reads second finds the same"
    );
    let retained = std::fs::read_dir(dir.path()).unwrap();
    let retained = retained.filter(|file| {
        let name = file.as_ref().unwrap().file_name();
        name.to_str().unwrap().ends_with(".damaged")
    });
    assert_eq!(retained.count(), 4);
}

#[tokio::test]
async fn only_released_files_are_deleted_by_age_and_size() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    let mut ends = BTreeMap::new();
    for (n, name) in (0..).zip(names(0..100)) {
        ends.insert(n, append(&log, &name, 1_000 + n).await);
    }
    let keeps_all = Retention {
        age_ms: 1_000,
        bytes_max: u64::MAX,
    };
    log.retain(Retention::NONE, 5_000).unwrap();
    assert_eq!(all(&log), names(0..100), "nothing was released");
    log.release(ends[&49]);
    log.retain(keeps_all, 1_100).unwrap();
    assert_eq!(all(&log), names(0..100), "not old enough");
    log.retain(keeps_all, 2_020).unwrap();
    let remaining = all(&log);
    assert!(
        remaining.len() < 90 && remaining.len() >= 79,
        "{}",
        remaining.len()
    );
    let by_size = Retention {
        age_ms: u64::MAX,
        bytes_max: 1_800,
    };
    log.retain(by_size, 2_020).unwrap();
    assert!(all(&log).len() < remaining.len());
    log.retain(Retention::NONE, 2_020).unwrap();
    assert_eq!(read_from(&log, ends[&49]), names(50..100));
}

#[tokio::test]
async fn seek_by_time_finds_the_first_record_at_or_after_it() {
    let dir = tempfile::tempdir().unwrap();
    {
        let log = open(dir.path());
        for (n, name) in (0..).zip(names(0..50)) {
            append(&log, &name, 10_000 + 10 * n).await;
        }
    }
    let log = open(dir.path());
    for (n, name) in (50..).zip(names(50..100)) {
        append(&log, &name, 10_000 + 10 * n).await;
    }
    for (time_ms, first) in [
        (0, 0),
        (10_000, 0),
        (10_001, 1),
        (10_495, 50),
        (10_990, 99),
        (10_991, 100),
        (u64::MAX, 100),
    ] {
        let position = log.seek(time_ms).unwrap();
        assert_eq!(read_from(&log, position), names(first..100), "{time_ms}");
    }
}

#[tokio::test]
async fn concurrent_appends_share_a_write_and_stay_contiguous() {
    let dir = tempfile::tempdir().unwrap();
    let log = Log::open(dir.path(), Sync::Disk, SMALL).unwrap();
    let tasks: Vec<_> = (0..50)
        .map(|task| {
            let log = log.clone();
            tokio::spawn(async move {
                let [a, b] = [format!("{task}-a"), format!("{task}-b")];
                let records = [&a, &b].map(|text| NewRecord {
                    partition: text.len() as u16,
                    payload: text.as_bytes(),
                });
                log.append(records, 1).await.unwrap()
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let texts = all(&log);
    assert_eq!(texts.len(), 100);
    for pair in texts.chunks(2) {
        assert_eq!(pair[0].replace("-a", "-b"), pair[1]);
    }
}

#[tokio::test]
async fn empty_or_oversized_record_writes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    let long = vec![b'x'; weir_log::PAYLOAD_LEN_MAX + 1];
    for payload in [&b""[..], &long] {
        let good = NewRecord {
            partition: 4,
            payload: b"good",
        };
        let bad = NewRecord {
            partition: 0,
            payload,
        };
        assert_eq!(log.append([good, bad], 1).await, Err(AppendError::Length));
    }
    assert!(all(&log).is_empty());
    let longest = NewRecord {
        partition: 0,
        payload: &long[1..],
    };
    log.append([longest, longest, longest], 1).await.unwrap();
    let mut reader = Reader::new(&log, Position::default(), 2).unwrap();
    assert_eq!(
        reader.read().unwrap().records.len(),
        1,
        "as many as are read at once"
    );
}

#[test]
fn cursor_is_read_back_and_corrupt_cursor_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let cursor = Cursor::new(dir.path().join("history"));
    assert_eq!(cursor.load().unwrap(), Position::default());
    let position = Position { file: 3, byte: 77 };
    cursor.store(position).unwrap();
    assert_eq!(cursor.load().unwrap(), position);
    for broken in ["", "3", "3 x", "-1 2"] {
        std::fs::write(cursor.path(), broken).unwrap();
        assert!(
            matches!(cursor.load(), Err(LogError::Cursor(_))),
            "{broken:?}"
        );
    }
}

#[derive(Clone, Debug)]
enum Step {
    Append(u16),
    Reopen,
    /// Truncates unacknowledged data by this many bytes, as a crash may do.
    Tear(u8),
    ReleaseAll,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1..300_u16).prop_map(Step::Append),
        1 => Just(Step::Reopen),
        1 => (1..40_u8).prop_map(Step::Tear),
        1 => Just(Step::ReleaseAll),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// After any crash, every acknowledged and unreleased record is read once, in order.
    #[test]
    fn acknowledged_records_are_never_lost(steps in prop::collection::vec(step(), 1..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let mut log = Some(open(dir.path()));
        let (mut expected, mut released) = (Vec::new(), Position::default());
        for step in steps {
            let open_log = log.take().unwrap();
            log = Some(match step {
                Step::Append(len) => {
                    let text = "x".repeat(usize::from(len));
                    runtime.block_on(append(&open_log, &text, 1));
                    expected.push(text);
                    open_log
                }
                Step::Reopen => {
                    drop(open_log);
                    open(dir.path())
                }
                Step::Tear(len) => {
                    let file = open_log.written().borrow().file;
                    drop(open_log);
                    drop(open(dir.path()));
                    let path = dir.path().join(format!("{file:016}.log"));
                    let mut bytes = std::fs::read(&path).unwrap();
                    bytes.extend(std::iter::repeat_n(7, usize::from(len)));
                    std::fs::write(&path, bytes).unwrap();
                    open(dir.path())
                }
                Step::ReleaseAll => {
                    released = *open_log.written().borrow();
                    expected.clear();
                    open_log.release(released);
                    open_log.retain(Retention::NONE, u64::MAX).unwrap();
                    open_log
                }
            });
        }
        prop_assert_eq!(read_from(&log.unwrap(), released), expected);
    }
}
