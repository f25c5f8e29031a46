//! State shared by the writer, appenders, readers and retention.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::UNIX_EPOCH;

use tokio::sync::watch;

use crate::folder::Folder;
use crate::{Limits, LogError, Position};

#[derive(Debug)]
pub(crate) struct LogState {
    pub(crate) folder: Folder,
    pub(crate) limits: Limits,
    /// The end of the written data.
    pub(crate) written: watch::Sender<Position>,
    /// The end of the released data.
    pub(crate) released: watch::Sender<Position>,
    files: Mutex<BTreeMap<u64, FileInfo>>,
}

/// Metadata of a file.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FileInfo {
    pub(crate) len: u64,
    /// When it was last written to, in milliseconds since the Unix epoch.
    pub(crate) written_at_ms: u64,
}

impl LogState {
    /// Reads the files of earlier processes. `start` is the start of this process.
    pub(crate) fn new(folder: Folder, limits: Limits, start: Position) -> Result<Self, LogError> {
        let found = folder.files()?.into_iter();
        let files = found.map(|number| (number, info(&folder.file(number))));
        Ok(Self {
            files: Mutex::new(files.collect()),
            folder,
            limits,
            written: watch::Sender::new(start),
            released: watch::Sender::new(Position::default()),
        })
    }

    pub(crate) fn files(&self) -> MutexGuard<'_, BTreeMap<u64, FileInfo>> {
        // Each change is one assignment, so a panic elsewhere leaves the state consistent.
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a write that ends at `end`.
    pub(crate) fn grew(&self, end: Position, time_ms: u64) {
        let info = FileInfo {
            len: end.byte,
            written_at_ms: time_ms,
        };
        self.files().insert(end.file, info);
        self.written.send_replace(end);
    }

    /// The number of bytes after `from`, including damaged ones.
    pub(crate) fn bytes_behind(&self, from: Position) -> u64 {
        let files = self.files();
        let len: u64 = files.range(from.file..).map(|(_, info)| info.len).sum();
        match files.contains_key(&from.file) {
            true => len.saturating_sub(from.byte),
            false => len,
        }
    }
}

fn info(path: &Path) -> FileInfo {
    let Ok(data) = std::fs::metadata(path) else {
        return FileInfo::default();
    };
    let since = data.modified().ok();
    let since = since.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    FileInfo {
        len: data.len(),
        written_at_ms: since.map_or(0, |since| {
            u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
        }),
    }
}
