//! Drains the log into the cold store.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinError;
use tokio_util::sync::CancellationToken;

use super::read::{BATCH, Batch};
use super::{Log, LogError, Reader};
use crate::background::{Backoff, Rounds};
use crate::links::metrics::LinkMetrics;
use crate::links::store::{LinkStore, LogPosition};

/// The pause after a batch that was not full: links reach the cold store that much later, in fewer transactions.
const PAUSE: Duration = Duration::from_millis(20);

/// The pause after the cold store refused.
const BACKOFF: Backoff = Backoff {
    first: Duration::from_millis(100),
    max: Duration::from_secs(5),
};

/// Drains the log until `stop`, and then what is left, if the store takes it.
pub async fn run(log: Log, store: LinkStore, metrics: LinkMetrics, stop: CancellationToken) {
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
    store: LinkStore,
    metrics: LinkMetrics,
    stop: CancellationToken,
}

impl Drainer {
    fn rounds(&self, what: &'static str) -> Rounds {
        let rounds = Rounds::every(PAUSE, what, self.stop.clone());
        rounds.backing_off(BACKOFF)
    }

    /// A reader from where the store is; `None` if the origin stops before the store says where.
    async fn open(&self) -> Option<Reader> {
        let mut rounds = self.rounds("opening the log of links");
        loop {
            let reader = self.try_open().await;
            rounds.ended(&reader);
            match reader {
                Ok(reader) => return Some(reader),
                Err(_) if rounds.next().await => {}
                Err(_) => return None,
            }
        }
    }

    async fn try_open(&self) -> Result<Reader, anyhow::Error> {
        let from = self.store.log_position(self.log.id()).await?;
        Ok(Reader::new(&self.log, from)?)
    }

    async fn drain(&self, mut reader: Reader) {
        let mut written = self.log.shared().written.subscribe();
        let mut reads = self.rounds("reading the log of links");
        loop {
            written.mark_unchanged();
            let batch;
            (reader, batch) = match read(reader).await {
                Ok(read) => read,
                // A panic: nothing is lost, the next process goes on.
                Err(_) => return,
            };
            reads.ended(&batch);
            let goes_on = match batch {
                Ok(batch) => {
                    let count = batch.entries.len();
                    self.take(batch).await && self.wait(count, &mut written).await
                }
                Err(_) => reads.next().await,
            };
            if !goes_on {
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
        let mut rounds = self.rounds("draining the log of links");
        while !batch.entries.is_empty() {
            let drained = self.store.drain(self.log.id(), batch.next, &batch.entries);
            let drained = drained.await;
            rounds.ended(&drained);
            match drained {
                Ok(taken) => {
                    self.metrics.drained(batch.entries.len() as u64, taken);
                    break;
                }
                Err(_) if rounds.next().await => {}
                Err(_) => return false,
            }
        }
        let shared = self.log.shared();
        shared.bytes_drained.fetch_add(batch.len, Ordering::Relaxed);
        shared.drained.send_replace(batch.next);
        self.metrics.log_waiting(self.log.waiting_bytes());
        true
    }
}

async fn read(mut reader: Reader) -> Result<(Reader, Result<Batch, LogError>), JoinError> {
    let read = move || {
        let batch = reader.read();
        (reader, batch)
    };
    tokio::task::spawn_blocking(read).await
}
