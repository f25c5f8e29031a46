//! Limits how many bytes of an uploaded file a reader holds in memory.

use std::io::{ErrorKind, Read};

/// Maximum bytes read in search of a record's end. More than one record, because readers read ahead.
const SEARCH_LEN_MAX: usize = 1 << 20;

/// Fails on a record without an end, because its reader would hold all of it in memory.
pub(super) struct Bounded<R> {
    from: R,
    remaining: usize,
}

impl<R> Bounded<R> {
    pub(super) fn new(from: R) -> Self {
        Self {
            from,
            remaining: SEARCH_LEN_MAX,
        }
    }

    /// Resets the limit for the next record.
    pub(super) fn search(&mut self) {
        self.remaining = SEARCH_LEN_MAX;
    }
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        if self.remaining == 0 {
            return Err(ErrorKind::FileTooLarge.into());
        }
        let length = to.len().min(self.remaining);
        let read = self.from.read(to.get_mut(..length).unwrap_or_default())?;
        self.remaining -= read;
        Ok(read)
    }
}
