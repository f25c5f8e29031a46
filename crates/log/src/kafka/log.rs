//! The log handle.

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
    /// Set when the topic exists.
    topic: OnceCell<()>,
    /// Whether a missing topic was logged.
    is_said: AtomicBool,
}

impl std::fmt::Debug for KafkaLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KafkaLog({:?})", self.0.settings)
    }
}

impl KafkaLog {
    /// Opens the log in the settings. It makes no request.
    ///
    /// # Errors
    /// When librdkafka rejects the settings.
    pub fn open(settings: Settings) -> Result<Self, LogError> {
        Ok(Self(Arc::new(Inner {
            appender: Appender::new(&settings)?,
            looker: OffsetClient::new(&settings)?,
            settings,
            topic: OnceCell::new(),
            is_said: AtomicBool::new(false),
        })))
    }

    /// Appends records; returns when all are durable. If the caller stops waiting, the append continues.
    ///
    /// # Errors
    /// When they are not durable, or the result is unknown, after at most twice
    /// [`append_max`](crate::kafka::Times::append_max).
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

    /// Waits for the topic, and creates it if necessary.
    ///
    /// # Errors
    /// When no broker answers, or the topic differs from the settings.
    pub async fn ready(&self) -> Result<(), LogError> {
        let make = || async {
            let settings = self.0.settings.clone();
            blocking(move || topic::make(&settings)).await?;
            info!(log = ?self, "event log ready");
            Ok(())
        };
        self.0.topic.get_or_try_init(make).await.copied()
    }

    /// A reader for `group`. It joins the group in the background, as soon as brokers are available.
    ///
    /// # Errors
    /// When librdkafka rejects the settings.
    pub fn reader(&self, group: &str) -> Result<Reader, LogError> {
        Reader::start(&self.0.settings, group)
    }

    /// The settings of [`KafkaLog::open`].
    pub fn settings(&self) -> &Settings {
        &self.0.settings
    }

    /// Bytes in [`KafkaLog::append`] that are not acknowledged yet.
    pub fn waiting_len(&self) -> usize {
        self.0.appender.waiting_len()
    }

    /// The position of `target` in a partition.
    ///
    /// # Errors
    /// When no broker answers.
    pub async fn place(&self, partition: u16, target: Target) -> Result<u64, LogError> {
        let log = self.clone();
        blocking(move || log.0.looker.place(partition, target)).await
    }

    /// The number of records of a partition between two positions.
    ///
    /// # Errors
    /// When no broker answers.
    pub async fn count(&self, partition: u16, from: u64, to: u64) -> Result<u64, LogError> {
        let log = self.clone();
        blocking(move || log.0.looker.count(partition, from, to)).await
    }

    /// The lag of a reader at `position` in a partition.
    ///
    /// # Errors
    /// When no broker answers.
    pub async fn lag(&self, partition: u16, position: u64) -> Result<Lag, LogError> {
        let log = self.clone();
        blocking(move || log.0.looker.lag(partition, position)).await
    }
}

/// Runs librdkafka's blocking calls on a blocking thread.
pub(crate) async fn blocking<T: Send + 'static>(
    ask: impl FnOnce() -> Result<T, LogError> + Send + 'static,
) -> Result<T, LogError> {
    let requested = tokio::task::spawn_blocking(ask).await;
    requested.map_err(|_| LogError::Away)?
}
