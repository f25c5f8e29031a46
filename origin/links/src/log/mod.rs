//! The log of new links: an acknowledged link survives in it until the cold store has it.
//!
//! Before a link is acknowledged its [entry](Entry) is written here; the [drainer](drain) carries entries into the cold
//! store, which notes in the same transaction how far it has the log. After a crash the next process goes on where the
//! store is. What a crash or a loss costs is told in [`weir_log`]: the loss of the folder costs what the cold store
//! has not taken yet, normally less than a second's links.

pub mod drain;

use std::path::Path;

use clap::ValueEnum;
use weir_log::{Log, NewRecord, Position, Reader};

use super::store::Entry;

pub use weir_log::{AppendError, Limits as LogLimits, LogError};

/// The most bytes of an entry's JSON: a record, and the tags.
const ENTRY_LEN_MAX: usize = 256 * 1024;

/// The log has one partition: entries keep their order.
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

/// The log of links. Cloning it is cheap.
#[derive(Clone, Debug)]
pub struct LinkLog(Log);

impl LinkLog {
    /// Opens the log in `path`, which is made if it is not there.
    ///
    /// # Errors
    /// See [`LogError`].
    pub fn open(path: &Path, sync: Sync, limits: LogLimits) -> Result<Self, LogError> {
        Log::open(path, sync.into(), limits).map(Self)
    }

    /// The log's name in the cold store.
    pub fn id(&self) -> &str {
        self.0.id()
    }

    /// Bytes that the cold store has not taken yet.
    pub fn waiting_bytes(&self) -> u64 {
        self.0.waiting_bytes()
    }

    /// Writes entries, all in one piece; returns once they are as safe as [`Sync`] says.
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

    /// Whether the cold store has all that is written.
    pub fn is_drained(&self) -> bool {
        self.0.is_released()
    }

    /// Returns once the cold store has all that is written by now.
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
