//! From the log into the cold store.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinError;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::read::{BATCH, Batch};
use super::{Log, LogError, Reader};
use crate::links::metrics::LinkMetrics;
use crate::links::store::{LinkStore, LogPosition};

/// The pause after a batch that was not full: so much later is a link in the cold store, and so many fewer
/// transactions there are.
const PAUSE: Duration = Duration::from_millis(20);

/// The pause after the cold store refused, doubled up to [`RETRY_PAUSE_MAX`].
const RETRY_PAUSE: Duration = Duration::from_millis(100);

const RETRY_PAUSE_MAX: Duration = Duration::from_secs(5);

/// Carries all that is written into the cold store until `stop`, and then what is left, if the store takes
/// it.
pub async fn run(
    log: Log,
    store: Arc<dyn LinkStore>,
    metrics: LinkMetrics,
    stop: CancellationToken,
) {
    let drainer = Drainer {
        log,
        store,
        metrics,
        stop,
    };
    if let Some(reader) = drainer.open().await {
        drainer.drain(reader).await;
    }
}

struct Drainer {
    log: Log,
    store: Arc<dyn LinkStore>,
    metrics: LinkMetrics,
    stop: CancellationToken,
}

impl Drainer {
    /// A reader from where the store is; `None` if the origin stops before the store says where.
    async fn open(&self) -> Option<Reader> {
        let mut pause = RETRY_PAUSE;
        loop {
            match self.store.log_position(self.log.id()).await {
                Ok(from) => match Reader::new(&self.log, from) {
                    Ok(reader) => return Some(reader),
                    Err(error) => warn!(%error, "the log of links cannot be read"),
                },
                Err(error) => warn!(%error, "the cold store of links does not answer"),
            }
            pause = self.pause(pause).await?;
        }
    }

    async fn drain(&self, mut reader: Reader) {
        let mut written = self.log.shared().written.subscribe();
        let mut pause = RETRY_PAUSE;
        loop {
            written.mark_unchanged();
            let batch;
            (reader, batch) = match read(reader).await {
                Ok(read) => read,
                // A panic: nothing is lost, the next process goes on.
                Err(_) => return,
            };
            let count = match batch {
                Ok(batch) => {
                    pause = RETRY_PAUSE;
                    let count = batch.entries.len();
                    if !self.take(batch).await {
                        return;
                    }
                    count
                }
                Err(error) => {
                    warn!(%error, "the log of links cannot be read");
                    match self.pause(pause).await {
                        Some(longer) => pause = longer,
                        None => return,
                    }
                    continue;
                }
            };
            if !self.wait(count, &mut written).await {
                return;
            }
        }
    }

    /// Until there is something to read; false if there never will be.
    async fn wait(&self, count: usize, written: &mut watch::Receiver<LogPosition>) -> bool {
        match count {
            0 => tokio::select! {
                () = self.stop.cancelled() => false,
                changed = written.changed() => changed.is_ok(),
            },
            BATCH => true,
            _ => {
                if !self.stop.is_cancelled() {
                    tokio::time::sleep(PAUSE).await;
                }
                true
            }
        }
    }

    /// False if the origin stops before the store takes it: then it stays in the log.
    async fn take(&self, batch: Batch) -> bool {
        let mut pause = RETRY_PAUSE;
        let mut failures = 0;
        while !batch.entries.is_empty() {
            let drained = self.store.drain(self.log.id(), batch.next, &batch.entries);
            match drained.await {
                Ok(taken) => {
                    self.metrics.drained(batch.entries.len() as u64, taken);
                    break;
                }
                Err(error) if failures == 0 => {
                    warn!(%error, "the cold store does not take new links; trying again");
                }
                Err(_) => {}
            }
            failures += 1;
            match self.pause(pause).await {
                Some(longer) => pause = longer,
                None => return false,
            }
        }
        if failures > 0 {
            info!(failures, "the cold store takes new links again");
        }
        let shared = self.log.shared();
        shared.bytes_drained.fetch_add(batch.len, Ordering::Relaxed);
        shared.drained.send_replace(batch.next);
        self.metrics.log_waiting(self.log.waiting_bytes());
        true
    }

    /// The next pause; `None` if the origin stops.
    async fn pause(&self, pause: Duration) -> Option<Duration> {
        tokio::select! {
            () = self.stop.cancelled() => None,
            () = tokio::time::sleep(pause) => Some((pause * 2).min(RETRY_PAUSE_MAX)),
        }
    }
}

async fn read(mut reader: Reader) -> Result<(Reader, Result<Batch, LogError>), JoinError> {
    let read = move || {
        let batch = reader.read();
        (reader, batch)
    };
    tokio::task::spawn_blocking(read).await
}
