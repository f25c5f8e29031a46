//! All brokers are down or unresponsive.

use std::time::Duration;

use tokio::task::JoinSet;
use weir_log::kafka::{AppendError, KafkaLog, NewRecord, Target, Times};
use weir_stack::kafka::BROKERS;

use super::support::{TIMES, append, cluster, in_time, now_ms, read, settings, texts};

/// A log with short timeouts.
fn impatient(servers: &str, topic: &str) -> KafkaLog {
    let mut settings = settings(servers, topic);
    settings.times = Times {
        append_max: Duration::from_secs(2),
        answer_max: Duration::from_secs(2),
        ..TIMES
    };
    KafkaLog::open(settings).unwrap()
}

/// Appends until a broker acknowledges it.
async fn append_at_last(log: &KafkaLog, payload: &str) {
    let record = NewRecord {
        partition: 0,
        payload: payload.as_bytes(),
    };
    let appended = async { while log.append(&[record], now_ms()).await.is_err() {} };
    in_time("an append", appended).await;
}

/// Every append ends with an unknown result.
async fn all_unknown(log: &KafkaLog) {
    let mut appends = JoinSet::new();
    for n in 0..50 {
        let log = log.clone();
        appends.spawn(async move {
            let payload = format!("lost {n}");
            let record = NewRecord {
                partition: 0,
                payload: payload.as_bytes(),
            };
            log.append(&[record], now_ms()).await
        });
    }
    while let Some(result) = in_time("appends", appends.join_next()).await {
        assert_eq!(result.unwrap(), Err(AppendError::Unknown));
    }
    assert_eq!(log.waiting_len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_brokers_appends_are_unknown_and_readers_wait() {
    let mut cluster = cluster().await;
    let servers = cluster.kafka().servers();
    let log = impatient(&servers, "away?partitions=1");
    append_at_last(&log, "before").await;
    let mut reader = log.reader("away").unwrap();
    read(&mut reader, 1).await;
    for n in 0..BROKERS {
        cluster.kafka().broker(n).kill();
    }
    all_unknown(&log).await;
    in_time("a place", log.place(0, Target::End))
        .await
        .unwrap_err();
    in_time("a lag", log.lag(0, 0)).await.unwrap_err();
    // No broker has its topic yet.
    let new = impatient(&servers, "away-new?partitions=1");
    all_unknown(&new).await;
    let mut new_reader = new.reader("away").unwrap();

    let waiting = tokio::spawn(async move {
        let mut received = Vec::new();
        while !texts(&received).contains("after") {
            received.extend(read(&mut reader, 1).await);
        }
    });
    cluster.kafka().start_again().await.unwrap();
    append_at_last(&log, "after").await;
    in_time("what came after", waiting).await.unwrap();
    append_at_last(&new, "first").await;
    let received = read(&mut new_reader, 1).await;
    assert_eq!(texts(&received), ["first"].into());
    // Dropping them does not block.
    drop((log, new, new_reader));
}

#[tokio::test(flavor = "multi_thread")]
async fn hanging_brokers_are_treated_as_unreachable() {
    let mut cluster = cluster().await;
    let servers = cluster.kafka().servers();
    let log = impatient(&servers, "frozen?partitions=1");
    append_at_last(&log, "before").await;
    for n in 0..BROKERS {
        cluster.kafka().broker(n).freeze();
    }
    all_unknown(&log).await;
    for n in 0..BROKERS {
        cluster.kafka().broker(n).thaw();
    }
    append_at_last(&log, "after").await;
    let mut reader = log.reader("frozen").unwrap();
    let mut received = Vec::new();
    while !texts(&received).contains("after") {
        received.extend(read(&mut reader, 1).await);
    }
    // The record with the unknown result may exist: it was pending.
    assert!(texts(&received).contains("before"));
}

#[tokio::test(flavor = "multi_thread")]
async fn records_waiting_for_brokers_are_bounded() {
    let mut cluster = cluster().await;
    let mut settings = cluster.settings("bounded?partitions=1");
    settings.waiting_len_max = 10_000;
    let log = KafkaLog::open(settings).unwrap();
    append(&log, 0, &["before"], now_ms()).await;
    for n in 0..BROKERS {
        cluster.kafka().broker(n).freeze();
    }
    let payload = [b'x'; 6_000];
    let record = NewRecord {
        partition: 0,
        payload: &payload,
    };
    let records = [record];
    let mut first = Box::pin(log.append(&records, now_ms()));
    let second = std::future::poll_fn(|context| {
        assert!(first.as_mut().poll(context).is_pending());
        std::task::Poll::Ready(())
    });
    second.await;
    assert_eq!(log.append(&records, now_ms()).await, Err(AppendError::Full));
    assert!(log.waiting_len() > 6_000);
    // The append continues without a waiting caller.
    drop(first);
    for n in 0..BROKERS {
        cluster.kafka().broker(n).thaw();
    }
    super::support::until("room", || async { log.waiting_len() == 0 }).await;
    append(&log, 0, &["after"], now_ms()).await;
}
