//! Finds the position of a time.

use crate::{Log, LogError, Position, Reader};

/// The number of records per read.
const BATCH: usize = 1_000;

impl Log {
    /// The position of the first record appended at `time_ms` or later; the end if there is none. Records are in append
    /// order, so after a clock was set back, a later record may have an earlier time. Reads at most one file and
    /// blocks.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn seek(&self, time_ms: u64) -> Result<Position, LogError> {
        let first = self.first_file_reaching(time_ms);
        let mut reader = Reader::new(
            self,
            Position {
                file: first,
                byte: 0,
            },
            BATCH,
        )?;
        loop {
            let batch = reader.read()?;
            let reaches = |record: &&crate::Record| record.time_ms >= time_ms;
            if let Some(record) = batch.records.iter().find(reaches) {
                return Ok(record.position);
            }
            if batch.records.is_empty() {
                return Ok(batch.next);
            }
        }
    }

    /// The first file written at `time_ms` or later.
    fn first_file_reaching(&self, time_ms: u64) -> u64 {
        let files = self.shared().files();
        let mut numbers = files.iter();
        let reaching = numbers.find(|(_, info)| info.written_at_ms >= time_ms);
        let last = files.last_key_value().map(|(number, _)| *number);
        reaching.map(|(number, _)| *number).or(last).unwrap_or(0)
    }
}
