//! Reads the log from where the cold store has it.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tracing::error;

use super::frame::{self, Frame};
use super::write::Shared;
use super::{Entry, Log, LogError, at};
use crate::links::store::LogPosition;

/// How many bytes are read at once.
const READ_LEN: usize = 1 << 20;

/// The most entries of a batch: what one transaction takes.
pub(super) const BATCH: usize = 512;

/// Reads a log, one batch after the other.
#[derive(Debug)]
pub struct Reader {
    shared: Arc<Shared>,
    at: LogPosition,
    bytes: Vec<u8>,
    file: Option<File>,
}

/// Entries that follow each other, and where the next one begins.
#[derive(Debug, Default, PartialEq)]
pub struct Batch {
    /// At most 512.
    pub entries: Vec<Entry>,
    /// Behind the last one.
    pub next: LogPosition,
    /// How many bytes they take.
    pub len: u64,
}

impl Reader {
    /// A reader that begins at `from`, or with the first file there is.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn new(log: &Log, from: LogPosition) -> Result<Self, LogError> {
        let shared = log.shared().clone();
        let files = shared.folder.files()?;
        // Ahead of all files: somebody has emptied the folder, and numbers begin again.
        let is_ahead = files.last().is_none_or(|last| from.file > *last);
        let from = if is_ahead {
            LogPosition::default()
        } else {
            from
        };
        let first = files.into_iter().find(|file| *file >= from.file);
        let at = match first {
            Some(file) if file > from.file => LogPosition { file, byte: 0 },
            _ => from,
        };
        Ok(Self {
            shared,
            at,
            bytes: Vec::new(),
            file: None,
        })
    }

    /// The next entries; none if all that is written has been read. Blocks while it reads.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn read(&mut self) -> Result<Batch, LogError> {
        loop {
            let written = *self.shared.written.borrow();
            let is_last = self.at.file >= written.file;
            let batch = self.read_batch()?;
            if !batch.entries.is_empty() || is_last {
                return Ok(batch);
            }
            // The file is whole, since a later one was begun: whatever is left of it was never
            // acknowledged, or the disk has lost it.
            self.end_file(written)?;
        }
    }

    fn read_batch(&mut self) -> Result<Batch, LogError> {
        self.fill()?;
        let mut batch = Batch::default();
        let mut used = 0;
        while batch.entries.len() < BATCH {
            match frame::read(self.bytes.get(used..).unwrap_or_default()) {
                Frame::Whole(entry, len) => {
                    batch.entries.push(*entry);
                    used += len;
                }
                Frame::Cut | Frame::Damaged => break,
            }
        }
        self.bytes.drain(..used);
        self.at.byte += used as u64;
        batch.next = self.at;
        batch.len = used as u64;
        Ok(batch)
    }

    /// Reads on, unless there is much already.
    fn fill(&mut self) -> Result<(), LogError> {
        if self.bytes.len() >= READ_LEN {
            return Ok(());
        }
        let path = self.shared.folder.file(self.at.file);
        if self.file.is_none() {
            let mut file = match File::open(&path) {
                Ok(file) => file,
                // The store has it whole, and it was deleted.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
                Err(error) => return Err(at(&path)(error)),
            };
            file.seek(SeekFrom::Start(self.at.byte))
                .map_err(at(&path))?;
            self.file = Some(file);
        }
        let Some(file) = &mut self.file else {
            return Ok(());
        };
        let mut more = file.take(READ_LEN as u64);
        more.read_to_end(&mut self.bytes).map_err(at(&path))?;
        Ok(())
    }

    /// On to the next file. One with bytes that are no entry is kept aside for people to look at.
    fn end_file(&mut self, written: LogPosition) -> Result<(), LogError> {
        let path = self.shared.folder.file(self.at.file);
        let is_clean = self.bytes.is_empty();
        if !is_clean {
            let bytes = self.bytes.len();
            error!(path = %path.display(), at = self.at.byte, bytes, "the rest of a log file is no entry");
        }
        let gone = match is_clean {
            true => std::fs::remove_file(&path),
            false => std::fs::rename(&path, path.with_extension("damaged")),
        };
        if let Err(error) = gone
            && error.kind() != std::io::ErrorKind::NotFound
        {
            return Err(at(&path)(error));
        }
        let left = self.bytes.len() as u64;
        self.shared.bytes_drained.fetch_add(left, Ordering::Relaxed);
        let files = self.shared.folder.files()?;
        let next = files.into_iter().find(|file| *file > self.at.file);
        self.at = LogPosition {
            file: next.unwrap_or(written.file),
            byte: 0,
        };
        self.bytes.clear();
        self.file = None;
        Ok(())
    }
}
