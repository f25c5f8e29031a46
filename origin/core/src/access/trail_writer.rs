//! Writes audit entries after the answer, in batches. Routes use it that must be fast and must work while SQL does not
//! answer.

use std::sync::{Mutex, PoisonError};

use prometheus_client::metrics::counter::Counter;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tracing::warn;

use super::trail::{Intent, Trail, Verdict};

/// Maximum number of queued entries. Further entries are lost, and counted as lost.
const WAITING_MAX: usize = 8_192;

/// Maximum number of entries per transaction.
const BATCH_MAX: usize = 256;

type Done = (Intent, Verdict);

/// Queues and writes audit entries in the background.
#[derive(Debug)]
pub(super) struct TrailWriter {
    trail: Trail,
    lost: Counter,
    /// Starts with the first entry, so an origin without such routes has no writer task.
    writer: Mutex<Option<(mpsc::Sender<Done>, JoinHandle<()>)>>,
}

impl TrailWriter {
    pub(super) fn new(trail: Trail, lost: Counter) -> Self {
        let writer = Mutex::default();
        Self {
            trail,
            lost,
            writer,
        }
    }

    /// Queues an entry.
    pub(super) fn add(&self, intent: Intent, verdict: Verdict) {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let (sender, _) = writer.get_or_insert_with(|| self.begin());
        if sender.try_send((intent, verdict)).is_err() {
            self.lost.inc();
        }
    }

    fn begin(&self) -> (mpsc::Sender<Done>, JoinHandle<()>) {
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        let write = write(self.trail.clone(), self.lost.clone(), receiver);
        (sender, tokio::spawn(write))
    }

    /// Waits until all queued entries are written.
    pub(super) async fn finish(&self) {
        let writer = self
            .writer
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some((sender, task)) = writer {
            drop(sender);
            // A panicked task has ended, too.
            let _ = task.await;
        }
    }
}

async fn write(trail: Trail, lost: Counter, mut waiting: mpsc::Receiver<Done>) {
    let mut batch = Vec::with_capacity(BATCH_MAX);
    while waiting.recv_many(&mut batch, BATCH_MAX).await > 0 {
        if let Err(error) = trail.add_all(&batch).await {
            warn!(%error, entries = batch.len(), "the audit trail misses entries");
            lost.inc_by(batch.len() as u64);
        }
        batch.clear();
    }
}
