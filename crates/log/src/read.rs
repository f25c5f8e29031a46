//! Reads a log from a position.

use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::sync::Arc;

use tracing::error;

use crate::frame::{self, Frame, Parts};
use crate::state::LogState;
use crate::{Log, LogError, Position, Record, at};

/// The number of bytes per read.
const READ_LEN: usize = 1 << 20;

/// Reads a log in batches.
#[derive(Debug)]
pub struct Reader {
    shared: Arc<LogState>,
    at: Position,
    batch_max: usize,
    bytes: Vec<u8>,
    file: Option<File>,
}

/// Consecutive records, and the position after them.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// At most the reader's batch size.
    pub records: Vec<Record>,
    /// The position after the last record.
    pub next: Position,
}

impl Reader {
    /// A reader that starts at `from`, or at the first existing file after it. It returns at most `batch_max` records
    /// at once.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn new(log: &Log, from: Position, batch_max: usize) -> Result<Self, LogError> {
        let shared = log.shared().clone();
        let files = shared.folder.files()?;
        // A position beyond all files: the folder was emptied, and numbers start again.
        let is_ahead = files.last().is_none_or(|last| from.file > *last);
        let from = if is_ahead { Position::default() } else { from };
        let first = files.into_iter().find(|file| *file >= from.file);
        let at = match first {
            Some(file) if file > from.file => Position { file, byte: 0 },
            _ => from,
        };
        Ok(Self {
            shared,
            at,
            batch_max: batch_max.max(1),
            bytes: Vec::new(),
            file: None,
        })
    }

    /// The position of the next record.
    pub fn position(&self) -> Position {
        self.at
    }

    /// Reads the next records; none at the end of the log. Blocks.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn read(&mut self) -> Result<Batch, LogError> {
        loop {
            let written = *self.shared.written.borrow();
            let is_last = self.at.file >= written.file;
            let batch = self.read_batch()?;
            if !batch.records.is_empty() || is_last {
                return Ok(batch);
            }
            // The file is finished, because a later one exists. Its remaining bytes were never acknowledged, or the
            // disk has lost them.
            self.end_file(written)?;
        }
    }

    fn read_batch(&mut self) -> Result<Batch, LogError> {
        self.fill()?;
        let mut batch = Batch::default();
        let mut used = 0;
        while batch.records.len() < self.batch_max {
            match frame::read(self.bytes.get(used..).unwrap_or_default()) {
                Frame::Whole(parts) => {
                    let len = parts.len;
                    batch.records.push(self.record(used, parts));
                    used += len;
                }
                Frame::Cut | Frame::Damaged => break,
            }
        }
        self.bytes.drain(..used);
        self.at.byte += used as u64;
        batch.next = self.at;
        Ok(batch)
    }

    fn record(&self, used: usize, parts: Parts<'_>) -> Record {
        Record {
            position: Position {
                file: self.at.file,
                byte: self.at.byte + used as u64,
            },
            time_ms: parts.time_ms,
            partition: parts.partition,
            payload: parts.payload.to_vec(),
        }
    }

    /// Reads until there is a complete record or the file ends, unless enough bytes are buffered.
    fn fill(&mut self) -> Result<(), LogError> {
        let is_cut = |bytes: &[u8]| matches!(frame::read(bytes), Frame::Cut);
        if self.bytes.len() >= READ_LEN && !is_cut(&self.bytes) {
            return Ok(());
        }
        self.open_file()?;
        let Some(file) = &mut self.file else {
            return Ok(());
        };
        let path = self.shared.folder.file(self.at.file);
        loop {
            let mut more = file.take(READ_LEN as u64);
            let read = more.read_to_end(&mut self.bytes).map_err(at(&path))?;
            if read == 0 || !is_cut(&self.bytes) {
                return Ok(());
            }
        }
    }

    fn open_file(&mut self) -> Result<(), LogError> {
        if self.file.is_some() {
            return Ok(());
        }
        let path = self.shared.folder.file(self.at.file);
        let mut file = match File::open(&path) {
            Ok(file) => file,
            // Retention has deleted it.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(at(&path)(error)),
        };
        file.seek(SeekFrom::Start(self.at.byte))
            .map_err(at(&path))?;
        self.file = Some(file);
        Ok(())
    }

    /// Moves to the next file. Copies invalid bytes at the end of the file for manual inspection.
    fn end_file(&mut self, written: Position) -> Result<(), LogError> {
        self.keep_damaged()?;
        let files = self.shared.folder.files()?;
        let next = files.into_iter().find(|file| *file > self.at.file);
        self.at = Position {
            file: next.unwrap_or(written.file),
            byte: 0,
        };
        self.bytes.clear();
        self.file = None;
        Ok(())
    }

    /// Only the first reader creates the copy.
    fn keep_damaged(&self) -> Result<(), LogError> {
        if self.bytes.is_empty() {
            return Ok(());
        }
        let path = self.shared.folder.damaged(self.at.file);
        if path.exists() {
            return Ok(());
        }
        let bytes = self.bytes.len();
        error!(path = %path.display(), at = self.at.byte, bytes, "log file has trailing bytes that are not a record");
        std::fs::write(&path, &self.bytes).map_err(at(&path))
    }
}
