//! Moves the log into the cold store.

use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinError;
use tokio_util::sync::CancellationToken;

use tracing::error;
use weir_log::{Batch, LogError, Position, Record, Retention};

use super::{LinkLog, Reader};
use crate::metrics::LinkMetrics;
use crate::store::{Entry, LinkStore};
use weir_origin_core::background::{Backoff, Interval};

/// Maximum number of entries in a batch, which one transaction stores.
const BATCH: usize = 512;

/// The pause after a batch that was not full: it delays links slightly and saves transactions.
const PAUSE: Duration = Duration::from_millis(20);

/// Backoff after the cold store failed.
const BACKOFF: Backoff = Backoff {
    first: Duration::from_millis(100),
    max: Duration::from_secs(5),
};

/// Drains the log until `stop`, then the remaining entries if the store accepts them.
pub async fn run(log: LinkLog, store: LinkStore, metrics: LinkMetrics, stop: CancellationToken) {
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
    log: LinkLog,
    store: LinkStore,
    metrics: LinkMetrics,
    stop: CancellationToken,
}

impl Drainer {
    fn interval(&self, subject: &'static str) -> Interval {
        let interval = Interval::every(PAUSE, subject, self.stop.clone());
        interval.backing_off(BACKOFF)
    }

    /// Opens a reader at the store's position; `None` if the origin stops before the position is known.
    async fn open(&self) -> Option<Reader> {
        let mut interval = self.interval("opening the link log");
        loop {
            let reader = self.try_open().await;
            interval.ended(&reader);
            match reader {
                Ok(reader) => return Some(reader),
                Err(_) if interval.next().await => {}
                Err(_) => return None,
            }
        }
    }

    async fn try_open(&self) -> Result<Reader, anyhow::Error> {
        let from = self.store.log().log_position(self.log.id()).await?;
        let reader = Reader::new(&self.log.0, from, BATCH)?;
        self.log.0.release(reader.position());
        Ok(reader)
    }

    async fn drain(&self, mut reader: Reader) {
        let mut written = self.log.0.written();
        let mut reads = self.interval("reading the link log");
        loop {
            written.mark_unchanged();
            let batch;
            (reader, batch) = match read(reader).await {
                Ok(read) => read,
                // The reader panicked. Nothing is lost: the next process continues.
                Err(_) => return,
            };
            reads.ended(&batch);
            let goes_on = match batch {
                Ok(batch) => {
                    let count = batch.records.len();
                    self.take(batch).await && self.wait(count, &mut written).await
                }
                Err(_) => reads.next().await,
            };
            if !goes_on {
                return;
            }
        }
    }

    /// Waits until there is something to read. Returns false if the origin stops first.
    async fn wait(&self, count: usize, written: &mut watch::Receiver<Position>) -> bool {
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

    /// Stores a batch. Returns false if the origin stops first; then the batch stays in the log.
    async fn take(&self, batch: Batch) -> bool {
        let mut interval = self.interval("draining the link log");
        let entries: Vec<Entry> = batch.records.iter().filter_map(entry).collect();
        while !batch.records.is_empty() {
            let drained = self.store.log().drain(self.log.id(), batch.next, &entries);
            let drained = drained.await;
            interval.ended(&drained);
            match drained {
                Ok(accepted) => {
                    self.metrics.drained(entries.len() as u64, accepted);
                    break;
                }
                Err(_) if interval.next().await => {}
                Err(_) => return false,
            }
        }
        self.log.0.release(batch.next);
        if let Err(error) = self.log.0.retain(Retention::NONE, u64::MAX) {
            error!(%error, "cannot delete a link log file");
        }
        self.metrics.log_waiting(self.log.waiting_bytes());
        true
    }
}

/// Decodes an entry. Only another program can have written an invalid one.
fn entry(record: &Record) -> Option<Entry> {
    let entry = serde_json::from_slice(&record.payload);
    if let Err(error) = &entry {
        error!(%error, at = ?record.position, "invalid record in the link log");
    }
    entry.ok()
}

async fn read(mut reader: Reader) -> Result<(Reader, Result<Batch, LogError>), JoinError> {
    let read = move || {
        let batch = reader.read();
        (reader, batch)
    };
    tokio::task::spawn_blocking(read).await
}
