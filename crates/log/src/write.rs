//! Writes the log.
//!
//! A single thread writes. Appenders send it their bytes and wait. It writes all queued bytes together, with one sync.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use tokio::sync::{oneshot, watch};
use tracing::error;

use crate::folder::Folder;
use crate::state::LogState;
use crate::{LogError, NewRecord, Position, Sync, at, frame};

/// The maximum bytes per write: a disk error affects all of them.
const WRITE_LEN_MAX: usize = 1 << 20;

/// Limits of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The size at which a new file starts: retention deletes whole files.
    pub file_len: u64,
    /// The maximum of bytes that are not [released](Log::release); beyond it, appends fail.
    pub waiting_len_max: u64,
}

impl Default for Limits {
    /// 64 MiB, and 4 GiB.
    fn default() -> Self {
        Self {
            file_len: 64 << 20,
            waiting_len_max: 4 << 30,
        }
    }
}

/// Why an append failed or has an unknown result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// The consumers are too far behind. Nothing was written.
    #[error("log full: no consumer is advancing")]
    Full,
    /// A record is empty, or longer than [`PAYLOAD_LEN_MAX`](crate::PAYLOAD_LEN_MAX). Nothing was written.
    #[error("record is empty or too long")]
    Length,
    /// The disk reported an error. Part of the records may be written.
    #[error("cannot write the log")]
    Io,
}

/// A log for appends. Cloning it is cheap; its thread ends with the last clone.
#[derive(Clone, Debug)]
pub struct Log {
    sender: Sender<Append>,
    shared: Arc<LogState>,
}

#[derive(Debug)]
struct Append {
    bytes: Vec<u8>,
    time_ms: u64,
    done: oneshot::Sender<Result<Position, AppendError>>,
}

impl Log {
    /// Opens the log in `path`, creates the folder if necessary, and starts the writer thread. Existing files remain
    /// unchanged for readers; new records go to a new file.
    ///
    /// # Errors
    /// See [`LogError`].
    pub fn open(path: &Path, sync: Sync, limits: Limits) -> Result<Self, LogError> {
        let folder = Folder::open(path)?;
        let number = folder.files()?.last().map_or(1, |last| last + 1);
        let file = folder.create(number)?;
        let start = Position {
            file: number,
            byte: 0,
        };
        let shared = Arc::new(LogState::new(folder, limits, start)?);
        let (sender, receiver) = channel();
        let writer = Writer {
            shared: shared.clone(),
            file,
            at: start,
            next_file: number + 1,
            is_broken: false,
            sync,
        };
        let spawned = std::thread::Builder::new().name("event-log".into());
        let spawned = spawned.spawn(move || writer.run(&receiver));
        spawned.map_err(at(path))?;
        Ok(Self { sender, shared })
    }

    /// The log's name, stable for the lifetime of its folder.
    pub fn id(&self) -> &str {
        &self.shared.folder.id
    }

    /// Appends records without records of others between them. Returns their end once they are as durable as [`Sync`]
    /// requires.
    ///
    /// # Errors
    /// See [`AppendError`].
    pub async fn append<'a>(
        &self,
        records: impl IntoIterator<Item = NewRecord<'a>>,
        now_ms: u64,
    ) -> Result<Position, AppendError> {
        if self.waiting_bytes() >= self.shared.limits.waiting_len_max {
            return Err(AppendError::Full);
        }
        let mut bytes = Vec::with_capacity(512);
        for record in records {
            if !frame::write(record, now_ms, &mut bytes) {
                return Err(AppendError::Length);
            }
        }
        let (done, written) = oneshot::channel();
        let append = Append {
            bytes,
            time_ms: now_ms,
            done,
        };
        self.sender.send(append).map_err(|_| AppendError::Io)?;
        written.await.unwrap_or(Err(AppendError::Io))
    }

    /// The end of the written data, and its changes.
    pub fn written(&self) -> watch::Receiver<Position> {
        self.shared.written.subscribe()
    }

    /// Releases all records before `position`: they no longer count as waiting, and [`Log::retain`] may delete them.
    pub fn release(&self, position: Position) {
        self.shared.released.send_if_modified(|released| {
            let moves = position > *released;
            if moves {
                *released = position;
            }
            moves
        });
    }

    /// The number of bytes that are not [released](Log::release) yet.
    pub fn waiting_bytes(&self) -> u64 {
        let released = *self.shared.released.borrow();
        self.shared.bytes_behind(released)
    }

    /// The number of bytes after `position`, including damaged ones.
    pub fn bytes_behind(&self, position: Position) -> u64 {
        self.shared.bytes_behind(position)
    }

    /// Whether all written data is [released](Log::release).
    pub fn is_released(&self) -> bool {
        *self.shared.released.borrow() >= *self.shared.written.borrow()
    }

    /// Waits until all currently written data is [released](Log::release).
    pub async fn released(&self) {
        let until = *self.shared.written.borrow();
        let mut released = self.shared.released.subscribe();
        // Fails only when the log ends.
        let _ = released.wait_for(|position| *position >= until).await;
    }

    pub(crate) fn shared(&self) -> &Arc<LogState> {
        &self.shared
    }
}

struct Writer {
    shared: Arc<LogState>,
    file: File,
    at: Position,
    /// The number of the next file; a failed attempt uses up its number.
    next_file: u64,
    /// A write failed, and no new file was started since. A reader stops at the incomplete write, so no data may follow
    /// it.
    is_broken: bool,
    sync: Sync,
}

impl Writer {
    fn run(mut self, receiver: &Receiver<Append>) {
        let mut waiting = Vec::new();
        while let Ok(first) = receiver.recv() {
            let (mut bytes, mut time_ms) = (first.bytes, first.time_ms);
            waiting.push(first.done);
            while bytes.len() < WRITE_LEN_MAX
                && let Ok(next) = receiver.try_recv()
            {
                bytes.extend_from_slice(&next.bytes);
                time_ms = time_ms.max(next.time_ms);
                waiting.push(next.done);
            }
            let written = self.write(&bytes, time_ms);
            for done in waiting.drain(..) {
                // The caller may have stopped waiting.
                let _ = done.send(written);
            }
        }
    }

    fn write(&mut self, bytes: &[u8], time_ms: u64) -> Result<Position, AppendError> {
        if self.is_broken {
            self.begin_file(time_ms);
        }
        if self.is_broken {
            return Err(AppendError::Io);
        }
        if let Err(error) = self.try_write(bytes) {
            error!(%error, folder = %self.shared.folder.path.display(), "cannot write the log");
            self.is_broken = true;
            return Err(AppendError::Io);
        }
        self.at.byte += bytes.len() as u64;
        self.shared.grew(self.at, time_ms);
        let written = self.at;
        if self.at.byte >= self.shared.limits.file_len {
            self.begin_file(time_ms);
        }
        Ok(written)
    }

    fn try_write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        match self.sync {
            Sync::Os => Ok(()),
            Sync::Disk => self.file.sync_data(),
        }
    }

    /// Starts a new file. On failure, the old file stays current, and the next write that needs a file tries again.
    fn begin_file(&mut self, time_ms: u64) {
        let number = self.next_file;
        self.next_file += 1;
        match self.shared.folder.create(number) {
            Ok(file) => {
                self.file = file;
                self.is_broken = false;
                self.at = Position {
                    file: number,
                    byte: 0,
                };
                self.shared.grew(self.at, time_ms);
            }
            Err(error) => error!(%error, "cannot create a log file"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Reader, Retention};

    fn record(payload: &[u8]) -> NewRecord<'_> {
        NewRecord {
            partition: 0,
            payload,
        }
    }

    fn bytes_of(payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        assert!(frame::write(record(payload), 1, &mut bytes));
        bytes
    }

    fn read(reader: &mut Reader) -> Vec<Vec<u8>> {
        let batch = reader.read().unwrap();
        batch.records.into_iter().map(|r| r.payload).collect()
    }

    /// A full disk: first a partial write, then a failure to create a file.
    #[test]
    fn no_record_after_a_failed_write_is_acknowledged() {
        let folder = tempfile::tempdir().unwrap();
        let log = Log::open(folder.path(), Sync::Os, Limits::default()).unwrap();
        let shared = log.shared().clone();
        let half = bytes_of(b"lost");
        std::fs::write(shared.folder.file(1), &half[..half.len() / 2]).unwrap();
        std::fs::write(shared.folder.file(2), "").unwrap();
        let mut writer = Writer {
            shared: shared.clone(),
            file: File::options().write(true).open("/dev/full").unwrap(),
            at: Position { file: 1, byte: 0 },
            next_file: 2,
            is_broken: false,
            sync: Sync::Os,
        };
        assert_eq!(writer.write(&half, 1), Err(AppendError::Io));
        // The old file has space again, but a new file cannot be created.
        let old = File::options().append(true).open(shared.folder.file(1));
        writer.file = old.unwrap();
        assert_eq!(writer.write(&bytes_of(b"refused"), 1), Err(AppendError::Io));
        assert!(writer.write(&bytes_of(b"kept"), 1).is_ok());

        let mut reader = Reader::new(&log, Position::default(), 100).unwrap();
        assert_eq!(read(&mut reader), [b"kept"]);
        assert_eq!(read(&mut reader), Vec::<Vec<u8>>::new());
    }

    #[tokio::test]
    async fn full_log_refuses_appends_until_files_are_released() {
        let folder = tempfile::tempdir().unwrap();
        let limits = Limits {
            file_len: 50,
            waiting_len_max: 100,
        };
        let log = Log::open(folder.path(), Sync::Os, limits).unwrap();
        let mut last = Position::default();
        let refused = loop {
            match log.append([record(b"0123456789")], 1).await {
                Ok(position) => last = position,
                Err(error) => break error,
            }
        };
        assert_eq!(refused, AppendError::Full);
        assert!(!log.is_released());
        log.release(last);
        log.release(Position::default());
        assert_eq!(log.waiting_bytes(), 0, "a release does not go back");
        log.append([record(b"0123456789")], 1).await.unwrap();
        log.retain(Retention::NONE, 1).unwrap();
    }
}
