//! Readers read appended records; positions, times and lags are correct.

use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions};
use rdkafka::client::DefaultClientContext;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use weir_log::kafka::{AppendError, NewRecord, PAYLOAD_LEN_MAX, Target};

use super::store::Store;
use super::support::{append, cluster, in_time, now_ms, read, text, texts, until};

#[tokio::test(flavor = "multi_thread")]
async fn fifty_partition_topic_keeps_order_within_each_partition() {
    let mut cluster = cluster().await;
    let log = cluster.log("ordered");
    let payloads: Vec<(u16, String)> = (0..1_000).map(|n| (n % 50, format!("{n:04}"))).collect();
    let records: Vec<NewRecord<'_>> = payloads
        .iter()
        .map(|(partition, payload)| NewRecord {
            partition: *partition,
            payload: payload.as_bytes(),
        })
        .collect();
    log.append(&[], 1).await.unwrap();
    in_time("the topic", log.ready()).await.unwrap();
    for batch in records.chunks(100) {
        in_time("an append", log.append(batch, now_ms()))
            .await
            .unwrap();
    }
    assert_eq!(log.waiting_len(), 0);
    let mut reader = log.reader("all").unwrap();
    let read = read(&mut reader, 1_000).await;
    for partition in 0..50 {
        let of = |existing: u16| partition == existing;
        let sent: Vec<&str> = payloads
            .iter()
            .filter(|(existing, _)| of(*existing))
            .map(|(_, text)| text.as_str())
            .collect();
        let received: Vec<&str> = read
            .iter()
            .filter(|(existing, _)| of(*existing))
            .map(|(_, record)| text(record))
            .collect();
        assert_eq!(received, sent, "partition {partition}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn group_resumes_at_its_commit_and_new_group_starts_at_zero() {
    let mut cluster = cluster().await;
    let log = cluster.log("committed?partitions=1");
    append(&log, 0, &["a", "b"], now_ms()).await;
    let mut reader = log.reader("one").unwrap();
    assert_eq!(texts(&read(&mut reader, 2).await), ["a", "b"].into());
    drop(reader);
    append(&log, 0, &["c"], now_ms()).await;
    let mut reader = log.reader("one").unwrap();
    assert_eq!(texts(&read(&mut reader, 1).await), ["c"].into());
    let mut other = log.reader("other").unwrap();
    assert_eq!(texts(&read(&mut other, 3).await), ["a", "b", "c"].into());
}

#[tokio::test(flavor = "multi_thread")]
async fn times_map_to_offsets_and_offsets_have_a_lag() {
    let mut cluster = cluster().await;
    let log = cluster.log("times?partitions=2");
    let start_ms = now_ms() - 100_000;
    for (n, payload) in ["a", "b", "c", "d"].into_iter().enumerate() {
        append(&log, 1, &[payload], start_ms + 1_000 * n as u64).await;
    }
    let place = async |target| in_time("a place", log.place(1, target)).await.unwrap();
    assert_eq!(place(Target::Start).await, 0);
    assert_eq!(place(Target::End).await, 4);
    assert_eq!(place(Target::Time(0)).await, 0);
    assert_eq!(place(Target::Time(start_ms + 1_000)).await, 1);
    assert_eq!(place(Target::Time(start_ms + 1_001)).await, 2);
    assert_eq!(place(Target::Time(now_ms())).await, 4);
    assert_eq!(place(Target::Position(3)).await, 3);
    assert_eq!(place(Target::Position(9)).await, 4);
    assert_eq!(log.count(1, 1, 3).await.unwrap(), 2);
    assert_eq!(log.count(1, 1, 99).await.unwrap(), 3);
    let lag = log.lag(1, 1).await.unwrap();
    assert_eq!((lag.records, lag.oldest_ms), (3, Some(start_ms + 1_000)));
    let lag = log.lag(1, 4).await.unwrap();
    assert_eq!((lag.records, lag.oldest_ms), (0, None));
    assert_eq!(log.lag(0, 0).await.unwrap().records, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_records_are_skipped_and_bad_offset_reads_from_start() {
    let mut cluster = cluster().await;
    let log = cluster.log("deleted?partitions=1");
    append(&log, 0, &["a", "b", "c"], now_ms()).await;
    delete_before(&cluster.kafka().servers(), "deleted", 1).await;
    let mut reader = log.reader("one").unwrap();
    in_time("the partition", reader.next()).await.unwrap();
    assert_eq!(reader.start_at(0, Some(0)).await.unwrap(), 1);
    assert_eq!(log.place(0, Target::Start).await.unwrap(), 1);
    assert_eq!(log.count(0, 0, 3).await.unwrap(), 2);
    // A position from another topic of that name.
    assert_eq!(reader.start_at(0, Some(77)).await.unwrap(), 1);
    // Moved manually, forward and back.
    assert_eq!(reader.start_at(0, Some(3)).await.unwrap(), 3);
    assert_eq!(reader.start_at(0, Some(2)).await.unwrap(), 2);
    assert_eq!(texts(&read(&mut reader, 1).await), ["c"].into());
}

async fn delete_before(servers: &str, topic: &str, position: i64) {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", servers);
    let admin: AdminClient<DefaultClientContext> = config.create().unwrap();
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(topic, 0, Offset::Offset(position))
        .unwrap();
    let deleted = admin.delete_records(&list, &AdminOptions::new());
    in_time("the deletion", deleted).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn batch_with_an_invalid_record_is_refused_whole() {
    let mut cluster = cluster().await;
    let log = cluster.log("refused?partitions=2");
    append(&log, 0, &["first"], now_ms()).await;
    let long = vec![b'x'; PAYLOAD_LEN_MAX + 1];
    let good = NewRecord {
        partition: 0,
        payload: b"good",
    };
    let long = NewRecord {
        partition: 0,
        payload: &long,
    };
    let nowhere = NewRecord {
        partition: 2,
        payload: b"x",
    };
    for bad in [long, nowhere] {
        let refused = log.append(&[good, bad], now_ms()).await;
        assert_eq!(refused, Err(AppendError::Refused));
    }
    let longest = vec![b'x'; PAYLOAD_LEN_MAX];
    let longest = NewRecord {
        partition: 1,
        payload: &longest,
    };
    in_time("the longest", log.append(&[longest], now_ms()))
        .await
        .unwrap();
    assert_eq!(log.place(0, Target::End).await.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn misconfigured_topic_is_reported_with_a_remedy() {
    let mut cluster = cluster().await;
    let log = cluster.log("other?partitions=6");
    in_time("the topic", log.ready()).await.unwrap();
    let other = cluster.log("other?partitions=7");
    let error = other.ready().await.unwrap_err().to_string();
    assert!(
        error.contains("it has 6 partitions") && error.contains("?partitions=6"),
        "{error}"
    );
    let record = NewRecord {
        partition: 6,
        payload: b"x",
    };
    assert_eq!(
        other.append(&[record], now_ms()).await,
        Err(AppendError::Unknown)
    );
    let many = cluster.log("many?replicas=4");
    let error = many.ready().await.unwrap_err().to_string();
    assert!(
        error.contains("fewer than 4 brokers") && error.contains("?replicas=1"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn record_that_is_not_an_event_blocks_no_others() {
    let mut cluster = cluster().await;
    let log = cluster.log("poisoned?partitions=1");
    append(&log, 0, &["before"], now_ms()).await;
    poison(&cluster.kafka().servers(), "poisoned");
    append(&log, 0, &["after"], now_ms()).await;
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("db"), "poisoned", "one").await;
    let all_handled = async {
        until("what is behind it", || async {
            store.handled().await.contains("after")
        })
        .await;
    };
    store.consume(&log, all_handled).await;
    assert_eq!(
        store.handled().await,
        ["before".into(), "after".into()].into()
    );
    assert_eq!(store.dead().await, 2);
    assert_eq!(store.doubled().await, 0);
}

/// Foreign records in the topic: one without a payload, and one that is not text.
fn poison(servers: &str, topic: &str) {
    let mut config = ClientConfig::new();
    let producer: BaseProducer = config.set("bootstrap.servers", servers).create().unwrap();
    let nothing = BaseRecord::<'_, str, [u8]>::to(topic).partition(0).key("k");
    producer.send(nothing).map_err(|(error, _)| error).unwrap();
    let no_text = BaseRecord::<'_, str, [u8]>::to(topic)
        .partition(0)
        .payload(&[0xff, 0xfe]);
    producer.send(no_text).map_err(|(error, _)| error).unwrap();
    producer.flush(super::support::HANGS).unwrap();
}
