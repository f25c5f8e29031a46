//! Writes the log.
//!
//! One thread writes. Others hand it their bytes and wait; whatever arrived in the meantime is written together, with one
//! wait for the disk.

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

/// The most bytes of one write: what is lost together if the disk refuses it.
const WRITE_LEN_MAX: usize = 1 << 20;

/// What a log may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// After so many bytes a new file is begun: files are deleted whole.
    pub file_len: u64,
    /// With so many bytes that are not [released](Log::release), nothing more is written.
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

/// Why records were not written, or may not have been.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// Those who read it are too far behind. Nothing was written.
    #[error("log full: no consumer is advancing")]
    Full,
    /// A record is empty, or longer than [`PAYLOAD_LEN_MAX`](crate::PAYLOAD_LEN_MAX). Nothing was written.
    #[error("record is empty or too long")]
    Length,
    /// The disk refuses. The records may be written in part.
    #[error("cannot write the log")]
    Io,
}

/// A log to write to. Cloning it is cheap; its thread ends with the last clone.
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
    /// Opens the log in `path`, which is made if it is not there, and starts its thread. What an earlier process has left
    /// stays as it is, for readers: new records go into a new file.
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

    /// The log's name: the same as long as its folder lives.
    pub fn id(&self) -> &str {
        &self.shared.folder.id
    }

    /// Appends records, all in one piece; returns where they end, once they are as safe as [`Sync`] says.
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

    /// Up to where it is written, now and from now on.
    pub fn written(&self) -> watch::Receiver<Position> {
        self.shared.written.subscribe()
    }

    /// Says that nobody needs what lies before `position`: it no longer counts as waiting, and
    /// [`Log::retain`] may delete it.
    pub fn release(&self, position: Position) {
        self.shared.released.send_if_modified(|released| {
            let moves = position > *released;
            if moves {
                *released = position;
            }
            moves
        });
    }

    /// Bytes that were not [released](Log::release) yet.
    pub fn waiting_bytes(&self) -> u64 {
        let released = *self.shared.released.borrow();
        self.shared.bytes_behind(released)
    }

    /// Bytes that lie behind `position`, with what is damaged.
    pub fn bytes_behind(&self, position: Position) -> u64 {
        self.shared.bytes_behind(position)
    }

    /// Whether all that is written was [released](Log::release).
    pub fn is_released(&self) -> bool {
        *self.shared.released.borrow() >= *self.shared.written.borrow()
    }

    /// Returns once all that is written by now was [released](Log::release).
    pub async fn released(&self) {
        let until = *self.shared.written.borrow();
        let mut released = self.shared.released.subscribe();
        // Ends only with the log itself.
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
    /// The number of the next file; one that was tried is not tried again.
    next_file: u64,
    /// A write failed, and no new file was begun since. A reader stops at what that write left, so nothing may be
    /// written behind it.
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
                // Who gave up waiting needs no answer.
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

    /// If that fails the old file stays, and the next write that needs a file tries again.
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

    /// A disk that was full: a write that left half a record, then a file that could not be begun.
    #[test]
    fn nothing_is_acknowledged_behind_what_a_failed_write_has_left() {
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
        // As if there were room again in the old file, and still none for a new one.
        let old = File::options().append(true).open(shared.folder.file(1));
        writer.file = old.unwrap();
        assert_eq!(writer.write(&bytes_of(b"refused"), 1), Err(AppendError::Io));
        assert!(writer.write(&bytes_of(b"kept"), 1).is_ok());

        let mut reader = Reader::new(&log, Position::default(), 100).unwrap();
        assert_eq!(read(&mut reader), [b"kept"]);
        assert_eq!(read(&mut reader), Vec::<Vec<u8>>::new());
    }

    #[tokio::test]
    async fn a_full_log_refuses_until_something_is_released() {
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
