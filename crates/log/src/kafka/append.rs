//! The producer.
//!
//! librdkafka batches records, preserves their order with an idempotent producer, and reports for each record whether
//! it is durable. An append waits for all of its records.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::KafkaError;
use rdkafka::producer::{BaseRecord, DeliveryResult, Producer, ProducerContext, ThreadedProducer};
use tokio::sync::oneshot;
use tracing::{error, info, warn};

use crate::kafka::{NewRecord, PAYLOAD_LEN_MAX, Settings, client};

/// The memory counted per record in addition to its payload, about the overhead in librdkafka.
const RECORD_COST: usize = 256;

/// Why an append failed or has an unknown result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// Too many bytes are unacknowledged. Nothing was appended.
    #[error("too many records wait for Kafka")]
    Full,
    /// Some records may have been appended.
    #[error("outcome unknown: Kafka did not confirm the record")]
    Unknown,
    /// A record is longer than [`PAYLOAD_LEN_MAX`], or its partition does not exist. Nothing was appended.
    #[error("record is too long, or its partition does not exist")]
    Refused,
}

/// Appends records to one topic.
pub(crate) struct Appender {
    settings: Settings,
    /// Replaced after a fatal error of librdkafka.
    producer: Mutex<Arc<ThreadedProducer<Deliveries>>>,
    shared: Arc<AppenderState>,
}

/// State shared by an appender and its pending records.
struct AppenderState {
    waiting_len: AtomicUsize,
    /// The last record was not acknowledged: logged once.
    is_failing: AtomicBool,
}

/// A pending append.
pub(crate) struct Append {
    /// Records without a delivery report.
    remaining: AtomicUsize,
    is_lost: AtomicBool,
    waiting_len: usize,
    done: Mutex<Option<oneshot::Sender<bool>>>,
    shared: Arc<AppenderState>,
}

impl Append {
    /// Records that one record is durable, or may not be.
    fn settle(&self, result: Result<(), &KafkaError>) {
        if let Err(error) = result {
            self.is_lost.store(true, Ordering::Relaxed);
            if !self.shared.is_failing.swap(true, Ordering::Relaxed) {
                warn!(%error, "Kafka does not acknowledge records");
            }
        } else if self.shared.is_failing.swap(false, Ordering::Relaxed) {
            info!("Kafka acknowledges records again");
        }
        if self.remaining.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        let waiting_len = &self.shared.waiting_len;
        waiting_len.fetch_sub(self.waiting_len, Ordering::Relaxed);
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(done) = done.take() {
            // The caller may have stopped waiting.
            done.send(!self.is_lost.load(Ordering::Relaxed)).ok();
        }
    }
}

/// Receives delivery reports.
pub(crate) struct Deliveries;

impl ClientContext for Deliveries {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, line: &str) {
        client::log(level, facility, line);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        client::error(&error, reason);
    }
}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = Arc<Append>;

    fn delivery(&self, result: &DeliveryResult<'_>, append: Arc<Append>) {
        append.settle(result.as_ref().map(|_| ()).map_err(|(error, _)| error));
    }
}

impl Appender {
    pub(crate) fn new(settings: &Settings) -> Result<Self, KafkaError> {
        Ok(Self {
            producer: Mutex::new(Arc::new(producer(settings)?)),
            settings: settings.clone(),
            shared: Arc::new(AppenderState {
                waiting_len: AtomicUsize::new(0),
                is_failing: AtomicBool::new(false),
            }),
        })
    }

    /// The number of unacknowledged bytes.
    pub(crate) fn waiting_len(&self) -> usize {
        self.shared.waiting_len.load(Ordering::Relaxed)
    }

    /// Appends records; returns when all of them are durable.
    pub(crate) async fn append(
        &self,
        records: &[NewRecord<'_>],
        now_ms: u64,
    ) -> Result<(), AppendError> {
        let is_fit = |record: &NewRecord<'_>| {
            record.payload.len() <= PAYLOAD_LEN_MAX && record.partition < self.settings.partitions
        };
        if !records.iter().all(is_fit) {
            return Err(AppendError::Refused);
        }
        if records.is_empty() {
            return Ok(());
        }
        let (append, done) = self.reserve(records)?;
        self.send(records, now_ms, &append);
        drop(append);
        match done.await {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => Err(AppendError::Unknown),
        }
    }

    /// Reserves space for all records: librdkafka's own queue is larger, so it never accepts only some of them.
    fn reserve(
        &self,
        records: &[NewRecord<'_>],
    ) -> Result<(Arc<Append>, oneshot::Receiver<bool>), AppendError> {
        let len = |record: &NewRecord<'_>| record.payload.len() + RECORD_COST;
        let waiting_len = records.iter().map(len).sum();
        let max = self.settings.waiting_len_max;
        let take = |used: usize| used.checked_add(waiting_len).filter(|all| *all <= max);
        let all = &self.shared.waiting_len;
        let used = all.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        used.map_err(|_| AppendError::Full)?;
        let (sender, done) = oneshot::channel();
        let append = Append {
            remaining: AtomicUsize::new(records.len()),
            is_lost: AtomicBool::new(false),
            waiting_len,
            done: Mutex::new(Some(sender)),
            shared: self.shared.clone(),
        };
        Ok((Arc::new(append), done))
    }

    fn send(&self, records: &[NewRecord<'_>], now_ms: u64, append: &Arc<Append>) {
        let producer = self.producer();
        // Times after the year 292 million do not occur.
        let time_ms = i64::try_from(now_ms).unwrap_or(i64::MAX);
        for record in records {
            let sent =
                BaseRecord::<'_, (), [u8], _>::with_opaque_to(&self.settings.topic, append.clone())
                    .partition(record.partition.into())
                    .payload(record.payload)
                    .timestamp(time_ms);
            if let Err((error, unsent)) = producer.send(sent) {
                unsent.delivery_opaque.settle(Err(&error));
            }
        }
    }

    /// The producer. Replaces it after a fatal error, which librdkafka reports when a broker has lost the state of an
    /// idempotent producer. Dropping the old one settles its pending records.
    fn producer(&self) -> Arc<ThreadedProducer<Deliveries>> {
        let mut held = self.producer.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((code, reason)) = held.client().fatal_error() else {
            return held.clone();
        };
        error!(%code, reason, "librdkafka producer failed; creating a new one");
        match producer(&self.settings) {
            Ok(new) => {
                let old = std::mem::replace(&mut *held, Arc::new(new));
                // Dropping it takes a moment.
                std::thread::spawn(move || drop(old));
            }
            Err(error) => error!(%error, "cannot create a Kafka producer"),
        }
        held.clone()
    }
}

fn producer(settings: &Settings) -> Result<ThreadedProducer<Deliveries>, KafkaError> {
    let append_max_ms = settings.times.append_max.as_millis();
    let kbytes_max = 2 * settings.waiting_len_max / 1024 + 1024;
    settings
        .client()
        .set("enable.idempotence", "true")
        .set("acks", "all")
        .set("message.timeout.ms", append_max_ms.to_string())
        // Batches the records of one millisecond; while five requests are pending, all later records.
        .set("linger.ms", "1")
        .set("compression.type", "lz4")
        // The brokers' default: the longest record and its overhead.
        .set("message.max.bytes", "1048588")
        .set("queue.buffering.max.messages", "0")
        .set("queue.buffering.max.kbytes", kbytes_max.to_string())
        .create_with_context(Deliveries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};

    /// Uses librdkafka's mock brokers: a real broker does not forget a producer on request.
    #[tokio::test]
    async fn producer_with_a_fatal_librdkafka_error_is_replaced() {
        let settings = Settings::from_url("kafka://127.0.0.1:1/t?partitions=1").unwrap();
        let settings = settings.with_properties("test.mock.num.brokers=1").unwrap();
        let appender = Appender::new(&settings).unwrap();
        let record = NewRecord {
            partition: 0,
            payload: b"x",
        };
        assert_eq!(appender.append(&[record], 1).await, Ok(()));
        let first = appender.producer();
        let brokers = first.client().mock_cluster().unwrap();
        let forgotten = RDKafkaRespErr::RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER;
        brokers.request_errors(RDKafkaApiKey::Produce, &[forgotten]);
        let unknown = appender.append(&[record], 1).await;
        assert_eq!(unknown, Err(AppendError::Unknown));
        assert!(first.client().fatal_error().is_some());
        assert_eq!(appender.append(&[record], 1).await, Ok(()));
        assert!(!Arc::ptr_eq(&first, &appender.producer()));
        assert_eq!(appender.waiting_len(), 0);
    }
}
