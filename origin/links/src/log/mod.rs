//! The log of new links. It stores acknowledged links until the cold store has them.
//!
//! Each link's [entry](Entry) is written here before the link is acknowledged. The [drainer](drain) moves entries to
//! the cold store, which stores its position in the log in the same transaction. After a crash the next process resumes
//! at that position. [`weir_log`] describes what a crash or a loss costs. A lost folder costs the links that the cold
//! store does not have yet, normally less than a second's.

pub mod drain;

use std::path::Path;

use clap::ValueEnum;
use weir_log::{Log, NewRecord, Position, Reader};

use super::store::Entry;

pub use weir_log::{AppendError, Limits as LogLimits, LogError};

/// Maximum length of an entry's JSON, in bytes: a record and its tags.
const ENTRY_LEN_MAX: usize = 256 * 1024;

/// The log has one partition, so entries keep their order.
const PARTITION: u16 = 0;

/// When an entry counts as written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Sync {
    /// When the operating system has it: survives a crash of the process, not of the machine.
    #[default]
    Os,
    /// When the disk has it: survives a crash of the machine. Concurrent entries share one wait.
    Disk,
}

impl From<Sync> for weir_log::Sync {
    fn from(sync: Sync) -> Self {
        match sync {
            Sync::Os => Self::Os,
            Sync::Disk => Self::Disk,
        }
    }
}

/// The log of links. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct LinkLog(Log);

impl LinkLog {
    /// Opens the log in `path` and creates the folder if it is missing.
    ///
    /// # Errors
    /// See [`LogError`].
    pub fn open(path: &Path, sync: Sync, limits: LogLimits) -> Result<Self, LogError> {
        Log::open(path, sync.into(), limits).map(Self)
    }

    /// The log's id in the cold store.
    pub fn id(&self) -> &str {
        self.0.id()
    }

    /// Number of bytes that the cold store does not have yet.
    pub fn waiting_bytes(&self) -> u64 {
        self.0.waiting_bytes()
    }

    /// Appends entries in one write. Returns once they are durable as configured by [`Sync`].
    ///
    /// # Errors
    /// See [`AppendError`].
    pub async fn append<'a>(
        &self,
        entries: impl IntoIterator<Item = &'a Entry>,
    ) -> Result<Position, AppendError> {
        let entries: Vec<&Entry> = entries.into_iter().collect();
        let payloads: Result<Vec<_>, _> = entries.iter().map(|entry| payload(entry)).collect();
        let payloads = payloads?;
        let records = payloads.iter().map(|payload| NewRecord {
            partition: PARTITION,
            payload,
        });
        let now_ms = entries.iter().map(|entry| made_at_ms(entry)).max();
        self.0.append(records, now_ms.unwrap_or(0)).await
    }

    /// Whether the cold store has all entries.
    pub fn is_drained(&self) -> bool {
        self.0.is_released()
    }

    /// Waits until the cold store has all entries written so far.
    pub async fn drained(&self) {
        self.0.released().await;
    }
}

fn payload(entry: &Entry) -> Result<Vec<u8>, AppendError> {
    let json = serde_json::to_vec(entry).map_err(|_| AppendError::Length)?;
    match json.len() <= ENTRY_LEN_MAX {
        true => Ok(json),
        false => Err(AppendError::Length),
    }
}

fn made_at_ms(entry: &Entry) -> u64 {
    let (Entry::Made(link) | Entry::Void(link)) = entry;
    link.created_at_ms
}
