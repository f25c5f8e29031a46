//! Entries of the audit trail that are written behind the answer, many in one transaction: for routes that must be as fast as they
//! are, and go on while SQL is away.

use std::sync::{Mutex, PoisonError};

use prometheus_client::metrics::counter::Counter;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tracing::warn;

use super::trail::{Intent, Trail, Verdict};

/// The most entries that wait. What is beyond is counted, and lost.
const WAITING_MAX: usize = 8_192;

/// The most entries of one transaction.
const BATCH_MAX: usize = 256;

type Done = (Intent, Verdict);

/// Writes entries behind answers.
#[derive(Debug)]
pub(super) struct TrailWriter {
    trail: Trail,
    lost: Counter,
    /// Begins with the first entry: an origin without such routes has no writer.
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

    /// Has an entry written soon.
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

    /// Waits until all are written.
    pub(super) async fn finish(&self) {
        let writer = self
            .writer
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some((sender, task)) = writer {
            drop(sender);
            // One that has panicked has ended, too.
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
