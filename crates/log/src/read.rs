//! Reads a log from a position on.

use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::sync::Arc;

use tracing::error;

use crate::frame::{self, Frame, Parts};
use crate::state::LogState;
use crate::{Log, LogError, Position, Record, at};

/// How many bytes are read at once.
const READ_LEN: usize = 1 << 20;

/// Reads a log, one batch after the other.
#[derive(Debug)]
pub struct Reader {
    shared: Arc<LogState>,
    at: Position,
    batch_max: usize,
    bytes: Vec<u8>,
    file: Option<File>,
}

/// Records that follow each other, and where the next one begins.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// At most as many as the reader takes at once.
    pub records: Vec<Record>,
    /// Behind the last one.
    pub next: Position,
}

impl Reader {
    /// A reader that begins at `from`, or with the first file there is behind it. It takes at most `batch_max` records
    /// at once.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn new(log: &Log, from: Position, batch_max: usize) -> Result<Self, LogError> {
        let shared = log.shared().clone();
        let files = shared.folder.files()?;
        // Ahead of all files: somebody has emptied the folder, and numbers begin again.
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

    /// Where the next record begins.
    pub fn position(&self) -> Position {
        self.at
    }

    /// The next records; none if all that is written has been read. Blocks while it reads.
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
            // The file is whole, since a later one was begun: whatever is left of it was never acknowledged, or the
            // disk has lost it.
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

    /// Reads on, unless there is much already; until there is a whole record, or no more.
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
            // Nobody needs it, and it was deleted.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(at(&path)(error)),
        };
        file.seek(SeekFrom::Start(self.at.byte))
            .map_err(at(&path))?;
        self.file = Some(file);
        Ok(())
    }

    /// On to the next file. Bytes at its end that are no record are kept for people to look at.
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

    /// Once, whichever reader comes there first.
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
