//! The log.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::OnceCell;
use tracing::{info, warn};

use crate::kafka::append::Appender;
use crate::kafka::offsets::OffsetClient;
use crate::kafka::{AppendError, Lag, LogError, NewRecord, Reader, Settings, Target, topic};

/// A log on Kafka. Cloning it is cheap.
#[derive(Clone)]
pub struct KafkaLog(Arc<Inner>);

struct Inner {
    settings: Settings,
    appender: Appender,
    looker: OffsetClient,
    /// Whether the topic is known to be there.
    topic: OnceCell<()>,
    /// It was said that it is not.
    is_said: AtomicBool,
}

impl std::fmt::Debug for KafkaLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KafkaLog({:?})", self.0.settings)
    }
}

impl KafkaLog {
    /// The log that the settings name. Asks no broker.
    ///
    /// # Errors
    /// When librdkafka refuses the settings.
    pub fn open(settings: Settings) -> Result<Self, LogError> {
        Ok(Self(Arc::new(Inner {
            appender: Appender::new(&settings)?,
            looker: OffsetClient::new(&settings)?,
            settings,
            topic: OnceCell::new(),
            is_said: AtomicBool::new(false),
        })))
    }

    /// Appends records; returns when all are durable. An append of which nobody waits for the end goes on.
    ///
    /// # Errors
    /// When they are not, or nobody knows, after [`append_max`](crate::kafka::Times::append_max) at most twice.
    pub async fn append(&self, records: &[NewRecord<'_>], now_ms: u64) -> Result<(), AppendError> {
        let limit = self.0.settings.times.append_max;
        match tokio::time::timeout(limit, self.ready()).await {
            Ok(Ok(())) => self.0.appender.append(records, now_ms).await,
            Ok(Err(error)) => {
                if !self.0.is_said.swap(true, Ordering::Relaxed) {
                    warn!(%error, "event log not ready");
                }
                Err(AppendError::Unknown)
            }
            Err(_) => Err(AppendError::Unknown),
        }
    }

    /// Waits until the topic is there, made if it must be.
    ///
    /// # Errors
    /// When no broker answers, or the topic is not as the settings say.
    pub async fn ready(&self) -> Result<(), LogError> {
        let make = || async {
            let settings = self.0.settings.clone();
            blocking(move || topic::make(&settings)).await?;
            info!(log = ?self, "event log ready");
            Ok(())
        };
        self.0.topic.get_or_try_init(make).await.copied()
    }

    /// A reader for `group`. It joins its group by itself, as soon as brokers are there.
    ///
    /// # Errors
    /// When librdkafka refuses the settings.
    pub fn reader(&self, group: &str) -> Result<Reader, LogError> {
        Reader::start(&self.0.settings, group)
    }

    /// What it was opened with.
    pub fn settings(&self) -> &Settings {
        &self.0.settings
    }

    /// Bytes that were given to [`KafkaLog::append`] and are not acknowledged yet.
    pub fn waiting_len(&self) -> usize {
        self.0.appender.waiting_len()
    }

    /// The place of `target` in a partition.
    ///
    /// # Errors
    /// When no broker answers.
    pub async fn place(&self, partition: u16, target: Target) -> Result<u64, LogError> {
        let log = self.clone();
        blocking(move || log.0.looker.place(partition, target)).await
    }

    /// How many records of a partition lie between two places.
    ///
    /// # Errors
    /// When no broker answers.
    pub async fn count(&self, partition: u16, from: u64, to: u64) -> Result<u64, LogError> {
        let log = self.clone();
        blocking(move || log.0.looker.count(partition, from, to)).await
    }

    /// How far a reader of a partition is behind that is at `position`.
    ///
    /// # Errors
    /// When no broker answers.
    pub async fn lag(&self, partition: u16, position: u64) -> Result<Lag, LogError> {
        let log = self.clone();
        blocking(move || log.0.looker.lag(partition, position)).await
    }
}

/// librdkafka blocks whoever asks.
pub(crate) async fn blocking<T: Send + 'static>(
    ask: impl FnOnce() -> Result<T, LogError> + Send + 'static,
) -> Result<T, LogError> {
    let asked = tokio::task::spawn_blocking(ask).await;
    asked.map_err(|_| LogError::Away)?
}
