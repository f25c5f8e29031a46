//! Writes the log.
//!
//! One thread writes. Requests hand it their bytes and wait; whatever arrived in the meantime is written together,
//! with one wait for the disk, so that many creations cost hardly more than one.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use tokio::sync::{oneshot, watch};
use tracing::error;

use super::{Entry, Folder, LogError, Sync, at, frame};
use crate::links::store::LogPosition;

/// The most bytes of one write: what is lost together if the disk refuses it.
const WRITE_LEN_MAX: usize = 1 << 20;

/// What a log may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLimits {
    /// After so many bytes a new file is started: files are deleted whole.
    pub file_len: u64,
    /// With so many bytes that the cold store has not taken, nothing more is written: links are refused
    /// until it takes some.
    pub waiting_len_max: u64,
}

impl Default for LogLimits {
    /// 64 MiB, and 4 GiB: some ten million links.
    fn default() -> Self {
        Self {
            file_len: 64 << 20,
            waiting_len_max: 4 << 30,
        }
    }
}

/// Why an entry was not written, or may not have been.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// The cold store has not taken what is there already. Nothing was written.
    #[error("the log is full: the cold store does not take it")]
    Full,
    /// The disk refuses, or the link is too long for an entry. It may be written in part.
    #[error("the log cannot be written")]
    Io,
}

/// A log to write to. Cloning it is cheap; the thread ends with the last clone.
#[derive(Clone, Debug)]
pub struct Log {
    sender: Sender<Append>,
    shared: Arc<Shared>,
}

/// What the writer, those who append and the drainer know of each other.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) folder: Folder,
    limits: LogLimits,
    /// Up to where it is written.
    pub(super) written: watch::Sender<LogPosition>,
    /// Up to where the cold store has it.
    pub(super) drained: watch::Sender<LogPosition>,
    /// How many bytes were written, and drained, by this process; what it found counts as written.
    pub(super) bytes_written: AtomicU64,
    pub(super) bytes_drained: AtomicU64,
}

#[derive(Debug)]
struct Append {
    bytes: Vec<u8>,
    done: oneshot::Sender<Result<LogPosition, AppendError>>,
}

impl Log {
    /// Opens the log in `path`, which is made if it is not there, and starts its thread. What an earlier
    /// process has left stays as it is, for the drainer: new entries go into a new file.
    ///
    /// # Errors
    /// See [`LogError`].
    pub fn open(path: &Path, sync: Sync, limits: LogLimits) -> Result<Self, LogError> {
        let folder = Folder::open(path)?;
        let files = folder.files()?;
        let number = files.last().map_or(1, |last| last + 1);
        let left: u64 = files.iter().map(|file| len_of(&folder.file(*file))).sum();
        let file = create(&folder, number)?;
        let start = LogPosition {
            file: number,
            byte: 0,
        };
        let shared = Arc::new(Shared {
            folder,
            limits,
            written: watch::Sender::new(start),
            drained: watch::Sender::new(LogPosition::default()),
            bytes_written: AtomicU64::new(left),
            bytes_drained: AtomicU64::new(0),
        });
        let (sender, receiver) = channel();
        let writer = Writer {
            shared: shared.clone(),
            file,
            at: start,
            next_file: number + 1,
            is_broken: false,
            sync,
        };
        let spawned = std::thread::Builder::new().name("link-log".into());
        let spawned = spawned.spawn(move || writer.run(&receiver));
        spawned.map_err(at(path))?;
        Ok(Self { sender, shared })
    }

    /// The log's name in the cold store.
    pub fn id(&self) -> &str {
        &self.shared.folder.id
    }

    /// Bytes that the cold store has not taken yet, roughly.
    pub fn waiting_bytes(&self) -> u64 {
        let written = self.shared.bytes_written.load(Ordering::Relaxed);
        written.saturating_sub(self.shared.bytes_drained.load(Ordering::Relaxed))
    }

    /// Writes entries, all in one piece; returns once they are as safe as [`Sync`] says.
    ///
    /// # Errors
    /// See [`AppendError`].
    pub async fn append<'a>(
        &self,
        entries: impl IntoIterator<Item = &'a Entry>,
    ) -> Result<LogPosition, AppendError> {
        if self.waiting_bytes() >= self.shared.limits.waiting_len_max {
            return Err(AppendError::Full);
        }
        let mut bytes = Vec::with_capacity(512);
        for entry in entries {
            frame::write(entry, &mut bytes).map_err(|_| AppendError::Io)?;
        }
        let (done, written) = oneshot::channel();
        let sent = self.sender.send(Append { bytes, done });
        sent.map_err(|_| AppendError::Io)?;
        written.await.unwrap_or(Err(AppendError::Io))
    }

    /// Whether the cold store has all that is written.
    pub fn is_drained(&self) -> bool {
        *self.shared.drained.borrow() >= *self.shared.written.borrow()
    }

    /// Returns once the cold store has all that is written by now.
    pub async fn drained(&self) {
        let until = *self.shared.written.borrow();
        let mut drained = self.shared.drained.subscribe();
        // Ends only with the log itself.
        let _ = drained.wait_for(|position| *position >= until).await;
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}

fn len_of(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |data| data.len())
}

/// A new file; the folder is written, too, so that the file's name survives the machine.
fn create(folder: &Folder, number: u64) -> Result<File, LogError> {
    let path = folder.file(number);
    let file = File::create_new(&path).map_err(at(&path))?;
    let synced = File::open(&folder.path).and_then(|folder| folder.sync_all());
    synced.map_err(at(&folder.path))?;
    Ok(file)
}

struct Writer {
    shared: Arc<Shared>,
    file: File,
    at: LogPosition,
    /// The number of the next file; one that was tried is not tried again.
    next_file: u64,
    /// A write failed, and no new file was started since. A reader stops at what that write left, so nothing may be
    /// written behind it.
    is_broken: bool,
    sync: Sync,
}

impl Writer {
    fn run(mut self, receiver: &Receiver<Append>) {
        let mut waiting = Vec::new();
        while let Ok(first) = receiver.recv() {
            let mut bytes = first.bytes;
            waiting.push(first.done);
            while bytes.len() < WRITE_LEN_MAX
                && let Ok(next) = receiver.try_recv()
            {
                bytes.extend_from_slice(&next.bytes);
                waiting.push(next.done);
            }
            let written = self.write(&bytes);
            for done in waiting.drain(..) {
                // Who gave up waiting needs no answer.
                let _ = done.send(written);
            }
        }
    }

    fn write(&mut self, bytes: &[u8]) -> Result<LogPosition, AppendError> {
        if self.is_broken {
            self.begin_file();
        }
        if self.is_broken {
            return Err(AppendError::Io);
        }
        if let Err(error) = self.try_write(bytes) {
            error!(%error, "the log of links cannot be written");
            self.is_broken = true;
            return Err(AppendError::Io);
        }
        self.at.byte += bytes.len() as u64;
        self.tell(bytes.len() as u64);
        let written = self.at;
        if self.at.byte >= self.shared.limits.file_len {
            self.begin_file();
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
    fn begin_file(&mut self) {
        let number = self.next_file;
        self.next_file += 1;
        match create(&self.shared.folder, number) {
            Ok(file) => {
                self.file = file;
                self.is_broken = false;
                self.at = LogPosition {
                    file: number,
                    byte: 0,
                };
                self.tell(0);
            }
            Err(error) => error!(%error, "no new file for the log of links"),
        }
    }

    fn tell(&self, more: u64) {
        self.shared.bytes_written.fetch_add(more, Ordering::Relaxed);
        self.shared.written.send_replace(self.at);
    }
}

#[cfg(test)]
mod tests {
    use super::super::Reader;
    use super::super::frame::tests::entry;
    use super::*;

    fn bytes_of(code: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        frame::write(&entry(code), &mut bytes).unwrap();
        bytes
    }

    /// A disk that was full: a write that left half an entry, then a file that could not be begun.
    #[test]
    fn nothing_is_acknowledged_behind_what_a_failed_write_has_left() {
        let folder = tempfile::tempdir().unwrap();
        let log = Log::open(folder.path(), Sync::Os, LogLimits::default()).unwrap();
        let shared = log.shared().clone();
        let half = bytes_of("lost");
        std::fs::write(shared.folder.file(1), &half[..half.len() / 2]).unwrap();
        std::fs::write(shared.folder.file(2), "").unwrap();
        let mut writer = Writer {
            shared: shared.clone(),
            file: File::options().write(true).open("/dev/full").unwrap(),
            at: LogPosition { file: 1, byte: 0 },
            next_file: 2,
            is_broken: false,
            sync: Sync::Os,
        };
        assert_eq!(writer.write(&half), Err(AppendError::Io));
        // As if there were room again in the old file, and still none for a new one.
        let old = File::options().append(true).open(shared.folder.file(1));
        writer.file = old.unwrap();
        assert_eq!(writer.write(&bytes_of("refused")), Err(AppendError::Io));
        assert!(writer.write(&bytes_of("kept")).is_ok());

        let mut reader = Reader::new(&log, LogPosition::default()).unwrap();
        assert_eq!(reader.read().unwrap().entries, [entry("kept")]);
        assert_eq!(reader.read().unwrap().entries, []);
    }
}
